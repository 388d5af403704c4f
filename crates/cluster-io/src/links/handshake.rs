//! The handshake of a link: each side's name and format, and a proof by both that they have the
//! key.
//!
//! ```text
//!  dialler ── hello: "DTLK", format, id, nonce ──────────────────────────────▶ acceptor
//!          ◀─ hello: "DTLK", format, id, nonce │ tag("acceptor", both hellos) ──
//!          ── tag("dialler", both hellos) ───────────────────────────────────▶
//!  keys of the two directions: tag("to acceptor" | "to dialler", both hellos)
//! ```
//!
//! Both nonces are in every tag, so a recorded handshake proves nothing. The words "acceptor" and
//! "dialler" are in it too, so one side's proof is not valid for the other.

use std::time::Duration;

use cluster::Peer;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::key::{Key, TAG_BYTES, random_bytes};
use crate::links::frame::{self, Lane, PEER_BYTES};

/// The format of hellos, frames and messages. Different formats refuse each other.
pub const FORMAT: u16 = 1;

/// The longest that a handshake may take (L5).
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(2);

const MAGIC: [u8; 4] = *b"DTLK";
const FORMAT_BYTES: usize = 2;
const HEAD_BYTES: usize = MAGIC.len() + FORMAT_BYTES;
const NONCE_BYTES: usize = 16;
const HELLO_BYTES: usize = HEAD_BYTES + PEER_BYTES + NONCE_BYTES;

type Hello = [u8; HELLO_BYTES];

/// The reason why there is no link.
#[derive(Debug, Error)]
pub(super) enum HandshakeError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("it is no node or manager of a cluster: another protocol is spoken there")]
    Protocol,
    #[error(
        "it speaks format {found} of the cluster's links, this release speaks {FORMAT}: run the \
         same release everywhere"
    )]
    Format { found: u16 },
    #[error("it has another cluster key: it belongs to another cluster")]
    Key,
    #[error("it took longer than 2 s")]
    Slow,
}

/// A link that both sides have proven.
#[derive(Debug)]
pub(super) struct Proven {
    pub(super) from: Peer,
    pub(super) outward: Lane,
    pub(super) inward: Lane,
}

/// The handshake of the side that connected.
pub(super) async fn dial(
    stream: &mut TcpStream,
    own: Peer,
    key: &Key,
) -> Result<Proven, HandshakeError> {
    let work = async {
        let ours = hello(own)?;
        stream.write_all(&ours).await?;
        let theirs = read_hello(stream).await?;
        let mut proof = [0; TAG_BYTES];
        stream.read_exact(&mut proof).await?;
        if !key.is_tag(&[b"acceptor", &ours, &theirs], &proof) {
            return Err(HandshakeError::Key);
        }
        stream.write_all(&key.tag(&[b"dialler", &ours, &theirs])).await?;
        let from = peer_of(&theirs)?;
        let outward = Lane::new(key.derive(&[b"to acceptor", &ours, &theirs]));
        let inward = Lane::new(key.derive(&[b"to dialler", &ours, &theirs]));
        Ok(Proven { from, outward, inward })
    };
    timed(work).await
}

/// The handshake of the side that was connected to.
pub(super) async fn accept(
    stream: &mut TcpStream,
    own: Peer,
    key: &Key,
) -> Result<Proven, HandshakeError> {
    let work = async {
        let ours = hello(own)?;
        let theirs = match read_hello(stream).await {
            Err(HandshakeError::Format { found }) => {
                // Sent even on a mismatch, so that the other side can report it too.
                stream.write_all(&ours).await?;
                return Err(HandshakeError::Format { found });
            }
            theirs => theirs?,
        };
        let mut answer = ours.to_vec();
        answer.extend(key.tag(&[b"acceptor", &theirs, &ours]));
        stream.write_all(&answer).await?;
        let mut proof = [0; TAG_BYTES];
        let read = stream.read_exact(&mut proof).await;
        // A peer that finds this side's proof wrong closes the connection.
        read.map_err(|_| HandshakeError::Key)?;
        if !key.is_tag(&[b"dialler", &theirs, &ours], &proof) {
            return Err(HandshakeError::Key);
        }
        let from = peer_of(&theirs)?;
        let outward = Lane::new(key.derive(&[b"to dialler", &theirs, &ours]));
        let inward = Lane::new(key.derive(&[b"to acceptor", &theirs, &ours]));
        Ok(Proven { from, outward, inward })
    };
    timed(work).await
}

async fn timed<T>(
    work: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    tokio::time::timeout(HANDSHAKE_MAX, work).await.unwrap_or(Err(HandshakeError::Slow))
}

fn hello(own: Peer) -> std::io::Result<Hello> {
    let mut hello = [0; HELLO_BYTES];
    hello[..MAGIC.len()].copy_from_slice(&MAGIC);
    hello[MAGIC.len()..HEAD_BYTES].copy_from_slice(&FORMAT.to_le_bytes());
    hello[HEAD_BYTES..HEAD_BYTES + PEER_BYTES].copy_from_slice(&frame::peer_bytes(own));
    hello[HEAD_BYTES + PEER_BYTES..].copy_from_slice(&random_bytes()?);
    Ok(hello)
}

/// Reads the head first: the rest may differ between formats.
async fn read_hello(stream: &mut TcpStream) -> Result<Hello, HandshakeError> {
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello[..HEAD_BYTES]).await?;
    if !hello.starts_with(&MAGIC) {
        return Err(HandshakeError::Protocol);
    }
    let found = u16::from_le_bytes([hello[MAGIC.len()], hello[MAGIC.len() + 1]]);
    if found != FORMAT {
        return Err(HandshakeError::Format { found });
    }
    stream.read_exact(&mut hello[HEAD_BYTES..]).await?;
    Ok(hello)
}

fn peer_of(hello: &Hello) -> Result<Peer, HandshakeError> {
    let bytes = hello[HEAD_BYTES..].first_chunk::<PEER_BYTES>();
    bytes.and_then(frame::peer).ok_or(HandshakeError::Protocol)
}

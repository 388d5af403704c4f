//! The TLS state of one connection. The thread that has bytes drives it; it never blocks.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use budget::{Kind, Reservation};
use commands::output::{Output, Sent};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::{Reader, ServerConfig, ServerConnection};

use super::records::Records;

/// Sealed bytes that wait for the socket (T2).
pub const SEALED_BYTES_MAX: usize = 64 << 10;

/// The memory of a connection when nothing waits: the session and the buffer of its records.
const IDLE_BYTES: u64 = 8 << 10;

/// The initial memory of a handshake: the session, its transcript, the server's first flight, and
/// what a client without a certificate sends.
pub const HANDSHAKE_BYTES: u64 = (16 << 10) + HELLO_BYTES;

/// Each byte that the client sends in a handshake is buffered in a vector that doubles. A usual
/// handshake stays below this, so that it ends wherever it has begun.
const HELLO_BYTES: u64 = 4 << 10;

/// The length of plaintext that is sealed at a time: records are at most this long.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Why a client is refused that sends records without plaintext.
const MUTE: &str = "more than 16 KiB of records after the handshake without any data in them";

/// One connection's TLS.
#[derive(Debug)]
pub struct Stream {
    session: ServerConnection,
    is_handshaking: bool,
    /// Bytes of the handshake that have arrived.
    received_bytes: u64,
    /// Where the client's records stand.
    records: Records,
    /// The booked memory when nothing waits for the socket.
    booked: Reservation,
}

/// The result of [`Stream::receive`].
#[derive(Debug)]
pub enum Received {
    /// So many sealed bytes.
    Sealed(usize),
    /// Nothing has arrived.
    Nothing,
    /// The client has closed its side.
    End,
    /// The client does not speak TLS as the server does, or presents no valid certificate. An alert
    /// may wait to be sent.
    Refused(rustls::Error),
    /// The socket is broken.
    Broken,
}

impl Stream {
    /// The TLS state of a connection that was just accepted; [`HANDSHAKE_BYTES`] are booked.
    pub fn new(config: Arc<ServerConfig>, booked: Reservation) -> Result<Stream, rustls::Error> {
        debug_assert_eq!(booked.bytes(), HANDSHAKE_BYTES);
        let mut session = ServerConnection::new(config)?;
        session.set_buffer_limit(Some(SEALED_BYTES_MAX));
        let records = Records::default();
        Ok(Stream { session, is_handshaking: true, received_bytes: 0, records, booked })
    }

    /// Books the growth of the handshake or, after its end, the memory of the session; false: there
    /// is no room, and what was booked before still is.
    pub fn book(&mut self) -> bool {
        if self.is_handshaking {
            let long_bytes = (2 * self.received_bytes).saturating_sub(HELLO_BYTES);
            return self.booked.try_resize(HANDSHAKE_BYTES + long_bytes);
        }
        self.booked.try_turn_into(Kind::Connections, IDLE_BYTES)
    }

    /// Whether the handshake has not ended yet.
    pub fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    /// True once, after the handshake has succeeded.
    pub fn take_handshake(&mut self) -> bool {
        let has_ended = self.is_handshaking && !self.session.is_handshaking();
        self.is_handshaking &= !has_ended;
        has_ended
    }

    /// The sealed bytes that wait for the socket, at most.
    pub fn sealed_bytes(&self) -> usize {
        if self.session.wants_write() { SEALED_BYTES_MAX } else { 0 }
    }

    /// The bytes of records that the client has not finished, at most: the library keeps them in a
    /// vector that doubles.
    pub fn unfinished_bytes(&self) -> usize {
        if self.is_handshaking { 0 } else { 2 * self.records.kept_bytes() }
    }

    /// Reads once, through `sealed`, and gives `take` all bytes that could be decrypted (T1): at
    /// most as many as fit into `sealed` and one more record.
    pub fn receive(
        &mut self,
        socket: impl AsFd,
        sealed: &mut [u8],
        mut take: impl FnMut(Reader<'_>),
    ) -> Received {
        let count = match recv(socket, &mut *sealed, RecvFlags::empty()) {
            Ok((0, _)) => return Received::End,
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            Err(_) => return Received::Broken,
        };
        self.received_bytes += count as u64;
        let mut rest = &sealed[..count];
        while !rest.is_empty() {
            let before = rest;
            match self.session.read_tls(&mut rest) {
                Ok(0) => return Received::End, // Behind a close_notify.
                Ok(_) => {}
                Err(_) => return Received::Broken,
            }
            let was_handshaking = self.session.is_handshaking();
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Received::Refused(error),
            };
            let gave_plaintext = state.plaintext_bytes_to_read() > 0;
            if gave_plaintext {
                take(self.session.reader());
            }
            let fed = &before[..before.len() - rest.len()];
            self.records.follow(fed, gave_plaintext || was_handshaking);
            if self.records.is_mute() {
                return Received::Refused(rustls::Error::General(MUTE.to_owned()));
            }
            if state.peer_has_closed() {
                return Received::End;
            }
        }
        if self.records.kept_bytes() == 0 {
            // The library gives a buffer back that a large record has filled, but only when it is
            // about to read.
            let _ = self.session.read_tls(&mut Nothing);
        }
        Received::Sealed(count)
    }

    /// Seals and sends what the socket takes, at most about `bytes_max`.
    pub fn send(
        &mut self,
        output: &mut Output,
        socket: BorrowedFd<'_>,
        bytes_max: usize,
        sent_total: &mut u64,
    ) -> io::Result<Sent> {
        let mut sealed_bytes = 0;
        let sent = output.send_by(|piece| {
            self.flush(socket, sent_total)?;
            if sealed_bytes >= bytes_max {
                return Err(ErrorKind::WouldBlock.into());
            }
            let piece = &piece[..piece.len().min(PIECE_BYTES_MAX)];
            match self.session.writer().write(piece)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                count => {
                    sealed_bytes += count;
                    Ok(count)
                }
            }
        })?;
        match self.flush(socket, sent_total) {
            Ok(()) if sent == Sent::Blocked && sealed_bytes >= bytes_max => Ok(Sent::Part),
            Ok(()) => Ok(sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Sent::Blocked),
            Err(error) => Err(error),
        }
    }

    /// Announces the end of the stream, if the socket takes that at once.
    pub fn close(&mut self, socket: BorrowedFd<'_>) {
        self.session.send_close_notify();
        self.alert(socket);
    }

    /// Sends sealed bytes that wait, if the socket takes them at once: no thread waits for them any
    /// more.
    pub fn alert(&mut self, socket: BorrowedFd<'_>) {
        let _ = self.flush(socket, &mut 0);
    }

    fn flush(&mut self, socket: BorrowedFd<'_>, sent_total: &mut u64) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Raw(socket)) {
                Ok(count) => *sent_total += count as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Copies all decrypted bytes into a buffer that they fit in; returns their number.
pub fn fill(mut reader: Reader<'_>, free: &mut [u8]) -> usize {
    let mut count = 0;
    // An error: no more bytes are decrypted.
    while let Ok(more @ 1..) = reader.read(&mut free[count..]) {
        count += more;
    }
    count
}

/// Appends all decrypted bytes.
pub fn append(mut reader: Reader<'_>, held: &mut Vec<u8>) {
    // An error: no more bytes are decrypted. Those that were read are appended.
    let _ = reader.read_to_end(held);
}

/// Has no bytes at the moment.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

/// A socket that is written to.
struct Raw<'s>(BorrowedFd<'s>);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [one] => self.write(one),
            // SIGPIPE is ignored from the start of every Rust program.
            _ => Ok(rustix::io::writev(self.0, slices)?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

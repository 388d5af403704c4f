//! The server's welcome: the only message on the socket besides doorbells.
//!
//! The server speaks first, so a client that connects and says nothing delays no other client.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use thiserror::Error;

use crate::shm::layout::{BadRingSize, RingSize};

/// The version of the region's layout and of this handshake.
pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"dovetail";
const WELCOME_BYTES: usize = 32;

/// Why the server refuses a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The maximum number of clients is connected.
    #[error("the server has as many shared-memory clients as it allows; try again later")]
    TooManyClients,
    /// The client's user is neither the server's nor root.
    #[error("the server allows shared memory only to its own user and to root")]
    WrongUser,
    /// The server could not make a region.
    #[error("the server has no memory or file descriptor left for this client")]
    NoMemory,
}

/// The server's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// The region follows as a file descriptor.
    Region {
        ring: RingSize,
    },
    Refused(Refusal),
}

/// The received bytes are not a welcome.
#[derive(Debug, Error)]
pub enum BadWelcome {
    /// Not this protocol.
    #[error("the socket is not a dovetail shared-memory socket")]
    NotDovetail,
    /// Another version of it.
    #[error("the server speaks version {version} of the shared-memory layout, not {VERSION}")]
    Version {
        /// The server's version.
        version: u32,
    },
    /// A status of a later version.
    #[error("the server answered with the unknown status {status}")]
    Status {
        /// The number.
        status: u32,
    },
    /// An invalid ring size.
    #[error(transparent)]
    Ring(#[from] BadRingSize),
    /// No descriptor came with it.
    #[error("the server's welcome came without its memory")]
    NoMemory,
    /// A system call failed, or the server closed the connection.
    #[error("cannot read the server's welcome: {0}")]
    System(#[from] io::Error),
}

impl Welcome {
    fn to_bytes(self) -> [u8; WELCOME_BYTES] {
        let (status, ring_bytes, region_bytes) = match self {
            Welcome::Region { ring } => (0, ring.bytes(), ring.region_bytes()),
            Welcome::Refused(Refusal::TooManyClients) => (1, 0, 0),
            Welcome::Refused(Refusal::WrongUser) => (2, 0, 0),
            Welcome::Refused(Refusal::NoMemory) => (3, 0, 0),
        };
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::to_le_bytes(status));
        bytes[16..24].copy_from_slice(&(ring_bytes as u64).to_le_bytes());
        bytes[24..].copy_from_slice(&(region_bytes as u64).to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; WELCOME_BYTES]) -> Result<Welcome, BadWelcome> {
        let word = |at: usize| {
            let (mut low, mut high) = ([0; 4], [0; 4]);
            low.copy_from_slice(&bytes[at..at + 4]);
            high.copy_from_slice(&bytes[at + 4..at + 8]);
            (u32::from_le_bytes(low), u32::from_le_bytes(high))
        };
        if bytes[..8] != MAGIC {
            return Err(BadWelcome::NotDovetail);
        }
        let (version, status) = word(8);
        if version != VERSION {
            return Err(BadWelcome::Version { version });
        }
        match status {
            0 => {
                let (low, high) = word(16);
                let ring = RingSize::new(u64::from(high) << 32 | u64::from(low))?;
                Ok(Welcome::Region { ring })
            }
            1 => Ok(Welcome::Refused(Refusal::TooManyClients)),
            2 => Ok(Welcome::Refused(Refusal::WrongUser)),
            3 => Ok(Welcome::Refused(Refusal::NoMemory)),
            status => Err(BadWelcome::Status { status }),
        }
    }
}

/// Sends the welcome, with the region's file if there is one. Never blocks: the buffer of a new
/// socket is empty.
pub(crate) fn send(
    socket: impl AsFd,
    welcome: Welcome,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = welcome.to_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        let has_space = control.push(SendAncillaryMessage::ScmRights(files));
        debug_assert!(has_space, "the buffer is made for one descriptor");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Waits for the welcome, at most for the socket's receive timeout.
pub(crate) fn receive(socket: impl AsFd) -> Result<(Welcome, Option<OwnedFd>), BadWelcome> {
    let mut bytes = [0; WELCOME_BYTES];
    let mut file = None;
    let mut got = 0;
    while got < WELCOME_BYTES {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes[got..])];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let message = rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut control, flags)
            .map_err(io::Error::from)?;
        if message.bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        got += message.bytes;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = part {
                file = file.or_else(|| files.next());
            }
        }
    }
    Ok((Welcome::from_bytes(&bytes)?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_round_trip(welcome: Welcome) {
        assert_eq!(Welcome::from_bytes(&welcome.to_bytes()).unwrap(), welcome);
    }

    #[test]
    fn a_welcome_comes_back() {
        check_round_trip(Welcome::Region { ring: RingSize::DEFAULT });
        check_round_trip(Welcome::Refused(Refusal::TooManyClients));
        check_round_trip(Welcome::Refused(Refusal::WrongUser));
        check_round_trip(Welcome::Refused(Refusal::NoMemory));
    }

    #[track_caller]
    fn check_bad(at: usize, byte: u8, want: &str) {
        let mut bytes = Welcome::Region { ring: RingSize::DEFAULT }.to_bytes();
        bytes[at] = byte;
        let error = Welcome::from_bytes(&bytes).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }

    #[test]
    fn what_is_no_welcome_is_refused() {
        check_bad(0, b'D', "not a dovetail");
        check_bad(8, 9, "version 9");
        check_bad(12, 7, "status 7");
        check_bad(16, 1, "power of two");
        check_bad(23, 1, "power of two");
    }

    #[test]
    fn the_worked_example_of_the_format_page_holds() {
        let bytes = Welcome::Region { ring: RingSize::new(1 << 18).unwrap() }.to_bytes();
        let page = include_str!("../../../../docs/formats/shm-ring.md");
        let hex: Vec<String> = bytes
            .chunks(8)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
            .collect();
        for line in hex {
            assert!(page.contains(&line), "{line}");
        }
    }
}

//! Accepts clients at a Unix socket: checks their users and hands each its own region.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::shm::channel::{Channel, Side};
use crate::shm::claim::{Claim, ListenError, claim};
use crate::shm::handshake::{self, Refusal, Welcome};
use crate::shm::layout::RingSize;
use crate::shm::link::Link;
use crate::shm::region;
use crate::shm::server_end::{Peer, Place, ServerEnd};

/// The processes that may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Processes of the server's own user, and root's. The socket's file has mode 0600.
    SameUser,
    /// Any local process. The socket's file has mode 0666; limit access by its directory.
    Everyone,
    /// Those that the mode of the socket's file allows to write: the kernel checks it.
    FileMode(u16),
}

/// How a server accepts clients.
#[derive(Clone, Copy, Debug)]
pub struct AcceptorConfig {
    /// The size of each of a client's two rings.
    pub ring: RingSize,
    /// The maximum number of connected clients.
    pub clients_max: usize,
    /// The processes that may connect.
    pub access: Access,
}

impl Default for AcceptorConfig {
    /// At most 64 MiB of rings, for the server's own user.
    fn default() -> AcceptorConfig {
        let ring = RingSize::DEFAULT;
        AcceptorConfig { ring, clients_max: 128, access: Access::SameUser }
    }
}

/// The result of an accept.
pub enum Accepted {
    /// No client is waiting.
    NoClient,
    /// A client that was refused, with the reason.
    Refused(Refusal),
    /// A client that disconnected before it was served.
    Vanished,
    /// A client, with its own rings.
    Client(ServerEnd),
}

/// A listening socket for shared-memory clients. Any thread may accept.
pub struct Acceptor {
    claim: Claim,
    config: AcceptorConfig,
    client_count: Arc<AtomicUsize>,
}

impl Acceptor {
    /// Listens at `path`. The socket of a dead server is replaced; one that answers is not.
    pub fn listen(path: &Path, config: AcceptorConfig) -> Result<Acceptor, ListenError> {
        let mode = match config.access {
            Access::SameUser => Mode::RUSR | Mode::WUSR,
            Access::Everyone => Mode::from_raw_mode(0o666),
            Access::FileMode(mode) => Mode::from_raw_mode(u32::from(mode)),
        };
        let claim = claim(path, mode)?;
        refuse_descriptors(&claim.socket);
        Ok(Acceptor { claim, config, client_count: Arc::default() })
    }

    /// The number of connected clients.
    pub fn client_count(&self) -> usize {
        self.client_count.load(Ordering::Relaxed)
    }

    /// Whether a client waits that finds no place.
    pub fn lacks_place(&self) -> bool {
        let mut waiting = [PollFd::new(&self.claim.socket, PollFlags::IN)];
        self.client_count() >= self.config.clients_max
            && rustix::event::poll(&mut waiting, Some(&Timespec::default())) == Ok(1)
    }

    /// Accepts at most one waiting client; never blocks. An error is the system's, usually that
    /// this process is out of descriptors: the client still waits, so try again later, not at once.
    pub fn accept(&self) -> io::Result<Accepted> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(&self.claim.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(Accepted::NoClient),
            Err(Errno::CONNABORTED | Errno::INTR) => return Ok(Accepted::Vanished),
            Err(error) => return Err(error.into()),
        };
        match self.admit(&socket) {
            Ok((channel, peer, place)) => {
                Ok(Accepted::Client(ServerEnd::new(Link::new(channel, socket), peer, place)))
            }
            Err(Some(refusal)) => {
                // The outcome does not matter: the client may have disconnected.
                let _ = handshake::send(&socket, Welcome::Refused(refusal), None);
                Ok(Accepted::Refused(refusal))
            }
            Err(None) => Ok(Accepted::Vanished),
        }
    }

    /// Makes a region for an admitted client. `None` as an error: the client has disconnected.
    fn admit(&self, socket: &OwnedFd) -> Result<(Channel, Peer, Place), Option<Refusal>> {
        let peer = peer_of(socket).map_err(|_| None)?;
        let own_user = rustix::process::geteuid().as_raw();
        let is_allowed = match self.config.access {
            Access::SameUser => peer.user_id == own_user || peer.user_id == 0,
            Access::Everyone | Access::FileMode(_) => true,
        };
        if !is_allowed {
            return Err(Some(Refusal::WrongUser));
        }
        let place = Place::take(&self.client_count, self.config.clients_max)
            .ok_or(Some(Refusal::TooManyClients))?;
        refuse_descriptors(socket);
        let ring = self.config.ring;
        let (region, file) = region::create(ring).map_err(|_| Some(Refusal::NoMemory))?;
        handshake::send(socket, Welcome::Region { ring }, Some(file.as_fd())).map_err(|_| None)?;
        Ok((Channel::new(Arc::new(region), ring, Side::Server), peer, place))
    }
}

impl AsFd for Acceptor {
    /// For epoll: readable while a client waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.claim.socket.as_fd()
    }
}

/// `getsockopt(SO_PEERCRED)`. A direct system call: a process of another namespace has the pid 0,
/// which rustix's type cannot hold.
fn peer_of(socket: &OwnedFd) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len_bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to live values of the type and length that this option writes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len_bytes,
        )
    };
    if status != 0 || len_bytes as usize != size_of::<libc::ucred>() {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { process_id: credentials.pid, user_id: credentials.uid })
}

/// Lets the kernel refuse descriptors sent to this socket (Linux 6.16; before, they are dropped
/// unread). A descriptor whose last close blocks would delay the thread that drops it.
fn refuse_descriptors(socket: &OwnedFd) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the pointer is to a live value of the length given; a kernel that does not know the
    // option changes nothing and says so, which is as good.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

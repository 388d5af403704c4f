//! The client's end of a connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{SocketAddrUnix, SocketFlags};
use thiserror::Error;

use crate::shm::channel::{Armed, Channel, Side, Want};
use crate::shm::claim::new_socket;
use crate::shm::handshake::{self, BadWelcome, Refusal, Welcome};
use crate::shm::link::{Frame, Gone, Link};
use crate::shm::region::{NotARegion, Region};
use crate::shm::ring::Taken;

/// The number of unsuccessful looks after which a polling client checks on the socket whether the
/// server lives.
const IDLE_LOOKS_MAX: u32 = 1 << 14;

/// How a client connects and waits.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The maximum time for connecting.
    pub connect_timeout: Duration,
    /// The number of looks of a wait before it blocks: some 40 ns each.
    pub spin_rounds: u32,
}

impl Default for ClientConfig {
    /// Spins for some 50 us: the time of a round trip between two blocking sides.
    fn default() -> ClientConfig {
        ClientConfig { connect_timeout: Duration::from_secs(5), spin_rounds: 1200 }
    }
}

/// Why a client is not connected.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No server answers at the path, or the system refuses.
    #[error("cannot connect: {0}")]
    System(#[from] io::Error),
    /// The server did not answer in time.
    #[error("no answer in {} s: it has stopped, or others wait for a place too", .0.as_secs())]
    TimedOut(Duration),
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer does not come from a server of this version.
    #[error(transparent)]
    BadWelcome(#[from] BadWelcome),
    /// The received memory does not match its description.
    #[error(transparent)]
    NotARegion(#[from] NotARegion),
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The awaited event has happened.
    Ready,
    /// The timeout is over.
    TimedOut,
}

/// The client's end: it sends requests and receives replies. One thread at a time uses it.
///
/// Only [`ClientEnd::wait`] and [`ClientEnd::connect`] ever block. A client that writes more than
/// the server has room for must take replies: the server reads nothing from a client to whose ring
/// it cannot write.
pub struct ClientEnd {
    link: Link,
    config: ClientConfig,
    /// Holds the frame that [`ClientEnd::receive`] returns.
    frame: Box<[u8]>,
    idle_looks: u32,
}

impl ClientEnd {
    /// Connects to the server that listens at `path`.
    pub fn connect(path: &Path, config: ClientConfig) -> Result<ClientEnd, ConnectError> {
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        let socket = new_socket(SocketFlags::CLOEXEC).map_err(io::Error::from)?;
        let timeout = Some(config.connect_timeout);
        for direction in [Timeout::Send, Timeout::Recv] {
            rustix::net::sockopt::set_socket_timeout(&socket, direction, timeout)
                .map_err(io::Error::from)?;
        }
        let timed_out = ConnectError::TimedOut(config.connect_timeout);
        match rustix::net::connect(&socket, &address) {
            Err(Errno::AGAIN) => return Err(timed_out),
            connected => connected.map_err(io::Error::from)?,
        }
        let (welcome, file) = match handshake::receive(&socket) {
            Err(BadWelcome::System(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(timed_out);
            }
            received => received?,
        };
        let ring = match welcome {
            Welcome::Refused(refusal) => return Err(refusal.into()),
            Welcome::Region { ring } => ring,
        };
        let region = Region::open(&file.ok_or(BadWelcome::NoMemory)?, ring)?;
        let channel = Channel::new(Arc::new(region), ring, Side::Client);
        let link = Link::new(channel, socket);
        let frame = vec![0; ring.frame_len_max()].into_boxed_slice();
        Ok(ClientEnd { link, config, frame, idle_looks: 0 })
    }

    /// The longest frame, in bytes, both ways.
    pub fn frame_len_max(&self) -> usize {
        self.link.frame_len_max()
    }

    /// Whether there is room for a request of so many bytes.
    #[inline]
    pub fn has_room(&mut self, frame_len: usize) -> Result<bool, Gone> {
        Ok(self.link.channel().has_room(frame_len)?)
    }

    /// Writes a request; the server sees it after [`ClientEnd::publish`]. `false`: no room now. A
    /// request has at least one byte and at most [`ClientEnd::frame_len_max`].
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<bool, Gone> {
        Ok(self.link.channel().write(frame)?)
    }

    /// Publishes all written requests to the server: once per batch. Rings only if the server
    /// sleeps.
    #[inline]
    pub fn publish(&mut self) {
        self.link.publish();
    }

    /// The next reply, if there is one; it stays until the next call.
    #[inline]
    pub fn receive(&mut self) -> Result<Option<&[u8]>, Gone> {
        match self.link.channel().take(&mut self.frame)? {
            Taken::Frame { len_bytes } => {
                self.idle_looks = 0;
                Ok(Some(&self.frame[..len_bytes]))
            }
            Taken::Empty => self.rest().map(|()| None),
            Taken::TooShort => unreachable!("the buffer holds the longest frame"),
        }
    }

    /// Copies at most `burst_max` replies into `arena`, one after another at multiples of 8, and
    /// calls `landed` for each. An arena of [`ClientEnd::frame_len_max`] bytes is never too short
    /// for
    /// the next frame.
    #[inline]
    pub fn poll(
        &mut self,
        arena: &mut [u8],
        burst_max: usize,
        landed: impl FnMut(Frame),
    ) -> Result<usize, Gone> {
        let count = self.link.poll(arena, burst_max, landed)?;
        if count == 0 {
            self.rest()?;
        } else {
            self.idle_looks = 0;
        }
        Ok(count)
    }

    /// Called when there is no reply: gives the room of taken frames back to the server, which may
    /// wait for it, and now and then checks whether the server lives.
    #[inline]
    fn rest(&mut self) -> Result<(), Gone> {
        self.link.publish();
        self.idle_looks += 1;
        if self.idle_looks >= IDLE_LOOKS_MAX {
            self.idle_looks = 0;
            self.link.hear()?;
        }
        Ok(())
    }

    /// Waits until there is a reply, for at most `timeout`: spins a little, then blocks.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Woken, Gone> {
        self.wait_for(Want { frames: true, room_for: None }, timeout)
    }

    /// Waits until there is a reply, or room for a request of so many bytes.
    pub fn wait_for_room(
        &mut self,
        frame_len: usize,
        timeout: Option<Duration>,
    ) -> Result<Woken, Gone> {
        self.wait_for(Want { frames: true, room_for: Some(frame_len) }, timeout)
    }

    fn wait_for(&mut self, want: Want, timeout: Option<Duration>) -> Result<Woken, Gone> {
        self.link.publish();
        for _ in 0..self.config.spin_rounds {
            if self.is_ready(want)? {
                return Ok(Woken::Ready);
            }
            std::hint::spin_loop();
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if self.link.arm(want)? == Armed::Work {
                return Ok(Woken::Ready);
            }
            let woken = self.block(deadline)?;
            self.link.hear()?;
            if self.is_ready(want)? {
                return Ok(Woken::Ready);
            }
            if woken == Woken::TimedOut {
                return Ok(Woken::TimedOut);
            }
        }
    }

    #[inline]
    fn is_ready(&mut self, want: Want) -> Result<bool, Gone> {
        let channel = self.link.channel();
        let has_room = match want.room_for {
            Some(frame_len) => channel.has_room(frame_len)?,
            None => false,
        };
        Ok(has_room || (want.frames && channel.has_frames()?))
    }

    /// Blocks until the socket is readable or the timeout is over.
    fn block(&self, deadline: Option<Instant>) -> Result<Woken, Gone> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A time that no time type of the kernel can hold counts as for ever.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = [PollFd::new(&self.link, PollFlags::IN)];
        match rustix::event::poll(&mut polled, left.as_ref()) {
            Ok(0) => Ok(Woken::TimedOut),
            Ok(_) | Err(Errno::INTR) => Ok(Woken::Ready),
            Err(error) => Err(Gone::System(error.into())),
        }
    }

    /// For a client with an event loop of its own: publishes, then announces that it goes to sleep.
    /// After [`Armed::Sleep`] the descriptor becomes readable when there is a reply; then call
    /// [`ClientEnd::hear`].
    pub fn arm(&mut self) -> Result<Armed, Gone> {
        Ok(self.link.arm(Want { frames: true, room_for: None })?)
    }

    /// Called after the descriptor became readable: takes the bell off it, or reports that the
    /// server has gone.
    pub fn hear(&mut self) -> Result<(), Gone> {
        self.link.hear()
    }
}

impl AsFd for ClientEnd {
    /// Readable after a bell, and after the server has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

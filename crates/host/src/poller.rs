//! The poller tells a worker which sockets are ready; a trait, so that another mechanism can
//! replace epoll.
//!
//! # Concurrency
//! A poller belongs to one worker. Other threads touch only the waker.

mod epoll;

pub use epoll::{Epoll, Waker};

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The events of a socket that a worker waits for. Level-triggered: a ready socket is reported
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Bytes or a connection have arrived, or the peer has closed.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
}

impl Interest {
    /// Only arriving bytes.
    pub const READ: Interest = Interest { read: true, write: false };
}

/// One ready socket.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// As given to [`Poller::add`].
    pub token: u64,
    /// Reading makes progress (it may find the end or an error).
    pub read: bool,
    /// There is room to write, if that was waited for.
    pub write: bool,
    /// The connection is broken in both directions.
    pub broken: bool,
}

/// A source of ready sockets.
pub trait Poller {
    /// Whether a worker with this poller takes times of the requests it reads, even without
    /// routing.
    const MEASURES: bool = false;

    /// Adds a socket.
    fn add(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()>;

    /// Changes the events that are waited for.
    fn modify(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()>;

    /// Removes a socket. One that is closed needs no call.
    fn remove(&mut self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Replaces `ready` by at most [`READY_MAX`] ready sockets, waiting at most `timeout` for the
    /// first (`None`: without end).
    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()>;
}

/// A poller whose worker takes times (`slo`, S2).
pub struct Timed<P>(pub P);

impl<P: Poller> Poller for Timed<P> {
    const MEASURES: bool = true;

    fn add(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.0.add(socket, token, interest)
    }

    fn modify(&mut self, socket: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.0.modify(socket, token, interest)
    }

    fn remove(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.0.remove(socket)
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        self.0.wait(ready, timeout)
    }
}

/// Most sockets that one wait reports.
pub const READY_MAX: usize = 256;

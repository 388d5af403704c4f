//! The server's end of one client's connection.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::shm::channel::{Armed, Want};
use crate::shm::link::{Frame, Gone, HangUp, Link};
use crate::shm::ring::Taken;

/// The process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process id, 0 if the process is in a namespace that this process cannot see.
    pub process_id: i32,
    /// The user id when it connected.
    pub user_id: u32,
}

/// A client that counts against the acceptor's limit until it is dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    /// Counts one more client, unless there are `clients_max`.
    pub fn take(count: &Arc<AtomicUsize>, clients_max: usize) -> Option<Place> {
        let more = |now: usize| (now < clients_max).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(Arc::clone(count)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server's end: it receives requests and sends replies. One thread at a time uses it.
///
/// Dropping it unmaps the memory and hangs up, which is the right reaction to a method that returns
/// [`Gone`]. Frames that a client published before it disconnected may still be taken, like bytes
/// that were sent before a TCP connection's end.
pub struct ServerEnd {
    link: Link,
    peer: Peer,
    _place: Place,
}

impl ServerEnd {
    pub(crate) fn new(link: Link, peer: Peer, place: Place) -> ServerEnd {
        ServerEnd { link, peer, _place: place }
    }

    /// The process at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Ends this connection, from any thread; the thread that serves it finds [`Gone::HungUp`].
    pub fn hang_up(&self) -> HangUp {
        self.link.hang_up()
    }

    /// The longest frame, in bytes, both ways.
    pub fn frame_len_max(&self) -> usize {
        self.link.frame_len_max()
    }

    /// Copies at most `burst_max` requests into `arena`, one after another at multiples of 8, and
    /// calls `landed` for each. Nothing is taken while the longest reply might not fit: a client
    /// that does not read its replies is not read either (K18). An arena of
    /// [`ServerEnd::frame_len_max`] bytes is never too short for the next frame.
    #[inline]
    pub fn poll(
        &mut self,
        arena: &mut [u8],
        burst_max: usize,
        landed: impl FnMut(Frame),
    ) -> Result<usize, Gone> {
        if !self.may_take()? {
            return Ok(0);
        }
        Ok(self.link.poll(arena, burst_max, landed)?)
    }

    /// Whether the longest reply fits (K18).
    #[inline]
    pub(crate) fn may_take(&mut self) -> Result<bool, Gone> {
        self.has_room(self.frame_len_max())
    }

    /// Whether there is a request.
    #[inline]
    pub(crate) fn has_frames(&mut self) -> Result<bool, Gone> {
        Ok(self.link.channel().has_frames()?)
    }

    /// Copies the next request into the beginning of `into`.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut [u8]) -> Result<Taken, Gone> {
        Ok(self.link.channel().take(into)?)
    }

    /// Announces that the server is awake, so that the client does not ring.
    pub(crate) fn disarm(&mut self) {
        self.link.channel().disarm();
    }

    /// Whether there is room for a reply of so many bytes.
    #[inline]
    pub fn has_room(&mut self, frame_len: usize) -> Result<bool, Gone> {
        Ok(self.link.channel().has_room(frame_len)?)
    }

    /// Writes a reply; the client sees it after [`ServerEnd::publish`]. `false`: there is no room,
    /// and
    /// the caller keeps it. A reply has at least one byte and at most [`ServerEnd::frame_len_max`].
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> Result<bool, Gone> {
        Ok(self.link.channel().write(frame)?)
    }

    /// Publishes all written replies to the client, and gives it back the room of all taken
    /// requests: once per batch. Rings only if the client sleeps.
    #[inline]
    pub fn publish(&mut self) {
        self.link.publish();
    }

    /// Publishes, then announces that the server goes to sleep. After [`Armed::Sleep`] the
    /// descriptor becomes readable as soon as there is work: requests, or room for a reply of
    /// `unsent_bytes` bytes if that is not 0, or for any reply if [`ServerEnd::poll`] waits for it.
    /// Then call [`ServerEnd::hear`].
    pub fn arm(&mut self, unsent_bytes: usize) -> Result<Armed, Gone> {
        self.link.publish();
        let frame_len_max = self.frame_len_max();
        let may_take = self.may_take()?;
        let room_for = match (may_take, unsent_bytes) {
            (true, 0) => None,
            (_, 0) => Some(frame_len_max),
            (_, unsent_bytes) => Some(unsent_bytes),
        };
        Ok(self.link.arm(Want { frames: may_take, room_for })?)
    }

    /// Called after the descriptor became readable: takes the bell off it, or reports that the
    /// client has gone.
    pub fn hear(&mut self) -> Result<(), Gone> {
        self.link.hear()
    }
}

impl AsFd for ServerEnd {
    /// For epoll, level-triggered: readable after a bell, and after the client has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

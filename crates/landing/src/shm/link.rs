//! One end of a connection: the rings, and the socket that carries doorbells and reports a hang-up.
//!
//! The doorbell is a byte on the connection's own socket. An eventfd would be shared with the other
//! process down to its flags: a client could fill it, make it blocking, and so hang the server's
//! thread that rings it (decision 0023). Each end of a socket belongs to its owner alone, and every
//! call here is explicitly non-blocking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use thiserror::Error;

use crate::shm::channel::{Armed, Bell, Channel, Want};
use crate::shm::ring::{Fault, Taken};

/// Why a connection has ended.
#[derive(Debug, Error)]
pub enum Gone {
    /// The other process closed its end, or died.
    #[error("the other side has gone")]
    HungUp,
    /// The other process wrote invalid words into the shared memory.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A system call failed.
    #[error("the connection's socket failed: {0}")]
    System(#[from] io::Error),
}

/// A frame that was copied out of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its offset in the arena; a multiple of 8.
    pub offset: usize,
    /// Its length.
    pub len_bytes: usize,
}

/// One end of a connection.
pub(crate) struct Link {
    channel: Channel,
    socket: Arc<OwnedFd>,
}

/// Ends a connection from any thread: both ends find that the other side has gone. It keeps nothing
/// of the connection alive.
#[derive(Clone, Debug)]
pub struct HangUp(Weak<OwnedFd>);

impl HangUp {
    /// Ends the connection; false: it has been dropped already.
    pub fn hang_up(&self) -> bool {
        let Some(socket) = self.0.upgrade() else { return false };
        // It fails only if the other process has ended it before.
        let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        true
    }

    /// Whether this end of the connection still exists.
    pub fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Link {
    pub fn new(channel: Channel, socket: OwnedFd) -> Link {
        Link { channel, socket: Arc::new(socket) }
    }

    pub fn hang_up(&self) -> HangUp {
        HangUp(Arc::downgrade(&self.socket))
    }

    pub fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// See [`Channel::frame_len_max`].
    pub fn frame_len_max(&self) -> usize {
        self.channel.frame_len_max()
    }

    /// Copies frames into `arena`, one after another at multiples of 8, until there are none,
    /// `arena`
    /// has no room for the next, or `burst_max` were taken.
    #[inline]
    pub fn poll(
        &mut self,
        arena: &mut [u8],
        burst_max: usize,
        mut landed: impl FnMut(Frame),
    ) -> Result<usize, Fault> {
        let mut offset = 0;
        for count in 0..burst_max {
            let Some(into) = arena.get_mut(offset..) else { return Ok(count) };
            match self.channel.take(into)? {
                Taken::Frame { len_bytes } => {
                    landed(Frame { offset, len_bytes });
                    offset = (offset + len_bytes).next_multiple_of(8);
                }
                Taken::Empty | Taken::TooShort => return Ok(count),
            }
        }
        Ok(burst_max)
    }

    /// Publishes everything new to the other side, and wakes it if it sleeps for that.
    #[inline]
    pub fn publish(&mut self) {
        if self.channel.publish() == Bell::Ring {
            self.ring();
        }
    }

    /// If the socket is full, earlier bells are still unread; if the write fails, the other side
    /// has gone, which the next look at the socket reports.
    #[cold]
    fn ring(&self) {
        let _ = rustix::net::send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Publishes, then announces that this side goes to sleep.
    pub fn arm(&mut self, want: Want) -> Result<Armed, Fault> {
        self.publish();
        self.channel.arm(want)
    }

    /// Takes bells off the socket, and checks whether the other side is connected. One call each
    /// time: a side that rings without end gets no more attention than any other.
    pub fn hear(&mut self) -> Result<(), Gone> {
        self.channel.disarm();
        let mut bells = [0; 256];
        match rustix::net::recv(&self.socket, &mut bells, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(Gone::HungUp),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(Errno::CONNRESET | Errno::PIPE) => Err(Gone::HungUp),
            Err(error) => Err(Gone::System(error.into())),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

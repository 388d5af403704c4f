//! The trait of every transport: lands arrived messages, sends queued ones.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use crate::{Lane, Sender, Zone};

/// A way to receive and send messages. One thread drives a transport and its zone.
///
/// Receiving: [`receive`](Transport::receive), then [`Zone::take`] until it is empty, read
/// [`Zone::bytes`], and finally [`Zone::release_taken`]. Sending: [`reserve`](Transport::reserve)
/// room, write a frame there, [`commit`](Transport::commit) it, and [`flush`](Transport::flush)
/// once per batch. No call blocks, and none allocates.
pub trait Transport {
    /// Lands arrived messages: at most one burst, and no more than the zone has room for. Returns
    /// the number of landed messages; 0 means that none has arrived, that none was whole, or that
    /// the zone is full (its counters tell).
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize>;

    /// Room for one frame of at most `bytes_max` to that peer. Its contents are arbitrary but
    /// initialised. A reservation that is not committed is forgotten by the next one.
    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError>;

    /// Queues the first `len_bytes` of the last reservation.
    fn commit(&mut self, len_bytes: usize);

    /// Sends queued frames, in order, as far as the system takes them; returns the number of frames
    /// that left or were given up. The others stay queued for the next call.
    fn flush(&mut self) -> io::Result<usize>;

    /// The number of queued frames.
    fn queued(&self) -> usize;

    /// The longest frame that can be sent.
    fn frame_bytes_max(&self) -> usize;

    /// A descriptor for a poller, readable when [`receive`](Transport::receive) may find something.
    /// Call [`may_sleep`](Transport::may_sleep) just before waiting.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Makes sure that the next arrival wakes the thread that waits for the descriptor. `false`:
    /// something has arrived meanwhile; receive again instead of sleeping.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// An event that happens once and that belongs in the operator's log.
    fn take_notice(&mut self) -> Option<Notice> {
        None
    }

    /// Queues a copy of a frame.
    fn queue(&mut self, to: Sender, frame: &[u8]) -> Result<(), SendError> {
        let room = self.reserve(to, frame.len())?;
        room[..frame.len()].copy_from_slice(frame);
        self.commit(frame.len());
        Ok(())
    }
}

/// Why a frame cannot be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Flush, then try again.
    #[error("the send queue is full: flush it first")]
    Full,
    /// It never fits.
    #[error("a frame of {len_bytes} bytes is longer than the {max_bytes} that fit")]
    TooLong {
        /// The requested length.
        len_bytes: usize,
        /// The maximum length.
        max_bytes: usize,
    },
    /// The transport has no peer of that name (any more).
    #[error("no such peer here")]
    NoPeer,
}

impl SendError {
    /// Refuses a frame that never fits.
    #[inline]
    pub fn check_len(len_bytes: usize, max_bytes: usize) -> Result<(), SendError> {
        match len_bytes > max_bytes {
            true => Err(SendError::TooLong { len_bytes, max_bytes }),
            false => Ok(()),
        }
    }
}

/// A change of behaviour that happens at most once for a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The kernel or the device refused to segment datagrams; they are sent one by one from now on.
    SegmentationOff {
        /// The error.
        errno: i32,
    },
    /// The kernel does not join datagrams of one sender; they are received one by one.
    CoalescingOff {
        /// The error.
        errno: i32,
    },
    /// The kernel copies messages to a peer in spite of the flag, as it does for receivers on this
    /// host; to that peer messages leave by plain sends from now on.
    ZeroCopyOff {
        /// The peer's lane.
        lane: Lane,
    },
    /// The device's driver does not support zero-copy AF_XDP; the kernel copies frames.
    CopyMode,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = |errno: &i32| io::Error::from_raw_os_error(*errno);
        match self {
            Notice::SegmentationOff { errno } => {
                write!(f, "UDP segmentation (GSO) is off, datagrams leave singly: {}", error(errno))
            }
            Notice::CoalescingOff { errno } => {
                write!(f, "UDP coalescing (GRO) is off, datagrams come singly: {}", error(errno))
            }
            Notice::ZeroCopyOff { lane } => {
                write!(
                    f,
                    "the kernel copies what is sent to lane {}: zero-copy sends are off",
                    lane.0
                )
            }
            Notice::CopyMode => {
                f.write_str("the driver has no zero-copy AF_XDP, the kernel copies frames")
            }
        }
    }
}

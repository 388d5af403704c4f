//! The trait of every transport: lands arrived messages, sends queued ones.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use crate::{Lane, Sender, Zone};

/// How messages come and go. One thread drives a transport and its zone.
///
/// Receiving: [`receive`](Transport::receive), then [`Zone::take`] until it is empty, read
/// [`Zone::bytes`], and at last [`Zone::release_taken`]. Sending: [`reserve`](Transport::reserve)
/// room, write a frame there, [`commit`](Transport::commit) it, and [`flush`](Transport::flush)
/// once per batch. No call blocks, and none allocates.
pub trait Transport {
    /// Lands what has arrived: one burst at most, and no more than the zone has room for. Says how
    /// many messages landed; 0 means that nothing is there, that nothing whole was, or that the
    /// zone is full (its counters tell).
    fn receive(&mut self, zone: &mut Zone) -> io::Result<usize>;

    /// Room for one frame of at most `bytes_max` to that peer. What was there before is arbitrary
    /// but initialised. A reservation that is not committed is forgotten by the next one.
    fn reserve(&mut self, to: Sender, bytes_max: usize) -> Result<&mut [u8], SendError>;

    /// Queues the first `len_bytes` of what was reserved last.
    fn commit(&mut self, len_bytes: usize);

    /// Sends what is queued, in order, as far as it goes, and says how many frames left or were
    /// given up. What the system does not take now stays queued for the next call.
    fn flush(&mut self) -> io::Result<usize>;

    /// How many frames are queued.
    fn queued(&self) -> usize;

    /// The longest frame that can be sent.
    fn frame_bytes_max(&self) -> usize;

    /// Readable when [`receive`](Transport::receive) may find something: what a poller waits for.
    /// Call [`may_sleep`](Transport::may_sleep) just before waiting.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Makes sure that the next arrival wakes the thread that waits for the descriptor. `false`:
    /// something has arrived meanwhile, receive again instead of sleeping.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Something that happened once and that an operator may want to read in a log.
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
        /// How long it would be.
        len_bytes: usize,
        /// What fits.
        max_bytes: usize,
    },
    /// The transport knows no peer of that name (any more).
    #[error("no such peer here")]
    NoPeer,
}

/// A change of behaviour that happens once in a transport's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The kernel or the device refused to segment datagrams; they are sent one by one from now on.
    SegmentationOff {
        /// What the refusal said.
        errno: i32,
    },
    /// The kernel does not join datagrams of one sender; they are received one by one.
    CoalescingOff {
        /// What the refusal said.
        errno: i32,
    },
    /// The kernel copies what it was to send to a peer without a copy, as it does to receivers on
    /// this host; to that peer messages leave by plain sends from now on.
    ZeroCopyOff {
        /// Whose.
        lane: Lane,
    },
    /// The device's driver has no zero-copy AF_XDP; the kernel copies frames.
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

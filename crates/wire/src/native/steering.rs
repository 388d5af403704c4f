//! Steering: the client names a key's partition, the kernel or NIC picks its worker's queue.
//!
//! ```text
//!  key ──hash──▶ top `bits` ──▶ SteeringId ──▶ id mod worker_count     65535: any worker
//! ```
//!
//! A wrong id costs time, never correctness: any worker can execute any request.

use base::{KeyHash, PartitionBits};

/// The steering field of a frame: a partition of the key space, or [`SteeringId::ANY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SteeringId(pub u16);

impl SteeringId {
    /// Any worker will do; a sender of reads may spread its frames with random ids instead.
    pub const ANY: SteeringId = SteeringId(u16::MAX);
}

/// How this server's frames are steered; part of the welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    bits: u8,
    worker_count: u16,
}

impl Steering {
    /// The most bits that an id has: 65535 is never one of them.
    pub const BITS_MAX: u8 = 15;

    /// Partitions by the top `bits` of the hash, dealt to so many workers.
    pub fn new(bits: u8, worker_count: u16) -> Steering {
        Steering { bits: bits.min(Self::BITS_MAX), worker_count: worker_count.max(1) }
    }

    /// How many bits an id has.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// How many workers the partitions are dealt to.
    pub fn worker_count(self) -> u16 {
        self.worker_count
    }

    /// A key's partition.
    #[inline]
    pub fn id(self, hash: KeyHash) -> SteeringId {
        SteeringId(hash.partition(PartitionBits::at_most(u32::from(self.bits))).0 as u16)
    }

    /// Which worker a frame goes to; `None`: any. Requests to one worker may share a frame.
    #[inline]
    pub fn worker(self, id: SteeringId) -> Option<u16> {
        (id != SteeringId::ANY).then(|| id.0 % self.worker_count)
    }
}

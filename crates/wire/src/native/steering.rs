//! Steering: the client names a key's partition, and the kernel or NIC picks its worker's queue.
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
    /// Any worker; a sender of reads may distribute its frames with random ids instead.
    pub const ANY: SteeringId = SteeringId(u16::MAX);
}

/// How this server's frames are steered; part of the welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    bits: u8,
    worker_count: u16,
}

impl Steering {
    /// The maximum number of bits of an id: 65535 is never one of them.
    pub const BITS_MAX: u8 = 15;

    /// Partitions by the top `bits` of the hash, distributed among so many workers.
    pub fn new(bits: u8, worker_count: u16) -> Steering {
        Steering { bits: bits.min(Self::BITS_MAX), worker_count: worker_count.max(1) }
    }

    /// How many bits an id has.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The number of workers that the partitions are distributed among.
    pub fn worker_count(self) -> u16 {
        self.worker_count
    }

    /// A key's partition.
    #[inline]
    pub fn id(self, hash: KeyHash) -> SteeringId {
        SteeringId(hash.partition(PartitionBits::at_most(u32::from(self.bits))).0 as u16)
    }

    /// The worker that a frame goes to; `None`: any. Requests to one worker may share a frame.
    #[inline]
    pub fn worker(self, id: SteeringId) -> Option<u16> {
        (id != SteeringId::ANY).then(|| id.0 % self.worker_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_steered_by_its_top_bits() {
        let steering = Steering::new(6, 4);
        let id = steering.id(KeyHash(0b1010_1100 << 56));
        assert_eq!(id, SteeringId(0b10_1011));
        assert_eq!(steering.worker(id), Some(0b11));
        assert_eq!(steering.worker(SteeringId::ANY), None);
    }

    #[test]
    fn keys_are_steered_as_the_page_of_the_format_says() {
        let hash = base::KeyHasher::new(7).hash(b"user:1000");
        assert_eq!(hash, KeyHash(0xb4e0_975c_7a3b_0b70));
        let steering = Steering::new(6, 1);
        assert_eq!(steering.id(hash), SteeringId(45));
        assert_eq!(steering.id(base::KeyHasher::new(91).hash(b"user:1000")), SteeringId(3));
    }

    #[test]
    fn no_partition_is_called_any() {
        let steering = Steering::new(255, 0);
        assert_eq!((steering.bits(), steering.worker_count()), (15, 1));
        assert_eq!(steering.id(KeyHash(u64::MAX)), SteeringId(0x7fff));
        assert_eq!(Steering::new(0, 3).id(KeyHash(u64::MAX)), SteeringId(0));
    }
}

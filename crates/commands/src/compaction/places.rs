//! The requests of a batch by the hash of their key: open addressing, at most half full.

use base::KeyHash;
use store::request::Request;

use crate::rmw::Rmw;
use crate::work::BATCH_REQUESTS_MAX;

/// The number of slots.
pub(super) const SLOTS: usize = 2 * BATCH_REQUESTS_MAX;
/// A free slot.
const FREE: u8 = u8::MAX;

const _: () = assert!(BATCH_REQUESTS_MAX < FREE as usize, "a slot names a request");

/// One request for each hash.
pub(super) struct Places([u8; SLOTS]);

impl Default for Places {
    fn default() -> Places {
        Places([FREE; SLOTS])
    }
}

impl Places {
    /// Frees all slots.
    pub fn clear(&mut self) {
        self.0.fill(FREE);
    }

    /// The slot of a hash, and the request in it, if it is not free.
    #[inline]
    pub fn find(&self, requests: &[Request<'_, Rmw<'_>>], hash: KeyHash) -> (usize, Option<u8>) {
        // The top bits name the partition, the lowest are the tag's: any others will do.
        let mut at = (hash.0 >> 8) as usize % SLOTS;
        loop {
            let seen = self.0[at];
            if seen == FREE {
                return (at, None);
            }
            if requests[usize::from(seen)].hash == hash {
                return (at, Some(seen));
            }
            at = (at + 1) % SLOTS;
        }
    }

    /// Puts a request into the slot of its hash.
    #[inline]
    pub fn set(&mut self, at: usize, index: usize) {
        self.0[at] = index as u8;
    }
}

//! Version numbers of buckets, as optimistic readers see them: odd while a write is in progress.
//!
//! ```text
//!  write served at t for T:      t+50 odd            t+T+50 even
//!                           ─────┴───────────────────┴─────────▶
//!
//!  cells   [w][ ][ww][ ]...   partition modulo CELLS: the writes that a reader can still notice
//! ```
//!
//! Both version changes are known when the write starts, so they need no event. Only the writes of
//! the last microseconds can still be noticed, so they are kept in a table that stays in the cache
//! instead of a counter for each of a million buckets.
//!
//! # Invariants
//! I1: writes of one bucket do not overlap: one core at a time holds it.
//! I2: a write is kept as long as a read that began before the write's end may still run.

use base::PartitionId;

/// Delay from the start of a write to its first version change, and from its end to the second.
const BUMP_DELAY_NS: f64 = 50.0;

const CELLS: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Write {
    partition: PartitionId,
    odd_from: f64,
    odd_until: f64,
}

/// All buckets' versions.
#[derive(Debug)]
pub struct Versions {
    cells: Vec<Vec<Write>>,
    /// The longest read of a bucket so far: writes are kept for that long after their end (I2).
    look_ns_max: f64,
}

impl Versions {
    pub fn new() -> Versions {
        Versions { cells: vec![Vec::new(); CELLS], look_ns_max: 0.0 }
    }

    fn of(&self, partition: PartitionId) -> impl Iterator<Item = &Write> {
        let cell = &self.cells[partition.index() % CELLS];
        cell.iter().filter(move |write| write.partition == partition)
    }

    /// The end, for readers, of the write in progress at `now`; `None`: the version is even.
    #[inline]
    pub fn odd_until(&self, partition: PartitionId, now: f64) -> Option<f64> {
        let is_odd = |write: &&Write| write.odd_from <= now && now < write.odd_until;
        self.of(partition).find(is_odd).map(|write| write.odd_until)
    }

    /// Records that a reader begins to read a bucket for `look_ns`.
    #[inline]
    pub fn look(&mut self, look_ns: f64) {
        self.look_ns_max = self.look_ns_max.max(look_ns);
    }

    /// Whether the version at `now` differs from the one at `since`.
    #[inline]
    pub fn has_moved(&self, partition: PartitionId, since: f64, now: f64) -> bool {
        debug_assert!(now - since <= self.look_ns_max + 1.0, "I2");
        let is_between = |at: f64| since < at && at <= now;
        self.of(partition).any(|write| is_between(write.odd_from) || is_between(write.odd_until))
    }

    /// A write of `service_ns` starts.
    #[inline]
    pub fn write(&mut self, partition: PartitionId, now: f64, service_ns: f64) {
        debug_assert!(self.of(partition).all(|write| write.odd_until <= now), "I1");
        let cell = &mut self.cells[partition.index() % CELLS];
        let kept_ns = self.look_ns_max;
        cell.retain(|write| write.odd_until + kept_ns >= now);
        let odd_from = now + BUMP_DELAY_NS;
        cell.push(Write { partition, odd_from, odd_until: odd_from + service_ns });
    }
}

#[cfg(test)]
mod tests {
    use base::PartitionId;

    use super::{CELLS, Versions};

    #[test]
    fn a_version_is_odd_from_50_ns_after_the_start_to_50_ns_after_the_end() {
        let (mut versions, partition) = (Versions::new(), PartitionId(3));
        let neighbour = PartitionId(3 + CELLS as u32);
        versions.look(700.0);
        versions.write(partition, 1000.0, 400.0);
        versions.write(neighbour, 1001.0, 10.0);
        for (now, odd_until, has_moved) in [
            (1049.0, None, false),
            (1050.0, Some(1450.0), true),
            (1449.0, Some(1450.0), true),
            (1450.0, None, true),
        ] {
            let seen =
                (versions.odd_until(partition, now), versions.has_moved(partition, 1000.0, now));
            assert_eq!(seen, (odd_until, has_moved), "{now}");
        }
        assert!(!versions.has_moved(partition, 1100.0, 1449.0), "odd throughout");
        assert!(!versions.has_moved(partition, 1450.0, 1600.0));
        versions.write(partition, 1500.0, 400.0);
        // The first write's end counts although a second one has begun.
        assert!(versions.has_moved(partition, 1449.0, 1510.0));
        assert_eq!(versions.odd_until(partition, 1600.0), Some(1950.0));
    }

    #[test]
    fn old_writes_are_forgotten() {
        let (mut versions, partition) = (Versions::new(), PartitionId(9));
        versions.look(2000.0);
        (0..1000).for_each(|step| versions.write(partition, f64::from(step) * 700.0, 500.0));
        assert!(versions.cells[9].len() <= 5);
    }
}

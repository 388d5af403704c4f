//! The cost of sharing an item between cores: the law of moving cache lines.
//!
//! ```text
//!            reader 1 ─┐  fetch: first line transfer_ns, each further one next_line_ns;
//!  writer ─▶ [item] ◀──┤         each keeps the item's supplier busy for serial_ns a line
//!            reader n ─┘
//!     └ take: as long as a fetch, and sharer_ns a line for each copy beyond the first; no
//!       other core gets the item meanwhile
//! ```
//!
//! # Invariants
//! I1: an access by a core that holds a current copy costs nothing here.
//! I2: a write leaves exactly one copy, the writer's; a read adds the reader's copy.
//! I3: transfers of one item begin in the order of their requests.
//!
//! # Trade-offs
//! The law has capacity misses only as part of the service time: a hot item stays in every reader's
//! cache until a core writes it. It moves an item as a whole, because its readers ask for its lines
//! in the same order. A written item has one supplier, the cache of its last writer, so that
//! readers wait longer for each other when the item is longer. Hops are a mean within one socket;
//! several sockets are left out.
//!
//! # References
//! C-4 §4.3 (why the hot thread slows down), §7.2 and Fig. 11b; simulated machine: C-4 Table 1.

/// Most cores that one item's copies can be followed on.
pub const CORES_MAX: usize = 256;

/// The costs of moving an item's lines. All times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineTransfer {
    /// A line from another core's cache, from the request to its use.
    pub transfer_ns: f64,
    /// Each further line of the same item, as far as the core cannot overlap it.
    pub next_line_ns: f64,
    /// How long an item's supplier is busy with one line for one reader.
    pub serial_ns: f64,
    /// The invalidation of one more core's copy.
    pub sharer_ns: f64,
}

impl LineTransfer {
    /// Lines move for free: the papers' own queueing models.
    pub const OFF: LineTransfer =
        LineTransfer { transfer_ns: 0.0, next_line_ns: 0.0, serial_ns: 0.0, sharer_ns: 0.0 };

    /// A read of an item that another core wrote since this core last read it.
    pub fn fetch_ns(&self, line_count: u32) -> f64 {
        self.transfer_ns + self.next_line_ns * f64::from(line_count.saturating_sub(1))
    }

    /// A write of an item that `sharer_count` other cores hold; 0 costs nothing (I1).
    pub fn take_ns(&self, line_count: u32, sharer_count: u32) -> f64 {
        if sharer_count == 0 {
            return 0.0;
        }
        let invalidate_ns = self.sharer_ns * f64::from(sharer_count - 1) * f64::from(line_count);
        self.fetch_ns(line_count) + invalidate_ns
    }
}

/// The cores that hold a current copy of one item, and until when its supplier is busy.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedItem {
    copies: [u64; CORES_MAX / 64],
    free_at_ns: f64,
}

impl SharedItem {
    /// The cores that hold a copy.
    pub fn copy_count(&self) -> u32 {
        self.copies.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether `core` holds a copy.
    pub fn has_copy(&self, core: usize) -> bool {
        self.copies[core / 64] >> (core % 64) & 1 == 1
    }

    /// `core` reads at `now_ns`: returns the extra time compared with the item in its cache.
    pub fn read_ns(
        &mut self,
        law: &LineTransfer,
        now_ns: f64,
        core: usize,
        line_count: u32,
    ) -> f64 {
        if self.has_copy(core) {
            return 0.0;
        }
        self.copies[core / 64] |= 1 << (core % 64);
        let busy_ns = law.serial_ns * f64::from(line_count);
        self.queue_ns(now_ns, busy_ns) + law.fetch_ns(line_count)
    }

    /// `core` writes at `now_ns`: returns the extra time compared with no other copy.
    pub fn write_ns(
        &mut self,
        law: &LineTransfer,
        now_ns: f64,
        core: usize,
        line_count: u32,
    ) -> f64 {
        let (wait_ns, take_ns) = self.ask_ns(law, now_ns, core, line_count);
        self.own(core);
        wait_ns + take_ns
    }

    /// `core` requests the item to write it: returns the wait for earlier transfers, and the
    /// transfer. Until [`SharedItem::own`], copies stay valid.
    pub fn ask_ns(
        &mut self,
        law: &LineTransfer,
        now_ns: f64,
        core: usize,
        line_count: u32,
    ) -> (f64, f64) {
        let sharer_count = self.copy_count() - u32::from(self.has_copy(core));
        if sharer_count == 0 {
            return (0.0, 0.0);
        }
        let take_ns = law.take_ns(line_count, sharer_count);
        (self.queue_ns(now_ns, take_ns), take_ns)
    }

    /// Drops all copies but `core`'s (I2).
    pub fn own(&mut self, core: usize) {
        self.copies = [0; CORES_MAX / 64];
        self.copies[core / 64] |= 1 << (core % 64);
    }

    /// Waits for the transfers requested before (I3), then keeps the item for `busy_ns`.
    fn queue_ns(&mut self, now_ns: f64, busy_ns: f64) -> f64 {
        let begin_ns = self.free_at_ns.max(now_ns);
        self.free_at_ns = begin_ns + busy_ns;
        begin_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::{LineTransfer, SharedItem};

    const LAW: LineTransfer =
        LineTransfer { transfer_ns: 50.0, next_line_ns: 10.0, serial_ns: 20.0, sharer_ns: 1.0 };

    enum Step {
        Read(usize),
        Write(usize),
    }
    use Step::{Read, Write};

    #[track_caller]
    fn check(line_count: u32, steps: &[(f64, Step, f64)]) {
        let mut item = SharedItem::default();
        for (index, (now_ns, step, want_ns)) in steps.iter().enumerate() {
            let cost_ns = match *step {
                Read(core) => item.read_ns(&LAW, *now_ns, core, line_count),
                Write(core) => item.write_ns(&LAW, *now_ns, core, line_count),
            };
            assert_eq!(cost_ns, *want_ns, "step {index}");
        }
    }

    #[test]
    fn a_core_that_holds_the_item_pays_nothing() {
        check(3, &[(0.0, Write(0), 0.0), (1.0, Write(0), 0.0), (2.0, Read(0), 0.0)]);
        check(1, &[(0.0, Write(0), 0.0), (1.0, Read(5), 50.0), (2.0, Read(5), 0.0)]);
    }

    #[test]
    fn further_lines_cost_less_than_the_first_and_more_sharers_more() {
        check(1, &[(0.0, Write(0), 0.0), (1.0, Read(200), 50.0), (100.0, Write(0), 50.0)]);
        check(10, &[(0.0, Write(0), 0.0), (1.0, Read(200), 140.0), (500.0, Write(0), 140.0)]);
        // Three lines keep the supplier busy for 60 ns.
        let two_readers =
            [(0.0, Write(0), 0.0), (100.0, Read(1), 70.0), (110.0, Read(2), 50.0 + 70.0)];
        check(3, &two_readers);
        assert_eq!(LAW.take_ns(10, 2), LAW.take_ns(10, 1) + 10.0);
    }

    #[test]
    fn readers_of_one_line_follow_each_other() {
        check(
            1,
            &[
                (0.0, Write(0), 0.0),
                (100.0, Read(1), 50.0),
                (100.0, Read(2), 70.0),
                (100.0, Read(3), 90.0),
                (110.0, Write(0), 50.0 + 50.0 + 2.0),
            ],
        );
    }

    #[test]
    fn writers_of_one_line_follow_each_other_a_whole_transfer_apart() {
        check(1, &[(0.0, Write(0), 0.0), (100.0, Write(1), 50.0), (100.0, Write(2), 100.0)]);
    }

    #[test]
    fn off_is_free() {
        let mut item = SharedItem::default();
        for core in 0..64 {
            assert_eq!(item.write_ns(&LineTransfer::OFF, 0.0, core, 10), 0.0);
            assert_eq!(item.read_ns(&LineTransfer::OFF, 0.0, 63 - core, 10), 0.0);
        }
    }
}

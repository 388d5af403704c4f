//! The requests of a run, drawn before the clock starts.
//!
//! ```text
//!  63    61 60                                                     0
//!  +-------+-------------------------------------------------------+
//!  | kind  | key id; for reads of the latest: how far back;        |
//!  |       | for scans: number of keys (8 bits), first id (53)     |
//!  +-------+-------------------------------------------------------+
//! ```
//!
//! Lanes (connections, or threads of the embedded store) walk one trace from evenly spaced starting
//! points and wrap around at its end. A lane inserts only ids that are congruent to its number, so
//! that it knows which of its inserts are answered without asking other lanes.

use crate::mix::SCAN_KEYS_MAX;
use crate::request::{Draw, Drawer, Operation};

/// The fewest entries of a trace.
pub const TRACE_LEN_MIN: usize = 4 << 20;

const KIND_SHIFT: u32 = 61;
const ARGUMENT_MASK: u64 = (1 << KIND_SHIFT) - 1;
const SCAN_KEYS_SHIFT: u32 = 53;
const SCAN_ID_MASK: u64 = (1 << SCAN_KEYS_SHIFT) - 1;
const _: () = assert!(SCAN_KEYS_MAX < 1 << (KIND_SHIFT - SCAN_KEYS_SHIFT));

/// One operation, packed.
#[derive(Clone, Copy, Debug)]
pub struct Entry(u64);

impl Entry {
    /// Whether the entry only reads the key of one id.
    #[inline(always)]
    pub fn is_read(self) -> bool {
        self.0 <= ARGUMENT_MASK
    }

    /// The key of a [`Operation::Read`], `Update` or `ReadModifyWrite`.
    #[inline(always)]
    pub fn id(self) -> u64 {
        self.0 & ARGUMENT_MASK
    }

    fn pack(operation: Operation) -> Entry {
        let (kind, argument) = match operation {
            Operation::Read(id) => (0, id),
            Operation::ReadLatest(back) => (1, back),
            Operation::Update(id) => (2, id),
            Operation::Insert => (3, 0),
            Operation::ReadModifyWrite(id) => (4, id),
            Operation::Scan { id, keys } => {
                debug_assert!(id <= SCAN_ID_MASK && keys <= SCAN_KEYS_MAX);
                (5, keys << SCAN_KEYS_SHIFT | id)
            }
        };
        debug_assert!(argument <= ARGUMENT_MASK);
        Entry(kind << KIND_SHIFT | argument)
    }

    /// Decodes the entry.
    #[inline]
    pub fn unpack(self) -> Operation {
        // A read is its key alone, so that one compare recognises the commonest operation.
        if self.is_read() {
            return Operation::Read(self.0);
        }
        let argument = self.0 & ARGUMENT_MASK;
        match self.0 >> KIND_SHIFT {
            1 => Operation::ReadLatest(argument),
            2 => Operation::Update(argument),
            3 => Operation::Insert,
            4 => Operation::ReadModifyWrite(argument),
            _ => Operation::Scan { id: argument & SCAN_ID_MASK, keys: argument >> SCAN_KEYS_SHIFT },
        }
    }
}

/// A drawn sequence of operations.
#[derive(Debug)]
pub struct Trace {
    entries: Box<[Entry]>,
}

impl Trace {
    /// Draws `len` entries (at least one).
    pub fn draw(draw: &Draw, len: usize) -> Trace {
        let mut drawer = Drawer::new(draw);
        let entries = (0..len.max(1)).map(|_| Entry::pack(drawer.next().operation)).collect();
        Trace { entries }
    }

    /// The least length of a trace for which wrapping around does not shrink the set of touched
    /// keys.
    pub fn len_for(key_count: u64) -> usize {
        const TRACE_LEN_MAX: u64 = 64 << 20;
        key_count.clamp(TRACE_LEN_MIN as u64, TRACE_LEN_MAX) as usize
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Always false: a trace has at least one entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The starting point of lane `lane` of `lane_count`.
    pub fn cursor(&self, lane: usize, lane_count: usize) -> Cursor<'_> {
        let len = self.entries.len();
        let next = (len as u128 * lane as u128 / lane_count.max(1) as u128) as usize % len;
        Cursor { entries: &self.entries, next, window: Vec::new(), at: 0 }
    }
}

/// Walks a trace for ever.
///
/// The trace is far larger than the caches. Entries are copied a window at a time: a copy keeps
/// many lines in flight at once, while reading one entry per operation would wait for each line
/// between the misses of the measured work (5 ns an operation on the embedded store).
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    entries: &'a [Entry],
    /// The first entry behind the window.
    next: usize,
    window: Vec<Entry>,
    /// The next entry in the window.
    at: usize,
}

/// The number of entries copied at once.
const WINDOW_ENTRIES: usize = 512;

impl Cursor<'_> {
    /// The next operation.
    #[inline]
    pub fn advance(&mut self) -> Operation {
        if self.at == self.window.len() {
            self.refill();
        }
        let entry = self.window[self.at];
        self.at += 1;
        entry.unpack()
    }

    /// The next operations, at most `max` and at least one: fewer where the window ends.
    #[inline]
    pub fn advance_many(&mut self, max: usize) -> &[Entry] {
        if self.at == self.window.len() {
            self.refill();
        }
        let start = self.at;
        self.at = self.window.len().min(start + max.max(1));
        &self.window[start..self.at]
    }

    #[cold]
    fn refill(&mut self) {
        let end = self.entries.len().min(self.next + WINDOW_ENTRIES);
        self.window.clear();
        self.window.extend_from_slice(&self.entries[self.next..end]);
        self.next = if end == self.entries.len() { 0 } else { end };
        self.at = 0;
    }

    /// The key id of the next entry, whatever its operation (for the further keys of a multi-get).
    #[inline]
    pub fn advance_id(&mut self) -> u64 {
        match self.advance() {
            Operation::Read(id) | Operation::Update(id) | Operation::ReadModifyWrite(id) => id,
            Operation::ReadLatest(back) => back,
            Operation::Scan { id, .. } => id,
            Operation::Insert => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn draw(name: &str, seed: u64) -> Draw {
        name.parse::<Profile>().unwrap().draw(10_000, seed)
    }

    fn kind(operation: Operation) -> &'static str {
        match operation {
            Operation::Read(_) => "read",
            Operation::ReadLatest(_) => "latest",
            Operation::Update(_) => "update",
            Operation::Insert => "insert",
            Operation::ReadModifyWrite(_) => "rmw",
            Operation::Scan { .. } => "scan",
        }
    }

    #[track_caller]
    fn check_shares(name: &str, want: &[(&str, f64)]) {
        const LEN: usize = 200_000;
        let trace = Trace::draw(&draw(name, 5), LEN);
        let mut cursor = trace.cursor(0, 1);
        let drawn: Vec<Operation> = (0..LEN).map(|_| cursor.advance()).collect();
        for (wanted, share) in want {
            let count = drawn.iter().filter(|operation| kind(**operation) == *wanted).count();
            let found = count as f64 / LEN as f64;
            assert!((found - share).abs() < 0.005, "{name} {wanted}: {found}");
        }
        assert!((want.iter().map(|entry| entry.1).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn presets_have_the_shares_of_ycsb() {
        check_shares("get", &[("read", 1.0)]);
        check_shares("set", &[("update", 1.0)]);
        check_shares("ycsb-a", &[("read", 0.5), ("update", 0.5)]);
        check_shares("ycsb-b", &[("read", 0.95), ("update", 0.05)]);
        check_shares("ycsb-c", &[("read", 1.0)]);
        check_shares("ycsb-d", &[("latest", 0.95), ("insert", 0.05)]);
        check_shares("ycsb-e", &[("scan", 0.95), ("insert", 0.05)]);
        check_shares("ycsb-load", &[("insert", 1.0)]);
        check_shares("put", &[("update", 1.0)]);
        check_shares("ycsb-f", &[("read", 0.5), ("rmw", 0.5)]);
    }

    #[test]
    fn entries_unpack_to_what_was_packed() {
        for argument in [0, 1, 12_345, ARGUMENT_MASK] {
            for operation in [
                Operation::Read(argument),
                Operation::ReadLatest(argument),
                Operation::Update(argument),
                Operation::Insert,
                Operation::ReadModifyWrite(argument),
            ] {
                assert_eq!(Entry::pack(operation).unpack(), operation);
            }
        }
        for (id, keys) in [(0, 1), (12_345, 50), (SCAN_ID_MASK, SCAN_KEYS_MAX)] {
            let scan = Operation::Scan { id, keys };
            assert_eq!(Entry::pack(scan).unpack(), scan);
        }
    }

    #[test]
    fn many_at_once_are_the_same_operations() {
        let trace = Trace::draw(&draw("ycsb-a", 5), 1000);
        let (mut one, mut many) = (trace.cursor(1, 3), trace.cursor(1, 3));
        for count in [1, 7, 32, 64].into_iter().cycle().take(200) {
            let taken = many.advance_many(count).to_vec();
            assert!((1..=count).contains(&taken.len()));
            for entry in taken {
                let operation = one.advance();
                assert_eq!(entry.unpack(), operation);
                let is_read = matches!(operation, Operation::Read(_));
                assert_eq!(entry.is_read(), is_read);
                let (Operation::Read(id) | Operation::Update(id)) = operation else {
                    panic!("{operation:?} is not in the mix");
                };
                assert_eq!(entry.id(), id);
            }
        }
    }

    #[test]
    fn one_seed_gives_one_trace_and_lanes_start_apart() {
        let (one, same) = (draw("ycsb-a", 5), draw("ycsb-a", 6));
        let traces = [one, one, same].map(|draw| Trace::draw(&draw, 1000));
        let take = |trace: &Trace, lane| {
            let mut cursor = trace.cursor(lane, 4);
            (0..1000).map(|_| cursor.advance()).collect::<Vec<_>>()
        };
        assert_eq!(take(&traces[0], 0), take(&traces[1], 0));
        assert_ne!(take(&traces[0], 0), take(&traces[2], 0));
        assert_eq!(take(&traces[0], 1)[..750], take(&traces[0], 0)[250..]);
    }

    #[test]
    fn a_trace_covers_large_key_sets_and_is_never_short() {
        assert_eq!(Trace::len_for(1000), TRACE_LEN_MIN);
        assert_eq!(Trace::len_for(10_000_000), 10_000_000);
        assert_eq!(Trace::len_for(1 << 40), 64 << 20);
    }
}

//! Room in the log for writes under the locks of several keys, where no room can be made: it is
//! kept for the session before, for all of the entries or for none.
//!
//! ```text
//!  lengths of the entries, in order ─▶ segments and runs that their writes will take (Need)
//!     all of them can be kept:  the writes find their places
//!     they cannot:              no entry is written
//! ```
//!
//! # Invariants
//! R1: the need is an upper bound for entries that are no longer than announced, in their order: an
//!     entry that is shorter, or not written, never takes more segments (next-fit is monotone).
//! R2: what is open counts only if it is still open when everything is kept.
//!
//! # References
//! Murgolo, Anomalous behavior in bin packing algorithms, 1988 (next-fit is monotone).

use base::UnixMillis;
use base::sync::Backoff;

use super::Local;
use crate::config::Mode;
use crate::inner::Inner;
use crate::log::{Log, Purpose};

/// The number of attempts when other sessions take the room at once.
const KEEP_ATTEMPTS_MAX: usize = 64;
/// The number of attempts when making room closes what was open.
const PLANS_MAX: usize = 4;
/// Entries up to a quarter of the shortest segment are summed, longer ones listed.
const SUMMED_MAX_BYTES: u64 = 16 << 10;

/// Log space for entries that are written under the locks of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    bytes: u64,
    summed_bytes: u64,
    summed_longest_bytes: u64,
    /// The entries beyond [`SUMMED_MAX_BYTES`], in the order of their writes.
    listed: Vec<u64>,
    without: Without,
}

/// What follows if the room cannot be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Without {
    /// No entry is written.
    #[default]
    Nothing,
    /// No entry is written, but what a plain write leaves alone serves as well.
    NothingWithoutSpare,
    /// Each entry is tried by itself.
    Attempts,
}

impl Room {
    /// For entries of these lengths in bytes, in the order of their writes.
    pub fn of(lens_bytes: impl IntoIterator<Item = u64>) -> Room {
        let mut room = Room::default();
        lens_bytes.into_iter().for_each(|len_bytes| room.add(len_bytes));
        room
    }

    /// Adds the next entry.
    pub fn add(&mut self, len_bytes: u64) {
        self.bytes = self.bytes.saturating_add(len_bytes);
        if len_bytes <= SUMMED_MAX_BYTES {
            self.summed_bytes += len_bytes;
            self.summed_longest_bytes = self.summed_longest_bytes.max(len_bytes);
        } else {
            self.listed.push(len_bytes);
        }
    }

    /// The same room, without which the writes are tried all the same, each by itself.
    #[must_use]
    pub fn or_less(self) -> Room {
        Room { without: Without::Attempts, ..self }
    }

    /// The same room, for entries with new expiries, which free about as much as they take: for
    /// them segments serve, too, that no session needs to make room.
    #[must_use]
    pub fn of_touches(self) -> Room {
        Room { without: Without::NothingWithoutSpare, ..self }
    }

    /// The total length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the entries will take, besides what is open (R1).
    fn need(&self, log: &Log, open: Opened) -> Need {
        let segment_bytes = log.segment_bytes();
        let (mut short_bytes, mut short_longest) = (self.summed_bytes, self.summed_longest_bytes);
        let mut long = Longs { left_bytes: open.long_bytes, ..Longs::default() };
        let mut runs = Vec::new();
        for len_bytes in self.listed.iter().copied() {
            if len_bytes <= log.short_max_bytes() {
                short_bytes += len_bytes;
                short_longest = short_longest.max(len_bytes);
            } else if len_bytes <= segment_bytes {
                long.add(len_bytes, segment_bytes);
            } else {
                runs.push(log.run_len(len_bytes));
            }
        }
        // The longest first, while the free segments are still together.
        runs.sort_unstable_by(|left, right| right.cmp(left));
        let shorts = match short_bytes <= open.short_bytes {
            true => 0,
            false => {
                // A segment is closed only when the next entry does not fit into its rest.
                let left_bytes = short_bytes - open.short_bytes.saturating_sub(short_longest);
                let filled_bytes = segment_bytes - short_longest;
                u32::try_from(left_bytes.div_ceil(filled_bytes)).unwrap_or(u32::MAX)
                    + open.more_queues
            }
        };
        let longs = match open.more_queues {
            0 => long.taken_count,
            more => long.taken_by_queues(segment_bytes, more),
        };
        Need { runs, single_count: shorts.saturating_add(longs) }
    }
}

/// The bytes that a session's open segments have left for entries of each kind, of every queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opened {
    short_bytes: u64,
    long_bytes: u64,
    /// Queues besides the first: any entry may go to any of them.
    more_queues: u32,
}

/// The entries that share a segment with others as long, in their order.
#[derive(Default)]
struct Longs {
    left_bytes: u64,
    taken_count: u32,
    count: u32,
    bytes: u64,
    longest_bytes: u64,
}

impl Longs {
    fn add(&mut self, len_bytes: u64, segment_bytes: u64) {
        if self.left_bytes < len_bytes {
            self.taken_count += 1;
            self.left_bytes = segment_bytes;
        }
        self.left_bytes -= len_bytes;
        self.count += 1;
        self.bytes = self.bytes.saturating_add(len_bytes);
        self.longest_bytes = self.longest_bytes.max(len_bytes);
    }

    /// An upper bound if the entries are spread over several queues.
    fn taken_by_queues(&self, segment_bytes: u64, more_queues: u32) -> u32 {
        let in_segment = (segment_bytes / self.longest_bytes.max(1)).max(1) as u32;
        // Two consecutive segments hold more than one segment's bytes.
        let pairs = u32::try_from(self.bytes.saturating_mul(2).div_ceil(segment_bytes));
        let by_count = self.count.div_ceil(in_segment).saturating_add(more_queues);
        let by_bytes = pairs.unwrap_or(u32::MAX).saturating_add(1 + more_queues);
        self.count.min(by_count).min(by_bytes)
    }
}

/// Segments and runs that writes will take.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    /// The lengths of runs, the longest first.
    runs: Vec<u32>,
    single_count: u32,
}

impl Need {
    fn segment_count(&self) -> u32 {
        let in_runs = self.runs.iter().fold(0_u32, |sum, run_len| sum.saturating_add(*run_len));
        in_runs.saturating_add(self.single_count)
    }

    fn run_lens(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().copied().chain(std::iter::repeat_n(1, self.single_count as usize))
    }
}

/// The room that a session has for its writes under locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasRoom {
    /// In open segments, or none is needed.
    Open,
    /// In segments that are kept for it.
    Kept,
    /// Too little: no entry is written.
    No,
}

/// Makes room for entries and keeps it for this session, unless its open segments have it.
pub(super) fn keep_room(local: &mut Local, inner: &Inner, now: UnixMillis, room: &Room) -> HasRoom {
    if room.bytes == 0 || room.listed.is_empty() && room.bytes <= local.appenders.room_bytes(inner)
    {
        return HasRoom::Open;
    }
    for _ in 0..PLANS_MAX {
        let open = open_rooms(local, inner);
        let need = room.need(&inner.log, open);
        // A cache gives up no more than a quarter of the log for writes that may not come.
        let makes_room = inner.config.mode == Mode::Clean
            || need.segment_count() <= inner.log.segment_count() / 4;
        let region = local.appenders.writes.region();
        let is_kept = need.run_lens().all(|run_len| {
            keep_run(local, inner, now, run_len, makes_room)
                || room.without == Without::NothingWithoutSpare
                    && inner.log.keep((local.place, Purpose::Touch), run_len, region)
        });
        if !is_kept && room.without == Without::Attempts {
            return HasRoom::Kept;
        }
        if is_kept && open_rooms(local, inner) == open {
            return if need.segment_count() == 0 { HasRoom::Open } else { HasRoom::Kept };
        }
        inner.log.end_keep(local.place);
        if !is_kept {
            break;
        }
    }
    local.tally.counts.out_of_memory += 1;
    HasRoom::No
}

/// What is open for clients' writes (R2).
fn open_rooms(local: &Local, inner: &Inner) -> Opened {
    match inner.ghosts.is_some() {
        // Making room writes to the second queue itself.
        true => Opened { short_bytes: 0, long_bytes: 0, more_queues: 1 },
        false => {
            let (short_bytes, long_bytes) = local.appenders.writes.rooms_bytes();
            Opened { short_bytes, long_bytes, more_queues: 0 }
        }
    }
}

fn keep_run(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    run_len: u32,
    makes_room: bool,
) -> bool {
    let region = local.appenders.writes.region();
    let place = local.place;
    let keep = || inner.log.keep((place, Purpose::Write), run_len, region);
    if keep() {
        return true;
    }
    let mut backoff = Backoff::new();
    for _ in 0..KEEP_ATTEMPTS_MAX {
        if !makes_room || !local.make_room(inner, now, run_len, 1) {
            return false;
        }
        // At once: a session that waits here leaves what it has freed to the others, each time.
        if keep() {
            return true;
        }
        // Others have taken the room all the same, or keep too much.
        backoff.snooze();
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn several_queues_never_take_more_segments_than_the_bound() {
        let mut random = 7_u64;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        let segment_bytes = 1_000;
        for _ in 0..2_000 {
            let lens: Vec<u64> = (0..1 + next() % 12).map(|_| 251 + next() % 750).collect();
            let mut all = Longs::default();
            let mut queues = [Longs::default(), Longs::default()];
            for len in &lens {
                all.add(*len, segment_bytes);
                queues[(next() % 2) as usize].add(*len, segment_bytes);
            }
            let taken: u32 = queues.iter().map(|queue| queue.taken_count).sum();
            let bound = all.taken_by_queues(segment_bytes, 1);
            assert!(taken <= bound, "{taken} of {bound} for {lens:?}");
        }
    }
}

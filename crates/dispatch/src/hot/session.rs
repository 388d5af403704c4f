//! HOTKEYS START: time and bytes by key, between a start and a stop.
//!
//! ```text
//!  a gathering ── any session? (one load, MONITOR's) ── no ─▶ nothing
//!                          │ yes
//!                          └▶ its bytes are read again ─▶ this worker's part: cpu, net ─┐
//!                                                        other workers' parts ──────────┴─▶ GET
//! ```
//!
//! # What is counted
//! Time: commands that run together share the gathering's time, as in `timing`; a command on
//! several keys divides its share among them. Bytes: those of the command as received, and those of
//! its reply. The reply is not read; its length is derived: a reply that carries the value is as
//! long as the value is after the command, and other replies are short.
//!
//! # Invariants
//! S1: without a session nothing is counted, and a gathering pays nothing for that.
//! S2: a worker's part is locked only by that worker and by a worker that reads the counts.
//! S3: the memory that the parts may hold at most is taken from the buffers' budget at the start.
//!
//! # Limits
//! Commands of native clients and of memcached's port are not counted, nor inline commands with
//! escapes. Keys are known by their first [`HEAD_BYTES_MAX`] bytes. Under SAMPLE, the totals of
//! bytes hold the replies of the sampled commands, times the ratio.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::{KeyHash, Slot, UnixMillis};
use budget::{BufferBudget, Kind, Reservation};
use host::process::Usage;
use policy::hot_set::{Heaviest, Sampler};

/// Bytes of a key that are kept.
pub const HEAD_BYTES_MAX: usize = 512;

/// Keys that are counted for each one shown, so that keys beyond the shown ones take no counts from
/// them.
const PLACES_PER_SHOWN: usize = 16;

/// The parameters of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Count time.
    pub cpu: bool,
    /// Count bytes.
    pub net: bool,
    /// The number of keys to show.
    pub count: usize,
    /// The time after which it stops by itself.
    pub duration_ms: Option<u64>,
    /// One command of this many is sampled.
    pub sample_every: u32,
    /// Only keys of these slots, ascending; `None`: of all.
    pub slots: Option<Vec<u16>>,
}

/// A key that is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyHead {
    /// Its first bytes.
    pub head: Box<[u8]>,
    /// The length of the whole key.
    pub len_bytes: usize,
}

/// Accesses to a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// By commands that only read.
    pub reads: u64,
    /// By all other commands.
    pub writes: u64,
}

/// Sums over commands with keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Nanoseconds.
    pub time_ns: u64,
    /// Bytes in and out.
    pub net_bytes: u64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.time_ns += other.time_ns;
        self.net_bytes += other.net_bytes;
    }
}

/// A key, its total, and its accesses.
pub type Weighed = (KeyHead, u64, Accesses);

/// The counts of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// All commands with keys.
    pub all: Sums,
    /// Those of the selected slots.
    pub selected: Sums,
    /// Those of them that were sampled.
    pub sampled: Sums,
    /// Keys by time in nanoseconds, most first.
    pub by_time_ns: Vec<Weighed>,
    /// Keys by bytes, most first.
    pub by_net_bytes: Vec<Weighed>,
}

/// One command that ran.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Its share of the time.
    pub time_ns: u64,
    /// Its length as received.
    pub in_bytes: u64,
    /// The slot of its first key.
    pub slot: Slot,
    /// Whether it only reads.
    pub is_read: bool,
    /// The number of its keys.
    pub key_count: u64,
    /// The length of its reply; `None`: [`Part::begin`] decided not to sample it.
    pub reply_bytes: Option<u64>,
}

/// The counts of one worker.
#[derive(Debug)]
pub struct Part {
    sampler: Sampler,
    time: Option<Heaviest<KeyHead, Accesses>>,
    net: Option<Heaviest<KeyHead, Accesses>>,
    sums: [Sums; 3],
}

impl Part {
    fn new(wanted: &Wanted, seed: u64) -> Part {
        let places = wanted.count * PLACES_PER_SHOWN;
        Part {
            sampler: Sampler::new(wanted.sample_every, seed),
            time: wanted.cpu.then(|| Heaviest::new(places)),
            net: wanted.net.then(|| Heaviest::new(places)),
            sums: [Sums::default(); 3],
        }
    }

    /// Whether a command is sampled.
    pub fn begin(&mut self) -> bool {
        self.sampler.wants()
    }

    /// Adds a command with keys; its keys are counted if it was sampled and its slot is among the
    /// requested ones.
    pub fn add<'b>(
        &mut self,
        wanted: &Wanted,
        ran: &Ran,
        keys: impl Iterator<Item = (KeyHash, &'b [u8])>,
    ) {
        let sampled_reply = ran.reply_bytes.unwrap_or(0) * u64::from(wanted.sample_every);
        let sums = Sums { time_ns: ran.time_ns, net_bytes: ran.in_bytes + sampled_reply };
        self.sums[0].add(sums);
        let is_selected =
            wanted.slots.as_ref().is_none_or(|slots| slots.binary_search(&ran.slot.0).is_ok());
        if !is_selected {
            return;
        }
        self.sums[1].add(sums);
        let Some(reply_bytes) = ran.reply_bytes else { return };
        let net_bytes = ran.in_bytes + reply_bytes;
        self.sums[2].add(Sums { time_ns: ran.time_ns, net_bytes });
        let key_count = ran.key_count.max(1);
        for (hash, key) in keys {
            let weights = [(&mut self.time, ran.time_ns), (&mut self.net, net_bytes)];
            for (heaviest, weight) in weights {
                let Some(heaviest) = heaviest else { continue };
                let accesses = heaviest.add(hash, weight / key_count, || head_of(key));
                accesses.reads += u64::from(ran.is_read);
                accesses.writes += u64::from(!ran.is_read);
            }
        }
    }
}

fn head_of(key: &[u8]) -> KeyHead {
    KeyHead { head: key[..key.len().min(HEAD_BYTES_MAX)].into(), len_bytes: key.len() }
}

/// The end of a session.
#[derive(Clone, Copy, Debug)]
struct End {
    at: UnixMillis,
    usage: Usage,
}

/// One session; it counts until it ends, and then keeps its counts.
#[derive(Debug)]
pub struct HotSession {
    /// Its parameters.
    pub wanted: Wanted,
    /// When it began.
    pub started_at: UnixMillis,
    usage: Usage,
    end: OnceLock<End>,
    /// By worker.
    parts: Vec<Mutex<Part>>,
    _memory: Reservation,
}

impl HotSession {
    /// Memory that the parts take at most.
    fn memory_bytes(wanted: &Wanted, worker_count: usize) -> u64 {
        let places = wanted.count * PLACES_PER_SHOWN;
        let list_bytes =
            Heaviest::<KeyHead, Accesses>::memory_bytes(places) + places * HEAD_BYTES_MAX;
        let list_count = usize::from(wanted.cpu) + usize::from(wanted.net);
        (worker_count * list_count * list_bytes) as u64
    }

    /// Counts from `now` on. An error names the bytes that are lacking.
    fn start(
        wanted: Wanted,
        worker_count: usize,
        budget: &Arc<BufferBudget>,
        now: UnixMillis,
    ) -> Result<HotSession, u64> {
        let bytes = HotSession::memory_bytes(&wanted, worker_count);
        let memory = Reservation::try_new(budget, Kind::HotKeys, bytes).ok_or(bytes)?;
        let part = |worker| Mutex::new(Part::new(&wanted, worker as u64));
        Ok(HotSession {
            parts: (0..worker_count).map(part).collect(),
            wanted,
            started_at: now,
            usage: Usage::now(),
            end: OnceLock::new(),
            _memory: memory,
        })
    }

    /// Whether it still counts. A session whose time is over ends here.
    pub fn is_active(&self, now: UnixMillis) -> bool {
        let due = self.wanted.duration_ms.map(|ms| UnixMillis(self.started_at.0 + ms));
        if let Some(due) = due.filter(|due| *due <= now) {
            self.stop(due);
        }
        self.end.get().is_none()
    }

    fn stop(&self, at: UnixMillis) {
        self.end.get_or_init(|| End { at, usage: Usage::now() });
    }

    /// How long it has counted.
    pub fn duration_ms(&self, now: UnixMillis) -> u64 {
        let end = self.end.get().map_or(now, |end| end.at);
        end.0.saturating_sub(self.started_at.0)
    }

    /// Processor time of the process's threads meanwhile, in milliseconds: in user code, and in the
    /// kernel.
    pub fn processor_ms(&self) -> (u64, u64) {
        let usage = self.end.get().map_or_else(Usage::now, |end| end.usage);
        let ms = |now: f64, then: f64| ((now - then).max(0.0) * 1000.0).round() as u64;
        (
            ms(usage.user_cpu_seconds, self.usage.user_cpu_seconds),
            ms(usage.system_cpu_seconds, self.usage.system_cpu_seconds),
        )
    }

    /// The part of a worker.
    pub fn part(&self, worker: usize) -> Option<MutexGuard<'_, Part>> {
        Some(self.parts.get(worker)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The counts of all workers.
    pub fn counted(&self) -> Counted {
        let mut sums = [Sums::default(); 3];
        let (mut by_time, mut by_net) = (HashMap::new(), HashMap::new());
        for worker in 0..self.parts.len() {
            let Some(part) = self.part(worker) else { continue };
            sums.iter_mut().zip(part.sums).for_each(|(sum, of_part)| sum.add(of_part));
            gather(&mut by_time, part.time.as_ref());
            gather(&mut by_net, part.net.as_ref());
        }
        let [all, selected, sampled] = sums;
        let count = self.wanted.count;
        let (by_time_ns, by_net_bytes) = (heaviest(by_time, count), heaviest(by_net, count));
        Counted { all, selected, sampled, by_time_ns, by_net_bytes }
    }
}

type Sum = HashMap<KeyHead, (u64, Accesses)>;

fn gather(sum: &mut Sum, part: Option<&Heaviest<KeyHead, Accesses>>) {
    for heavy in part.into_iter().flat_map(Heaviest::all) {
        let (weight, accesses) = sum.entry(heavy.key).or_default();
        *weight += heavy.weight;
        accesses.reads += heavy.note.reads;
        accesses.writes += heavy.note.writes;
    }
}

fn heaviest(sum: Sum, count: usize) -> Vec<Weighed> {
    let one = |(key, (weight, accesses))| (key, weight, accesses);
    let mut all: Vec<_> = sum.into_iter().map(one).filter(|(_, weight, _)| *weight > 0).collect();
    all.sort_unstable_by(|one, other| (other.1, &one.0.head).cmp(&(one.1, &other.0.head)));
    all.truncate(count);
    all
}

/// The latest session, if any.
#[derive(Debug, Default)]
pub struct HotSessions(Mutex<Option<Arc<HotSession>>>);

impl HotSessions {
    /// The latest session, which may have ended.
    pub fn latest(&self) -> Option<Arc<HotSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a session in the place of one that has ended; an error names the bytes that are
    /// lacking.
    pub fn start(
        &self,
        wanted: Wanted,
        worker_count: usize,
        budget: &Arc<BufferBudget>,
        now: UnixMillis,
    ) -> Result<(), u64> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If there is no room for this one, the previous one stays, with its counts.
        *latest = Some(Arc::new(HotSession::start(wanted, worker_count, budget, now)?));
        Ok(())
    }

    /// Ends the running session; returns false if there is none.
    pub fn stop(&self, now: UnixMillis) -> bool {
        let active = self.latest().filter(|session| session.is_active(now));
        active.is_some_and(|session| {
            session.stop(now);
            true
        })
    }

    /// Drops a session that has ended.
    pub fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        let (cpu, net, count, sample_every) = (true, true, 2, 1);
        Wanted { cpu, net, count, duration_ms: None, sample_every, slots: None }
    }

    fn ran(time_ns: u64, in_bytes: u64, slot: u16) -> Ran {
        let (reply_bytes, key_count, is_read) = (Some(5), 1, false);
        let slot = Slot(slot);
        Ran { time_ns, in_bytes, slot, is_read, key_count, reply_bytes }
    }

    fn start(wanted: Wanted) -> HotSession {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        HotSession::start(wanted, 2, &budget, UnixMillis(1000)).unwrap()
    }

    fn add(session: &HotSession, worker: usize, key: &[u8], ran: &Ran) {
        let hash = KeyHash(base::hash::mix(key.iter().map(|byte| u64::from(*byte)).sum()));
        session.part(worker).unwrap().add(&session.wanted, ran, [(hash, key)].into_iter());
    }

    #[test]
    fn parts_are_added_up_and_the_heaviest_keys_come_first() {
        let session = start(wanted());
        add(&session, 0, b"a", &ran(100, 30, 1));
        add(&session, 1, b"a", &ran(50, 30, 1));
        add(&session, 1, b"b", &ran(400, 10, 2));
        add(&session, 0, b"c", &ran(1, 1, 3));
        let counted = session.counted();
        let shown = |list: &[Weighed]| -> Vec<(String, u64)> {
            let one = |(key, weight, _): &(KeyHead, u64, _)| {
                (String::from_utf8_lossy(&key.head).into_owned(), *weight)
            };
            list.iter().map(one).collect()
        };
        assert_eq!(shown(&counted.by_time_ns), [("b".to_owned(), 400), ("a".to_owned(), 150)]);
        assert_eq!(shown(&counted.by_net_bytes), [("a".to_owned(), 70), ("b".to_owned(), 15)]);
        assert_eq!(counted.all, Sums { time_ns: 551, net_bytes: 91 });
        assert_eq!((counted.selected, counted.sampled), (counted.all, counted.all));
        assert_eq!(counted.by_time_ns[1].2, Accesses { reads: 0, writes: 2 });
    }

    #[test]
    fn keys_of_other_slots_and_what_is_not_sampled_only_add_to_the_sums() {
        let session = start(Wanted { slots: Some(vec![1]), sample_every: 10, ..wanted() });
        add(&session, 0, b"a", &ran(100, 30, 1));
        add(&session, 0, b"a", &Ran { reply_bytes: None, ..ran(100, 30, 1) });
        add(&session, 0, b"b", &ran(400, 10, 2));
        let counted = session.counted();
        assert_eq!(counted.by_time_ns.len(), 1);
        assert_eq!(counted.by_net_bytes[0].1, 35);
        assert_eq!(counted.all, Sums { time_ns: 600, net_bytes: 80 + 40 + 50 });
        assert_eq!(counted.selected, Sums { time_ns: 200, net_bytes: 80 + 30 });
        assert_eq!(counted.sampled, Sums { time_ns: 100, net_bytes: 35 });
    }

    #[test]
    fn a_session_ends_when_its_time_is_over_and_keeps_its_counts() {
        let session = start(Wanted { duration_ms: Some(500), ..wanted() });
        add(&session, 0, b"a", &ran(100, 30, 1));
        assert!(session.is_active(UnixMillis(1499)));
        assert!(!session.is_active(UnixMillis(1700)));
        assert_eq!(session.duration_ms(UnixMillis(9000)), 500);
        assert_eq!(session.counted().by_time_ns.len(), 1);
    }

    #[test]
    fn its_memory_comes_from_the_budget_and_goes_back() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let sessions = HotSessions::default();
        let large = Wanted { count: 64, ..wanted() };
        assert!(sessions.start(large, 2, &budget, UnixMillis(0)).is_err());
        assert_eq!((budget.granted_bytes(), sessions.latest().is_none()), (0, true));
        sessions.start(wanted(), 2, &budget, UnixMillis(0)).unwrap();
        assert!(budget.granted_bytes() > 2 * 2 * 32 * HEAD_BYTES_MAX as u64);
        assert!(sessions.stop(UnixMillis(5)));
        assert!(!sessions.stop(UnixMillis(6)), "it has ended");
        sessions.reset();
        assert_eq!(budget.granted_bytes(), 0);
    }
}

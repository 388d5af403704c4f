//! SLOWLOG: the commands that took too long, newest first.
//!
//! ```text
//!  a command that runs by itself ── its own time ──┐
//!                                                  ├─ beyond the threshold ─▶ entries, bounded
//!  a batch ── its time, and its longest command ───┘
//! ```
//!
//! # What is measured
//! Commands on keys run together: a batch has one time, from the moment when its bytes had been
//! read until the last of its requests was executed, and no part of it belongs to one command. A
//! batch that takes too long makes one entry: its longest command, with a last argument that says
//! how many others ran with it. A command that runs by itself (KEYS, SCAN, FLUSHALL, EXEC, CONFIG,
//! ...) is timed by itself. Neither includes the time that a reply takes to leave.
//!
//! # Invariants
//! L1: for a fast command or batch nothing is copied and no lock is taken.
//! L2: an entry holds at most 32 arguments of about 128 bytes. All entries are booked: the oldest
//!     are dropped where `slowlog-max-len` or the log's part of the client buffers allows no more.
//! L3: no entry contains a password.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::UnixMillis;
use budget::{BufferBudget, Kind, Reservation};
use wire::resp::{ArgIter, Flags, Spec};

use crate::clients::Client;

/// The maximum number of arguments of an entry, as in Redis.
const ARGS_MAX: usize = 32;

/// Bytes of an argument that are kept, as in Redis.
const ARG_BYTES_MAX: usize = 128;

/// Stands for arguments that are never shown.
const REDACTED: &[u8] = b"(redacted)";

/// One slow command or batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number among all entries since the start.
    pub id: u64,
    /// The Unix time of its end.
    pub at_seconds: u64,
    /// Its duration.
    pub took_us: u64,
    /// Its arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// The client that sent it.
    pub peer: String,
    /// The client's name, from CLIENT SETNAME.
    pub name: String,
}

/// The log, as all threads see it.
#[derive(Debug)]
pub struct SlowLog {
    /// In microseconds; negative: nothing is logged.
    threshold_us: AtomicI64,
    len_max: AtomicU64,
    /// The number of entries ever made.
    total: AtomicU64,
    entries: Mutex<Entries>,
}

/// The entries, newest first.
#[derive(Debug)]
struct Entries {
    list: VecDeque<Arc<Entry>>,
    /// What they hold (L2).
    booked: Reservation,
}

impl Entry {
    /// The memory that it takes: its strings, and what the list and the allocator add to each.
    fn held_bytes(&self) -> u64 {
        const OF_ENTRY: usize = size_of::<Entry>() + 64;
        const OF_ARG: usize = size_of::<Vec<u8>>() + 24;
        let args: usize = self.args.iter().map(|arg| OF_ARG + arg.capacity()).sum();
        (OF_ENTRY + args + self.peer.capacity() + self.name.capacity()) as u64
    }
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        let entry_bytes = entry.held_bytes();
        while !self.booked.try_resize(self.booked.bytes() + entry_bytes) {
            if !self.pop() {
                return; // Not even one has room.
            }
        }
        self.list.push_front(Arc::new(entry));
    }

    /// Drops the oldest one; false: there is none.
    fn pop(&mut self) -> bool {
        let Some(entry) = self.list.pop_back() else { return false };
        let left_bytes = self.booked.bytes() - entry.held_bytes();
        self.booked.try_resize(left_bytes) // To shrink never fails.
    }

    fn cut(&mut self, len_max: u64) {
        while self.list.len() as u64 > len_max && self.pop() {}
        if self.list.is_empty() {
            self.list.shrink_to_fit();
        }
    }
}

impl SlowLog {
    /// Logs commands that take longer than `threshold_us`, unless that is negative.
    pub fn new(threshold_us: i64, len_max: u64, budget: &Arc<BufferBudget>) -> SlowLog {
        SlowLog {
            threshold_us: AtomicI64::new(threshold_us),
            len_max: AtomicU64::new(len_max),
            total: AtomicU64::new(0),
            entries: Mutex::new(Entries {
                list: VecDeque::new(),
                booked: Reservation::empty(budget, Kind::SlowLog),
            }),
        }
    }

    /// The time from which on a command is slow; `None`: none is.
    #[inline]
    pub fn threshold(&self) -> Option<Duration> {
        // Relaxed: a command sooner or later does not matter.
        u64::try_from(self.threshold_us.load(Ordering::Relaxed)).ok().map(Duration::from_micros)
    }

    /// `slowlog-log-slower-than`.
    pub fn threshold_us(&self) -> i64 {
        self.threshold_us.load(Ordering::Relaxed)
    }

    /// `slowlog-max-len`.
    pub fn len_max(&self) -> u64 {
        self.len_max.load(Ordering::Relaxed)
    }

    /// Sets `slowlog-log-slower-than`; it holds from now on.
    pub fn set_threshold_us(&self, threshold_us: i64) {
        self.threshold_us.store(threshold_us, Ordering::Relaxed);
    }

    /// Sets `slowlog-max-len`; it holds from now on, and older entries beyond it are dropped.
    pub fn set_len_max(&self, len_max: u64) {
        self.len_max.store(len_max, Ordering::Relaxed);
        self.lock().cut(len_max);
    }

    /// The number of entries ever made.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Adds an entry for a slow command or batch.
    #[cold]
    pub fn add(&self, client: &Client, now: UnixMillis, took: Duration, args: Vec<Vec<u8>>) {
        let mut entries = self.lock();
        // Under the lock, so that ids ascend in the list.
        let id = self.total.fetch_add(1, Ordering::Relaxed);
        entries.push(Entry {
            id,
            at_seconds: now.0 / 1000,
            took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            args,
            peer: client.peer.to_string(),
            name: client.names().name,
        });
        entries.cut(self.len_max());
    }

    /// The newest entries, newest first.
    pub fn newest(&self, count: usize) -> Vec<Arc<Entry>> {
        self.lock().list.iter().take(count).cloned().collect()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.lock().list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all entries.
    pub fn clear(&self) {
        self.lock().cut(0);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arguments of an entry (L2, L3); `others` ran in the same batch.
pub fn cut_args(args: ArgIter<'_>, others: usize) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let left = args.len() - shown;
    let hidden = Hidden::of(args);
    let mut cut: Vec<Vec<u8>> = Vec::new();
    let mut before: &[u8] = b"";
    for (at, arg) in args.take(shown).enumerate() {
        let is_hidden = hidden.hides(at, before);
        cut.push(if is_hidden { REDACTED.to_vec() } else { cut_arg(arg) });
        before = arg;
    }
    if left > 0 {
        cut.push(format!("... ({left} more arguments)").into_bytes());
    }
    if others > 0 {
        let commands = if others == 1 { "command" } else { "commands" };
        cut.push(format!("... (in a batch with {others} more {commands})").into_bytes());
    }
    cut
}

/// The arguments from the first on, for clients that monitor (L3), while `show` wants more.
pub fn shown_args(args: ArgIter<'_>, mut show: impl FnMut(&[u8]) -> bool) {
    let hidden = Hidden::of(args);
    let mut before: &[u8] = b"";
    for (at, arg) in args.enumerate() {
        if !show(if hidden.hides(at, before) { REDACTED } else { arg }) {
            return;
        }
        before = arg;
    }
}

fn cut_arg(arg: &[u8]) -> Vec<u8> {
    let Some(head) = arg.get(..ARG_BYTES_MAX).filter(|_| arg.len() > ARG_BYTES_MAX) else {
        return arg.to_vec();
    };
    let mut cut = head.to_vec();
    cut.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
    cut
}

/// The arguments of a command that are never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// All arguments after the name.
    From(usize),
    /// The values of secret settings.
    Secrets,
}

impl Hidden {
    fn of(mut args: ArgIter<'_>) -> Hidden {
        let name = args.next().unwrap_or_default();
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        let second = args.next().unwrap_or_default();
        match () {
            () if is("auth") || is("hello") => Hidden::From(1),
            () if is("acl") && second.eq_ignore_ascii_case(b"setuser") => Hidden::From(2),
            () if is("config") && second.eq_ignore_ascii_case(b"set") => Hidden::Secrets,
            () => Hidden::Nothing,
        }
    }

    fn hides(self, at: usize, before: &[u8]) -> bool {
        match self {
            Hidden::Nothing => false,
            Hidden::From(first) => at >= first,
            Hidden::Secrets => at >= 3 && before.eq_ignore_ascii_case(b"requirepass"),
        }
    }
}

/// Whether a command runs by itself and is timed alone; others run in batches.
pub fn is_timed_alone(spec: &Spec) -> bool {
    !spec.flags.contains(Flags::FAST) && spec.keys.first == 0
}

#[cfg(test)]
mod tests {
    use wire::Parsed;
    use wire::resp::{Limits, Parser};

    use super::*;

    #[track_caller]
    fn check(line: &str, others: usize, want: &[&str]) {
        let Parsed::Done { value, .. } =
            Parser::default().parse(line.as_bytes(), &Limits::default())
        else {
            panic!("{line}");
        };
        let cut = cut_args(value.iter(), others);
        let cut: Vec<_> = cut.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
        assert_eq!(cut, want);
    }

    #[test]
    fn arguments_are_cut_as_redis_cuts_them() {
        check("GET a\r\n", 0, &["GET", "a"]);
        check("GET a\r\n", 2, &["GET", "a", "... (in a batch with 2 more commands)"]);
        let long = "x".repeat(130);
        let cut = format!("{}... (2 more bytes)", "x".repeat(128));
        check(&format!("SET a {long}\r\n"), 0, &["SET", "a", &cut]);
        check(&format!("SET a {}\r\n", &long[..128]), 0, &["SET", "a", &long[..128]]);
        let keys: Vec<String> = (0..40).map(|at| at.to_string()).collect();
        let mut want = vec!["MGET"];
        want.extend(keys[..30].iter().map(String::as_str));
        want.push("... (10 more arguments)");
        check(&format!("MGET {}\r\n", keys.join(" ")), 0, &want);
        check(&format!("MGET {}\r\n", keys[..31].join(" ")), 0, &{
            let mut want = vec!["MGET"];
            want.extend(keys[..31].iter().map(String::as_str));
            want
        });
    }

    #[test]
    fn entries_beyond_the_logs_part_of_the_buffers_are_dropped() {
        const LIMIT_BYTES: u64 = 64 << 10;
        let budget = Arc::new(BufferBudget::new(16 * LIMIT_BYTES));
        assert_eq!(budget.kind_limit_bytes(Kind::SlowLog), LIMIT_BYTES);
        let log = SlowLog::new(0, u64::MAX, &budget);
        let add = |id: u64, arg_bytes: usize| {
            let (args, text) = (vec![vec![b'x'; arg_bytes]; 32], String::new());
            let entry =
                Entry { id, at_seconds: 0, took_us: 0, args, peer: text.clone(), name: text };
            log.lock().push(entry);
        };
        (0..1000).for_each(|id| add(id, 128));
        let kept = log.newest(usize::MAX);
        assert!((5..20).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().map(|entry| entry.id).eq((0..1000).rev().take(kept.len())));
        assert!(budget.kind_bytes(Kind::SlowLog) > LIMIT_BYTES / 2);

        log.set_len_max(2);
        assert_eq!(log.newest(usize::MAX).len(), 2);
        add(1000, LIMIT_BYTES as usize);
        assert!(log.is_empty(), "one that never fits");
        assert_eq!(budget.kind_bytes(Kind::SlowLog), 0);
    }

    #[test]
    fn passwords_are_not_kept() {
        check("AUTH me secret\r\n", 0, &["AUTH", "(redacted)", "(redacted)"]);
        let line = "config SET slo off RequirePass secret\r\n";
        check(line, 0, &["config", "SET", "slo", "off", "RequirePass", "(redacted)"]);
    }

    #[test]
    fn what_runs_by_itself_is_told_by_its_row() {
        let is_alone = |name: &str| is_timed_alone(Spec::by_name(name.as_bytes()).unwrap());
        for name in ["keys", "scan", "flushall", "exec", "config|set", "info", "kv.range"] {
            assert!(is_alone(name), "{name}");
        }
        for name in ["get", "set", "mget", "ping", "rename", "getrange", "ttl", "multi", "auth"] {
            assert!(!is_alone(name), "{name}");
        }
    }
}

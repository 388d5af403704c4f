//! The cores' side of a run: queues, service, versions and retries, windows.
//!
//! ```text
//!  begin ─▶ bucket odd? spin ─▶ a write? ─ Open, Join ─▶ +100 ns ─▶ after_join: close?
//!                                  │ RunNow                              │ yes
//!                                  ▼                                     ▼
//!                        T_kvs ─▶ read: version moved?       the last one's write,
//!                                  ▼       then again        then replies, 100 ns each
//!                               T_fixed ─▶ answer ─▶ next
//! ```
//!
//! # Invariants
//! I1: a busy core has exactly one pending event of its own.
//! I2: a window's requests are answered exactly once, in the order they joined.

use std::collections::{HashMap, VecDeque};

use policy::window::{Dependent, InSight, OpenWindow, WindowRules, WindowTimer, WriteStep};
use policy::{Access, Router};

use super::super::streams::Streams;
use super::super::versions::Versions;
use super::{DONE, Event, FIXED_NS, Model, Request, Setup};
use crate::figure::Fidelity;
use sim::engine::instant;

/// The latencies by which the artifact detects overload, and how many in a row it needs.
const OVERLOAD_NS: f64 = 1e6;
const OVERLOAD_COUNT: u32 = 4;

/// All cores and what they share.
pub(super) struct Cores {
    cores: Vec<Core>,
    versions: Option<Versions>,
    rules: Option<WindowRules>,
    fidelity: Fidelity,
    /// Whether core 0 has reached the end mark (artifact) and serves nothing more.
    has_ended: bool,
    /// The number of late requests that core 0 has answered in a row.
    late_count: u32,
    pub(super) window_count: u64,
    pub(super) compacted_count: u64,
}

#[derive(Default)]
struct Core {
    queue: VecDeque<Request>,
    /// Number of requests in `queue` per key; kept if windows search it without a bound.
    queued_of_key: HashMap<u64, u32>,
    current: Option<Request>,
    /// The time when the read in progress began to read its bucket.
    read_from: f64,
    has_retried: bool,
    windows: Vec<Window>,
    /// The remaining replies of a closing window.
    closing: VecDeque<Request>,
    /// Whether the current request has opened its window.
    has_opened: bool,
}

struct Window {
    rank: u64,
    state: OpenWindow,
    batch: Vec<Request>,
}

impl Cores {
    pub(super) fn new(setup: &Setup) -> Cores {
        Cores {
            cores: (0..setup.workers).map(|_| Core::default()).collect(),
            versions: setup.is_versioned.then(Versions::new),
            rules: setup.rules,
            fidelity: setup.fidelity,
            has_ended: false,
            late_count: 0,
            window_count: 0,
            compacted_count: 0,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The artifact stops generating when core 0 is hopelessly late.
    pub(super) fn watch_overload(&mut self, core: u16, latency_ns: f64) {
        if core == 0 {
            self.late_count = if latency_ns >= OVERLOAD_NS { self.late_count + 1 } else { 0 };
            self.has_ended |= self.late_count >= OVERLOAD_COUNT;
        }
    }

    fn counts_keys(&self) -> bool {
        self.rules.is_some_and(|rules| rules.queue_scan_max == usize::MAX)
    }
}

impl Core {
    fn push(&mut self, request: Request, counts_keys: bool) {
        if counts_keys {
            *self.queued_of_key.entry(request.rank).or_insert(0) += 1;
        }
        self.queue.push_back(request);
    }

    fn pop(&mut self, counts_keys: bool) -> Option<Request> {
        let request = self.queue.pop_front()?;
        if counts_keys && let Some(count) = self.queued_of_key.get_mut(&request.rank) {
            *count -= 1;
            if *count == 0 {
                self.queued_of_key.remove(&request.rank);
            }
        }
        Some(request)
    }

    /// The queued requests for a window on `rank`.
    fn in_sight(&self, rank: u64, rules: &WindowRules, counts: Dependent) -> InSight {
        let depends = |request: &Request| {
            request.rank == rank && (counts == Dependent::Any || request.access == Access::Write)
        };
        let is_there = if rules.queue_scan_max == usize::MAX && counts == Dependent::Any {
            self.queued_of_key.contains_key(&rank)
        } else {
            self.queue.iter().take(rules.queue_scan_max).any(depends)
        };
        match (is_there, self.queue.is_empty()) {
            (true, _) => InSight::SameKey,
            (false, false) => InSight::OtherKeys,
            (false, true) => InSight::Nothing,
        }
    }
}

impl<S: Streams, R: Router> Model<S, R> {
    pub(super) fn arrive_at_core(&mut self, now: f64, index: u16, request: Request) {
        let counts_keys = self.cores.counts_keys();
        let core = &mut self.cores.cores[usize::from(index)];
        if core.current.is_some() {
            core.push(request, counts_keys);
        } else {
            core.current = Some(request);
            self.begin(now, index);
        }
    }

    /// Takes the next request, or a window whose time is up.
    fn next(&mut self, now: f64, index: u16) {
        let counts_keys = self.cores.counts_keys();
        let core = &mut self.cores.cores[usize::from(index)];
        core.current = None;
        if !core.windows.is_empty() && self.close_due(now, index) {
            return;
        }
        let core = &mut self.cores.cores[usize::from(index)];
        core.current = core.pop(counts_keys);
        if core.current.is_some() {
            self.begin(now, index);
        }
    }

    /// Starts the current request, once its bucket's version is even.
    pub(super) fn begin(&mut self, now: f64, index: u16) {
        let cores = &mut self.cores;
        let core = &mut cores.cores[usize::from(index)];
        let Some(request) = core.current else { return };
        if request.is_end {
            // `current` stays: core 0 takes nothing more.
            cores.has_ended = true;
            return;
        }
        if let Some(versions) = &cores.versions
            && let Some(until) = versions.odd_until(request.partition, now)
        {
            return self.engine.push(until, Event::SpinEnded(index));
        }
        if request.access == Access::Write
            && let Some(rules) = cores.rules
        {
            let place = core.windows.iter().position(|window| window.rank == request.rank);
            let open = place.map(|place| &core.windows[place].state);
            let step = rules.on_write(open, |counts| {
                core.in_sight(request.rank, &rules, counts) == InSight::SameKey
            });
            if step != WriteStep::RunNow {
                return self.add_to_window(now, index, request, place);
            }
        }
        self.serve(now, index, request);
    }

    fn serve(&mut self, now: f64, index: u16, request: Request) {
        let kvs_ns = self.streams.kvs_ns(usize::from(index));
        let core = &mut self.cores.cores[usize::from(index)];
        match (&mut self.cores.versions, request.access) {
            (Some(versions), Access::Read) => {
                versions.look(kvs_ns);
                core.read_from = now;
                core.has_retried = false;
                self.engine.push(now + kvs_ns, Event::ReadEnded(index));
            }
            (Some(versions), Access::Write) => {
                versions.write(request.partition, now, kvs_ns);
                self.engine.push(now + kvs_ns + FIXED_NS, Event::Served(index));
            }
            (None, _) => self.engine.push(now + kvs_ns + FIXED_NS, Event::Served(index)),
        }
    }

    /// Compares versions at the end of a read. The artifact reads again once; a server reads until
    /// it has seen one version throughout.
    pub(super) fn end_read(&mut self, now: f64, index: u16) {
        let cores = &mut self.cores;
        let core = &mut cores.cores[usize::from(index)];
        let (Some(request), Some(versions)) = (core.current, &mut cores.versions) else { return };
        let has_moved = versions.has_moved(request.partition, core.read_from, now);
        let is_final = cores.fidelity == Fidelity::Artifact && core.has_retried;
        if !has_moved || is_final {
            return self.engine.push_lane(DONE, now + FIXED_NS, Event::Served(index));
        }
        core.has_retried = true;
        let kvs_ns = self.streams.kvs_ns(usize::from(index));
        let mut from = now;
        if cores.fidelity == Fidelity::Honest {
            from = versions.odd_until(request.partition, now).unwrap_or(now);
        }
        versions.look(kvs_ns);
        core.read_from = from;
        self.engine.push(from + kvs_ns, Event::ReadEnded(index));
    }

    pub(super) fn end_service(&mut self, now: f64, index: u16) {
        if !self.cores.cores[usize::from(index)].closing.is_empty() {
            return self.reply_next(now, index);
        }
        if let Some(request) = self.cores.cores[usize::from(index)].current {
            self.answer(now, index, request);
        }
        self.next(now, index);
    }

    fn add_to_window(&mut self, now: f64, index: u16, request: Request, place: Option<usize>) {
        let Some(rules) = self.cores.rules else { return };
        let core = &mut self.cores.cores[usize::from(index)];
        core.has_opened = place.is_none();
        match place {
            Some(place) => {
                let window = &mut core.windows[place];
                rules.join(&mut window.state);
                window.batch.push(request);
            }
            None => {
                let state = rules.open(instant(now));
                self.cores.window_count += 1;
                if rules.timer == WindowTimer::Armed {
                    for at in [rules.looks_at(&state), rules.closes_at(&state)] {
                        self.engine.push((at.ns as f64).max(now), Event::Timer(index));
                    }
                }
                core.windows.push(Window { rank: request.rank, state, batch: vec![request] });
            }
        }
        self.engine.push_lane(DONE, now + FIXED_NS, Event::Joined(index));
    }

    /// Decides whether the window of a write closes. A newly opened one has a follower in sight.
    pub(super) fn end_join(&mut self, now: f64, index: u16) {
        let Some(rules) = self.cores.rules else { return };
        let core = &mut self.cores.cores[usize::from(index)];
        let Some(request) = core.current else { return };
        let place = core.windows.iter().position(|window| window.rank == request.rank);
        if !core.has_opened
            && let Some(place) = place
        {
            let state = core.windows[place].state;
            let in_sight = |counts| core.in_sight(request.rank, &rules, counts);
            if rules.after_join(instant(now), &state, in_sight).is_some() {
                return self.close(now, index, place);
            }
        }
        self.next(now, index);
    }

    /// Closes a window whose time is up, or that would gather nothing more; returns whether there
    /// was one.
    fn close_due(&mut self, now: f64, index: u16) -> bool {
        let Some(rules) = self.cores.rules else { return false };
        let core = &self.cores.cores[usize::from(index)];
        let is_due = |window: &Window| {
            let in_sight = |counts| core.in_sight(window.rank, &rules, counts);
            rules.on_time(instant(now), &window.state)
                || (rules.timer == WindowTimer::Armed
                    && rules.on_round(instant(now), &window.state, in_sight).is_some())
        };
        let Some(place) = core.windows.iter().position(is_due) else { return false };
        self.close(now, index, place);
        true
    }

    pub(super) fn look_at_windows(&mut self, now: f64, index: u16) {
        if self.cores.cores[usize::from(index)].current.is_none() {
            self.close_due(now, index);
        }
    }

    /// Writes the last operation and then replies to all, as a server must (C-4 §5.3). The artifact
    /// replies to the others before it writes.
    fn close(&mut self, now: f64, index: u16, place: usize) {
        let is_artifact = self.is_artifact();
        let core = &mut self.cores.cores[usize::from(index)];
        let window = core.windows.swap_remove(place);
        self.cores.compacted_count += window.batch.len() as u64 - 1;
        core.closing = window.batch.into();
        // The core is busy with the window, whichever request it took up last.
        core.current = core.closing.back().copied();
        if is_artifact {
            core.closing.pop_back();
        }
        if !is_artifact || core.closing.is_empty() {
            self.begin_last(now, index);
        } else {
            self.engine.push_lane(DONE, now + FIXED_NS, Event::Replied(index));
        }
    }

    pub(super) fn reply_next(&mut self, now: f64, index: u16) {
        let core = &mut self.cores.cores[usize::from(index)];
        let Some(request) = core.closing.pop_front() else { return };
        let is_last_reply = core.closing.is_empty();
        self.answer(now, index, request);
        if !is_last_reply {
            self.engine.push_lane(DONE, now + FIXED_NS, Event::Replied(index));
        } else if self.is_artifact() {
            self.begin_last(now, index);
        } else {
            self.next(now, index);
        }
    }

    /// The one write of a window.
    fn begin_last(&mut self, now: f64, index: u16) {
        if let Some(request) = self.cores.cores[usize::from(index)].current {
            self.serve(now, index, request);
        }
    }
}

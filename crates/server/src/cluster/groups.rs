//! Groups of requests at the control thread: one group at a time holds a shard
//! (`forwarding::replicate::group`).
//!
//! ```text
//!  Begin ─▶ queue ─▶ shard held ─ nothing of it is under way, and it serves ─▶ granted
//!  Run   ─▶ node, one after the other ─ all computed ─▶ answered
//!  End   ─▶ on all copies ─▶ answered, and the shard is released
//! ```
//!
//! # Invariants
//! G1: a worker, and all its clients with it, waits for each answer: none takes longer than
//!     `PATIENCE_NS`. An outcome that is unknown by then counts as bad (P2).
//! G2: a group that turns bad before its end sends nothing (`cluster::node::group`, H3).
//! G3: a request that the node refuses for now, as between two configurations, is asked again in
//!     its order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::Instant;
use cluster::message::Outcome;
use cluster::node::Stage;
use cluster::{ShardId, Slot};

use super::control::{Control, PATIENCE_NS};
use crate::budget::Kind;
use crate::forwarding::replicate::{GroupAnswer, GroupCall, GroupChange};

/// See the module's page.
#[derive(Default)]
pub(super) struct Groups {
    waiting: VecDeque<(usize, Slot)>,
    holder: Option<Holder>,
}

struct Holder {
    dispatcher: usize,
    slot: Slot,
    shard: ShardId,
    /// Its last call.
    since: Instant,
    is_granted: bool,
    /// Requests that were not answered yet: by the node, ...
    tickets: BTreeMap<u32, Arc<GroupChange>>,
    /// ... because they are to be asked again (G3), ...
    later: VecDeque<Arc<GroupChange>>,
    /// ... and to the worker.
    running: Option<Vec<Arc<GroupChange>>>,
    /// Whether requests that add to the shard are refused for want of room: determined once,
    /// because a group that has begun continues.
    is_full: Option<bool>,
    is_ending: bool,
    is_bad: bool,
}

impl Groups {
    /// Whether a worker waits for an answer.
    pub fn is_busy(&self) -> bool {
        self.holder.is_some() || !self.waiting.is_empty()
    }

    /// Takes the node's answer to a group's request.
    pub fn replied(&mut self, ticket: u32, outcome: &Outcome) {
        let Some(holder) = &mut self.holder else { return };
        // A group that was given up may still get replies.
        let Some(change) = holder.tickets.remove(&ticket) else { return };
        match outcome {
            Outcome::Computed => {}
            // Computed already: it was held, and is void.
            Outcome::TryAgain if !change.is_computed() => holder.later.push_back(change),
            _ => holder.is_bad = true,
        }
    }
}

impl Control {
    /// Takes the workers' calls, and continues with the group whose turn it is.
    pub(super) fn turn_groups(&mut self, now: Instant) {
        while let Ok((dispatcher, call)) = self.ends.groups.try_recv() {
            match call {
                GroupCall::Begin(slot) => self.state.groups.waiting.push_back((dispatcher, slot)),
                GroupCall::Flush { is_everywhere } => {
                    self.flush_for(dispatcher, is_everywhere, now);
                }
                GroupCall::Run(changes) => self.run_group(changes, now),
                GroupCall::End => {
                    if let Some(holder) = &mut self.state.groups.holder {
                        holder.is_ending = true;
                        holder.since = now;
                        let (shard, is_bad) = (holder.shard, holder.is_bad);
                        self.let_group_leave(shard, is_bad, now);
                    }
                }
            }
        }
        while self.step_group(now) {}
    }

    fn run_group(&mut self, changes: Vec<Arc<GroupChange>>, now: Instant) {
        let Some(holder) = &mut self.state.groups.holder else { return };
        holder.running = Some(changes.clone());
        holder.since = now;
        let shard = holder.shard;
        let filling_bytes: u64 = changes.iter().map(|change| change.filling_bytes()).sum();
        let waiting_bytes = self.state.outstanding.filling_bytes();
        // A write that has begun must end on every copy: the group is refused as a whole, or not at
        // all.
        let made_bytes: u64 = changes.iter().map(|change| change.made_bytes_min()).sum();
        // One of them exceeds the share (`Flight::begin_past`).
        let made_bytes_max = self.shared.buffer_budget().kind_limit_bytes(Kind::Writes)
            + self.shared.store().limits().item_max_bytes;
        let has_room =
            self.state.facts.has_room(filling_bytes, waiting_bytes, self.shared.buffer_budget())
                && (changes.len() == 1 || made_bytes <= made_bytes_max)
                && !self.node.is_crowded(shard, now);
        let is_full = match &mut self.state.groups.holder {
            Some(holder) if filling_bytes > 0 => *holder.is_full.get_or_insert(!has_room),
            _ => false,
        };
        for change in changes {
            if is_full && change.filling_bytes() > 0 {
                change.refuse_full();
            } else if let Some(holder) = &mut self.state.groups.holder {
                holder.later.push_back(change);
            }
        }
        self.ask_for_later(now);
    }

    /// Asks the node for the holder's requests, until one is refused for now (G3).
    fn ask_for_later(&mut self, now: Instant) {
        loop {
            let Some(holder) = &mut self.state.groups.holder else { return };
            let serves = now < self.node.serves_until();
            let Some(change) = holder.later.pop_front_if(|_| serves && !holder.is_bad) else {
                return;
            };
            let shard = holder.shard;
            let ticket = self.state.outstanding.add_group(change.key(), shard, now);
            if let Some(holder) = &mut self.state.groups.holder {
                holder.tickets.insert(ticket, Arc::clone(&change));
            }
            self.ask_for(ticket, change.clone(), now);
            self.perform(now);
            let Some(holder) = &mut self.state.groups.holder else { return };
            // It was refused for now and is behind requests that were to follow it.
            if let Some(refused) = holder.later.pop_back_if(|last| Arc::ptr_eq(last, &change)) {
                return holder.later.push_front(refused);
            }
        }
    }

    /// Does one step; returns whether another may follow at once.
    fn step_group(&mut self, now: Instant) -> bool {
        let Some(holder) = &mut self.state.groups.holder else { return self.next_group(now) };
        let dispatcher = holder.dispatcher;
        if !holder.is_granted {
            return self.grant_group(now);
        }
        if holder.is_bad && holder.running.take().is_some() {
            self.ends.answer(dispatcher, GroupAnswer::Bad);
            return false; // Its next call is still to come.
        }
        if !holder.later.is_empty() && holder.running.is_some() {
            self.ask_for_later(now);
        }
        let Some(holder) = &mut self.state.groups.holder else { return false };
        let is_idle = holder.tickets.is_empty() && holder.later.is_empty();
        let is_known = |change: &Arc<GroupChange>| change.is_computed() || is_idle;
        if holder.running.as_ref().is_some_and(|changes| changes.iter().all(is_known)) {
            holder.running = None;
            self.ends.answer(dispatcher, GroupAnswer::Good);
            return false; // Its next call is still to come.
        }
        let is_late = now.ns.saturating_sub(holder.since.ns) >= PATIENCE_NS;
        if holder.running.is_some() && is_late {
            holder.running = None;
            holder.is_bad = true;
            self.ends.answer(dispatcher, GroupAnswer::Bad); // G1
            return false;
        }
        let is_under_way = !holder.tickets.is_empty();
        if holder.running.is_some() || !holder.is_ending || is_under_way && !is_late {
            return false;
        }
        let is_bad = holder.is_bad || is_under_way;
        let answer = if is_bad { GroupAnswer::Bad } else { GroupAnswer::Good };
        self.end_group(answer, now);
        true
    }

    fn next_group(&mut self, now: Instant) -> bool {
        let Some((dispatcher, slot)) = self.state.groups.waiting.pop_front() else { return false };
        let shard = self.shard_of(slot);
        self.state.outstanding.hold(shard); // P1
        self.state.groups.holder = Some(Holder {
            dispatcher,
            slot,
            shard,
            since: now,
            is_granted: false,
            tickets: BTreeMap::new(),
            later: VecDeque::new(),
            running: None,
            is_full: None,
            is_ending: false,
            is_bad: false,
        });
        true
    }

    fn grant_group(&mut self, now: Instant) -> bool {
        let Some(holder) = &self.state.groups.holder else { return false };
        let (dispatcher, shard, slot, since) =
            (holder.dispatcher, holder.shard, holder.slot, holder.since);
        let is_patient = now.ns.saturating_sub(since.ns) < PATIENCE_NS;
        let is_used = self.state.outstanding.asked_count(shard) > 0;
        let is_here = self.shard_of(slot) == shard;
        let stage = self.node.stage(shard).filter(|_| is_here);
        let may_serve = now < self.node.serves_until();
        match stage {
            Some(_) if !self.node.has_copies(shard) => {
                self.end_group(GroupAnswer::TooFewCopies, now);
            }
            // Writes under way, which may wait for a copy forever (K23).
            _ if is_used && is_patient => return false,
            Some(Stage::Serving | Stage::Filling) if may_serve && !is_used => {
                if let Some(holder) = &mut self.state.groups.holder {
                    holder.is_granted = true;
                    holder.since = now;
                }
                self.node.hold_group(shard);
                self.ends.answer(dispatcher, GroupAnswer::Good);
                return false;
            }
            Some(_) if is_patient => return false,
            _ => self.end_group(GroupAnswer::Bad, now),
        }
        true
    }

    /// Lets a group leave as one frame (`cluster::node`'s H2), or not at all (G2).
    fn let_group_leave(&mut self, shard: ShardId, is_bad: bool, now: Instant) {
        let actions = &mut self.state.actions;
        match is_bad {
            true => self.node.drop_group(shard, actions),
            false => self.node.release_group(shard, now, actions),
        }
        self.perform(now);
    }

    fn end_group(&mut self, answer: GroupAnswer, now: Instant) {
        let Some(holder) = self.state.groups.holder.take() else { return };
        self.let_group_leave(holder.shard, holder.is_bad, now);
        self.ends.answer(holder.dispatcher, answer);
        self.state.outstanding.let_go(holder.shard);
        self.try_again(now);
    }
}

//! Groups of requests at the control thread: one group at a time holds a shard
//! (`replicate::group`).
//!
//! ```text
//!  Begin ─▶ queue ─▶ shard held ─ nothing of it is under way, and it serves ─▶ granted
//!  Run   ─▶ node, one after the other ─ all computed ─▶ answered
//!  End   ─▶ its writes leave, and the shard is released ─▶ on all copies ─▶ answered
//! ```
//!
//! # Invariants
//! G1: a connection waits for each answer, and its worker for a moment: none takes longer than
//!     `PATIENCE_NS`. An outcome that is unknown by then counts as bad (P2).
//! G2: a group that turns bad before its end sends nothing (`cluster::node::group`, H3).
//! G3: a request that the node refuses for now, as between two configurations, is asked again in
//!     its order, as long as the configuration names this node as the shard's primary. A node that
//!     is no member any more has no lease and gets none: the worker is not kept waiting for one.
//! G4: a group does not wait for the memory of what it stores: its connection has done so before
//!     it began.
//! G5: a group that its worker gives up leaves its shard at once, and nothing of it is sent, unless
//!     it is ending.
//! G6: so does a group that makes no call for `PATIENCE_NS`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::Instant;
use budget::{Kind, Reservation};
use cluster::message::Outcome;
use cluster::node::Stage;
use cluster::{ShardId, Slot};
use replication::replicate::{
    AnswerTo, GroupAnswer, GroupCall, GroupChange, GroupRoom, KEPT_BYTES_MAX, KeptRoom,
};

use super::control::{Control, PATIENCE_NS};
use super::flushes;

/// See the module's page.
#[derive(Default)]
pub(super) struct Groups {
    waiting: VecDeque<Caller>,
    holder: Option<Holder>,
    /// Those that have left their shard, and are not on all copies yet.
    leaving: Vec<Holder>,
}

/// A group's beginning.
struct Caller {
    group: u64,
    slot: Slot,
    answer_to: AnswerTo,
}

struct Holder {
    caller: Caller,
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
    /// The bytes of values that the outcomes of these keep (`replicate::group`, P3).
    kept_bytes: usize,
    /// The room for all values that it stores, if it was asked for.
    room: Option<Arc<KeptRoom>>,
    /// Whether requests that add to the shard are refused for want of room: determined once,
    /// because a group that has begun continues.
    is_full: Option<bool>,
    is_ending: bool,
    is_bad: bool,
}

/// What a group that waits for its shard depends on.
#[derive(Clone, Copy, Debug)]
struct Prospect {
    /// None: the configuration does not name this node as the shard's primary.
    stage: Option<Stage>,
    has_copies: bool,
    /// Writes are under way, which may wait for a copy forever (K23).
    is_used: bool,
    may_serve: bool,
    is_patient: bool,
}

impl Prospect {
    /// The answer to the group, if it need not wait.
    fn answer(self) -> Option<GroupAnswer> {
        match self.stage {
            None => Some(GroupAnswer::Bad),
            Some(_) if !self.has_copies => Some(GroupAnswer::TooFewCopies),
            Some(Stage::Serving | Stage::Filling) if self.may_serve && !self.is_used => {
                Some(GroupAnswer::Good)
            }
            Some(_) => (!self.is_patient).then_some(GroupAnswer::Bad),
        }
    }
}

/// What a group that holds its shard does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Wait,
    /// Its worker's call is answered.
    Answer(GroupAnswer),
    /// So is its last call, and the shard is released.
    End(GroupAnswer),
}

impl Holder {
    fn new(caller: Caller, shard: ShardId, now: Instant) -> Holder {
        Holder {
            caller,
            shard,
            since: now,
            is_granted: false,
            tickets: BTreeMap::new(),
            later: VecDeque::new(),
            running: None,
            kept_bytes: 0,
            room: None,
            is_full: None,
            is_ending: false,
            is_bad: false,
        }
    }

    /// Takes note that the configuration names another primary: requests that were to be asked
    /// again are not executed. Outcomes of requests that the node has are still to come.
    fn lose_shard(&mut self) {
        if !self.later.is_empty() {
            self.later.clear();
            self.is_bad = true;
        }
    }

    /// Puts off the requests that were not asked yet, if the others keep enough: the worker runs
    /// them again. Returns whether it did.
    fn put_off(&mut self) -> bool {
        let is_put_off = self.kept_bytes >= KEPT_BYTES_MAX && !self.later.is_empty();
        if is_put_off {
            self.later.clear();
            if let Some(running) = &mut self.running {
                let asked = |change: &Arc<GroupChange>| {
                    change.is_computed()
                        || self.tickets.values().any(|asked| Arc::ptr_eq(asked, change))
                };
                running.retain(asked);
            }
        }
        is_put_off
    }

    /// Whether it holds its shard, and no call has come for long.
    fn is_forgotten(&self, now: Instant) -> bool {
        let is_late = now.ns.saturating_sub(self.since.ns) >= PATIENCE_NS;
        is_late && self.is_granted && self.running.is_none()
    }

    fn step(&mut self, now: Instant) -> Step {
        if self.is_bad && self.running.take().is_some() {
            return Step::Answer(GroupAnswer::Bad);
        }
        let is_idle = self.tickets.is_empty() && self.later.is_empty();
        let is_known = |change: &Arc<GroupChange>| change.is_computed() || is_idle;
        if self.running.as_ref().is_some_and(|changes| changes.iter().all(is_known)) {
            self.running = None;
            return Step::Answer(GroupAnswer::Good);
        }
        let is_late = now.ns.saturating_sub(self.since.ns) >= PATIENCE_NS;
        if self.running.is_some() && is_late {
            self.running = None;
            self.is_bad = true;
            return Step::Answer(GroupAnswer::Bad); // G1
        }
        let is_under_way = !self.tickets.is_empty();
        if self.running.is_some() || !self.is_ending || is_under_way && !is_late {
            return Step::Wait;
        }
        let is_bad = self.is_bad || is_under_way;
        Step::End(if is_bad { GroupAnswer::Bad } else { GroupAnswer::Good })
    }
}

impl Groups {
    /// Whether a connection waits for an answer.
    pub fn is_busy(&self) -> bool {
        self.holder.is_some() || !self.waiting.is_empty() || !self.leaving.is_empty()
    }

    /// Takes the node's answer to a group's request.
    pub fn replied(&mut self, ticket: u32, outcome: &Outcome) {
        let mut all = self.holder.iter_mut().chain(&mut self.leaving);
        // A group that was given up may still get replies.
        let Some(holder) = all.find(|holder| holder.tickets.contains_key(&ticket)) else { return };
        let Some(change) = holder.tickets.remove(&ticket) else { return };
        match outcome {
            Outcome::Computed => {}
            // Computed already: it was held, and is void.
            Outcome::TryAgain if !change.is_computed() => holder.later.push_back(change),
            _ => holder.is_bad = true,
        }
    }
}

/// Takes the workers' calls, and continues with the group whose turn it is.
pub(super) fn turn(control: &mut Control, now: Instant) {
    while let Ok((group, call)) = control.ends.groups.try_recv() {
        match call {
            GroupCall::Begin(slot, answer_to) => {
                control.state.groups.waiting.push_back(Caller { group, slot, answer_to });
            }
            GroupCall::Flush { is_everywhere, answer_to } => {
                flushes::begin(control, answer_to, is_everywhere, now);
            }
            GroupCall::Cancel => cancel(control, group, now),
            call => go_on(control, group, call, now),
        }
    }
    end_left(control, now);
    while step(control, now) {}
}

/// A call of the group that holds its shard. The end of any other has been answered.
fn go_on(control: &mut Control, group: u64, call: GroupCall, now: Instant) {
    let holder = control.state.groups.holder.as_mut();
    let Some(holder) = holder.filter(|holder| holder.caller.group == group) else { return };
    match call {
        GroupCall::Run(changes) => run(control, changes, now),
        GroupCall::Keep(room, kept) => {
            let is_kept = keep_all(control, room, kept, now);
            let answer = if is_kept { GroupAnswer::Good } else { GroupAnswer::Bad };
            answer_holder(control, answer);
        }
        GroupCall::End { is_bad } => {
            holder.is_bad |= is_bad;
            begin_end(control, now);
        }
        GroupCall::Moved(worker) => holder.caller.answer_to.follow(worker),
        GroupCall::Begin(..) | GroupCall::Flush { .. } | GroupCall::Cancel => {}
    }
}

/// Lets a group's writes leave. Others may use its shard from now on: what they do comes after.
fn begin_end(control: &mut Control, now: Instant) {
    let groups = &mut control.state.groups;
    let Some(mut holder) = groups.holder.take() else { return };
    let (shard, is_bad) = (holder.shard, holder.is_bad);
    (holder.is_ending, holder.since, holder.room) = (true, now, None);
    groups.leaving.push(holder);
    let_leave(control, shard, is_bad, now);
    control.state.outstanding.let_go(shard);
    control.try_again(now);
}

/// Answers the groups that have left, once all copies have them (G1).
fn end_left(control: &mut Control, now: Instant) {
    let mut at = 0;
    while let Some(holder) = control.state.groups.leaving.get_mut(at) {
        if let Step::End(answer) = holder.step(now) {
            let holder = control.state.groups.leaving.swap_remove(at);
            control.ends.answer(&holder.caller.answer_to, answer);
        } else {
            at += 1;
        }
    }
}

/// Takes a group that its worker has given up out of the line, or from its shard (G5).
fn cancel(control: &mut Control, group: u64, now: Instant) {
    let groups = &mut control.state.groups;
    groups.waiting.retain(|caller| caller.group != group);
    let holder = groups.holder.as_mut();
    let Some(holder) = holder.filter(|it| it.caller.group == group && !it.is_ending) else {
        return;
    };
    (holder.is_bad, holder.running) = (true, None);
    holder.later.clear();
    match holder.is_granted {
        true => begin_end(control, now),
        false => end(control, GroupAnswer::Bad, now),
    }
}

fn answer_holder(control: &mut Control, answer: GroupAnswer) {
    if let Some(holder) = &control.state.groups.holder {
        control.ends.answer(&holder.caller.answer_to, answer);
    }
}

/// Keeps room for all values that a group stores, beside what was kept before; false: there is too
/// little (G4).
fn keep_all(control: &mut Control, room: GroupRoom, mut kept: Reservation, now: Instant) -> bool {
    let has_room = has_room(control, room.filling_bytes, now);
    let fits = room.made_bytes <= made_bytes_max(control);
    let past_bytes = control.shared.store().limits().item_max_bytes;
    let Some(holder) = &mut control.state.groups.holder else { return false };
    holder.since = now;
    let is_full = *holder.is_full.get_or_insert(!has_room) || !fits;
    let is_kept = !is_full && kept.grow_towards(room.made_bytes, past_bytes);
    holder.room = is_kept.then(|| Arc::new(KeptRoom::new(kept)));
    is_kept
}

/// Whether the log has room for so many bytes of keys and values of the group that holds its shard.
fn has_room(control: &mut Control, filling_bytes: u64, now: Instant) -> bool {
    let Some(holder) = &control.state.groups.holder else { return false };
    let shard = holder.shard;
    let waiting_bytes = control.state.outstanding.filling_bytes();
    let budget = control.shared.buffer_budget();
    control.state.facts.has_room(filling_bytes, waiting_bytes, budget)
        && !control.node.is_crowded(shard, now)
}

/// The bytes of values that one call, or one group, may have under way. One of them exceeds the
/// share (`Flight::begin_past`).
fn made_bytes_max(control: &Control) -> u64 {
    control.shared.buffer_budget().kind_limit_bytes(Kind::Writes)
        + control.shared.store().limits().item_max_bytes
}

fn run(control: &mut Control, changes: Vec<Arc<GroupChange>>, now: Instant) {
    let Some(holder) = &mut control.state.groups.holder else { return };
    holder.running = Some(changes.clone());
    holder.kept_bytes = 0;
    holder.since = now;
    if let Some(room) = &holder.room {
        changes.iter().for_each(|change| change.draw_from(Arc::clone(room)));
    }
    let filling_bytes: u64 = changes.iter().map(|change| change.filling_bytes()).sum();
    // A write that has begun must end on every copy: the call is refused as a whole, or not at
    // all.
    let made_bytes: u64 = changes.iter().map(|change| change.made_bytes_min()).sum();
    let has_room = has_room(control, filling_bytes, now)
        && (changes.len() == 1 || made_bytes <= made_bytes_max(control));
    let is_full = match &mut control.state.groups.holder {
        Some(holder) if filling_bytes > 0 => *holder.is_full.get_or_insert(!has_room),
        _ => false,
    };
    for change in changes {
        if is_full && change.filling_bytes() > 0 {
            change.refuse_full();
        } else if let Some(holder) = &mut control.state.groups.holder {
            holder.later.push_back(change);
        }
    }
    ask_for_later(control, now);
}

/// Asks the node for the holder's requests, until one is refused for now (G3).
fn ask_for_later(control: &mut Control, now: Instant) {
    loop {
        let Some(holder) = &mut control.state.groups.holder else { return };
        if holder.put_off() {
            return;
        }
        let serves = now < control.node.serves_until();
        let Some(change) = holder.later.pop_front_if(|_| serves && !holder.is_bad) else {
            return;
        };
        let shard = holder.shard;
        let ticket = control.state.outstanding.add_group(change.key(), shard, now);
        if let Some(holder) = &mut control.state.groups.holder {
            holder.tickets.insert(ticket, Arc::clone(&change));
        }
        control.ask_for(ticket, change.clone(), now);
        control.perform(now);
        let Some(holder) = &mut control.state.groups.holder else { return };
        // It was refused for now and is behind requests that were to follow it.
        if let Some(refused) = holder.later.pop_back_if(|last| Arc::ptr_eq(last, &change)) {
            return holder.later.push_front(refused);
        }
        holder.kept_bytes += change.kept_bytes();
    }
}

/// Does one step; returns whether another may follow at once.
fn step(control: &mut Control, now: Instant) -> bool {
    let Some(holder) = &control.state.groups.holder else { return begin_next(control, now) };
    if !holder.is_granted {
        return grant(control, now);
    }
    if holder.is_forgotten(now) {
        cancel(control, holder.caller.group, now); // G6
        return true;
    }
    let is_here = stage_of(control, holder.shard, holder.caller.slot).is_some();
    if let Some(holder) = control.state.groups.holder.as_mut().filter(|_| !is_here) {
        holder.lose_shard();
    }
    if control.state.groups.holder.as_ref().is_some_and(|holder| holder.running.is_some()) {
        ask_for_later(control, now);
    }
    let Some(holder) = &mut control.state.groups.holder else { return false };
    match holder.step(now) {
        Step::Wait => false,
        Step::Answer(answer) => {
            answer_holder(control, answer);
            false // Its next call is still to come.
        }
        Step::End(_) => false, // Only of one that has left.
    }
}

fn begin_next(control: &mut Control, now: Instant) -> bool {
    let Some(caller) = control.state.groups.waiting.pop_front() else { return false };
    let shard = control.node.shard_of_slot(caller.slot);
    control.state.outstanding.hold(shard); // P1
    control.state.groups.holder = Some(Holder::new(caller, shard, now));
    true
}

fn grant(control: &mut Control, now: Instant) -> bool {
    let Some(holder) = &control.state.groups.holder else { return false };
    let (shard, slot, since) = (holder.shard, holder.caller.slot, holder.since);
    let prospect = Prospect {
        stage: stage_of(control, shard, slot),
        has_copies: control.node.has_copies(shard),
        is_used: control.state.outstanding.asked_count(shard) > 0,
        may_serve: now < control.node.serves_until(),
        is_patient: now.ns.saturating_sub(since.ns) < PATIENCE_NS,
    };
    match prospect.answer() {
        None => false,
        Some(GroupAnswer::Good) => {
            if let Some(holder) = &mut control.state.groups.holder {
                holder.is_granted = true;
                holder.since = now;
            }
            control.node.hold_group(shard);
            answer_holder(control, GroupAnswer::Good);
            false
        }
        Some(answer) => {
            end(control, answer, now);
            true
        }
    }
}

/// The stage of a group's shard; none if the configuration does not name this node as the
/// primary of the group's slot.
fn stage_of(control: &Control, shard: ShardId, slot: Slot) -> Option<Stage> {
    control.node.stage(shard).filter(|_| control.node.shard_of_slot(slot) == shard)
}

/// Lets a group leave as one frame (`cluster::node`'s H2), or not at all (G2).
fn let_leave(control: &mut Control, shard: ShardId, is_bad: bool, now: Instant) {
    let actions = &mut control.state.actions;
    match is_bad {
        true => control.node.drop_group(shard, actions),
        false => control.node.release_group(shard, now, actions),
    }
    control.perform(now);
}

/// Answers a group that has not begun, and takes its shard from it.
fn end(control: &mut Control, answer: GroupAnswer, now: Instant) {
    let Some(holder) = control.state.groups.holder.take() else { return };
    control.ends.answer(&holder.caller.answer_to, answer);
    control.state.outstanding.let_go(holder.shard);
    control.try_again(now);
}

#[cfg(test)]
mod tests {
    use base::UnixMillis;
    use budget::BufferBudget;
    use cluster::message::{Change, Changed};
    use commands::compaction::Tells;
    use commands::reply::{Answer, Shape};
    use counters::CommandIndex;
    use dispatch::lanes::request_slot::Origin;
    use replication::replicate::{ControlChannel, PendingGroup};
    use store::request::{Op, Request};
    use store::{Store, StoreConfig};

    use super::*;

    const NOW: Instant = Instant { ns: 7_000_000 };

    /// The delete of a key, in a store of its own.
    fn delete_of(key: &[u8]) -> Arc<GroupChange> {
        let answer = Answer {
            slot: 0,
            command: CommandIndex::UNKNOWN_RESP,
            is_quiet: false,
            shape: Shape::Value,
        };
        let (protocol, now) = (wire::resp::Protocol::Resp2, UnixMillis(0));
        let (notes, is_tls, connection) = (&[][..], false, 0);
        let origin = Origin { answer, notes, protocol, is_tls, connection, now };
        let store = Store::open(StoreConfig {
            memory_bytes: 16 << 20,
            index_bytes: 1 << 20,
            mode: store::Mode::Clean,
            eviction: store::Eviction::default(),
            index: store::IndexKind::Hash,
            lossy_index: false,
            session_max: 4,
            item_max_bytes: 64 << 10,
            hash_seed: 11,
            batch: 32,
            huge_pages: store::HugePages::Off,
        })
        .expect("a small store");
        let request = Request { key, hash: store.key_hasher().hash(key), op: Op::Delete };
        let budget = Arc::new(BufferBudget::new(1 << 20));
        Arc::new(GroupChange::new(&request, Tells::Nothing, &origin, (&store, &budget)))
    }

    /// A group whose request the node has refused for now.
    fn refused() -> Holder {
        let (channel, _ends) = ControlChannel::new(1).expect("descriptors");
        let (_, answer_to) = PendingGroup::new(&Arc::new(channel), 0, &Arc::default());
        let caller = Caller { group: 0, slot: Slot(3), answer_to };
        let mut holder = Holder::new(caller, ShardId(0), NOW);
        holder.is_granted = true;
        let change = delete_of(b"k");
        holder.running = Some(vec![Arc::clone(&change)]);
        holder.later.push_back(change);
        holder
    }

    #[test]
    fn a_request_that_is_to_be_asked_again_waits_only_while_the_shard_is_here() {
        let mut holder = refused();
        assert_eq!(holder.step(NOW), Step::Wait);
        holder.lose_shard();
        assert_eq!(holder.step(NOW), Step::Answer(GroupAnswer::Bad));
        assert_eq!(holder.step(NOW), Step::Wait, "for the worker's last call");
        holder.is_ending = true;
        assert_eq!(holder.step(NOW), Step::End(GroupAnswer::Bad));
    }

    #[test]
    fn requests_behind_long_outcomes_are_put_off_and_the_call_is_answered() {
        let mut holder = refused();
        assert!(!holder.put_off(), "nothing is kept so far");
        let asked = delete_of(b"asked");
        asked.refuse_full(); // An outcome.
        holder.running.as_mut().unwrap().push(Arc::clone(&asked));
        holder.kept_bytes = KEPT_BYTES_MAX;
        assert!(holder.put_off());
        assert!(holder.later.is_empty() && holder.running.as_ref().unwrap().len() == 1);
        assert_eq!(holder.step(NOW), Step::Answer(GroupAnswer::Good));
        assert!(!holder.put_off(), "nothing is left");
    }

    #[test]
    fn a_request_that_was_refused_changes_nothing_when_it_is_computed_again() {
        let change = delete_of(b"k");
        change.refuse_full();
        assert!(change.take().is_some());
        assert!(change.is_computed(), "though its worker has the outcome");
        let key: std::sync::Arc<[u8]> = change.key();
        let version = cluster::Version::from_bits(1 << 40 | 1).unwrap_or_else(|| panic!("one"));
        let delete = cluster::record::Entry::delete_of(ShardId(0), key, version);
        let entry = cluster::record::Entry { value: Some(b"v"[..].into()), ..delete };
        let changed = change.compute(Some(&entry), version);
        assert!(matches!(changed, Changed::Nothing));
        assert!(change.take().is_none());
    }

    #[test]
    fn a_group_that_the_node_has_computed_still_learns_its_outcome_where_its_shard_moves() {
        let mut holder = refused();
        let change = holder.later.pop_front().unwrap();
        change.refuse_full(); // An outcome.
        holder.tickets.insert(5, change);
        holder.lose_shard();
        assert_eq!(holder.step(NOW), Step::Answer(GroupAnswer::Good));
        holder.is_ending = true;
        assert_eq!(holder.step(NOW), Step::Wait, "until all copies have it");
        holder.tickets.clear();
        assert_eq!(holder.step(NOW), Step::End(GroupAnswer::Good));
    }

    #[test]
    fn a_group_waits_for_its_shard_only_where_the_configuration_names_this_node() {
        let serving = Prospect {
            stage: Some(Stage::Serving),
            has_copies: true,
            is_used: false,
            may_serve: true,
            is_patient: true,
        };
        assert_eq!(serving.answer(), Some(GroupAnswer::Good));
        let few = Prospect { has_copies: false, ..serving };
        assert_eq!(few.answer(), Some(GroupAnswer::TooFewCopies));
        let promoting = Prospect { stage: Some(Stage::Promoting), ..serving };
        for waiting in [
            promoting,
            Prospect { is_used: true, ..serving },
            Prospect { may_serve: false, ..serving },
        ] {
            assert_eq!(waiting.answer(), None, "{waiting:?}");
            let late = Prospect { is_patient: false, ..waiting };
            assert_eq!(late.answer(), Some(GroupAnswer::Bad), "{late:?}");
            let gone = Prospect { stage: None, ..waiting };
            assert_eq!(gone.answer(), Some(GroupAnswer::Bad), "{gone:?}");
        }
    }
}

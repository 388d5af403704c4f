//! Requests that another node executes for a client of this one, because memcached's clients know
//! no redirects (`replicate::forward`).
//!
//! ```text
//!  client ─ set k ─▶ this node ─ Forward ─▶ primary of k: a guest among its control requests
//!         ◀─ reply ──          ◀─ Forwarded ─ the reply's bytes; none: not served there
//! ```
//!
//! # Invariants
//! F1: a write is sent to another node once; if no answer comes, its outcome is unknown. A read is
//!     sent again once its node has left the cluster.
//! F2: a guest is not forwarded again. Its reply goes to the asking node whether or not that is a
//!     member here: one that has left the cluster has clients until it ends.
//! F3: the copy of an outgoing request is booked before it is made, and a reply before it is copied
//!     into its client's request slot; without room, the request or reply waits where it is. A read
//!     whose reply has no room is sent again when there is some. The oldest read's reply may exceed
//!     the share of replies, because replies behind it on its connection leave only after it.
//! F4: the number of requests under way is small enough that they cannot fill a link's queue,
//!     because a link loses what does not fit; other requests wait in the order of their shard.
//! F5: a reply for which the link has no room waits, booked, as long as the asking node waits for
//!     it.
//! F6: while a request on a key is at another node, later ones for memcached's clients wait here,
//!     even if this node has become the key's primary. Otherwise they would overtake a refused one,
//!     which is sent again (K10). A write whose node has left the cluster without an answer is
//!     overtaken after a while, and never sent again: otherwise one write at a node that is dead
//!     would hold up all requests of its shard, which another node serves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use budget::{Kind, Reservation};
use cluster::message::Hold;
use cluster::{Configuration, Message, NodeId, ShardId};
use replication::replicate::{Asker, ControlRequest, Refused};

use super::control::{Control, PATIENCE_NS, State};
use super::flushes;
use super::outstanding::Waiter;

/// Requests at other nodes at a time. A link's queue takes 1,024 messages, and its peer answers
/// others too.
const FORWARDS_MAX: usize = 256;
/// After this time a write at a node that has left the cluster is overtaken (F6).
const OVERTAKEN_NS: u64 = PATIENCE_NS / 10;
/// How long forwarding pauses after a request or reply found no room, here or at the other node.
const PAUSE_NS: u64 = 5_000_000;
/// Sleeping workers look once a second for clients that do not read.
const ROOM_DELAY_MAX: Duration = Duration::from_secs(2);

/// Requests under way at other nodes, and replies to other nodes.
#[derive(Default)]
pub(super) struct Forwards {
    /// By number.
    sent: BTreeMap<u64, Sent>,
    /// Nothing is sent before this time.
    paused_until: Instant,
    /// When a request or a reply last found no room, ...
    crowded_at: Instant,
    /// ... and when a reply last found some.
    answered_at: Instant,
    /// Whether another node has answered since requests were last tried again.
    has_answers: bool,
    /// Replies to other nodes, whose links are full.
    unsent: VecDeque<(NodeReply, Instant)>,
}

/// A reply to another node, about a request that it has forwarded.
pub(super) struct NodeReply {
    pub to: Asker,
    /// None: it was not executed here.
    pub bytes: Option<Arc<[u8]>>,
    /// Its booking, held until it has left.
    pub hold: Hold,
}

impl Forwards {
    /// Whether the request was not sent, apparently for want of room.
    pub fn is_unsent(&self, waiter: &Waiter) -> bool {
        waiter.sent_at.is_none() && waiter.came_at <= self.crowded_at
    }

    /// Whether a request on that key has to wait for one that is at another node (F6).
    fn holds_key(
        &mut self,
        shard: ShardId,
        key: &[u8],
        now: Instant,
        is_member: impl Fn(NodeId) -> bool,
    ) -> bool {
        let mut is_held = false;
        let is_same = |sent: &&mut Sent| sent.shard == shard && *sent.key == *key;
        for sent in self.sent.values_mut().filter(is_same) {
            let since_ns = now.ns.saturating_sub(sent.sent_at.ns);
            sent.is_overtaken |= since_ns >= OVERTAKEN_NS && !is_member(sent.to);
            is_held |= !sent.is_overtaken;
        }
        is_held
    }

    /// Whether requests that waited behind an answer may continue; resets that.
    pub fn take_has_answers(&mut self) -> bool {
        std::mem::take(&mut self.has_answers)
    }

    /// Takes out the reads, by their number and ticket, that are at nodes that have left; returns
    /// their tickets.
    fn take_lost(
        &mut self,
        is_member: impl Fn(NodeId) -> bool,
        is_read: impl Fn(u64, u32) -> bool,
    ) -> Vec<u32> {
        let is_lost = |id: &u64, sent: &mut Sent| !is_member(sent.to) && is_read(*id, sent.ticket);
        let tickets: Vec<u32> =
            self.sent.extract_if(.., is_lost).map(|(_, sent)| sent.ticket).collect();
        self.has_answers |= !tickets.is_empty();
        tickets
    }

    /// Whether a reply waits to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }
}

struct Sent {
    ticket: u32,
    to: NodeId,
    shard: ShardId,
    key: Arc<[u8]>,
    sent_at: Instant,
    /// Whether later requests on its key are no longer held (F6).
    is_overtaken: bool,
    /// The booking of the copy that leaves.
    _booked: Reservation,
}

/// Forwards a request to the primary of its shard, now or later; returns false if it cannot be,
/// as a guest.
pub(super) fn forward(
    control: &mut Control,
    ticket: u32,
    control_request: &ControlRequest,
    configuration: &Configuration,
    now: Instant,
) -> bool {
    if !control_request.is_forwarded() || control.guests.has(control_request) {
        return false;
    }
    let shard = configuration.shard(configuration.shard_of_slot(control_request.slot()));
    let Some(to) = shard.map(|shard| shard.primary).filter(|to| configuration.has(*to)) else {
        return false;
    };
    // The node may have been asked for both before the first one left.
    let is_held = waits_for_key(control, ticket, control_request, now);
    if is_held || control.state.outstanding.is_behind(ticket) {
        control.state.outstanding.put_off(ticket); // F4, F6
        return true;
    }
    let Some(waiter) = control.state.outstanding.at(ticket) else { return false };
    let (id, shard, key) = (waiter.sequence, waiter.shard, Arc::clone(&waiter.key));
    let forwards = &control.state.forwards;
    let is_paused = now < forwards.paused_until || forwards.sent.len() >= FORWARDS_MAX;
    let mut booked = Reservation::empty(control.shared.buffer_budget(), Kind::Forwards);
    if is_paused || !booked.try_grow_or_alone(control_request.len_bytes()) {
        control.state.forwards.crowded_at = now;
        control.state.outstanding.put_off(ticket);
        return true;
    }
    let message = Message::Forward { id, bytes: control_request.to_bytes().into() };
    if !control.peers.tell_held(to, message, Hold::default()) {
        put_off(control, ticket, now);
        return true;
    }
    control.state.outstanding.note_sent(ticket, now);
    let (sent_at, is_overtaken) = (now, false);
    let sent = Sent { ticket, to, shard, key, sent_at, is_overtaken, _booked: booked };
    control.state.forwards.sent.insert(id, sent);
    true
}

/// Whether a request has to wait here because one on its key is at another node (F6). A guest
/// does not: the node that asks keeps the order of its own clients, and two nodes would wait
/// for each other.
pub(super) fn waits_for_key(
    control: &mut Control,
    ticket: u32,
    control_request: &ControlRequest,
    now: Instant,
) -> bool {
    if control.state.forwards.sent.is_empty()
        || !control_request.is_forwarded()
        || control.guests.has(control_request)
    {
        return false;
    }
    let State { forwards, outstanding, .. } = &mut control.state;
    let peers = &control.peers;
    let Some(waiter) = outstanding.at(ticket) else { return false };
    let is_member = |node| peers.has(node);
    forwards.holds_key(waiter.shard, &waiter.key, now, is_member)
}

/// Puts off a request that was not sent, was not executed there, or is a read whose reply has
/// no room.
fn put_off(control: &mut Control, ticket: u32, now: Instant) {
    control.state.forwards.crowded_at = now;
    control.state.forwards.paused_until = Instant { ns: now.ns.saturating_add(PAUSE_NS) };
    control.state.outstanding.put_off(ticket);
}

pub(super) fn forwarded(control: &mut Control, id: u64, reply: Option<Arc<[u8]>>, now: Instant) {
    if control.state.flushes.forwarded(id, reply.as_deref()) {
        return;
    }
    let sent = control.state.forwards.sent.remove(&id);
    let Some(Sent { ticket, is_overtaken, .. }) = sent else { return };
    control.state.forwards.has_answers = true;
    let Some(waiter) = control.state.outstanding.get(ticket, id) else { return };
    let is_patient = is_patient(control, waiter, now);
    let Some(control_request) = waiter.control_request.clone() else { return };
    // Without bytes: the configuration has changed there, or will here, or that node has no
    // room. The request is asked again, unless others have overtaken it.
    let Some(reply) = reply else {
        return match is_overtaken {
            true => control.finish(ticket, &control_request, Some(Refused::Uncertain)),
            false => put_off(control, ticket, now),
        };
    };
    control_request.let_past(control.state.outstanding.is_oldest_read(ticket));
    match control_request.answer(&reply) {
        true => control.state.forwards.answered_at = now,
        false if control_request.is_read() && is_patient => {
            return put_off(control, ticket, now);
        }
        false => control_request.cut(control.shared.buffer_budget()),
    }
    control.finish(ticket, &control_request, None);
}

/// Whether it may be asked again. A request that was never sent for want of room, or is behind
/// such a one, waits for those before it, as large commands wait for room (`worker::starve`);
/// so does a read whose reply had no room here.
pub(super) fn is_patient(control: &Control, waiter: &Waiter, now: Instant) -> bool {
    let since = |at: Instant| now.ns.saturating_sub(at.ns);
    if since(waiter.sent_at.unwrap_or(waiter.came_at)) < PATIENCE_NS {
        return true;
    }
    let is_unsent = control.state.forwards.is_unsent(waiter);
    let waits_for_room = waiter.control_request.as_ref().is_some_and(|control_request| {
        let is_refused = control_request.is_read() && control_request.lacks_reply_bytes() > 0;
        is_refused || (control_request.is_forwarded() && is_unsent)
    });
    let patience = control.shared.config().starved_time_max + ROOM_DELAY_MAX;
    let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    let progress_at = waiter.came_at.max(control.state.forwards.answered_at);
    waits_for_room
        && since(progress_at) < patience_ns
        && since(waiter.came_at) < patience_ns.saturating_mul(3)
}

/// Takes a request that another node has forwarded.
pub(super) fn take_guest(control: &mut Control, from: Asker, bytes: &[u8], now: Instant) {
    if flushes::begin_as_guest(control, from, bytes, now) {
        return;
    }
    match control.guests.take(from, bytes) {
        Some(control_request) => control.take(control_request, now),
        None => {
            let reply = NodeReply { to: from, bytes: None, hold: Hold::default() };
            control.peers.reply(&reply);
        }
    }
    control.perform(now);
}

/// Sends the reply to a request that another node has forwarded, now or once its link has room
/// (F5).
pub(super) fn reply_to_node(control: &mut Control, reply: NodeReply, now: Instant) {
    if !control.peers.reply(&reply) {
        control.state.forwards.unsent.push_back((reply, now));
    }
}

/// Tries once more to send the replies that wait. A node that asked long enough ago no longer
/// waits.
pub(super) fn send_replies(control: &mut Control, now: Instant) {
    for _ in 0..control.state.forwards.unsent.len() {
        let Some((reply, since)) = control.state.forwards.unsent.pop_front() else { break };
        let is_late = now.ns.saturating_sub(since.ns) >= PATIENCE_NS;
        if !is_late && !control.peers.reply(&reply) {
            control.state.forwards.unsent.push_back((reply, since));
        }
    }
}

/// Sends reads again whose node has left the cluster (F1).
fn repeat_lost(control: &mut Control) {
    let State { forwards, outstanding, .. } = &mut control.state;
    let peers = &control.peers;
    let is_read = |id: u64, ticket: u32| {
        let waiter = outstanding.get(ticket, id);
        let request = waiter.and_then(|waiter| waiter.control_request.as_ref());
        request.is_some_and(|request| request.is_read())
    };
    for ticket in forwards.take_lost(|node| peers.has(node), is_read) {
        outstanding.put_off(ticket);
    }
}

/// Gives up requests that another node has had for too long: their outcome is unknown.
pub(super) fn give_up_late(control: &mut Control, now: Instant) {
    repeat_lost(control);
    let is_late = |sent: &Sent| now.ns.saturating_sub(sent.sent_at.ns) >= PATIENCE_NS;
    let late: Vec<(u64, u32)> = control
        .state
        .forwards
        .sent
        .iter()
        .filter(|(_, sent)| is_late(sent))
        .map(|(id, sent)| (*id, sent.ticket))
        .collect();
    for (id, ticket) in late {
        control.state.forwards.sent.remove(&id);
        let waiter = control.state.outstanding.get(ticket, id);
        let Some(control_request) = waiter.and_then(|waiter| waiter.control_request.clone()) else {
            continue;
        };
        let why = if control_request.is_read() { Refused::NotBegun } else { Refused::Uncertain };
        control.finish(ticket, &control_request, Some(why));
    }
}

/// Whether a request may be forwarded though its time has passed: no node has begun to execute it,
/// because it has waited behind others.
pub(super) fn may_begin_late(waiter: &Waiter, now: Instant) -> bool {
    let since_ns = now.ns.saturating_sub(waiter.came_at.ns);
    waiter.sent_at.is_none() && since_ns < PATIENCE_NS.saturating_mul(3)
}

/// The refusal for a client of this node whose request another node would have to execute.
pub(super) fn elsewhere(
    configuration: &Configuration,
    control_request: &ControlRequest,
) -> Refused {
    let slot = control_request.slot();
    let shard = configuration.shard(configuration.shard_of_slot(slot));
    let primary = shard.map(|shard| shard.primary).filter(|node| configuration.has(*node));
    let addresses = primary.and_then(|node| configuration.addresses(node));
    if addresses.is_some() && control_request.is_forwarded() {
        return Refused::NotBegun;
    }
    let is_tls = control_request.is_tls();
    match addresses.and_then(|at| Some((&at.host, at.resp_port(is_tls)?))) {
        Some((host, port)) => Refused::Moved { slot: slot.0, address: format!("{host}:{port}") },
        None => Refused::Down,
    }
}

#[cfg(test)]
mod tests {
    use budget::BufferBudget;

    use super::*;
    use crate::control_thread::outstanding::Outstanding;

    fn node(name: u16) -> NodeId {
        NodeId { name, incarnation: 1 }
    }

    #[test]
    fn reads_at_nodes_that_have_left_are_sent_again_and_writes_are_not() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let mut forwards = Forwards::default();
        for (id, to) in [(1, node(1)), (2, node(1)), (3, node(2)), (4, node(2))] {
            let _booked = Reservation::empty(&budget, Kind::Forwards);
            let (ticket, key) = (10 * id as u32, Arc::from(&b"k"[..]));
            let sent_at = Instant::default();
            let (shard, is_overtaken) = (ShardId(2), false);
            let sent = Sent { ticket, to, shard, key, sent_at, is_overtaken, _booked };
            forwards.sent.insert(id, sent);
        }
        let is_read = |id, _| id % 2 == 1;
        assert!(forwards.take_lost(|_| true, is_read).is_empty());
        assert!(!forwards.take_has_answers());
        assert_eq!(forwards.take_lost(|to| to == node(1), is_read), [30]);
        assert!(forwards.take_has_answers(), "what waits behind it may go on");
        assert_eq!(forwards.sent.keys().copied().collect::<Vec<_>>(), [1, 2, 4]);
    }

    /// Otherwise all requests of the shard, which another node serves by then, would wait.
    #[test]
    fn a_write_at_a_node_that_has_left_is_overtaken_after_a_while() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let mut forwards = Forwards::default();
        let _booked = Reservation::empty(&budget, Kind::Forwards);
        let (key, to, sent_at) = (Arc::from(&b"k"[..]), node(1), Instant { ns: 5 });
        let (ticket, shard, is_overtaken) = (3, ShardId(2), false);
        let sent = Sent { ticket, to, shard, key, sent_at, is_overtaken, _booked };
        forwards.sent.insert(1, sent);
        let (early, late) = (Instant { ns: OVERTAKEN_NS }, Instant { ns: OVERTAKEN_NS + 5 });
        assert!(!forwards.holds_key(shard, b"other", late, |_| false));
        assert!(!forwards.holds_key(ShardId(3), b"k", late, |_| false));
        assert!(forwards.holds_key(shard, b"k", late, |_| true), "its node may refuse it");
        assert!(forwards.holds_key(shard, b"k", early, |_| false), "its answer may be on its way");
        assert!(!forwards.holds_key(shard, b"k", late, |_| false));
        assert!(
            !forwards.holds_key(shard, b"k", early, |_| true),
            "once overtaken, it is not sent again"
        );
    }

    /// One that has waited behind others for a node that is gone is a new request to the next node.
    #[test]
    fn a_request_that_no_node_has_begun_may_begin_late() {
        let mut outstanding = Outstanding::default();
        let ticket = outstanding.add_group(Arc::from(&b"k"[..]), ShardId(0), Instant::default());
        let check = |outstanding: &Outstanding, ns, want| {
            let waiter = outstanding.at(ticket).unwrap();
            assert_eq!(may_begin_late(waiter, Instant { ns }), want, "{ns}");
        };
        check(&outstanding, PATIENCE_NS + 1, true);
        check(&outstanding, 3 * PATIENCE_NS, false);
        outstanding.note_sent(ticket, Instant::default());
        check(&outstanding, 1, false);
    }
}

//! The messages to clients that track, and their way to these clients.
//!
//! ```text
//!  changes ─▶ table, prefixes ─▶ messages ─┬▶ a connection of this worker: into its output
//!                                          └▶ of another: by its mailbox, all of a look at once
//! ```
//!
//! # Invariants
//! I1: a message is put into an output between two replies, never in the middle of one: while a
//!     reply is under way in parts (KV.RANGE), the message waits.
//! I2: messages are made and taken only while no request of a gathering waits to be executed (T4).
//! I3: messages without room, on their way or in the output of their client, are summed up: once
//!     the client has read its waiting output, it is told that everything has changed (T6).
//! I4: a turn delivers [`TURN_MESSAGES`] messages and a 64th of the client buffers, of earlier
//!     turns' changes half as many: once it has, it is spent, and begins no further command. The
//!     others get theirs in the next turns; until then their ids, and the keys, count as under way,
//!     and what has no room there is summed up.
//! I5: once half of the client buffers are in use, messages are summed up: no client lacks room for
//!     its commands, or is closed, for what others have written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use commands::work::{TURN_MESSAGES, Work};
use counters::Dialect;
use sessions::clients::Client;
use sessions::tracking::message::{CHANNEL, MESSAGE_BYTES, Message, Messages, What};
use sessions::tracking::table::Taken;
use sessions::tracking::{Broadcast, ChangedKeys, Tracker, Tracking};
use store::{Changes, Origin};
use wire::resp::{Encoder, Protocol};

use super::Core;
use crate::connection::{Connection, Ending, ProtocolState};
use crate::mailbox::Control;
use crate::shared::Shared;

/// Of the client buffers, the part that one turn may fill with messages (I4).
const TURN_BYTES_PART: u64 = 64;

/// Of the client buffers, the part that messages leave free (I5).
const SPARED_PART: u64 = 2;

/// Waiting messages that one turn looks at, and as many of them as take the time of a key.
const LOOKED_AT_MAX: usize = 16 << 10;
const LOOKED_AT_PER_KEY: usize = 2;

/// Keys whose patterns are checked in the time of a message, where users are limited.
const KEYS_PER_MESSAGE: usize = 8;

/// The messages that a worker is making.
#[derive(Debug, Default)]
pub struct Telling {
    /// The word that the worker acts by ([`Tracking::word`]).
    pub seen: u64,
    /// Empty notes, to exchange for full ones.
    pub changes: Changes,
    /// Keys that were taken out of the table: they have changed, or there was no room for them.
    pub taken: Vec<Taken>,
    /// Any key may have changed.
    has_all: bool,
    /// The keys to broadcast at the end of the gathering.
    broadcast: Broadcast,
    /// Messages that could not be delivered: their clients are in the middle of a reply, or moving
    /// between workers.
    waiting: Messages,
    /// Some of `waiting` had no turn yet.
    has_unhandled: bool,
    /// Keys with the readers that had no turn yet (I4).
    late: VecDeque<Taken>,
    /// Some of the keys had no room there: every client that tracks gets a sum.
    is_overrun: bool,
    /// Prefixes and their changed keys, with the trackers that had no turn yet (I4).
    late_rounds: VecDeque<BroadcastRound>,
    /// Messages of this turn.
    told_in_turn: usize,
    /// Bytes that this turn has put into outputs for them.
    told_bytes: u64,
}

impl Telling {
    /// A turn begins.
    pub fn begin_turn(&mut self) {
        (self.told_in_turn, self.told_bytes) = (0, 0);
    }

    /// Whether there is more to tell at once.
    pub fn has_more(&self) -> bool {
        self.has_unhandled || !self.late.is_empty() || !self.late_rounds.is_empty()
    }

    /// Whether messages wait for delivery.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether some of them may not wait until a client reads output, which wakes its worker.
    pub fn is_pressing(&self) -> bool {
        self.waiting.iter().any(|message| !message.is_sum())
    }
}

/// The result of delivering a message.
enum Handed {
    Over,
    /// In the middle of a reply.
    Later,
    /// The client has to read its waiting output first.
    Full,
    /// The client is served by another worker.
    Elsewhere,
}

/// The changed keys of one prefix, and the trackers that are still to be told.
#[derive(Debug)]
struct BroadcastRound {
    keys: ChangedKeys,
    all: Arc<[Box<[u8]>]>,
    writers: BTreeSet<u64>,
    trackers: std::vec::IntoIter<Arc<Tracker>>,
    /// Trackers may have stopped since.
    is_late: bool,
}

impl BroadcastRound {
    fn new(keys: ChangedKeys, trackers: Vec<Arc<Tracker>>) -> BroadcastRound {
        let all = keys.keys().cloned().collect();
        let writers = keys.values().filter_map(|by| *by).collect();
        BroadcastRound { keys, all, writers, trackers: trackers.into_iter(), is_late: false }
    }

    /// What that tracker is told: with NOLOOP not of its own changes.
    fn keys_for(&self, tracker: &Tracker) -> Arc<[Box<[u8]>]> {
        let own = tracker.client.id;
        if !tracker.is_no_loop || !self.writers.contains(&own) {
            return Arc::clone(&self.all);
        }
        let others = self.keys.iter().filter(|(_, by)| **by != Some(own));
        others.map(|(key, _)| key.clone()).collect()
    }

    /// The bytes until all are told; the same at each moment.
    fn held_bytes(&self) -> usize {
        self.all.iter().map(|key| 2 * (key.len() + MESSAGE_BYTES)).sum()
    }
}

/// Messages to other workers.
#[derive(Default)]
pub struct Outgoing {
    by_worker: BTreeMap<usize, Messages>,
    told: u64,
}

impl Outgoing {
    /// Puts a message into the mailbox of its client's worker, with the others of this look;
    /// messages without room are summed up (I3).
    fn post(&mut self, shared: &Shared, message: Message) {
        let has_room = message.is_sum()
            || shared.tracking().under_way.try_add(shared.buffer_budget(), message.bytes());
        let message = if has_room { Some(message) } else { message.summed_up() };
        if let Some(message) = message {
            self.by_worker.entry(message.client.worker().index()).or_default().push(message);
        }
    }

    /// Sends what was gathered.
    pub fn send(self, shared: &Shared) {
        for (worker, messages) in self.by_worker {
            shared.send(worker, Control::Track(messages));
        }
        if self.told > 0 {
            shared.tracking().count_told(self.told);
        }
    }
}

/// The message for a tracker, addressed to the client that receives it.
fn address(shared: &Shared, tracker: &Tracker, what: What) -> Message {
    let own = |what| Message { client: Arc::clone(&tracker.client), is_redirected: false, what };
    let Some(target_id) = tracker.redirect else { return own(what) };
    match redirect_target(shared, target_id) {
        Some(client) => Message { client, is_redirected: true, what },
        None => {
            tracker.set_broken();
            own(What::Broken(target_id))
        }
    }
}

/// The client that is notified in place of another, if it is connected.
pub fn redirect_target(shared: &Shared, client_id: u64) -> Option<Arc<Client>> {
    let client = shared.clients().get(client_id);
    client.filter(|client| client.protocol == Dialect::Resp && !client.is_killed())
}

fn null_of(tracker: &Tracker) -> Protocol {
    if tracker.client.is_resp3() { Protocol::Resp3 } else { Protocol::Resp2 }
}

/// Looks up the readers of changed keys, for [`send`]. `by` is the client whose requests
/// changed them, which needs no message.
#[cold]
pub fn look_up(core: &mut Core, by: Option<u64>) {
    let (tracking, telling) = (core.shared.tracking(), &mut core.telling);
    if telling.changes.has_all() {
        tracking.clear();
        telling.has_all = true;
    }
    let has_prefixes = tracking.has_prefixes();
    let mut work = Work::default();
    for (key, origin) in telling.changes.iter() {
        let by = by.filter(|_| origin == Origin::Request);
        if has_prefixes {
            work += tracking.note_broadcast(&mut telling.broadcast, key, by);
        }
        telling.taken.extend(tracking.take(key, by));
    }
    telling.changes.clear();
    core.charge(work);
}

/// Notifies the readers that were looked up; keys by prefix wait for [`send_broadcast`].
#[cold]
pub fn send(core: &mut Core) {
    let shared = Arc::clone(&core.shared);
    let tracking = shared.tracking();
    let mut outgoing = Outgoing::default();
    let told_before = core.telling.told_in_turn;
    let mut all_taken = std::mem::take(&mut core.telling.taken);
    for mut taken in all_taken.drain(..) {
        if !tell_readers(core, tracking, &mut taken, TURN_MESSAGES, &mut outgoing) {
            put_off(core, taken);
        }
    }
    core.telling.taken = all_taken;
    if std::mem::take(&mut core.telling.has_all) {
        forget_late(core);
        for tracker in tracking.trackers() {
            core.telling.told_in_turn += 1;
            tell_one(core, &tracker, What::All(null_of(&tracker)), &mut outgoing);
        }
    }
    if std::mem::take(&mut core.telling.is_overrun) {
        forget_late(core);
        for tracker in tracking.trackers().iter().filter(|it| !it.is_broadcasting()) {
            core.telling.told_in_turn += 1;
            tell_one(core, tracker, What::Sum, &mut outgoing);
        }
    }
    charge_told(core, told_before);
    outgoing.send(&shared);
}

/// Tells readers of earlier turns' changes (I4).
#[cold]
pub fn send_late(core: &mut Core) {
    let shared = Arc::clone(&core.shared);
    let mut outgoing = Outgoing::default();
    let told_before = core.telling.told_in_turn;
    while let Some(mut taken) = core.telling.late.pop_front() {
        // What is left of it stays booked: other workers take what comes free.
        let (held_bytes, told_max) = (taken.held_bytes(), TURN_MESSAGES / 2);
        let is_told = tell_readers(core, shared.tracking(), &mut taken, told_max, &mut outgoing);
        let left_bytes = if is_told { 0 } else { taken.held_bytes() };
        shared.tracking().under_way.remove(held_bytes.saturating_sub(left_bytes));
        if !is_told {
            core.telling.late.push_front(taken);
            break;
        }
    }
    while !is_told_out(core, TURN_MESSAGES / 2)
        && let Some(mut round) = core.telling.late_rounds.pop_front()
    {
        shared.tracking().under_way.remove(round.held_bytes());
        round.is_late = true;
        if !tell_trackers(core, &mut round, TURN_MESSAGES / 2, &mut outgoing) {
            put_off_round(core, round);
        }
    }
    charge_told(core, told_before);
    outgoing.send(&shared);
}

/// The readers that are left are told in the next turn, if there is room for their ids.
fn put_off(core: &mut Core, taken: Taken) {
    if core.shared.tracking().under_way.try_add(core.shared.buffer_budget(), taken.held_bytes()) {
        core.telling.late.push_back(taken);
    } else {
        core.telling.is_overrun = true;
    }
}

/// Every client is told that everything has changed.
fn forget_late(core: &mut Core) {
    let late = std::mem::take(&mut core.telling.late);
    let held_bytes = late.iter().map(Taken::held_bytes).sum();
    core.shared.tracking().under_way.remove(held_bytes);
}

/// Tells of the keys of a gathering by their prefixes.
#[cold]
pub fn send_broadcast(core: &mut Core) {
    if core.telling.broadcast.is_empty() {
        return;
    }
    let shared = Arc::clone(&core.shared);
    let mut outgoing = Outgoing::default();
    let told_before = core.telling.told_in_turn;
    let mut broadcast = std::mem::take(&mut core.telling.broadcast);
    for (prefix, keys) in broadcast.take() {
        let trackers = shared.tracking().broadcast_to(&prefix);
        let mut round = BroadcastRound::new(keys, trackers);
        if !tell_trackers(core, &mut round, TURN_MESSAGES, &mut outgoing) {
            put_off_round(core, round);
        }
    }
    charge_told(core, told_before);
    outgoing.send(&shared);
}

/// Tells the trackers of a prefix, until the turn has told `told_max`; false: some are left.
fn tell_trackers(
    core: &mut Core,
    round: &mut BroadcastRound,
    told_max: usize,
    outgoing: &mut Outgoing,
) -> bool {
    while !is_told_out(core, told_max) {
        let Some(tracker) = round.trackers.next() else { return true };
        if round.is_late && !core.shared.tracking().is_broadcasting(tracker.client.id) {
            continue; // It has gone, or tracks in another way by now.
        }
        let keys = round.keys_for(&tracker);
        if !keys.is_empty() {
            let looked_at = if core.has_limited_users { keys.len() / KEYS_PER_MESSAGE } else { 0 };
            core.telling.told_in_turn += 1 + looked_at;
            tell_one(core, &tracker, What::Keys(keys), outgoing);
        }
    }
    round.trackers.len() == 0
}

/// The trackers that are left are told in the next turns, or get a sum if the keys have no room
/// until then.
fn put_off_round(core: &mut Core, round: BroadcastRound) {
    if core.shared.tracking().under_way.try_add(core.shared.buffer_budget(), round.held_bytes()) {
        core.telling.late_rounds.push_back(round);
        return;
    }
    let shared = Arc::clone(&core.shared);
    core.charge(Work::keys(round.trackers.len()));
    let sums = round.trackers.filter_map(|it| address(&shared, &it, What::Sum).summed_up());
    core.telling.waiting.extend(sums);
    core.telling.has_unhandled = core.telling.is_waiting();
}

/// Whether the turn has delivered as much as one may (I4).
fn is_told_out(core: &Core, told_max: usize) -> bool {
    let bytes_max = core.shared.buffer_budget().limit_bytes() / TURN_BYTES_PART;
    core.telling.told_in_turn >= told_max || core.telling.told_bytes >= bytes_max
}

/// Whether the client buffers have no room for messages (I5).
fn lacks_room(core: &Core) -> bool {
    let budget = core.ledger.budget();
    let limit_bytes = budget.limit_bytes();
    budget.granted_bytes() > limit_bytes - limit_bytes / SPARED_PART
}

fn charge_told(core: &mut Core, told_before: usize) {
    core.charge(Work::messages(core.telling.told_in_turn - told_before));
}

/// Tells the readers of a key, until the turn has told `told_max`; false: some are left.
fn tell_readers(
    core: &mut Core,
    tracking: &Tracking,
    taken: &mut Taken,
    told_max: usize,
    outgoing: &mut Outgoing,
) -> bool {
    while let Some(reader) = taken.readers.pop() {
        if is_told_out(core, told_max) {
            taken.readers.push(reader);
            return false;
        }
        core.telling.told_in_turn += 1;
        // A client that has disconnected, or tracks in another mode by now, is not notified.
        let tracker = tracking.tracker(reader).filter(|tracker| !tracker.is_broadcasting());
        if let Some(tracker) = tracker {
            tell_one(core, &tracker, What::Key(Arc::clone(&taken.key)), outgoing);
        }
    }
    true
}

fn tell_one(core: &mut Core, tracker: &Tracker, what: What, outgoing: &mut Outgoing) {
    let shared = Arc::clone(&core.shared);
    let mut message = address(&shared, tracker, what);
    if core.has_limited_users && !leave_readable(core, tracker, &mut message) {
        return;
    }
    if message.is_sum() {
        let Some(sum) = message.summed_up() else { return };
        message = sum;
    }
    outgoing.told += 1;
    let is_here = message.client.worker() == core.worker;
    if !is_here {
        return outgoing.post(&shared, message);
    }
    match hand_over(core, &message) {
        Handed::Over => {}
        Handed::Full if message.is_sum() => core.telling.waiting.push(message),
        Handed::Full => core.telling.waiting.extend(message.summed_up()),
        Handed::Later | Handed::Elsewhere => outgoing.post(&shared, message),
    }
}

/// Keeps only the keys in a message that both the client that tracks and the receiver may read;
/// returns whether any are left.
#[cold]
fn leave_readable(core: &Core, tracker: &Tracker, message: &mut Message) -> bool {
    let user_of = |client: &Client| core.acl.user(client.names().user().as_bytes()).cloned();
    let users = [user_of(&tracker.client), user_of(&message.client)];
    let is_readable =
        |key: &[u8]| users.iter().all(|user| user.as_ref().is_some_and(|it| it.reads_key(key)));
    match &mut message.what {
        What::Key(key) => is_readable(key),
        What::Keys(keys) if keys.iter().all(|key| is_readable(key)) => true,
        What::Keys(keys) => {
            *keys = keys.iter().filter(|key| is_readable(key)).cloned().collect();
            !keys.is_empty()
        }
        What::All(_) | What::Sum | What::Broken(_) => true,
    }
}

/// Delivers the messages that other workers have put into the mailbox.
pub fn receive(core: &mut Core, messages: Messages) {
    core.telling.waiting.extend(messages);
    send_waiting(core);
}

/// Delivers waiting messages, as far as that is possible now.
pub fn send_waiting(core: &mut Core) {
    let shared = Arc::clone(&core.shared);
    let mut outgoing = Outgoing::default();
    let told_before = core.telling.told_in_turn;
    let mut waiting = std::mem::take(&mut core.telling.waiting).into_iter();
    let mut looked_at = 0;
    while !is_told_out(core, TURN_MESSAGES / 2)
        && looked_at < LOOKED_AT_MAX
        && let Some(message) = waiting.next()
    {
        looked_at += 1;
        match hand_over(core, &message) {
            Handed::Over => {
                core.telling.told_in_turn += 1;
                shared.tracking().under_way.remove(message.bytes());
            }
            Handed::Full if !message.is_sum() => {
                shared.tracking().under_way.remove(message.bytes());
                core.telling.waiting.extend(message.summed_up());
            }
            Handed::Later | Handed::Full => core.telling.waiting.push(message),
            Handed::Elsewhere if shared.clients().get(message.client.id).is_none() => {
                shared.tracking().under_way.remove(message.bytes());
            }
            // It is moving from here, or to here.
            Handed::Elsewhere if message.client.worker() == core.worker => {
                core.telling.waiting.push(message);
            }
            Handed::Elsewhere => {
                shared.tracking().under_way.remove(message.bytes());
                outgoing.post(&shared, message);
            }
        }
    }
    // Those that had no turn come first in the next one: at once, unless all that this one
    // looked at wait for their clients.
    let has_told = core.telling.told_in_turn > told_before;
    core.telling.has_unhandled = waiting.len() > 0 && (has_told || looked_at == 0);
    core.charge(Work::keys(looked_at / LOOKED_AT_PER_KEY));
    let kept = std::mem::take(&mut core.telling.waiting);
    core.telling.waiting = waiting.chain(kept).collect();
    charge_told(core, told_before);
    outgoing.send(&shared);
}

fn hand_over(core: &mut Core, message: &Message) -> Handed {
    // The slot that the client has, or had: the connection there may be another client's.
    let Some(slot) = slot_of(core, &message.client) else { return Handed::Elsewhere };
    let connection = &mut core.connections[slot];
    let ProtocolState::Resp(resp) = &connection.protocol_state else { return Handed::Over };
    if !matches!(connection.ending, Ending::Open | Ending::Resting) {
        return Handed::Over; // It reads nothing more.
    }
    if resp.slices.is_some() {
        return Handed::Later; // I1.
    }
    let is_full = connection.output.encoded_bytes() > core.output_limit_bytes;
    if is_full || (!message.is_sum() && lacks_room(core)) {
        return Handed::Full;
    }
    core.telling.told_bytes += message.bytes() as u64;
    if message.is_sum() {
        message.client.end_sum();
    }
    // A client that receives a message counts as active.
    message.client.set_active(core.now);
    core.lend_buffer(slot);
    encode(message, &mut core.connections[slot]);
    core.touch(slot);
    Handed::Over
}

fn slot_of(core: &Core, client: &Client) -> Option<usize> {
    let slot = client.slot();
    let connection = core.connections.get(slot)?;
    (connection.client.id == client.id).then_some(slot)
}

/// A client that received messages for others has disconnected: notifies those others.
#[cold]
pub fn send_end(core: &mut Core, client_id: u64) {
    let shared = Arc::clone(&core.shared);
    let mut outgoing = Outgoing::default();
    for tracker in shared.tracking().trackers() {
        if tracker.redirect == Some(client_id) && tracker.client.id != client_id {
            // The target is in no list any more: its end is the message.
            tell_one(core, &tracker, What::Broken(client_id), &mut outgoing);
        }
    }
    outgoing.send(&shared);
}

/// Encodes the message for its client; false: nothing, because its protocol has no way to
/// receive it.
fn encode(message: &Message, connection: &mut Connection) -> bool {
    let ProtocolState::Resp(resp) = &connection.protocol_state else { return false };
    let (protocol, is_subscribed) = (resp.protocol, resp.is_subscribed);
    let is_pushed = protocol == Protocol::Resp3;
    let is_published = !is_pushed && message.is_redirected && is_subscribed;
    if !is_pushed && (!is_published || matches!(message.what, What::Broken(_))) {
        return false;
    }
    connection.output.append(|out| {
        let mut encoder = Encoder::new(out, protocol);
        if let What::Broken(client_id) = message.what {
            encoder.push_header(2);
            encoder.bulk(b"tracking-redir-broken");
            return encoder.integer(client_id.cast_signed());
        }
        if is_published {
            encoder.array_header(3);
            encoder.bulk(b"message");
            encoder.bulk(CHANNEL);
        } else {
            encoder.push_header(2);
            encoder.bulk(b"invalidate");
        }
        match &message.what {
            What::Key(key) => {
                encoder.array_header(1);
                encoder.bulk(key);
            }
            What::Keys(keys) => {
                encoder.array_header(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
            What::All(protocol) => Encoder::new(encoder.out(), *protocol).null(),
            What::Sum => encoder.null(),
            What::Broken(_) => {}
        }
    });
    true
}

//! The copy of a whole shard to a node that joins it: part by part, while writes go on (Rowan-KV
//! §4.5).
//!
//! ```text
//!  primary's index   a b c d e f g h            one part under way at a time (the throttle)
//!                    └part 0┘└part 1┘└2         deletes and sessions go with them
//!  new writes        ══ land at the joining node like at any backup ══▶
//! ```
//!
//! # Invariants
//! J1: an entry that is in the replica store when the joining node becomes a target is in a part; a
//!     later entry lands there before it is in the replica store. Versions decide between the two.
//!     A copy may begin before the shard is served, if this replica store has the union and another
//!     copy does not take it for long: nothing is written then. So a backup without room is
//!     replaced.
//! J2: "joined" is said under one term, of one copy that began and ended while the node stayed
//!     joining.
//! J3: making a part counts as work of the turn, also if an acknowledgement asks for it: a driver
//!     makes two or so between two looks at its lease.

use base::Instant;

use crate::configuration::{Role, Shard};
use crate::ids::{NodeId, ShardId};
use crate::message::{Contents, Message, Peer};
use crate::node::answers::STEP_ENTRIES;
use crate::node::durable::Held;
use crate::node::{Action, Node, durable, filling, promotion, to_node};
use crate::replica_store::{Part, ReplicaStore};
use crate::settings::after;

/// The progress of a copy.
#[derive(Debug)]
pub(super) struct CopyOut {
    to: NodeId,
    /// The cursor of the part that has not arrived yet.
    cursor: u64,
    part: u64,
    sent: Option<SentPart>,
    /// The number of entries that have arrived at the receiver.
    pub(super) copied: u64,
    is_done: bool,
}

/// Waiting time per byte before a part is sent again: a long part takes long to arrive, and sent
/// again too soon it would only delay itself.
pub(super) const NS_PER_BYTE: u64 = 64;

#[derive(Debug)]
struct SentPart {
    /// When the part was sent for the first time.
    begun_at: Instant,
    sent_at: Instant,
    /// The part is sent again unchanged: the replica store may hold more entries from the cursor on
    /// by then, and an answer does not say which of two versions of the part it is for.
    contents: Contents,
    next: Option<u64>,
}

impl CopyOut {
    /// Handles a new configuration with the same primary: a copy continues only if its node stayed.
    pub(super) fn follow(copy: &mut Option<CopyOut>, before: Option<&Shard>, shard: &Shard) {
        let stays = before.and_then(|before| before.joining) == shard.joining;
        match copy {
            Some(copy) if stays => copy.sent = None,
            copy => *copy = None, // J2
        }
    }

    /// The receiver, if a part has been on its way in vain for `patience_ns` plus the time that its
    /// bytes take.
    pub(super) fn overdue(&self, now: Instant, patience_ns: u64) -> Option<NodeId> {
        let sent = self.sent.as_ref()?;
        let time_ns = patience_ns + sent.contents.len_bytes() * NS_PER_BYTE;
        (now >= after(sent.begun_at, time_ns)).then_some(self.to)
    }
}

pub(super) fn go_on_copying<S: ReplicaStore>(
    node: &mut Node<S>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(configuration) = node.membership.configuration.clone() else { return };
    for (id, shard) in configuration.shards() {
        if let Some(to) = shard.joining.filter(|_| shard.primary == node.membership.id) {
            send_part(node, id, to, now, actions);
        }
    }
}

fn send_part<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    to: NodeId,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let term = node.term();
    let (retry_ns, patience_ns) = (4 * node.settings.retry_ns, node.settings.patience_ns());
    let Some(state) = node.shards.get_mut(id) else { return };
    let Some(primary) = state.primary.as_mut().filter(|it| it.may_copy(now, patience_ns)) else {
        return;
    };
    if primary.filling.is_some() {
        return; // It has not got all itself.
    }
    let new = CopyOut { to, cursor: 0, part: 0, sent: None, copied: 0, is_done: false };
    let copy = primary.copy.get_or_insert(new);
    if copy.is_done {
        return node
            .membership
            .tell_managers(&Message::Joined { term, shard: id, node: to }, actions);
    }
    let is_under_way = |sent: &SentPart| {
        let time_ns = sent.contents.len_bytes() * NS_PER_BYTE;
        now < after(sent.sent_at, retry_ns + time_ns)
    };
    if copy.sent.as_ref().is_some_and(is_under_way) {
        return;
    }
    let (begun_at, contents, next) = match copy.sent.take() {
        Some(sent) => (sent.begun_at, sent.contents, sent.next),
        None => {
            let entry_max = node.settings.copy_part_entries;
            let Part { entries, next } = node.replica_store.part(id, copy.cursor, entry_max);
            node.answers.count_work(STEP_ENTRIES);
            let is_last = next.is_none();
            let sessions = if is_last { state.sessions.settled() } else { Vec::new() };
            (now, Contents { entries, sessions }, next)
        }
    };
    copy.sent = Some(SentPart { begun_at, sent_at: now, contents: contents.clone(), next });
    let part = copy.part;
    actions.push(to_node(copy.to, Message::Copy { term, shard: id, part, contents, next }));
}

/// Receives a part, at the joining node or at a primary that is filling.
pub(super) fn copy<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    part: u64,
    contents: Contents,
    next: Option<u64>,
    actions: &mut Vec<Action>,
) {
    let role = node.shards.get(id).map(|state| state.role);
    let Some(shard) = node.membership.shard(id) else { return };
    if role == Some(Role::Primary) && shard.filling_from == Some(from) {
        return filling::filled_part(node, id, part, contents, next, actions);
    }
    if role != Some(Role::Joining) || shard.primary != from || !node.replica_store.is_ready(id) {
        return; // It is sent again.
    }
    if !promotion::receive(node, id, &contents, actions) {
        return;
    }
    let message = Message::Copied { term: node.term(), shard: id, part };
    let held = Held::Send { to: Peer::Node(from), message };
    durable::when_durable(node, held, Instant::default(), actions);
}

pub(super) fn copied<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    part: u64,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(primary) = node.shards.primary_mut(id) else { return };
    let Some(copy) = primary.copy.as_mut() else { return };
    if copy.to != from || copy.part != part {
        return;
    }
    let Some(sent) = copy.sent.take() else { return };
    copy.part += 1;
    copy.copied += sent.contents.entries.len() as u64;
    copy.cursor = sent.next.unwrap_or(copy.cursor);
    copy.is_done = sent.next.is_none();
    send_part(node, id, from, now, actions);
}

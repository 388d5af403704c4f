//! The check of a command's keys in a cluster: whether this node serves them, and if not, which
//! node does.
//!
//! ```text
//!  keys ─▶ one slot? ─ no ─▶ CROSSSLOT
//!            │ yes
//!            ▼ View::place
//!  Here, ThroughControl ─▶ go on          Elsewhere ─▶ MOVED; READONLY and a copy here: go on
//!                                         Nowhere ───▶ CLUSTERDOWN
//! ```
//!
//! # Invariants
//! I1: a server without a cluster pays one branch per command.
//! I2: a command that is refused inside MULTI spoils the transaction, as any other refusal does.
//! I3: a command that reads several keys, or that bypasses the router, reads this node's index only
//!     while the node has all of the slot (`Here`). It is answered only if the node still served
//!     the slot after the read (K22). Otherwise it goes through the control thread, as a group.

use cluster::Slot;
use replication::cluster::{Announced, Place, View};
use runtime::walks::Caller;
use wire::Parsed;
use wire::resp::{
    Command, CommandError, CommandId, Elsewhere, ErrorReply, Flags, Handling, KeyCommand, Keys,
    Limits, Parser, ServerCommand,
};

use crate::gather::Gather;
use crate::resp::cluster::{installed, is_tls};

/// In a cluster, a transaction is limited to the keys of one slot.
const NOT_IN_TRANSACTION: ErrorReply<'static> =
    ErrorReply::Other("FLUSHALL in a transaction is not supported in a cluster");

/// What a command does with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// It reads them now.
    Read,
    /// It is queued by MULTI, and reads nothing before EXEC.
    LaterRead,
    /// It may write.
    Write,
}

/// The slots of a command's keys.
pub(super) enum Keyed {
    Nothing,
    One(Slot),
    Several,
}

/// The common slot of all keys.
pub(super) fn slot_of<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> Keyed {
    let Some(slot) = keys.next().map(Slot::of) else { return Keyed::Nothing };
    if keys.all(|key| Slot::of(key) == slot) { Keyed::One(slot) } else { Keyed::Several }
}

/// The keys of a whole command, at the places that its row in the table names.
pub(super) fn keys_in(id: CommandId, raw: &[u8]) -> Option<Keys<'_>> {
    let spec = id.spec().keys;
    if spec.first == 0 {
        return None;
    }
    // Limits were checked when the command was framed.
    let limits = Limits::new(usize::MAX);
    match Parser::default().parse(raw, &limits) {
        Parsed::Done { value: args, .. } => Some(spec.of(args.iter())),
        _ => None,
    }
}

/// Commands that are more than one write of one key.
fn is_of_several(command: &Command<'_>) -> bool {
    match command {
        Command::Key(KeyCommand::Del { keys, .. }) => keys.len() > 1,
        _ => command.is_handled(Handling::Several),
    }
}

/// Whether a command reads keys of a slot that only the control thread may read. Where the place
/// has changed since the command was let in, that thread refuses it.
fn reads_through_control(
    view: &View,
    reads_copies: bool,
    command: &Command<'_>,
    raw: &[u8],
) -> bool {
    let reading = command.id().filter(|id| id.spec().flags.contains(Flags::READONLY));
    let Some(id) = reading else { return false };
    let Keyed::One(slot) = slot_of(keys_in(id, raw).into_iter().flatten()) else { return false };
    match view.settled_place(slot) {
        Place::Here => false,
        Place::ThroughControl => true,
        Place::Elsewhere | Place::Nowhere => !reads_copies,
    }
}

/// Whether a command goes through the control thread as a group: its writes belong together, or
/// it bypasses the router and writes, or reads a slot of which this node does not have all (I3).
pub(super) fn is_group(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    command: &Command<'_>,
    raw: &[u8],
) -> bool {
    let is_routed = gather.is_routed();
    let Some(view) = &gather.core.cluster else { return false };
    let reads_copies = gather.core.connections[slot].resp().reads_copies;
    let writes = || command.id().is_some_and(|id| id.spec().flags.contains(Flags::WRITE));
    is_of_several(command)
        || (!is_routed && (writes() || reads_through_control(view, reads_copies, command, raw)))
}

/// Whether a plain GET or SET of the key may take the fast path (I1).
#[inline]
pub(super) fn is_served_here(gather: &Gather<'_, '_>, key: &[u8]) -> bool {
    gather.core.cluster.as_ref().is_none_or(|view| view.is_own(Slot::of(key)))
}

/// Whether a command may not run here; answers the error itself.
pub(super) fn is_redirected(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    parsed: &Result<Command<'_>, CommandError<'_>>,
    raw: &[u8],
) -> bool {
    let id = match parsed {
        Ok(command) => command.id(),
        // Redis checks the keys before the options.
        Err(CommandError::Argument { id, .. }) => Some(*id),
        Err(_) => None,
    };
    let Some(id) = id.filter(|_| gather.core.cluster.is_some()) else { return false };
    gather.core.noted_read = None;
    let keyed = slot_of(keys_in(id, raw).into_iter().flatten());
    let is_read = id.spec().flags.contains(Flags::READONLY);
    let is_queueing = gather.core.connections[caller.slot].resp().is_queueing();
    let access = match is_read {
        true if is_queueing => Access::LaterRead,
        true => Access::Read,
        false => Access::Write,
    };
    if is_elsewhere(gather, caller, keyed, access) {
        return true;
    }
    let is_refused =
        is_queueing && matches!(parsed, Ok(Command::Server(ServerCommand::Flush { .. })));
    if is_refused {
        gather.fail(caller, &NOT_IN_TRANSACTION);
    }
    is_refused
}

/// The check for EXEC: the keys of all its commands together.
pub(super) fn is_exec_redirected<'k>(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    keys: impl Iterator<Item = &'k [u8]>,
    writes: bool,
) -> bool {
    if gather.core.cluster.is_none() {
        return false;
    }
    let access = if writes { Access::Write } else { Access::Read };
    is_elsewhere(gather, caller, slot_of(keys), access)
}

fn is_elsewhere(gather: &mut Gather<'_, '_>, caller: Caller, keyed: Keyed, access: Access) -> bool {
    let slot = match keyed {
        Keyed::Nothing => return false,
        Keyed::Several => {
            gather.fail(caller, &ErrorReply::CrossSlot);
            return true;
        }
        Keyed::One(slot) => slot,
    };
    let Some(view) = &gather.core.cluster else { return false };
    match view.settled_place(slot) {
        Place::Here | Place::ThroughControl => {
            if access == Access::Read && !gather.is_routed() {
                gather.core.note_read_here(caller.slot); // I3
            }
            return false;
        }
        Place::Elsewhere => {
            let has_copy = access != Access::Write && view.has_copy(slot);
            if has_copy && gather.core.connections[caller.slot].resp().reads_copies {
                return false;
            }
            move_on(gather, caller, slot);
        }
        Place::Nowhere => gather.fail(caller, &ErrorReply::SlotNotServed),
    }
    true
}

/// MOVED to the primary.
#[cold]
pub(super) fn move_on(gather: &mut Gather<'_, '_>, caller: Caller, slot: Slot) {
    let Some((own, configuration)) = installed(gather) else {
        return gather.fail(caller, &ErrorReply::SlotNotServed);
    };
    let shard = configuration.shard(configuration.shard_of_slot(slot));
    let announced = Announced::new(&configuration, own).over(is_tls(gather, caller.slot));
    match shard.filter(|shard| shard.primary != own).and_then(|it| announced.resp_of(it.primary)) {
        Some((host, port)) => {
            gather.fail(caller, &ErrorReply::Moved(Elsewhere { slot: slot.0, host, port }));
        }
        None => gather.fail(caller, &ErrorReply::SlotNotServed),
    }
}

#[cfg(test)]
mod tests {
    use cluster::NodeId;
    use wire::resp::next_command;

    use super::*;

    #[track_caller]
    fn check(raw: &[u8], want: bool) {
        let view = View::new(NodeId { name: 1, incarnation: 1 });
        let limits = Limits::new(1 << 20);
        let parsed = next_command(&mut Parser::default(), raw, &limits);
        let Parsed::Done { value: Ok(command), .. } = parsed else { panic!("{parsed:?}") };
        let asks = |reads_copies| reads_through_control(&view, reads_copies, &command, raw);
        for (place, reads_here, copy_reads_here) in [
            (Place::Here, true, true),
            (Place::ThroughControl, false, false),
            (Place::Elsewhere, false, true),
        ] {
            view.set_place(Slot::of(b"{t}"), place);
            let is_asked = [asks(false), asks(true)];
            assert_eq!(is_asked, [want && !reads_here, want && !copy_reads_here], "{place:?}");
        }
    }

    #[test]
    fn reads_past_the_router_ask_the_control_thread_where_only_that_may_read() {
        check(b"*3\r\n$4\r\nMGET\r\n$4\r\n{t}a\r\n$4\r\n{t}b\r\n", true);
        check(b"*3\r\n$6\r\nEXISTS\r\n$4\r\n{t}a\r\n$4\r\n{t}b\r\n", true);
        check(b"GET {t}a\r\n", true);
        check(b"SET {t}a 1\r\n", false);
        check(b"DBSIZE\r\n", false);
    }
}

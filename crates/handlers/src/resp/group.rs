//! Commands and transactions that are groups of a cluster: what belongs together goes through the
//! control thread as one.
//!
//! ```text
//!  EXEC, MSET, RENAME ... ─▶ GroupWalk ─▶ a step answered at once: the next one
//!                                      └▶ else the connection rests, and looks again
//! ```
//!
//! # Invariants
//! I1: no worker waits for a shard that another group holds, for memory, or for other nodes: only
//!     for a moment (`replicate::pending_group`).
//! I2: no reply of a group is sent before all copies have the group: until then the replies are
//!     beside the connection's output.

use std::time::{Duration, Instant};

use base::UnixMillis;
use budget::{Kind, Reservation};
use commands::output::Output;
use commands::work::Work;
use host::process::unix_now;
use replication::replicate::{Asked, GroupAnswer, GroupRoom};
use runtime::connection::Ending;
use runtime::walks::{Caller, GroupStep, GroupWalk, InDoubt, Slice, Source};
use wire::Parsed;
use wire::resp::{Command, ErrorReply, Flags, Limits, Parser, StringCommand, next_command};

use super::redirect::{Keyed, keys_in, move_on, slot_of};
use super::transaction::exec_in_group;
use crate::gather::Gather;
use crate::resp::run;
use crate::resp::slices::begin_slices;

/// How long a group waits for the memory of what it stores.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(250);
/// The interval at which it looks whether there is memory.
const LOOK_FOR_ROOM_AFTER_MS: u64 = 1;
/// An answer wakes its worker, unless the connection has moved to another one.
const LOOK_FOR_ANSWER_AFTER_MS: u64 = 10;

/// How often a group of reads is begun again: a shard that has moved answers the next time.
const REPEATS_MAX: u32 = 16;

/// Runs a command as a group; all its keys are of one slot.
pub(super) fn run_group<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: Command<'a>,
    raw: &'a [u8],
) {
    let keys = command.id().and_then(|id| keys_in(id, raw));
    let Keyed::One(slot) = slot_of(keys.into_iter().flatten()) else {
        return run(gather, caller, command);
    };
    let only_reads = command.id().is_some_and(|id| id.spec().flags.contains(Flags::READONLY));
    let in_doubt = if only_reads { InDoubt::SendAgain } else { InDoubt::Uncertain };
    gather.raw = raw;
    begin_group(gather, caller, GroupWalk::new(slot, in_doubt, room_of(command)));
}

/// What a command of several values stores.
fn room_of(command: Command<'_>) -> Option<GroupRoom> {
    let pairs = match command {
        Command::String(
            StringCommand::MSet { pairs }
            | StringCommand::MSetNx { pairs }
            | StringCommand::MSetEx(wire::resp::MSetEx { pairs, .. }),
        ) => pairs,
        _ => return None,
    };
    Some(GroupRoom::of(pairs.map(|(key, value)| (key.len() + value.len()) as u64)))
}

/// Begins a group, and ends it if nothing has to be waited for.
pub(super) fn begin_group(gather: &mut Gather<'_, '_>, caller: Caller, walk: GroupWalk) {
    begin_slices(gather, caller, Source::Group(Box::new(walk)));
}

/// Goes on with a group; `command` is the command itself, or EXEC.
pub(super) fn group_slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut GroupWalk,
    command: &[u8],
) -> Slice {
    let slot = caller.slot;
    match std::mem::replace(&mut walk.step, GroupStep::Over) {
        GroupStep::Room(since) => {
            let since = since.unwrap_or_else(Instant::now);
            if !has_room(gather, walk) && since.elapsed() < ROOM_WAIT_MAX {
                return rest(gather, slot, walk, GroupStep::Room(Some(since)));
            }
            let asked = waited(gather, |gather| gather.engine.begin_group(walk.slot));
            if asked.is_some() {
                gather.core.forget_read_here(slot); // The control thread checks the lease.
            }
            match asked {
                None => {
                    run_work(gather, caller, walk, command);
                    Slice::Last
                }
                Some(Asked::Answered(answer)) => begun(gather, caller, walk, command, answer),
                Some(Asked::Later(group)) => rest(gather, slot, walk, GroupStep::Begins(group)),
            }
        }
        GroupStep::Begins(group) if group.is_given_up() => {
            walk.step = GroupStep::Room(None);
            group_slice(gather, caller, walk, command)
        }
        GroupStep::Begins(group) => match group.answer() {
            None => rest(gather, slot, walk, GroupStep::Begins(group)),
            Some(GroupAnswer::Good) => {
                gather.engine.hold_group(group);
                begun(gather, caller, walk, command, GroupAnswer::Good)
            }
            Some(answer) => begun(gather, caller, walk, command, answer),
        },
        GroupStep::Ends(group, replies) => match group.answer() {
            None => rest(gather, slot, walk, GroupStep::Ends(group, replies)),
            Some(answer) => ended(gather, caller, walk, replies, answer),
        },
        GroupStep::Over => Slice::Last,
    }
}

/// The connection rests before the next look. One that is about to close does not come back.
fn rest(gather: &mut Gather<'_, '_>, slot: usize, walk: &mut GroupWalk, step: GroupStep) -> Slice {
    let look_after_ms = match step {
        GroupStep::Room(_) => LOOK_FOR_ROOM_AFTER_MS,
        _ => {
            let client_id = gather.core.connections[slot].client.id;
            gather.core.waiting_groups.insert(slot, client_id);
            LOOK_FOR_ANSWER_AFTER_MS
        }
    };
    walk.step = step;
    gather.core.rest(slot, UnixMillis(unix_now().0 + look_after_ms));
    Slice::More
}

/// Charges the time of a call to the control thread: other connections come first after it.
fn waited<T>(gather: &mut Gather<'_, '_>, call: impl FnOnce(&mut Gather<'_, '_>) -> T) -> T {
    let began = Instant::now();
    let answer = call(gather);
    gather.core.charge(Work::elapsed(began.elapsed()));
    answer
}

/// Keeps room for all that a group stores; false: there is too little now, and none is kept, for
/// single writes need some, too.
fn has_room(gather: &mut Gather<'_, '_>, walk: &mut GroupWalk) -> bool {
    let Some(room) = walk.room.filter(|room| room.made_bytes > 0) else { return true };
    let past_bytes = gather.core.shared.store().limits().item_max_bytes;
    let mut kept = Reservation::empty(gather.core.shared.buffer_budget(), Kind::Writes);
    let has_room = kept.grow_towards(room.made_bytes, past_bytes);
    walk.kept = has_room.then_some(kept);
    has_room
}

fn begun(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut GroupWalk,
    command: &[u8],
    answer: GroupAnswer,
) -> Slice {
    match answer {
        GroupAnswer::Good => {}
        GroupAnswer::TooFewCopies => {
            gather.fail(caller, &ErrorReply::NoReplicas);
            return Slice::Last;
        }
        // The slot moved while the group waited, or waited long enough.
        GroupAnswer::Bad => {
            move_on(gather, caller, walk.slot);
            return Slice::Last;
        }
    }
    if let Some(kept) = walk.kept.take() {
        gather.engine.lend_group_room(kept);
    }
    let before = std::mem::take(&mut gather.core.connections[caller.slot].output); // I2
    run_work(gather, caller, walk, command);
    let output = &mut gather.core.connections[caller.slot].output;
    let replies = std::mem::replace(output, before);
    match waited(gather, |gather| gather.engine.end_group()) {
        Asked::Answered(answer) => ended(gather, caller, walk, replies, answer),
        Asked::Later(group) => rest(gather, caller.slot, walk, GroupStep::Ends(group, replies)),
    }
}

/// Runs the command, or the transaction, on keys that are held.
fn run_work(gather: &mut Gather<'_, '_>, caller: Caller, walk: &mut GroupWalk, command: &[u8]) {
    if let Some(transaction) = walk.transaction.take() {
        exec_in_group(gather, caller, &transaction);
        walk.transaction = Some(transaction); // Reads may be begun again.
    } else {
        let mut gather = gather.apart();
        // Limits were checked when the command was framed.
        let parsed = next_command(&mut Parser::default(), command, &Limits::new(usize::MAX));
        gather.raw = command;
        match parsed {
            Parsed::Done { value: Ok(command), .. } => run(&mut gather, caller, command),
            _ => debug_assert!(false, "it was parsed before"),
        }
        gather.flush();
    }
    gather.flush();
}

fn ended(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    walk: &mut GroupWalk,
    replies: Output,
    answer: GroupAnswer,
) -> Slice {
    let connection = &mut gather.core.connections[caller.slot];
    let error = match (answer, walk.in_doubt) {
        (GroupAnswer::Good, _) => {
            connection.output.append_output(replies);
            gather.core.touch(caller.slot);
            return Slice::Last;
        }
        (_, InDoubt::SendAgain) if walk.repeat_count < REPEATS_MAX => {
            walk.repeat_count += 1;
            return rest(gather, caller.slot, walk, GroupStep::Room(None));
        }
        (_, InDoubt::SendAgain) => ErrorReply::SlotLost,
        (_, InDoubt::Uncertain) => ErrorReply::Uncertain,
        (_, InDoubt::Close) => {
            connection.ending = Ending::Now;
            return Slice::Last;
        }
    };
    gather.fail(caller, &error);
    Slice::Last
}

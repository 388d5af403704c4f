//! The bound on the replies of a transaction: computed and booked before its first command runs.
//!
//! ```text
//!  EXEC ─▶ bound of each reply ─▶ sum: within a quarter of the buffers, and booked? ─▶ run
//!           │                                                      └▶ no: one error, nothing runs
//!           ├─ a value: how long it is, or what the group has written by then
//!           ├─ COMMAND DOCS, KEYS and their like: measured, by making the reply and dropping it
//!           ├─ RANDOMKEY: the longest key
//!           └─ else: a few words, and for what writes no value the command itself
//! ```
//!
//! A group is atomic: once its first command has run, none of its replies can wait. A value that
//! finds no room even so, because other clients have taken the log's pins meanwhile, is an error in
//! its place, and stays where it is ([`Sink::may_tell`]).
//!
//! [`Sink::may_tell`]: store::request::Sink::may_tell

use std::time::Instant;

use budget::Kind;
use commands::compaction::Answering;
use commands::output::{Output, PIN_VALUE_BYTES_MIN, PIN_VALUE_BYTES_MIN_OVER_LIMIT};
use commands::rmw::{Refusal, Rmw};
use commands::work::Work;
use runtime::connection::reply_kind;
use runtime::group_replies::{GroupReplies, SHORT_REPLY_BYTES};
use runtime::walks::Caller;
use store::pin::PinPlan;
use store::{KEY_LEN_MAX_BYTES, Op, Outcome, Pins, Request, Sink};
use wire::resp::{
    ArgIter, BitCommand, Command, CommandId, ErrorReply, Handling, KeyCommand, LcsRequest,
    LcsWants, StringCommand,
};

use super::room::{Planned, plan_command, value_now};
use super::{Queued, is_write, keys_of};
use crate::gather::Gather;
use crate::resp::locked::refuse_atomic;
use crate::resp::run;
use crate::resp::slices::next_slice;

/// So many replies with values of any length need no measuring if the log has room for their pins:
/// their copies are no more than one batch may copy.
const UNMEASURED_VALUES_MAX: usize = 128;

/// The maximum length of a match in LCS's reply with IDX: two ranges and their length.
const MATCH_BYTES: u64 = 128;

const TOO_MUCH_TO_REPLY: ErrorReply<'static> = ErrorReply::Other(
    "nothing was executed: the replies may take more than a quarter of the client buffers, which \
     are a part of maxmemory, or than is free of these",
);

const NO_ROOM: ErrorReply<'static> = ErrorReply::Other(
    "no room for this reply in the client buffers: try again, or ask for less at once",
);

/// What the bounds of values depend on.
struct Values {
    /// The values of keys that the group has changed by now.
    planned: Planned,
    /// What replies may still pin of the log; what is beyond is copied. A node of a cluster has no
    /// value to pin: its outcomes are copies.
    pins: Option<PinPlan>,
}

/// Books the maximum of the replies ([`GroupReplies`]). False: that is too much, and the error is
/// answered.
pub(super) fn book_replies(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    commands: &[Queued<'_>],
) -> bool {
    let bytes_max = gather.core.group_bytes_max();
    let began = gather.core.work();
    let bound = bound_of(gather, caller, commands, bytes_max);
    let looked_bytes = gather.core.work().bytes_since(began);
    if refuse_atomic(gather, caller, 0, looked_bytes) {
        return false;
    }
    let bound_bytes = bound.sum_bytes();
    // A few words have room even where long replies fill theirs.
    let kind = reply_kind(usize::try_from(bound_bytes).unwrap_or(usize::MAX));
    if bound_bytes <= bytes_max {
        let bytes = (bound.short_bytes, bound.long_bytes);
        gather.core.group_replies = GroupReplies::book(&mut gather.core.ledger, kind, bytes);
    }
    let is_booked = gather.core.group_replies.is_some();
    if is_booked && kind == Kind::Replies {
        gather.core.connections[caller.slot].output.reserve(bound_bytes as usize);
    } else if !is_booked {
        gather.core.counters().replies_refused.add(1);
        gather.fail(caller, &TOO_MUCH_TO_REPLY);
    }
    is_booked
}

/// Releases what the replies did not take.
pub(super) fn release_replies(gather: &mut Gather<'_, '_>, slot: usize) {
    let connection = &mut gather.core.connections[slot];
    if let Some(booked) = gather.core.group_replies.take() {
        booked.end(&mut connection.booked);
    }
    connection.output.trim();
    let held = connection.books();
    gather.core.ledger.rebook(&mut connection.booked, held);
}

/// Runs a command that makes its reply itself, and puts an error in the place of a reply that has
/// no room.
pub(super) fn run_within<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    run: impl FnOnce(&mut Gather<'_, 'a>),
) {
    gather.flush();
    let output = &gather.core.connections[caller.slot].output;
    let (end, before_bytes) = (output.end(), output.encoded_bytes());
    run(gather);
    gather.flush();
    let made_bytes = gather.core.connections[caller.slot].output.encoded_bytes() - before_bytes;
    let long_bytes = (made_bytes as u64).saturating_sub(SHORT_REPLY_BYTES);
    if long_bytes > 0 && !gather.core.draw_made_reply(caller.slot, long_bytes) {
        gather.core.connections[caller.slot].output.cut_back(end);
        gather.core.counters().replies_refused.add(1);
        gather.fail(caller, &NO_ROOM);
    }
}

/// Whether the reply is neither short nor made of outcomes: nothing else draws its room.
pub(super) fn replies_at_length(queued: &Queued<'_>) -> bool {
    let Ok(command) = queued.parsed else { return false };
    let is_of_one_key = matches!(command, Command::Key(KeyCommand::RandomKey));
    let is_lcs = matches!(command, Command::String(StringCommand::Lcs(_)));
    is_of_one_key || is_lcs || is_measured(command)
}

/// The maximum of all replies.
#[derive(Default)]
struct Bound {
    /// A few words for each, and what it may repeat.
    short_bytes: u64,
    /// Values and lists.
    long_bytes: u64,
}

impl Bound {
    fn sum_bytes(&self) -> u64 {
        self.short_bytes + self.long_bytes
    }
}

/// The bounds of all, or more than `bytes_max`.
fn bound_of(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    commands: &[Queued<'_>],
    bytes_max: u64,
) -> Bound {
    let is_alone = gather.core.cluster.is_none();
    let pins = is_alone.then(|| gather.core.shared.store().pin_plan());
    let tellers = commands.iter().filter(|queued| tells_values(queued));
    let told_count = tellers.flat_map(keys_of).count();
    let value_max_bytes = gather.core.value_max_bytes;
    let has_pins = pins.as_ref().is_some_and(|it| it.has_room_for(told_count, value_max_bytes));
    let looks = told_count > UNMEASURED_VALUES_MAX || told_count > 0 && !has_pins;
    let mut values = Values { planned: Planned::of_all(), pins };
    let (mut bound, began) = (Bound::default(), gather.core.work());
    for queued in commands {
        bound.short_bytes += SHORT_REPLY_BYTES;
        if may_repeat(queued) {
            bound.short_bytes += queued.raw.len() as u64;
        }
        match &queued.parsed {
            Ok(command) if is_measured(*command) => {
                let left_bytes = bytes_max - bound.sum_bytes().min(bytes_max);
                let measuring = Instant::now();
                bound.long_bytes += measure(gather, caller, queued, left_bytes);
                gather.core.charge(Work::elapsed(measuring.elapsed()));
                if has_looked_enough(gather, began) {
                    break;
                }
            }
            Ok(Command::Key(KeyCommand::RandomKey)) => bound.long_bytes += KEY_LEN_MAX_BYTES as u64,
            _ if looks => bound.long_bytes += values_bound(gather, queued, &mut values),
            _ => {}
        }
        if bound.sum_bytes() > bytes_max {
            break;
        }
    }
    bound
}

/// Whether measuring has cost as much as the group may.
fn has_looked_enough(gather: &Gather<'_, '_>, began: Work) -> bool {
    gather.core.work().bytes_since(began) > gather.core.shared.config().atomic_size_max_bytes
}

/// Whether a reply is made, and dropped, to know how long it is.
fn is_measured(command: Command<'_>) -> bool {
    let first_is = |mut args: ArgIter<'_>, word: &str| {
        args.next().is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    match command {
        // Of these one option acts, and one is long.
        Command::Operator { id: CommandId::AclLog, args } => !first_is(args, "reset"),
        Command::Operator { id: CommandId::Debug, args } => first_is(args, "help"),
        command => command.is_handled(Handling::Measured),
    }
}

/// The copied bytes of the values in a command's reply; notes what it does to its keys.
fn values_bound(gather: &mut Gather<'_, '_>, queued: &Queued<'_>, values: &mut Values) -> u64 {
    let (tells, tells_new) = (tells_values(queued), tells_new_value(queued));
    let mut copied_bytes = 0;
    if let Ok(Command::String(StringCommand::Lcs(LcsRequest {
        wants: LcsWants::Matches, ..
    }))) = queued.parsed
    {
        let lens = keys_of(queued).map(|key| value_now(gather, key, &values.planned).len_bytes());
        return lens.min().unwrap_or(0).saturating_mul(MATCH_BYTES);
    }
    let part_bytes = part_max(queued);
    for key in keys_of(queued).filter(|_| tells && !tells_new) {
        copied_bytes += match is_pinnable(part_bytes) {
            true => copied_of(gather, key, values).min(part_bytes),
            false => part_bytes, // Whatever the value's length.
        };
    }
    if is_write(queued) {
        gather.core.charge(Work::keys(1));
        plan_command(gather, queued, &mut values.planned);
    }
    for key in keys_of(queued).filter(|_| tells_new) {
        copied_bytes += value_now(gather, key, &values.planned).len_bytes();
    }
    copied_bytes
}

/// The most bytes of one value that a command's reply has.
fn part_max(queued: &Queued<'_>) -> u64 {
    match queued.parsed {
        // Both from one end.
        Ok(Command::String(StringCommand::GetRange { start, end, .. }))
            if start <= end && (start < 0) == (end < 0) =>
        {
            end.abs_diff(start).saturating_add(1)
        }
        _ => u64::MAX,
    }
}

/// The copied bytes of a value: beyond the output limit, middle-sized values are pinned.
fn copied_of(gather: &mut Gather<'_, '_>, key: &[u8], values: &mut Values) -> u64 {
    let hash = gather.core.hash(key);
    let mut told = ToldSink { pins: values.pins.as_mut(), len_bytes: 0, is_pinned: false };
    if let Some(value) = values.planned.changed(hash) {
        told.len_bytes = value.len_bytes();
        let plan = told.pins.take_if(|_| is_pinnable(value.len_bytes()));
        told.is_pinned = plan.is_some_and(|plan| plan.add_fresh(value.len_bytes()));
    } else {
        let request: Request<'_, Rmw<'_>> = Request { key, hash, op: Op::Get };
        gather.engine.execute(gather.core.now, &[request], &mut told);
        gather.core.charge(Work::keys(1));
    }
    match told.is_pinned {
        true => told.len_bytes.min(PIN_VALUE_BYTES_MIN_OVER_LIMIT as u64),
        false => told.len_bytes,
    }
}

/// Whether a value of that length may be pinned rather than copied.
fn is_pinnable(len_bytes: u64) -> bool {
    len_bytes >= PIN_VALUE_BYTES_MIN_OVER_LIMIT as u64
}

/// Notes the length of a value that is told, and whether it could be pinned.
struct ToldSink<'p> {
    pins: Option<&'p mut PinPlan>,
    len_bytes: u64,
    is_pinned: bool,
}

impl Answering for ToldSink<'_> {}

impl Sink<Refusal> for ToldSink<'_> {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.len_bytes = item.value.len() as u64;
            let plan = self.pins.as_mut().filter(|_| is_pinnable(self.len_bytes));
            self.is_pinned = plan.is_some_and(|plan| pins.plan(&item, plan));
        }
    }
}

/// Makes a reply slice by slice, drops it, and returns its length; above `bytes_max`: at least
/// that.
fn measure(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    queued: &Queued<'_>,
    bytes_max: u64,
) -> u64 {
    let (slot, began) = (caller.slot, gather.core.work());
    let work_bytes_max = gather.core.shared.config().atomic_size_max_bytes;
    let kept = std::mem::take(&mut gather.core.connections[slot].output);
    let mut gather = gather.apart();
    gather.raw = queued.raw;
    if let Ok(command) = &queued.parsed {
        run(&mut gather, caller, *command);
    }
    gather.flush();
    let mut sum_bytes = 0;
    loop {
        let connection = &mut gather.core.connections[slot];
        sum_bytes += connection.output.encoded_bytes() as u64;
        connection.output = Output::default();
        let Some(slices) = connection.resp().slices.take() else { break };
        let done_bytes = gather.core.work().bytes_since(began);
        if sum_bytes > bytes_max || done_bytes > work_bytes_max {
            break;
        }
        next_slice(&mut gather, slices, queued.raw);
    }
    gather.core.connections[slot].output = kept;
    sum_bytes
}

/// Whether the reply is the value that the command has made.
fn tells_new_value(queued: &Queued<'_>) -> bool {
    matches!(queued.parsed, Ok(Command::String(StringCommand::IncrByFloat { .. })))
}

/// Whether the reply may contain values.
fn tells_values(queued: &Queued<'_>) -> bool {
    match &queued.parsed {
        Ok(Command::String(StringCommand::Set(set))) => set.returns_old,
        Ok(Command::String(StringCommand::SetIf(set_if))) => {
            set_if.read().is_some_and(|(set, _)| set.returns_old)
        }
        Ok(command) => command.is_handled(Handling::Tells),
        Err(_) => false,
    }
}

/// Whether the reply may be as long as the command: it repeats a part of it, or has a number for
/// each of its parts.
fn may_repeat(queued: &Queued<'_>) -> bool {
    !is_write(queued) || matches!(queued.parsed, Ok(Command::Bit(BitCommand::BitField { .. })))
}

const _: () = assert!(PIN_VALUE_BYTES_MIN * UNMEASURED_VALUES_MAX == 8 << 20);

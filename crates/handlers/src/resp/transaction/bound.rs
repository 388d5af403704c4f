//! The bound on the replies of a transaction: computed and booked before its first command runs.
//!
//! ```text
//!  EXEC ─▶ bound of each reply ─▶ sum: within a quarter of the buffers, and booked? ─▶ run
//!           │                                                      └▶ no: one error, nothing runs
//!           ├─ a value: how long it is, or what the group has written by then
//!           ├─ COMMAND DOCS, KEYS and their like: measured, by making the reply and dropping it
//!           └─ else: a few words, and for what writes no value the command itself
//! ```
//!
//! A group is atomic: once its first command has run, none of its replies can wait. A value that
//! finds no room even so, because other clients have taken the log's pins meanwhile, is an error in
//! its place, and stays where it is ([`Sink::may_tell`]).
//!
//! [`Sink::may_tell`]: store::request::Sink::may_tell

use std::collections::HashMap;

use base::KeyHash;
use budget::Kind;
use commands::output::{Output, PIN_VALUE_BYTES_MIN, PIN_VALUE_BYTES_MIN_OVER_LIMIT};
use commands::rmw::Rmw;
use commands::work::Work;
use runtime::connection::reply_kind;
use runtime::walks::Caller;
use store::{Op, Request};
use wire::resp::{
    BitCommand, Command, CommandId, ErrorReply, Handling, ServerCommand, StringCommand,
};

use super::{LengthSink, Queued, grows_to_bytes, is_write, keys_of};
use crate::gather::Gather;
use crate::resp::locked::refuse_atomic;
use crate::resp::run;
use crate::resp::slices::next_slice;

/// So many replies with values of any length need no measuring if the log has room for their pins:
/// their copies are no more than one batch may copy.
const UNMEASURED_VALUES_MAX: usize = 128;

/// The maximum length of headers, numbers and errors.
const SHORT_REPLY_BYTES: u64 = 256;

/// The maximum length of INFO's and operators' replies, except for those that are measured.
const OPERATOR_REPLY_BYTES: u64 = 16 << 10;

const TOO_MUCH_TO_REPLY: ErrorReply<'static> = ErrorReply::Other(
    "nothing was executed: the replies may take more than a quarter of the client buffers, which \
     are a part of maxmemory, or than is free of these",
);

/// What the bounds of values depend on.
struct Values {
    /// The maximum lengths that the values of the group's keys may have by now.
    lengths: HashMap<KeyHash, u64>,
    /// How much of the log replies may still pin; what is beyond is copied. A node of a cluster has
    /// no value to pin: its outcomes are copies.
    pin_room_bytes: u64,
}

/// What is booked for the replies of a transaction, under its kind.
pub(super) struct BookedReplies(Kind, u64);

/// Books the maximum of the replies, from which copied values take their part ([`Core`]'s
/// `booked_replies_bytes`). `None`: that is too much, and the error is answered.
///
/// [`Core`]: runtime::core::Core
pub(super) fn book_replies(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    commands: &[Queued<'_>],
) -> Option<BookedReplies> {
    let bytes_max = gather.core.group_bytes_max();
    let began = gather.core.work();
    let bound_bytes = bound_of(gather, caller, commands, bytes_max);
    let looked_bytes = gather.core.work().bytes_since(began);
    if refuse_atomic(gather, caller, 0, looked_bytes) {
        return None;
    }
    // A few words have room even where long replies fill theirs.
    let kind = reply_kind(usize::try_from(bound_bytes).unwrap_or(usize::MAX));
    if bound_bytes <= bytes_max && gather.core.ledger.try_reserve(kind, bound_bytes) {
        if kind == Kind::Replies {
            gather.core.booked_replies_bytes = bound_bytes;
        }
        return Some(BookedReplies(kind, bound_bytes));
    }
    gather.core.counters().replies_refused.add(1);
    gather.fail(caller, &TOO_MUCH_TO_REPLY);
    None
}

/// Releases what the replies did not take.
pub(super) fn release_replies(gather: &mut Gather<'_, '_>, booked: BookedReplies) {
    let BookedReplies(kind, bound_bytes) = booked;
    let left_bytes = match kind {
        Kind::Replies => std::mem::take(&mut gather.core.booked_replies_bytes),
        _ => bound_bytes,
    };
    gather.core.ledger.release(kind, left_bytes);
}

/// The sum of all bounds, or more than `bytes_max`.
fn bound_of(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    commands: &[Queued<'_>],
    bytes_max: u64,
) -> u64 {
    let pin_room_bytes = match gather.core.cluster {
        Some(_) => 0,
        None => gather.core.shared.store().pin_room_bytes(),
    };
    let tellers = commands.iter().filter(|queued| tells_values(queued));
    let told_count = tellers.flat_map(keys_of).count();
    let told_bytes_max = (told_count as u64).saturating_mul(gather.core.value_max_bytes);
    let looks = told_count > UNMEASURED_VALUES_MAX || told_bytes_max > pin_room_bytes;
    let mut values = Values { lengths: HashMap::new(), pin_room_bytes };
    let (mut sum_bytes, began) = (0, gather.core.work());
    for queued in commands {
        sum_bytes += SHORT_REPLY_BYTES;
        if may_repeat(queued) {
            sum_bytes += queued.raw.len() as u64;
        }
        match &queued.parsed {
            Ok(command) if command.is_handled(Handling::Measured) => {
                let left_bytes = bytes_max - sum_bytes.min(bytes_max);
                sum_bytes += measure(gather, caller, queued, left_bytes);
                gather.core.charge(Work::alone());
                if has_looked_enough(gather, began) {
                    break;
                }
            }
            Ok(Command::Server(ServerCommand::Info { .. }) | Command::Operator { .. }) => {
                sum_bytes += OPERATOR_REPLY_BYTES;
            }
            _ if looks => sum_bytes += values_bound(gather, queued, &mut values),
            _ => {}
        }
        if sum_bytes > bytes_max {
            break;
        }
    }
    sum_bytes
}

/// Whether measuring has cost as much as the group may.
fn has_looked_enough(gather: &Gather<'_, '_>, began: Work) -> bool {
    gather.core.work().bytes_since(began) > gather.core.shared.config().atomic_size_max_bytes
}

/// The copied bytes of the values in a command's reply; updates the lengths of its keys.
fn values_bound(gather: &mut Gather<'_, '_>, queued: &Queued<'_>, values: &mut Values) -> u64 {
    let tells = tells_values(queued);
    let mut copied_bytes = 0;
    let mut longest_bytes = 0;
    for key in keys_of(queued) {
        let len_bytes = length_of(gather, key, values);
        longest_bytes = longest_bytes.max(len_bytes);
        if tells {
            copied_bytes += values.copied_of(len_bytes);
        }
    }
    if is_write(queued) {
        let grown_bytes = grows_to_bytes(queued, gather.core.value_max_bytes);
        let own_bytes = queued.raw.len() as u64;
        let len_bytes = match replaces_values(queued) {
            true => longest_bytes.max(own_bytes),
            false => longest_bytes.max(grown_bytes) + own_bytes,
        };
        for key in keys_of(queued) {
            values.lengths.insert(gather.core.hash(key), len_bytes);
        }
    }
    copied_bytes
}

impl Values {
    /// The copied bytes of a told value: beyond the output limit, middle-sized values are pinned.
    fn copied_of(&mut self, len_bytes: u64) -> u64 {
        let pinned_bytes_min = PIN_VALUE_BYTES_MIN_OVER_LIMIT as u64;
        match self.pin_room_bytes.checked_sub(len_bytes) {
            Some(left_bytes) if len_bytes >= pinned_bytes_min => {
                self.pin_room_bytes = left_bytes;
                pinned_bytes_min
            }
            _ => len_bytes,
        }
    }
}

fn length_of(gather: &mut Gather<'_, '_>, key: &[u8], values: &mut Values) -> u64 {
    let hash = gather.core.hash(key);
    if let Some(len_bytes) = values.lengths.get(&hash) {
        return *len_bytes;
    }
    let mut sink = LengthSink { len_max_bytes: 0 };
    let request: Request<'_, Rmw<'_>> = Request { key, hash, op: Op::Get };
    gather.engine.execute(gather.core.now, &[request], &mut sink);
    gather.core.charge(Work::keys(1));
    values.lengths.insert(hash, sink.len_max_bytes);
    sink.len_max_bytes
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

/// Whether the keys have the values of the command afterwards, or those from before.
fn replaces_values(queued: &Queued<'_>) -> bool {
    use CommandId::{GetSet, MSet, MSetEx, MSetNx, PSetEx, Set, SetEx, SetNx};
    let id = queued.parsed.as_ref().ok().and_then(Command::id);
    id.is_some_and(|id| {
        matches!(id, GetSet | MSet | MSetEx | MSetNx | PSetEx | Set | SetEx | SetNx)
    })
}

/// Whether the reply may contain values.
fn tells_values(queued: &Queued<'_>) -> bool {
    match &queued.parsed {
        Ok(Command::String(StringCommand::Set(set))) => set.returns_old,
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

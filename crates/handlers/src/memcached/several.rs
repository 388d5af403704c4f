//! get, gets, gat and gats of several keys: reads keys as fast as the client reads replies. In a
//! cluster each key goes to the node that serves it.
//!
//! ```text
//!  get a b c d  ─▶ a: here   b: control thread   c: forwarded ─▶ VALUE a, VALUE b, VALUE c
//!          └ no cell is free for d, or the client's output is full: the input begins there, and
//!            `Reading` says how it goes on
//! ```
//!
//! Outside a cluster such a command is a barrier and runs where it arrived: all keys are there.
//!
//! # Invariants
//! I1: each key is a request of its own, as if it were the only one: the keys are not read at one
//!     moment, and a pipeline's order holds for each key (K10).
//! I2: a key is sent only if [`Gather::may_parse`] allows it, because request slots are few.
//! I3: a reply ends once. The error of a refused key takes the place of the last END, after the
//!     values of the others. Between the values the error would end the reply for the client, which
//!     would take the rest for the answer to its next command.
//! I4: outside a cluster a command stops only where the loop over the connection's commands stops
//!     too, so only the last command that was fed can have stopped.
//! I5: the first values show whether values are large ([`FIRST_KEYS`]); large ones are read one by
//!     one, so that a connection has about one of them waiting. gat copies values, so where other
//!     connections wait each key is looked at before it is read, and the rest of the command goes
//!     on behind them.

use base::UnixMillis;
use commands::reply::Shape;
use commands::rmw::Rmw;
use runtime::connection::Connection;
use runtime::walks::Reading;
use store::Op;
use wire::memcached::{Keys, Reply};

use super::Caller;
use crate::gather::Gather;
use crate::memcached::{request_update, say_line};

const END: &[u8] = b"END\r\n";

/// The number of values that are read before further ones of their command join a batch.
const FIRST_KEYS: usize = 4;

/// Reads keys from the first one on.
pub(super) fn read_each<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    keys: Keys<'a>,
    with_cas: bool,
    touch: Option<Option<UnixMillis>>,
) {
    let reading = Reading { index: caller.index, with_cas, touch, left_bytes: 0 };
    if keys.into_iter().next().is_none() {
        // `gat 10` names no key; memcached ends it at once.
        return say_line(gather, caller, Reply::End);
    }
    read_some(gather, caller.slot, reading, keys);
}

/// Continues a command whose line begins before `input`; returns how many bytes of it are done.
#[cold]
pub(super) fn read_on<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    reading: Reading,
    input: &'a [u8],
) -> usize {
    // The whole line had arrived when the command began, and input is not dropped.
    let Some((keys, line_bytes)) = Keys::left_in(input) else { return 0 };
    if gather.routes() {
        let may_begin = gather.enter(slot, gather.core.cluster.is_some());
        debug_assert!(may_begin, "what it had to wait for was answered when it began");
    }
    let line = &input[..line_bytes];
    let connection = &mut gather.core.connections[slot];
    if connection.awaiting.is_empty()
        && let Some(failed) = connection.memcached().failed_read.take()
    {
        // No later reply could carry it (I3).
        gather.reply_to(slot, |out| out.extend_from_slice(&failed));
        return line_bytes;
    }
    read_some(gather, slot, reading, keys);
    // Otherwise the caller subtracts the rest.
    line_bytes - if gather.routes() { left_bytes(gather, slot, line) } else { 0 }
}

/// The rest of the line of a command that has not finished.
#[inline]
pub(super) fn left_bytes(gather: &mut Gather<'_, '_>, slot: usize, line: &[u8]) -> usize {
    let Some(reading) = &gather.core.connections[slot].memcached().reading else { return 0 };
    reading.left_bytes + Keys::line_end_bytes(line)
}

/// Reads as many keys as may be sent.
fn read_some<'a>(gather: &mut Gather<'_, 'a>, slot: usize, reading: Reading, mut keys: Keys<'a>) {
    let caller = Caller { slot, index: reading.index, is_quiet: false };
    let Reading { with_cas, touch, .. } = reading;
    let op = touch.map_or(Op::Get, |expires_at| Op::Update(Rmw::SetExpiry(expires_at)));
    // A datagram's reply is bounded by its own limit and leaves as a whole.
    let may_stop = gather.core.connections[slot].exchange.is_none();
    let is_copied = touch.is_some();
    let mut begun_count = 0;
    let mut left = keys;
    while let Some(key) = keys.next() {
        if begun_count == FIRST_KEYS || (is_copied && begun_count < FIRST_KEYS) {
            gather.settle(slot);
        }
        let stops = may_stop
            && begun_count > 0
            && (!gather.may_parse(slot)
                || (is_copied && gather.value_waits_behind_others(slot, key)));
        if stops {
            let left_bytes = left.left_bytes();
            let connection = &mut gather.core.connections[slot];
            // Its input now begins within a line: keys are not sampled there.
            connection.input.has_skipped = true;
            connection.memcached().reading = Some(Reading { left_bytes, ..reading });
            return;
        }
        let mut ahead = keys;
        let shape = Shape::McValue { with_cas, is_last: ahead.next().is_none() };
        request_update(gather, caller, key, op, shape);
        (begun_count, left) = (begun_count + 1, keys);
    }
}

/// Writes the reply to one key of several that another thread executed (I3). False: the reply is
/// written unchanged.
pub fn put_out_part(
    connection: &mut Connection,
    reply: &[u8],
    (is_last, has_pinned): (bool, bool),
) -> bool {
    let is_refused = !has_pinned && reply.starts_with(b"SERVER_ERROR");
    if !is_last {
        if is_refused {
            connection.memcached().failed_read.get_or_insert_with(|| reply.into());
        }
        return is_refused;
    }
    let Some(failed) = connection.memcached().failed_read.take() else { return false };
    // A pinned value was to be sent after a part of the reply: the part is sent without it.
    let values =
        if is_refused || has_pinned { &[] } else { reply.strip_suffix(END).unwrap_or(&[]) };
    connection.output.append(|out| {
        out.extend_from_slice(values);
        out.extend_from_slice(&failed);
    });
    true
}

//! Skips the rest of a command that is refused before all of it has arrived, so that its connection
//! stays usable.
//!
//! ```text
//!  feed_resp ──▶ an argument above the limit ──▶ give_up: the error reply, the transaction spoilt
//!  later reads ──▶ skip_refused: what the headers announce is skipped ──▶ feed_resp
//! ```

use runtime::connection::{Ending, ProtocolState, Replies};
use runtime::core::Core;
use wire::resp::{ErrorCode, ProtocolError};

use super::{Fed, limits};
use crate::gather::Gather;
use crate::resp::feed_resp;

/// How the connection of a refused command continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// The error was answered, and the command is skipped.
    Answered,
    /// The command is skipped without a reply (CLIENT REPLY).
    Quiet,
    /// The end of the command is not known.
    Endless,
}

/// Skips the command that the connection's parser is in; its bytes are still the first of the
/// input. A transaction that it would have joined is spoilt.
#[cold]
pub fn give_up(core: &mut Core, slot: usize) -> GivenUp {
    let connection = &mut core.connections[slot];
    let ProtocolState::Resp(resp) = &mut connection.protocol_state else {
        return GivenUp::Endless;
    };
    let Some(discard) = resp.parser.give_up() else { return GivenUp::Endless };
    resp.discard = Some(discard);
    connection.input.need_bytes = 0;
    if let Some(transaction) = &mut resp.transaction {
        transaction.spoil();
    }
    let replies = resp.replies;
    if replies == Replies::SkipNext {
        resp.replies = Replies::On;
    }
    core.counters().oversized_commands.add(1);
    core.counters().errors_by_code[ErrorCode::Err as usize].add(1);
    if replies == Replies::On { GivenUp::Answered } else { GivenUp::Quiet }
}

/// A command with an argument above the limit.
#[cold]
pub(super) fn refuse_oversized(gather: &mut Gather<'_, '_>, slot: usize, error: ProtocolError) {
    match give_up(gather.core, slot) {
        GivenUp::Answered => gather.reply_to(slot, |out| error.encode(out)),
        GivenUp::Quiet => gather.settle(slot),
        GivenUp::Endless => end_broken(gather, slot, error),
    }
}

/// Skips the arrived bytes of a refused command; runs the commands after it.
#[cold]
pub(super) fn skip_refused<'a>(gather: &mut Gather<'_, 'a>, slot: usize, input: &'a [u8]) -> Fed {
    let limits = limits(gather.core, slot);
    let Some(mut discard) = gather.core.connections[slot].resp().discard.take() else {
        return Fed::up_to(0, 0);
    };
    let skipped_bytes = match discard.skip(input, &limits) {
        Ok(skipped_bytes) => skipped_bytes,
        Err(error) => {
            end_broken(gather, slot, error);
            return Fed { skipped_bytes: input.len(), ..Fed::up_to(input.len(), 0) };
        }
    };
    if !discard.has_ended() {
        gather.core.connections[slot].resp().discard = Some(discard);
        // The rest is an incomplete header.
        let need_bytes = input.len() - skipped_bytes + 1;
        return Fed { skipped_bytes, ..Fed::up_to(skipped_bytes, need_bytes) };
    }
    let fed = feed_resp(gather, slot, &input[skipped_bytes..]);
    Fed { skipped_bytes, consumed_bytes: skipped_bytes + fed.consumed_bytes, ..fed }
}

/// Ends a connection whose framing is broken.
#[cold]
pub(super) fn end_broken(gather: &mut Gather<'_, '_>, slot: usize, error: ProtocolError) {
    gather.core.counters().protocol_errors.add(1);
    gather.core.counters().errors_by_code[ErrorCode::Err as usize].add(1);
    gather.reply_to(slot, |out| error.encode(out));
    gather.core.connections[slot].ending = Ending::AfterFlush;
}

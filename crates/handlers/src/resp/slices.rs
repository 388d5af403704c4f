//! Replies in slices: a reply whose length the command does not bound is made in parts, as its
//! client reads.
//!
//! ```text
//!  round 1: COMMAND DOCS get ... ─▶ a slice ─▶ sent     Slices: where it goes on, kept with the
//!  round 2: (the output has drained) ─▶ a slice ─▶ sent         connection, its command's bytes
//!  ...                                                          still the first of the input
//!  round n: the last slice, and the command is consumed
//! ```
//!
//! # Invariants
//! I1: while a connection has [`Slices`], its input begins with their command.
//! I2: a slice is made only while the connection's unsent bytes are within its output limit. It
//!     appends at most [`SLICE_BYTES`] and one element, or looks at a stated number of items.
//! I3: a source is plain data: offsets into the command, counts, and the bytes it has gathered. It
//!     borrows nothing, and moves with its connection to another worker.
//!
//! # Trade-offs
//! A reply that starts with its length (an array of unknown length) is first gathered over several
//! turns ([`Gathered`]): it is booked as it grows, and takes at most a quarter of the client
//! buffers.

use runtime::walks::{Caller, Gathered, Slice, Slices, Source};
use wire::resp::ErrorReply;

use crate::gather::Gather;
use crate::resp::bit_operation::bit_op_slice;
use crate::resp::clients_walk::clients_slice;
use crate::resp::command::walk::commands_slice;
use crate::resp::counting::count_slice;
use crate::resp::disk_wait::disk_slice;
use crate::resp::group::group_slice;
use crate::resp::key_range::range_slice;
use crate::resp::lcs::lcs_slice;
use crate::resp::names::names_slice;
use crate::resp::several::values_slice;

/// The maximum part of the client buffers for a reply that is gathered before it is sent.
const GATHERED_BUFFER_PART: u64 = 4;

/// Nothing gathered yet.
pub(super) fn gathered<'a>(gather: &mut Gather<'_, 'a>) -> Gathered {
    let bytes_max = gather.core.shared.buffer_budget().limit_bytes() / GATHERED_BUFFER_PART;
    Gathered {
        bytes: gather.core.pool.pop().unwrap_or_default(),
        bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
        ..Gathered::default()
    }
}

/// Replies with an array of the gathered elements.
pub(super) fn say_gathered(gather: &mut Gather<'_, '_>, caller: Caller, gathered: Gathered) {
    gather.say(caller, |encoder| {
        encoder.array_header(gathered.count);
        encoder.out().extend_from_slice(&gathered.bytes);
    });
    drop_gathered(gather, gathered);
}

/// Keeps the buffer of a reply that is not sent.
pub(super) fn drop_gathered(gather: &mut Gather<'_, '_>, mut gathered: Gathered) {
    gathered.bytes.clear();
    if gathered.bytes.capacity() > 0 {
        gather.core.return_buffer(gathered.bytes);
    }
}

/// Makes the first slice of a reply; the connection keeps the source of the others. Beside
/// other connections, a long reply begins after their commands (W4).
pub(super) fn begin_slices(gather: &mut Gather<'_, '_>, caller: Caller, mut source: Source) {
    gather.settle(caller.slot);
    if source.is_long() && gather.core.turn.is_beside_others() {
        gather.core.note_slice(caller.slot);
        return keep_slices(gather, caller, source);
    }
    if slice(gather, caller, &mut source, gather.raw) == Slice::More {
        keep_slices(gather, caller, source);
    }
}

/// Keeps a source whose first slice has been made.
pub(super) fn keep_slices(gather: &mut Gather<'_, '_>, caller: Caller, source: Source) {
    let slices = Slices { caller, source, command_bytes: gather.raw.len(), rewritten: None };
    gather.core.connections[caller.slot].resp().slices = Some(Box::new(slices));
}

/// Records the length of a command in the input that has not finished.
#[cold]
pub(super) fn note_command_bytes(gather: &mut Gather<'_, '_>, slot: usize, command_bytes: usize) {
    if let Some(slices) = &mut gather.core.connections[slot].resp().slices {
        slices.command_bytes = command_bytes;
    }
}

/// Records that the command was rewritten: its words are not in the input.
pub(super) fn keep_rewritten(gather: &mut Gather<'_, '_>, slot: usize, bytes: &[u8]) {
    if let Some(slices) = &mut gather.core.connections[slot].resp().slices {
        slices.rewritten = Some(bytes.into());
    }
}

/// Makes the next slice of the command that `input` begins with (I1); returns the number of
/// consumed bytes: none, or all of the command.
#[cold]
pub(super) fn resume_slices(gather: &mut Gather<'_, '_>, slot: usize, input: &[u8]) -> usize {
    let Some(slices) = gather.core.connections[slot].resp().slices.take() else { return 0 };
    gather.stay_here();
    let command_bytes = slices.command_bytes;
    debug_assert!(command_bytes <= input.len(), "I1");
    let command = &input[..command_bytes.min(input.len())];
    next_slice(gather, slices, command);
    match gather.core.connections[slot].resp().slices.is_some() {
        true => 0,
        false => command.len(),
    }
}

/// Makes all remaining slices: the commands after it in EXEC do not wait.
pub(super) fn end_slices(gather: &mut Gather<'_, '_>, slot: usize, command: &[u8]) {
    while let Some(slices) = gather.core.connections[slot].resp().slices.take() {
        next_slice(gather, slices, command);
    }
}

/// Makes the next slice; the source of the others stays with the connection.
pub(super) fn next_slice(gather: &mut Gather<'_, '_>, mut slices: Box<Slices>, command: &[u8]) {
    let Slices { caller, source, rewritten, .. } = &mut *slices;
    let (caller, command) = (*caller, rewritten.as_deref().unwrap_or(command));
    if slice(gather, caller, source, command) == Slice::More {
        gather.core.connections[caller.slot].resp().slices = Some(slices);
        return;
    }
    // The next command of the pipeline may need as much.
    drop(slices);
    let connection = &mut gather.core.connections[caller.slot];
    let held = connection.books();
    gather.core.ledger.rebook(&mut connection.booked, held);
}

fn slice(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    source: &mut Source,
    command: &[u8],
) -> Slice {
    gather.core.note_slice(caller.slot);
    let ended = match source {
        Source::Range(walk) => range_slice(gather, caller, walk),
        Source::Commands(walk) => commands_slice(gather, caller, walk, command),
        Source::Values(walk) => values_slice(gather, caller, walk, command),
        Source::Count(walk) => count_slice(gather, caller, walk, command),
        Source::Names(walk) => names_slice(gather, caller, walk),
        Source::Lcs(walk) => lcs_slice(gather, caller, walk),
        Source::BitOp(walk) => bit_op_slice(gather, caller, walk, command),
        Source::Clients(walk) => clients_slice(gather, caller, walk, command),
        Source::Disk(wait) => disk_slice(gather, caller, wait),
        Source::Group(walk) => group_slice(gather, caller, walk, command),
    };
    let made_bytes = gather.core.connections[caller.slot].output.encoded_bytes();
    gather.core.made(made_bytes);
    ended
}

/// Whether there is room for the bytes that sources have gathered; answers the error itself.
/// Some is left for the copies that are sent: beyond the limit clients are closed.
pub(super) fn may_gather_on(gather: &mut Gather<'_, '_>, caller: Caller) -> bool {
    let has_room = !gather.core.ledger.is_tight();
    if !has_room {
        let text = "the client buffers are full: try again, or ask for less";
        gather.fail(caller, &ErrorReply::Other(text));
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_too_long_stops_growing() {
        let mut gathered = Gathered { bytes_max: 20, ..Gathered::default() };
        gathered.push(b"0123456789");
        gathered.push(b"0123456789");
        gathered.push(b"");
        assert_eq!((gathered.count, gathered.is_too_long), (1, true));
        assert_eq!(gathered.bytes, b"$10\r\n0123456789\r\n");
    }
}

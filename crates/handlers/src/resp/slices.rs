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

use runtime::engine::Engine;
use runtime::walks::{Caller, Gathered, Slice, Slices, Source};
use wire::resp::ErrorReply;

use crate::gather::Gather;

/// The maximum part of the client buffers for a reply that is gathered before it is sent.
const GATHERED_BUFFER_PART: u64 = 4;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Nothing gathered yet.
    pub(super) fn gathered(&mut self) -> Gathered {
        let bytes_max = self.core.shared.buffer_budget().limit_bytes() / GATHERED_BUFFER_PART;
        Gathered {
            bytes: self.core.pool.pop().unwrap_or_default(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            ..Gathered::default()
        }
    }

    /// Replies with an array of the gathered elements.
    pub(super) fn say_gathered(&mut self, caller: Caller, gathered: Gathered) {
        self.say(caller, |encoder| {
            encoder.array_header(gathered.count);
            encoder.out().extend_from_slice(&gathered.bytes);
        });
        self.drop_gathered(gathered);
    }

    /// Keeps the buffer of a reply that is not sent.
    pub(super) fn drop_gathered(&mut self, mut gathered: Gathered) {
        gathered.bytes.clear();
        if gathered.bytes.capacity() > 0 {
            self.core.return_buffer(gathered.bytes);
        }
    }

    /// Makes the first slice of a reply; the connection keeps the source of the others. Beside
    /// other connections, a long reply begins after their commands (W4).
    pub(super) fn begin_slices(&mut self, caller: Caller, mut source: Source) {
        self.settle(caller.slot);
        if source.is_long() && self.core.is_beside_others() {
            self.core.note_slice(caller.slot);
            return self.keep_slices(caller, source);
        }
        if self.slice(caller, &mut source, self.raw) == Slice::More {
            self.keep_slices(caller, source);
        }
    }

    /// Keeps a source whose first slice has been made.
    pub(super) fn keep_slices(&mut self, caller: Caller, source: Source) {
        let slices = Slices { caller, source, command_bytes: self.raw.len(), rewritten: None };
        self.core.connections[caller.slot].resp().slices = Some(Box::new(slices));
    }

    /// Records the length of a command in the input that has not finished.
    #[cold]
    pub(super) fn note_command_bytes(&mut self, slot: usize, command_bytes: usize) {
        if let Some(slices) = &mut self.core.connections[slot].resp().slices {
            slices.command_bytes = command_bytes;
        }
    }

    /// Records that the command was rewritten: its words are not in the input.
    pub(super) fn keep_rewritten(&mut self, slot: usize, bytes: &[u8]) {
        if let Some(slices) = &mut self.core.connections[slot].resp().slices {
            slices.rewritten = Some(bytes.into());
        }
    }

    /// Makes the next slice of the command that `input` begins with (I1); returns the number of
    /// consumed bytes: none, or all of the command.
    #[cold]
    pub(super) fn resume_slices(&mut self, slot: usize, input: &[u8]) -> usize {
        let Some(slices) = self.core.connections[slot].resp().slices.take() else { return 0 };
        let command_bytes = slices.command_bytes;
        debug_assert!(command_bytes <= input.len(), "I1");
        let command = &input[..command_bytes.min(input.len())];
        self.next_slice(slices, command);
        match self.core.connections[slot].resp().slices.is_some() {
            true => 0,
            false => command.len(),
        }
    }

    /// Makes all remaining slices: the commands after it in EXEC do not wait.
    pub(super) fn end_slices(&mut self, slot: usize, command: &[u8]) {
        while let Some(slices) = self.core.connections[slot].resp().slices.take() {
            self.next_slice(slices, command);
        }
    }

    /// Makes the next slice; the source of the others stays with the connection.
    pub(super) fn next_slice(&mut self, mut slices: Box<Slices>, command: &[u8]) {
        let Slices { caller, source, rewritten, .. } = &mut *slices;
        let (caller, command) = (*caller, rewritten.as_deref().unwrap_or(command));
        if self.slice(caller, source, command) == Slice::More {
            self.core.connections[caller.slot].resp().slices = Some(slices);
            return;
        }
        // The next command of the pipeline may need as much.
        drop(slices);
        let connection = &mut self.core.connections[caller.slot];
        let held = connection.books();
        self.core.ledger.rebook(&mut connection.booked, held);
    }

    fn slice(&mut self, caller: Caller, source: &mut Source, command: &[u8]) -> Slice {
        self.core.note_slice(caller.slot);
        let ended = match source {
            Source::Range(walk) => self.range_slice(caller, walk),
            Source::Commands(walk) => self.commands_slice(caller, walk, command),
            Source::Values(walk) => self.values_slice(caller, walk, command),
            Source::Count(walk) => self.count_slice(caller, walk, command),
            Source::Names(walk) => self.names_slice(caller, walk),
            Source::Lcs(walk) => self.lcs_slice(caller, walk),
            Source::BitOp(walk) => self.bit_op_slice(caller, walk, command),
            Source::Clients(walk) => self.clients_slice(caller, walk, command),
            Source::Disk(wait) => self.disk_slice(caller, wait),
        };
        let made_bytes = self.core.connections[caller.slot].output.encoded_bytes();
        self.core.made(made_bytes);
        ended
    }

    /// Whether there is room for the bytes that sources have gathered; answers the error itself.
    /// Some is left for the copies that are sent: beyond the limit clients are closed.
    pub(super) fn may_gather_on(&mut self, caller: Caller) -> bool {
        let has_room = !self.core.ledger.is_tight();
        if !has_room {
            let text = "the client buffers are full: try again, or ask for less";
            self.fail(caller, &ErrorReply::Other(text));
        }
        has_room
    }
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

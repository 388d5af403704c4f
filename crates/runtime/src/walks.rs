//! Walks: how far the commands have come that are answered in slices. Plain data, which a
//! connection keeps; the handlers in `resp` and `memcached` make the slices.
//!
//! ```text
//!  MGET k1 ... k9000 ─▶ first slice ─▶ Slices { Source::Values(ValueWalk) } ─▶ next turn: the next
//!                                      kept by the connection
//! ```

mod bit_operation;
pub mod clients;
pub mod commands;
mod count;
mod disk_wait;
pub mod dump;
mod group;
pub mod key_range;
pub mod lcs;
pub mod names;
mod reading;
mod values;

use ::commands::reply::{Answer, Shape};
use counters::CommandIndex;
use replication::replicate::PendingGroup;
use wire::resp::{Encoder, Protocol};

pub use bit_operation::BitOpWalk;
pub use clients::ClientsWalk;
pub use commands::CommandWalk;
pub use count::CountWalk;
pub use disk_wait::{DiskWait, Written};
pub use dump::DumpWalk;
pub use group::{GroupStep, GroupWalk, InDoubt};
pub use key_range::RangeWalk;
pub use lcs::LcsWalk;
pub use names::NamesWalk;
pub use reading::Reading;
pub use values::ValueWalk;

/// The length that one slice appends to the output, give or take one element.
pub const SLICE_BYTES: usize = 64 << 10;

/// The command that is being run.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Its connection.
    pub slot: usize,
    /// Its counters.
    pub index: CommandIndex,
    /// CLIENT REPLY OFF or SKIP.
    pub is_quiet: bool,
}

impl Caller {
    /// The answer of this command, in a shape.
    #[inline]
    pub fn answer(self, shape: Shape) -> Answer {
        Answer { slot: self.slot, command: self.index, is_quiet: self.is_quiet, shape }
    }
}

/// A command that is answered in slices and has begun.
pub struct Slices {
    /// The command, and its connection.
    pub caller: Caller,
    /// What its reply is made of.
    pub source: Source,
    /// The command's length in the input.
    pub command_bytes: usize,
    /// The command as it is parsed, if its words are not in the input.
    pub rewritten: Option<Box<[u8]>>,
}

/// What makes the slices of one command's reply.
pub enum Source {
    /// KV.RANGE.
    Range(RangeWalk),
    /// COMMAND INFO, DOCS, GETKEYS and GETKEYSANDFLAGS.
    Commands(CommandWalk),
    /// MGET.
    Values(ValueWalk),
    /// DEL, UNLINK, EXISTS and TOUCH.
    Count(CountWalk),
    /// KEYS, CLUSTER GETKEYSINSLOT and COUNTKEYSINSLOT.
    Names(NamesWalk),
    /// LCS.
    Lcs(LcsWalk),
    /// BITOP.
    BitOp(BitOpWalk),
    /// CLIENT LIST and CLIENT KILL.
    Clients(ClientsWalk),
    /// ACL SAVE, CONFIG REWRITE and SAVE.
    Disk(DiskWait),
    /// In a cluster: EXEC, and commands on several keys.
    Group(Box<GroupWalk>),
}

impl Source {
    /// The group whose answer it waits for. It goes on whatever its client reads: others wait for
    /// its shard.
    pub fn pending_group(&self) -> Option<&PendingGroup> {
        match self {
            Source::Group(walk) => match &walk.step {
                GroupStep::Begins(group) | GroupStep::Ends(group, _) => Some(group),
                GroupStep::Room(_) | GroupStep::Over => None,
            },
            _ => None,
        }
    }

    /// Whether it is more work than some lookups.
    pub fn is_long(&self) -> bool {
        match self {
            Source::Values(walk) => walk.is_long(),
            Source::Clients(walk) => walk.is_long(),
            Source::Disk(_) | Source::Group(_) => false,
            _ => true,
        }
    }
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Another one follows.
    More,
    /// The reply is whole.
    Last,
}

impl Slices {
    /// Updates the slot after its connection has moved.
    pub fn move_to(&mut self, slot: usize) {
        self.caller.slot = slot;
    }

    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        let gathered_bytes = match &self.source {
            Source::Range(walk) => walk.held_bytes(),
            Source::Names(walk) => walk.held_bytes(),
            Source::Lcs(walk) => walk.held_bytes(),
            Source::BitOp(walk) => walk.held_bytes(),
            Source::Clients(walk) => walk.held_bytes(),
            Source::Group(walk) => walk.held_bytes(),
            Source::Commands(_) | Source::Values(_) | Source::Count(_) | Source::Disk(_) => 0,
        };
        size_of::<Slices>() + gathered_bytes + self.rewritten.as_ref().map_or(0, |it| it.len())
    }
}

/// The encoded elements of an array whose length is only known at the end.
#[derive(Default)]
pub struct Gathered {
    /// The encoded elements.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub count: usize,
    /// The length from which they leave.
    pub bytes_max: usize,
    /// The elements exceed the maximum.
    pub is_too_long: bool,
}

impl Gathered {
    /// Adds a bulk string, unless that exceeds the maximum.
    pub fn push(&mut self, element: &[u8]) {
        if self.has_room(element.len()) {
            // Bulk strings are the same in both versions.
            Encoder::new(&mut self.bytes, Protocol::Resp2).bulk(element);
            self.count += 1;
        }
    }

    /// Adds a part of one long string, unless that exceeds the maximum.
    pub fn append(&mut self, part: &[u8]) {
        if self.has_room(part.len()) {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Whether more may be added before they leave.
    pub fn has_room(&mut self, more_bytes: usize) -> bool {
        self.is_too_long |= self.bytes.len() + more_bytes > self.bytes_max;
        !self.is_too_long
    }
}

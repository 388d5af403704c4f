//! Replication schemes: how an entry reaches its backups, and in which of their logs it lies. They
//! are Rowan-KV's scheme and the four that it is measured against (§6.1), decision 0064.
//!
//! ```text
//!            taken in by       the backup's logs            datagrams
//!  rowan     control thread    one, as entries arrive       as many entries as fit
//!  rpc       a worker          one for each worker          an entry, and one for its answer
//!  write     control thread    peer x its threads, placed   an entry
//!  batch     control thread    peer x its threads, placed   256 bytes, or what came in 5 us
//!  share     control thread    one for each peer, placed    an entry
//! ```
//!
//! *Placed*: the sender has reserved the place in the log and names it; the receiver puts the entry
//! there. Versions, CommitVer, terms and acknowledgements are the same in all schemes.

use std::collections::BTreeMap;
use std::fmt;

use crate::ids::NodeId;
use crate::message::Lane;
use crate::record::ALIGN_BYTES;

/// A replication scheme; see the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// All frames land in one log, in the order of their arrival (Rowan-KV §3).
    #[default]
    Rowan,
    /// A request to a worker of the backup (RPC-KV).
    Rpc,
    /// Into a log of its own for each thread of each peer (RWrite-KV, after FaRM).
    Write,
    /// As `Write`, several entries at a time (Batch-KV).
    Batch,
    /// As `Write`, with one log for all threads of a peer (Share-KV).
    Share,
}

impl Scheme {
    /// All schemes, the default first.
    pub const ALL: [Scheme; 5] =
        [Scheme::Rowan, Scheme::Rpc, Scheme::Write, Scheme::Batch, Scheme::Share];
    /// A batch is sent when it has this many bytes: a line of the medium in the paper ...
    pub const BATCH_BYTES: usize = 256;
    /// ... or when its first entry has waited this long.
    pub const BATCH_NS: u64 = 5_000;

    /// The spelling in settings and flags.
    pub fn word(self) -> &'static str {
        match self {
            Scheme::Rowan => "rowan",
            Scheme::Rpc => "rpc",
            Scheme::Write => "write",
            Scheme::Batch => "batch",
            Scheme::Share => "share",
        }
    }

    /// The scheme with this spelling.
    pub fn of_word(word: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.word() == word)
    }

    /// Whether senders name the place of an entry in the log.
    pub fn is_placed(self) -> bool {
        matches!(self, Scheme::Write | Scheme::Batch | Scheme::Share)
    }

    /// The backup's log that a frame lands in.
    pub(crate) fn log_of(self, lane: Lane, way: Way) -> LogName {
        let (from, thread) = match self {
            Scheme::Rowan => (None, None),
            _ if way.is_mark() => (None, None),
            Scheme::Rpc => (None, Some(way.thread)),
            Scheme::Write | Scheme::Batch => (Some(lane.from), Some(way.thread)),
            Scheme::Share => (Some(lane.from), None),
        };
        LogName { from, thread }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// The name of one of a backup's logs: the sender and the sender's thread. A name without them is
/// of the log for all frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogName {
    pub(crate) from: Option<NodeId>,
    pub(crate) thread: Option<u16>,
}

/// The way of a frame to a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The thread of the entry's client, from 1. 0: a mark, which belongs to no thread.
    pub thread: u16,
    /// The place in the log, in bytes; none: the frame lies where it lands.
    pub at: Option<u64>,
}

impl Way {
    /// The way of marks, which announce the versions that are on all copies.
    pub const MARK: Way = Way { thread: 0, at: None };

    /// Whether the frame has marks and no entries.
    pub fn is_mark(self) -> bool {
        self.thread == 0
    }
}

/// A sender's positions in the logs that it writes to.
#[derive(Debug)]
pub(crate) struct Ways {
    scheme: Scheme,
    segment_bytes: u64,
    /// By backup, and by thread if each thread has its own log.
    tails: BTreeMap<(NodeId, u16), u64>,
}

impl Ways {
    pub(crate) fn new(scheme: Scheme, segment_bytes: usize) -> Ways {
        Ways { scheme, segment_bytes: segment_bytes as u64, tails: BTreeMap::new() }
    }

    /// Begins a new term: all logs start from zero.
    pub(crate) fn begin(&mut self) {
        self.tails.clear();
    }

    /// The way of a frame of this length. A place is reserved for it alone: no frame crosses the
    /// end of a segment, and a frame that is sent again gets another place.
    pub(crate) fn of(&mut self, to: NodeId, thread: u16, len_bytes: usize) -> Way {
        if !self.scheme.is_placed() {
            return Way { thread, at: None };
        }
        let own = if self.scheme == Scheme::Share { 0 } else { thread };
        let tail = self.tails.entry((to, own)).or_default();
        let len_bytes = len_bytes.next_multiple_of(ALIGN_BYTES) as u64;
        let left_bytes = self.segment_bytes - *tail % self.segment_bytes;
        if len_bytes > left_bytes {
            *tail += left_bytes;
        }
        let at = Some(*tail);
        *tail += len_bytes;
        Way { thread, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_and_cross_no_segment() {
        let to = NodeId { name: 1, incarnation: 1 };
        let mut ways = Ways::new(Scheme::Write, 256);
        let mut at = |thread, len| ways.of(to, thread, len).at;
        assert_eq!(
            [at(1, 128), at(1, 70), at(2, 64), at(1, 64)].map(Option::unwrap),
            [0, 128, 0, 256]
        );
        let mut ways = Ways::new(Scheme::Share, 256);
        assert_eq!(ways.of(to, 1, 64).at, Some(0));
        assert_eq!(ways.of(to, 2, 64).at, Some(64), "one log for all threads");
        assert_eq!(Ways::new(Scheme::Rowan, 256).of(to, 2, 64).at, None);
    }

    #[test]
    fn words_are_read_back() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::of_word(scheme.word()), Some(scheme));
        }
        assert_eq!(Scheme::of_word("Rowan"), None);
    }
}

//! How far a KEYS, CLUSTER GETKEYSINSLOT or COUNTKEYSINSLOT has come.

use std::sync::Arc;

use cluster::Slot;
use replication::cluster::View;
use replication::cluster::is_own;
use store::Item;
use wire::resp::{ErrorReply, Glob};

use super::Gathered;

/// A command that is being answered.
pub struct NamesWalk {
    /// Which keys.
    pub wanted: Wanted,
    /// The prefix of the names; an ordered index is walked only there.
    pub prefix: Box<[u8]>,
    /// How far it is.
    pub place: Place,
    /// The maximum number of names returned.
    pub count_max: usize,
    /// The reply so far.
    pub gathered: Gathered,
    /// Names that were counted and not gathered; `None`: they are gathered.
    pub counted: Option<u64>,
}

/// The selected names.
pub enum Wanted {
    /// Matching names in the node's own slots.
    Matching(Box<Glob>, Option<Arc<View>>),
    /// Names in one slot, of which this node may have a copy.
    InSlot(Slot, Arc<View>),
}

impl Wanted {
    /// Whether a key is one of them.
    pub fn is_it(&self, item: &Item<'_>, steps: &mut u64) -> bool {
        match self {
            Wanted::Matching(glob, cluster) => {
                glob.matches(item.key, steps) && is_own(cluster.as_deref(), item)
            }
            Wanted::InSlot(slot, view) => {
                *steps += item.key.len() as u64;
                Slot::of(item.key) == *slot && !view.is_flushed(*slot, item.version)
            }
        }
    }

    /// The error if there are too many names.
    pub fn too_many(&self) -> ErrorReply<'static> {
        ErrorReply::Other(match self {
            Wanted::Matching(..) => {
                "too many keys for the client buffers: use SCAN instead of KEYS"
            }
            Wanted::InSlot(..) => "too many keys for the client buffers: ask for fewer",
        })
    }
}

/// How far the walk has come.
pub enum Place {
    /// After this key of an ordered index.
    Ordered(Option<Vec<u8>>),
    /// At this cursor of a hash index.
    Hashed(u64),
    /// All were seen.
    End,
}

impl NamesWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        let wanted_bytes = match &self.wanted {
            Wanted::Matching(glob, _) => glob.held_bytes(),
            Wanted::InSlot(..) => 0,
        };
        self.gathered.bytes.capacity() + wanted_bytes + self.prefix.len()
    }
}

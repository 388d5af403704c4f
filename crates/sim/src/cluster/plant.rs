//! Bugs that can be planted, each at the border of the state machines: a simulation that does not
//! notice them proves nothing.

use cluster::message::Lane;
use cluster::record::Header;
use cluster::{Message, Node, Term};

use crate::cluster::machines::TestShelf;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Some frames are acknowledged and never land.
    Ack,
    /// Frames and acknowledgements of older terms count.
    Term,
    /// Records are digested whatever their checksum.
    Checksum,
    /// One server is told that it is primary of a shard that another serves.
    Primary,
    /// Leases never end.
    Lease,
    /// Deletes leave nothing behind.
    Tombstone,
}

/// By name.
pub const PLANTS: &[(&str, Plant)] = &[
    ("ack", Plant::Ack),
    ("term", Plant::Term),
    ("checksum", Plant::Checksum),
    ("primary", Plant::Primary),
    ("lease", Plant::Lease),
    ("tombstone", Plant::Tombstone),
];

impl Plant {
    /// What a node gets instead of a message.
    pub(super) fn distort(
        plant: Option<Plant>,
        node: &Node<TestShelf>,
        message: Message,
    ) -> Message {
        match (plant, message) {
            (Some(Plant::Term), Message::Acked { blocks, .. }) => {
                Message::Acked { term: node.term(), blocks }
            }
            (Some(Plant::Primary), Message::Install(configuration)) if node.id().name == 1 => {
                let mut other = (*configuration).clone();
                let id = node.id();
                for shard in &mut other.shards {
                    if shard.backups.contains(&id) && shard.filling_from.is_none() {
                        let primary = std::mem::replace(&mut shard.primary, id);
                        shard.backups.retain(|backup| *backup != id);
                        shard.backups.insert(0, primary);
                        break;
                    }
                }
                Message::Install(other.into())
            }
            (_, message) => message,
        }
    }

    /// What lane a node sees a frame come in on.
    pub(super) fn distort_lane(plant: Option<Plant>, node: &Node<TestShelf>, lane: Lane) -> Lane {
        match plant {
            Some(Plant::Term) => Lane { term: node.term(), ..lane },
            _ => lane,
        }
    }

    /// An acknowledgement of what never lands.
    pub(super) fn forged_ack(term: Term, bytes: &[u8]) -> Message {
        let mut blocks = Vec::new();
        let mut rest = bytes;
        while let Some(header) = Header::peek(rest) {
            blocks.push(header.id());
            rest = rest.get(header.len_bytes()..).unwrap_or_default();
        }
        Message::Acked { term, blocks }
    }
}

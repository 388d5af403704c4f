//! Bugs to plant, each at the border of the state machines: a simulation that does not find them
//! proves nothing.

use base::Instant;
use cluster::message::Lane;
use cluster::record::Header;
use cluster::{Message, Node, Settings, ShardId, Term};

use crate::cluster::machines::TestReplicaStore;

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
    /// Entries older than a flush may come back.
    Flush,
    /// Managers forget which nodes had all of a shard when too few copies are left.
    Forget,
    /// Managers do not wait until leases have ended.
    Hasty,
    /// Clocks of servers stop while those are paused.
    Suspend,
    /// A new primary goes on with the versions of the old one's epoch.
    Reuse,
    /// Disks report syncs that they did not make.
    Sync,
    /// An entry is acknowledged before its digest thread has installed it.
    Early,
}

/// By name.
pub const PLANTS: &[(&str, Plant)] = &[
    ("ack", Plant::Ack),
    ("term", Plant::Term),
    ("checksum", Plant::Checksum),
    ("primary", Plant::Primary),
    ("lease", Plant::Lease),
    ("tombstone", Plant::Tombstone),
    ("flush", Plant::Flush),
    ("forget", Plant::Forget),
    ("hasty", Plant::Hasty),
    ("suspend", Plant::Suspend),
    ("reuse", Plant::Reuse),
    ("sync", Plant::Sync),
    ("early", Plant::Early),
];

impl Plant {
    /// The description of the bug, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Plant::Ack => "some frames are acknowledged and never land",
            Plant::Term => "frames and acknowledgements of older terms count",
            Plant::Checksum => "records count whatever their checksum",
            Plant::Primary => "a server is told that it is primary where another one is",
            Plant::Lease => "leases never end",
            Plant::Tombstone => "deletes leave nothing behind",
            Plant::Flush => "flushes leave nothing behind",
            Plant::Forget => {
                "managers forget which servers had all of a shard when few copies are left"
            }
            Plant::Hasty => "managers do not wait until leases have ended",
            Plant::Suspend => "clocks of servers stop while those are paused",
            Plant::Reuse => "a new primary uses the old one's versions again",
            Plant::Sync => "disks say that they have what they do not have",
            Plant::Early => "entries are acknowledged before digest threads have installed them",
        }
    }

    /// The settings of a manager.
    pub(super) fn settings(plant: Option<Plant>, settings: Settings) -> Settings {
        match plant {
            Some(Plant::Forget) => Settings { min_copies: 1, ..settings },
            _ => settings,
        }
    }

    /// The reading of a manager's clock.
    pub(super) fn manager_time(plant: Option<Plant>, now: Instant) -> Instant {
        match plant {
            Some(Plant::Hasty) => Instant { ns: 2 * now.ns },
            _ => now,
        }
    }

    /// The messages that a node receives instead of a message.
    pub(super) fn distort(
        plant: Option<Plant>,
        node: &Node<TestReplicaStore>,
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
                        // Alone, because nodes that know better would not answer it.
                        shard.primary = id;
                        shard.backups.clear();
                        shard.waiting.clear();
                        break;
                    }
                }
                Message::Install(other.into())
            }
            (Some(Plant::Reuse), Message::Install(configuration)) => {
                let mut other = (*configuration).clone();
                for (index, shard) in other.shards.iter_mut().enumerate() {
                    let id = ShardId(index as u16);
                    let known = node.configuration().and_then(|known| known.shard(id));
                    if shard.primary == node.id() {
                        shard.epoch = known.map_or(shard.epoch, |known| known.epoch);
                    }
                }
                Message::Install(other.into())
            }
            (_, message) => message,
        }
    }

    /// The lane on which a node receives a frame.
    pub(super) fn distort_lane(
        plant: Option<Plant>,
        node: &Node<TestReplicaStore>,
        lane: Lane,
    ) -> Lane {
        match plant {
            Some(Plant::Term) => Lane { term: node.term(), ..lane },
            _ => lane,
        }
    }

    /// An acknowledgement of a frame that never lands.
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

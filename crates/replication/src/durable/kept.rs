//! The record that a node keeps beside its log: the node's name and incarnation, the numbers by
//! which the log knows its shards, and what is on all copies.
//!
//! ```text
//!  number  1 .. 16,384       a shard's first: its id plus one
//!          16,385 .. 65,535  the next ones, each given once; a number without a shard is void
//! ```
//!
//! The bytes are one record of replication, so they have its checksum (docs/formats/peer.md): key
//! "node", value: the fixed part, the cluster's name, 12 bytes for each shard, and 10 for each that
//! was flushed: the shard, and up to which version.
//!
//! ```text
//!  0 incarnation | 4 since | 8 mark | 16 node's name | 18 next number | 20 name's length
//!  22 shards | 26
//! ```

use std::collections::BTreeMap;

use cluster::record::{Check, Entry, block};
use cluster::slot::SLOT_COUNT;
use cluster::{ShardId, Version};

/// Names the format of the value too: another format has another key, and is not read as this one.
const KEY: &[u8] = b"node";
const FIXED_BYTES: usize = 26;
/// Length of a cluster's name in a directory, at most.
const CLUSTER_BYTES_MAX: usize = 1024;
const SHARD_BYTES: usize = 12;
const FLOOR_BYTES: usize = 10;

/// The owner of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The node's name.
    pub name: u16,
    /// Tells clusters apart, whatever their names.
    pub mark: u64,
    /// The cluster's name, for people.
    pub cluster: String,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} of the cluster {}", self.name, self.cluster)
    }
}

/// See the module's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The node and its cluster.
    pub owner: Owner,
    /// The incarnation of the node that wrote it.
    pub incarnation: u32,
    /// The incarnation that began the log.
    pub since: u32,
    next_number: u16,
    shards: BTreeMap<ShardId, KeptShard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptShard {
    number: u16,
    commit: Version,
    /// All versions up to this one were flushed.
    floor: Version,
}

impl Kept {
    /// For a node whose log is empty.
    pub fn new(incarnation: u32) -> Kept {
        Kept::of(Owner::default(), incarnation)
    }

    /// For a node of a known owner, whose log is empty.
    pub fn of(owner: Owner, incarnation: u32) -> Kept {
        let shards = BTreeMap::new();
        Kept { owner, incarnation, since: incarnation, next_number: SLOT_COUNT + 1, shards }
    }

    /// The number of shards in the record.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// A shard's number in the log.
    pub fn number_of(&self, shard: ShardId) -> u16 {
        self.shards.get(&shard).map_or(shard.0 + 1, |kept| kept.number)
    }

    /// The version up to which a shard is known to be on all copies.
    pub fn commit_of(&self, shard: ShardId) -> Version {
        self.shards.get(&shard).map_or(Version::ZERO, |kept| kept.commit)
    }

    /// Notes a shard's CommitVer.
    pub fn set_commit(&mut self, shard: ShardId, commit: Version) {
        self.at(shard).commit = commit;
    }

    /// Notes up to which version a shard was flushed.
    pub fn set_floor(&mut self, shard: ShardId, floor: Version) {
        self.at(shard).floor = floor;
    }

    /// The floors of shards that were flushed.
    pub fn floors(&self) -> Vec<(ShardId, Version)> {
        let flushed = self.shards.iter().filter(|(_, kept)| kept.floor > Version::ZERO);
        flushed.map(|(shard, kept)| (*shard, kept.floor)).collect()
    }

    fn at(&mut self, shard: ShardId) -> &mut KeptShard {
        let number = self.number_of(shard);
        let new = KeptShard { number, commit: Version::ZERO, floor: Version::ZERO };
        self.shards.entry(shard).or_insert(new)
    }

    /// Makes a shard's entries in the log void. Returns false if all numbers were given.
    pub fn void(&mut self, shard: ShardId) -> bool {
        let number = self.next_number;
        let Some(next_number) = number.checked_add(1) else { return false };
        self.next_number = next_number;
        *self.at(shard) = KeptShard { number, commit: Version::ZERO, floor: Version::ZERO };
        true
    }

    /// The shard that has a number now; none: entries with the number are void.
    pub fn shard_of(&self, number: u16) -> Option<ShardId> {
        let first = number.checked_sub(1).map(ShardId);
        let first = first.filter(|shard| shard.0 < SLOT_COUNT && self.number_of(*shard) == number);
        first.or_else(|| {
            let mut shards = self.shards.iter();
            shards.find(|(_, kept)| kept.number == number).map(|(shard, _)| *shard)
        })
    }

    /// Whether the log's entries with a number are void: for [`store::durable::open_replicas`].
    pub fn is_gone(&self, number: u16) -> bool {
        number != 0 && self.shard_of(number).is_none()
    }

    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let cluster = &self.owner.cluster;
        let cluster = &cluster.as_bytes()[..cluster.floor_char_boundary(CLUSTER_BYTES_MAX)];
        let mut value = Vec::new();
        value.extend(self.incarnation.to_le_bytes());
        value.extend(self.since.to_le_bytes());
        value.extend(self.owner.mark.to_le_bytes());
        value.extend(self.owner.name.to_le_bytes());
        value.extend(self.next_number.to_le_bytes());
        value.extend((cluster.len() as u16).to_le_bytes());
        value.extend((self.shards.len() as u32).to_le_bytes());
        value.extend(cluster);
        for (shard, kept) in &self.shards {
            value.extend(shard.0.to_le_bytes());
            value.extend(kept.number.to_le_bytes());
            value.extend(kept.commit.bits().to_le_bytes());
        }
        for (shard, floor) in self.floors() {
            value.extend(shard.0.to_le_bytes());
            value.extend(floor.bits().to_le_bytes());
        }
        let entry = Entry::delete_of(ShardId(0), KEY.into(), Version::ZERO);
        let mut bytes = Vec::new();
        Entry { value: Some(value.into()), ..entry }.append(&mut bytes);
        bytes
    }

    /// The record from bytes; none: they are not whole.
    pub fn decode(bytes: &[u8]) -> Option<Kept> {
        let (header, body) = block(bytes, Check::Checksum)?;
        let entry = Entry::from_body(&header, body)?;
        let value = entry.value.filter(|_| *entry.key == *KEY)?;
        let (fixed, rest) = value.split_first_chunk::<FIXED_BYTES>()?;
        let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let incarnation = u32::from_le_bytes(*fixed.first_chunk()?);
        let since = u32::from_le_bytes(*fixed[4..].first_chunk()?);
        let mark = u64::from_le_bytes(*fixed[8..].first_chunk()?);
        let (name, next_number) = (short(16), short(18));
        let count = u32::from_le_bytes(*fixed.last_chunk()?);
        let (cluster, rest) = rest.split_at_checked(short(20).into())?;
        if cluster.len() > CLUSTER_BYTES_MAX {
            return None;
        }
        let cluster = str::from_utf8(cluster).ok()?.to_owned();
        let owner = Owner { name, mark, cluster };
        let records_bytes = (count as usize).checked_mul(SHARD_BYTES)?;
        let (records, floors) = rest.split_at_checked(records_bytes)?;
        let (records, _) = records.as_chunks::<SHARD_BYTES>();
        let (floors, tail) = floors.as_chunks::<FLOOR_BYTES>();
        if !tail.is_empty() {
            return None;
        }
        let mut shards = BTreeMap::new();
        for record in records {
            let shard = ShardId(u16::from_le_bytes([record[0], record[1]]));
            let number = u16::from_le_bytes([record[2], record[3]]);
            let commit = Version::from_bits(u64::from_le_bytes(*record.last_chunk()?))?;
            shards.insert(shard, KeptShard { number, commit, floor: Version::ZERO });
        }
        for record in floors {
            let shard = ShardId(u16::from_le_bytes([record[0], record[1]]));
            let floor = Version::from_bits(u64::from_le_bytes(*record.last_chunk()?))?;
            shards.get_mut(&shard)?.floor = floor;
        }
        Some(Kept { owner, incarnation, since, next_number, shards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_a_flipped_bit_shows() {
        let owner = Owner { name: 7, mark: 99, cluster: "a cluster".to_owned() };
        let mut kept = Kept { owner, since: 2, ..Kept::new(3) };
        kept.set_commit(ShardId(5), Version::before_epoch(2));
        kept.set_floor(ShardId(7), Version::before_epoch(1));
        assert!(kept.void(ShardId(7)) && kept.void(ShardId(7)));
        kept.set_floor(ShardId(9), Version::before_epoch(3));
        let bytes = kept.encode();
        assert_eq!(Kept::decode(&bytes), Some(kept.clone()));
        assert_eq!((kept.number_of(ShardId(5)), kept.number_of(ShardId(7))), (6, SLOT_COUNT + 2));
        assert_eq!(kept.shard_of(SLOT_COUNT + 2), Some(ShardId(7)));
        assert!(kept.is_gone(8) && kept.is_gone(SLOT_COUNT + 1) && !kept.is_gone(0));
        assert!(!kept.is_gone(6) && !kept.is_gone(1));
        for bit in 0..8 * (64 + KEY.len() + FIXED_BYTES) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Kept::decode(&bytes), None, "bit {bit}");
        }
        assert_eq!(Kept::decode(&bytes[..60]), None);
    }
}

//! Assembly of entries from several blocks, in place.
//!
//! ```text
//!  block 0   block 2                        block 1
//!     │         │   room for all is held from     │ the last one: the entry is made of the
//!     ▼         ▼   the first block on            ▼ memory that it was put together in
//!  |  0  |     |  2 |                     |  0  |  1  |  2 |─▶ replica store ─▶ `whole`
//! ```
//!
//! # Invariants
//! B1: an assembly that has begun has room to its end, and waits only for its own blocks. So room
//!     comes back, whatever primaries write.
//! B2: a repeated block of an entry that is complete here is recognised until CommitVer passes the
//!     entry, and begins no assembly: the other blocks would not come again.
//! B3: the first entry that found no room is the next to begin, as long as its sender asks: many
//!     short entries do not keep a long one out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;

use crate::ids::{ShardId, Version};
use crate::message::Hold;
use crate::record::{Entry, Header};
use crate::settings::after;

/// Assemblies under way; see the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    parts: BTreeMap<Name, Parts>,
    /// Entries in the replica store that are not yet on all copies (B2).
    whole: BTreeSet<Name>,
    waiting: Option<Waiting>,
}

type Name = (ShardId, Version);

/// The entry that is the next to get room (B3).
#[derive(Clone, Debug)]
struct Waiting {
    name: Name,
    /// Whether it has come again since the last tick.
    has_asked: bool,
    asked_at: Option<Instant>,
}

/// An entry being assembled.
#[derive(Clone, Debug)]
struct Parts {
    key: Arc<[u8]>,
    value: Arc<[u8]>,
    missing: BTreeSet<u32>,
    _hold: Hold,
}

impl Assembly {
    /// Whether a block may be added; requests memory if it is the first of its entry.
    pub(super) fn has_room(
        &mut self,
        header: &Header,
        try_hold: impl FnOnce(u64) -> Option<Hold>,
    ) -> bool {
        let name = (header.shard, header.version);
        if header.block_count <= 1 || self.parts.contains_key(&name) {
            return true;
        }
        if self.waiting.as_ref().is_some_and(|waiting| waiting.name != name) {
            return false;
        }
        let Some(hold) = try_hold(header.body_len_bytes() as u64) else {
            let waiting = Waiting { name, has_asked: true, asked_at: None };
            self.waiting.get_or_insert(waiting).has_asked = true;
            return false;
        };
        self.waiting = None;
        self.parts.insert(name, Parts::new(header, hold));
        true
    }

    /// Adds a block; returns the entry once all blocks are here. The assembly stays until the entry
    /// is [taken](Assembly::taken): a replica store may have no room, and then only the last block
    /// is sent again.
    pub(super) fn add(&mut self, header: &Header, piece: &[u8]) -> Option<Entry> {
        if header.block_count <= 1 {
            return Entry::from_body(header, piece);
        }
        header.place()?; // Before memory is taken for what such a header says.
        let name = (header.shard, header.version);
        let parts = self.parts.entry(name).or_insert_with(|| Parts::new(header, Hold::default()));
        parts.put(header, piece);
        if !parts.missing.is_empty() {
            return None;
        }
        Entry::from_parts(header, Arc::clone(&parts.key), Some(Arc::clone(&parts.value)))
    }

    /// Whether the entry of a block is in the replica store already (B2).
    pub(super) fn is_whole(&self, header: &Header) -> bool {
        header.block_count > 1 && self.whole.contains(&(header.shard, header.version))
    }

    /// Notes that an entry is in the replica store.
    pub(super) fn taken(&mut self, shard: ShardId, version: Version) {
        if self.parts.remove(&(shard, version)).is_some() {
            self.whole.insert((shard, version));
        }
    }

    /// Drops all assemblies of a shard up to a version.
    pub(super) fn forget(&mut self, shard: ShardId, through: Version) {
        let stays = |(of, version): &Name| *of != shard || *version > through;
        self.parts.retain(|name, _| stays(name));
        self.whole.retain(stays);
        self.waiting.take_if(|waiting| !stays(&waiting.name));
    }

    /// Called at each tick: an entry whose sender has not asked for this long no longer keeps
    /// others out (B3).
    pub(super) fn forget_silent(&mut self, now: Instant, patience_ns: u64) {
        let Some(waiting) = &mut self.waiting else { return };
        if std::mem::take(&mut waiting.has_asked) || waiting.asked_at.is_none() {
            waiting.asked_at = Some(now);
        }
        if waiting.asked_at.is_some_and(|at| now >= after(at, patience_ns)) {
            self.waiting = None;
        }
    }
}

impl Parts {
    fn new(header: &Header, hold: Hold) -> Parts {
        let zeros = |len_bytes| std::iter::repeat_n(0, len_bytes).collect();
        Parts {
            key: zeros(header.key_len_bytes),
            value: zeros(header.value_len_bytes),
            missing: (0..header.block_count).collect(),
            _hold: hold,
        }
    }

    fn put(&mut self, header: &Header, piece: &[u8]) {
        let Parts { key, value, missing, .. } = self;
        let (Some(place), Some(key), Some(value)) =
            (header.place(), Arc::get_mut(key), Arc::get_mut(value))
        else {
            return; // It is whole, and on its way to the replica store.
        };
        let is_of_this = header.key_len_bytes == key.len() && header.value_len_bytes == value.len();
        let is_new = is_of_this && piece.len() == place.len() && missing.remove(&header.block);
        if !is_new {
            return;
        }
        // The blocks are cut from the key followed by the value.
        let of_key = place.start.min(key.len())..place.end.min(key.len());
        let in_value = |at: usize| at.saturating_sub(key.len());
        let of_value = in_value(place.start)..in_value(place.end);
        let (for_key, for_value) = piece.split_at(of_key.len());
        value[of_value].copy_from_slice(for_value);
        key[of_key].copy_from_slice(for_key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::ClientId;
    use crate::record::{Answered, Check, block};

    fn entry(version: Version, key_len_bytes: usize, value_len_bytes: usize) -> Entry {
        let bytes = |len_bytes| (0..len_bytes).map(|at| (at % 251) as u8).collect();
        Entry {
            shard: ShardId(9),
            version,
            client: ClientId(77),
            sequence: 5,
            answered: Answered::Done,
            key: bytes(key_len_bytes),
            value: Some(bytes(value_len_bytes)),
            is_flush: false,
            client_flags: 3,
            expires_at: None,
        }
    }

    fn first() -> Version {
        Version::before_epoch(1).next().unwrap()
    }

    proptest! {
        #[test]
        fn blocks_in_any_order_and_often_make_the_entry_once_all_are_there(
            key_len_bytes in 1..300_usize,
            value_len_bytes in 0..900_usize,
            strides in 2..9_usize,
            order in prop::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let entry = entry(first(), key_len_bytes, value_len_bytes);
            let blocks = entry.blocks(64 * strides);
            let (mut assembly, mut seen) = (Assembly::default(), BTreeSet::new());
            let mut order: Vec<usize> = order.iter().map(|one| one.index(blocks.len())).collect();
            order.extend(0..blocks.len());
            for at in order {
                let (header, piece) = block(&blocks[at], Check::Checksum).unwrap();
                prop_assert!(blocks.len() == 1 || header.place().is_some());
                let made = assembly.add(&header, piece);
                seen.insert(at);
                let want = (seen.len() == blocks.len()).then(|| entry.clone());
                prop_assert_eq!(made, want);
            }
        }

        #[test]
        fn headers_that_contradict_themselves_or_one_another_do_no_harm(
            headers in prop::collection::vec(
                (0..90_usize, 0..400_usize, 0..6_u32, 0..7_u32, 0..300_usize), 1..20),
        ) {
            let mut assembly = Assembly::default();
            let block = entry(first(), 20, 200).blocks(128).remove(0);
            let (like, _) = crate::record::block(&block, Check::Checksum).unwrap();
            for (key_len_bytes, value_len_bytes, block_count, block, piece_len_bytes) in headers {
                let lens = (key_len_bytes, value_len_bytes, piece_len_bytes);
                let header = Header { key_len_bytes, value_len_bytes, piece_len_bytes, ..like };
                let header = Header { block_count, block, ..header };
                if let Some(place) = header.place() {
                    prop_assert!(place.end <= header.body_len_bytes(), "{lens:?}");
                }
                let _ = assembly.add(&header, &vec![7; piece_len_bytes]);
            }
        }
    }

    fn header_of(version: Version) -> Header {
        let blocks = entry(version, 5, 900).blocks(128);
        block(&blocks[0], Check::Checksum).unwrap().0
    }

    fn is_let_in(assembly: &mut Assembly, header: &Header, has_memory: bool) -> bool {
        assembly.has_room(header, |_| has_memory.then(Hold::default))
    }

    #[test]
    fn the_first_that_found_no_room_is_the_next_to_begin_as_long_as_it_asks() {
        let (first, second) = (header_of(first()), header_of(first().next().unwrap()));
        let mut assembly = Assembly::default();
        assert!(!is_let_in(&mut assembly, &first, false));
        assert!(!is_let_in(&mut assembly, &second, true), "B3");
        assert!(is_let_in(&mut assembly, &first, true));
        assert!(is_let_in(&mut assembly, &first, false), "B1");
        assert!(is_let_in(&mut assembly, &second, true));
    }

    #[test]
    fn what_found_no_room_and_asks_no_more_keeps_no_other_out() {
        let (first, second) = (header_of(first()), header_of(first().next().unwrap()));
        let mut assembly = Assembly::default();
        let at = |assembly: &mut Assembly, ns| {
            assembly.forget_silent(Instant { ns }, 10);
            is_let_in(assembly, &second, true)
        };
        assert!(!is_let_in(&mut assembly, &first, false));
        assert!(!at(&mut assembly, 5) && !at(&mut assembly, 14));
        assert!(!is_let_in(&mut assembly, &first, false), "it asks again");
        assert!(!at(&mut assembly, 15) && !at(&mut assembly, 24));
        assert!(at(&mut assembly, 25));
    }
}

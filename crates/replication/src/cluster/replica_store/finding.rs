//! Finding a shard's entries above a version when only the index knows them: one walk over the
//! index for all shards that need it, step by step, while others are served (K28).
//!
//! ```text
//!  above ─ not among the recent ─▶ wanted ─ next walk ─▶ found ─ a shard a step ─▶ recent
//!           asked again meanwhile: the same walk          installed meanwhile: recent at once
//! ```
//!
//! # Invariants
//! W1: entries of a shard that are installed during the walk are among its recent versions; earlier
//!     entries are visited, unless a newer one took their place (K9).
//! W2: a step looks at [`STEP_ITEMS`] items or [`STEP_BUCKETS`] buckets, whatever the store holds.

use std::collections::{BTreeMap, HashMap};

use cluster::{ShardId, Version};

use super::State;

/// Items that one step of a walk visits, about.
const STEP_ITEMS: usize = 512;
/// Buckets that it examines: 256 KiB of index.
const STEP_BUCKETS: u32 = 4_096;

/// A version of a key, as a walk finds it.
pub(super) type Found = (Version, Box<[u8]>);

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Finding {
    /// For the next walk: the versions above which to look.
    wanted: BTreeMap<ShardId, Version>,
    walk: Option<Walk>,
    /// The findings of the last walk.
    done: Vec<(ShardId, Vec<Found>)>,
    /// Steps of walks so far.
    pub(super) step_count: u64,
}

#[derive(Debug)]
struct Walk {
    cursor: u64,
    /// By number in the store.
    shards: HashMap<u16, (ShardId, Version, Vec<Found>)>,
}

impl State {
    /// Requests a walk over the index for a shard, unless one is under way.
    pub(super) fn find(&mut self, shard: ShardId, floor: Version) {
        let is_under_way = self.shards.get(&shard).is_some_and(|shard| shard.is_finding());
        if !is_under_way {
            self.finding.wanted.insert(shard, floor);
        }
    }

    /// Does a bounded step of a walk; returns true if there is more.
    pub(super) fn find_step(&mut self) -> bool {
        if let Some((shard, found)) = self.finding.done.pop() {
            self.recall(shard);
            if let Some(remembered) = self.shards.get_mut(&shard) {
                remembered.end_finding(found);
            }
            return true;
        }
        if self.finding.walk.is_none() && !self.begin_walk() {
            return false;
        }
        let State { finding, session, now, .. } = self;
        let Some(walk) = &mut finding.walk else { return false };
        finding.step_count += 1;
        let shards = &mut walk.shards;
        let limits = (STEP_ITEMS, STEP_BUCKETS);
        let next = session.scan_within(*now, walk.cursor, limits, |item| {
            let Some((_, floor, found)) = shards.get_mut(&item.shard) else { return };
            let version = Version::from_bits(item.version).unwrap_or_default();
            if version > *floor {
                found.push((version, item.key.into()));
            }
        });
        let is_over = matches!(next, Ok(0));
        // The store may have forgotten its own cursor: then the walk starts again.
        walk.cursor = next.unwrap_or(0);
        if is_over && let Some(walk) = finding.walk.take() {
            let found = walk.shards.into_values().map(|(shard, _, found)| (shard, found));
            finding.done = found.collect();
        }
        true
    }

    /// Begins a walk for all shards that need one; returns false if none does.
    fn begin_walk(&mut self) -> bool {
        let wanted = std::mem::take(&mut self.finding.wanted);
        let mut shards = HashMap::new();
        for (shard, floor) in wanted {
            self.recall(shard);
            self.shards.entry(shard).or_default().begin_finding(floor);
            shards.insert(self.numbers.of(shard).get(), (shard, floor, Vec::new()));
        }
        let is_wanted = !shards.is_empty();
        self.finding.walk = is_wanted.then_some(Walk { cursor: 0, shards });
        is_wanted
    }
}

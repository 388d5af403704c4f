//! The manager's side of the hot set: counts samples, and ends epochs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Instant, KeyHash};
use policy::hot_set::worth::{self, Samples};
use policy::hot_set::{HotSet, Members, Snapshot, Worth};
use policy::taxonomy::Popularity;
use store::HotArray;

use super::{
    HotKey, HotKeys, ITEMS_DEFAULT, Published, SAMPLE_KEY_BYTES_MAX, SAMPLES_WAITING_MAX, Sample,
    TRACKED_MAX,
};
use crate::controller::{Controller, Decision, Observed};

/// How often samples are fetched: a dispatcher that serves 3 million requests a second has filled
/// its buffer by then.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The same where workers read gatherings again: they have taken 400 by then at most.
const LOOK_FOR_PEOPLE_EVERY: Duration = Duration::from_millis(100);

/// Keys that are listed for people.
const LISTED_MAX: usize = 100;

/// A key as it is tracked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tracked {
    hash: KeyHash,
    head: Arc<[u8]>,
    len_bytes: usize,
}

/// The changes at an epoch's end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotChange {
    /// Hot keys before.
    pub item_count_before: usize,
    /// Hot keys now.
    pub item_count: usize,
    /// The fraction of the sampled accesses that goes to them.
    pub share_ratio: f64,
    /// The fraction that goes to all tracked keys.
    pub tracked_share_ratio: f64,
    /// Samples of the epoch.
    pub sample_count: u64,
}

/// Counts the dispatchers' samples; lives on one thread.
pub struct HotEpochs {
    keys: Arc<HotKeys>,
    counted: HotSet<Tracked>,
    snapshot: Snapshot<Tracked>,
    worth: Worth,
    began_at: Instant,
    sample_count: u64,
    item_count: usize,
    /// Whether the decision log has an entry that there are hot keys, and none since that there are
    /// none.
    is_told: bool,
}

impl HotEpochs {
    /// Memory for counting, and for the heads of the keys, each behind its two reference counts.
    pub(super) fn memory_bytes(tracked_max: usize) -> usize {
        let head_bytes = 2 * size_of::<usize>() + SAMPLE_KEY_BYTES_MAX.next_multiple_of(8);
        HotSet::<Tracked>::memory_bytes(tracked_max) + tracked_max * head_bytes
    }

    /// Without counts yet.
    pub fn new(keys: Arc<HotKeys>, now: Instant) -> HotEpochs {
        HotEpochs {
            counted: HotSet::new(keys.tracked_max, 0x686f_7420_7365_7421),
            keys,
            snapshot: Snapshot::default(),
            worth: Worth::default(),
            began_at: now,
            sample_count: 0,
            item_count: 0,
            is_told: false,
        }
    }

    /// Counts the waiting samples, at most a buffer for each dispatcher; ends the epoch if it is
    /// due, and returns the change if keys turned hot or cold. Without readers none are hot.
    pub fn look(&mut self, now: Instant, has_readers: bool) -> Option<HotChange> {
        for (_, samples) in &self.keys.samples {
            for sample in samples.try_iter().take(SAMPLES_WAITING_MAX) {
                self.sample_count += 1;
                self.counted.sample(sample.hash, || Tracked::from(&sample));
            }
        }
        if !self.keys.is_in_force(has_readers) {
            self.resize(has_readers);
        }
        let elapsed = Duration::from_nanos(now.ns.saturating_sub(self.began_at.ns));
        if !worth::is_due(elapsed.as_millis() as u64, self.sample_count) {
            return None;
        }
        self.began_at = now;
        if self.has_nothing() { None } else { self.end_epoch(has_readers) }
    }

    /// Nothing was sampled recently, and everything was reported already.
    fn has_nothing(&self) -> bool {
        self.sample_count == 0 && self.counted.sampled_count() == 0 && self.item_count == 0
    }

    /// Applies another size at once, from the counts so far, because a tuner waits for it. The
    /// decision log gets no entry.
    fn resize(&mut self, has_readers: bool) {
        let size = self.keys.size_for(has_readers);
        self.item_count = self.worth.resize(self.counted.counts(), size);
        self.counted.select(self.item_count, &mut self.snapshot);
        let (members, array, share_ratio) = self.chosen();
        let before = Published::clone(&self.keys.now());
        self.keys.publish(Published { members, array, share_ratio, ..before }, size);
    }

    /// The snapshot's keys in the form that dispatchers use, and their share.
    fn chosen(&self) -> (Members, Option<Arc<HotArray>>, f64) {
        let hashes: Vec<KeyHash> = self.snapshot.keys().iter().map(|key| key.hash).collect();
        let array = self.keys.is_ordered.then(|| Arc::new(self.sorted()));
        (Members::new(&hashes), array, self.snapshot.share_ratio())
    }

    fn end_epoch(&mut self, has_readers: bool) -> Option<HotChange> {
        let samples = Samples {
            of_epoch: std::mem::take(&mut self.sample_count),
            counted: self.counted.sampled_count(),
        };
        let tracked_share_ratio = self.counted.tracked_share_ratio();
        let size = self.keys.size_for(has_readers);
        // Judged as with the default size, so that the set survives a tuner's trial of size zero.
        let judged_size = if size == 0 { ITEMS_DEFAULT } else { size };
        let item_count = self.worth.select(self.counted.counts(), samples, judged_size).min(size);
        let eligible_count = self.worth.resize(self.counted.counts(), self.keys.tracked_max);
        self.keys.eligible_count.store(eligible_count, Ordering::Relaxed);
        let (_, frequent_count) = worth::frequent(self.counted.counts(), ITEMS_DEFAULT);
        let listed = self.list(samples.counted);
        let popularity = Popularity::of(self.counted.counts(), samples.counted);
        self.counted.switch_epoch(item_count, &mut self.snapshot);
        let item_count_before = std::mem::replace(&mut self.item_count, item_count);
        let (members, array, share_ratio) = self.chosen();
        let published = Published {
            members,
            array,
            share_ratio,
            listed,
            zipf_exponent: popularity.zipf_exponent,
            frequent_share_ratio: frequent_count as f64 / samples.counted.max(1) as f64,
            is_sampled: samples.of_epoch >= worth::SAMPLES_MIN,
        };
        self.keys.publish(published, size);
        (item_count_before != item_count).then_some(HotChange {
            item_count_before,
            item_count,
            share_ratio,
            tracked_share_ratio,
            sample_count: samples.of_epoch,
        })
    }

    /// The hot keys of which all bytes are known.
    fn sorted(&self) -> HotArray {
        let is_whole = |key: &&Tracked| key.len_bytes == key.head.len();
        HotArray::new(self.snapshot.keys().iter().filter(is_whole).map(|key| &*key.head))
    }

    fn list(&mut self, sampled_count: u64) -> Vec<HotKey> {
        let listed = |(count, key): (u32, &Tracked)| HotKey {
            head: Arc::clone(&key.head),
            len_bytes: key.len_bytes,
            share_ratio: f64::from(count) / sampled_count.max(1) as f64,
        };
        let frequent = self.counted.ranked().take_while(|(count, _)| *count >= worth::COUNT_MIN);
        frequent.take(LISTED_MAX).map(listed).collect()
    }
}

impl Controller for HotEpochs {
    fn name(&self) -> &'static str {
        "hot-set"
    }

    fn period(&self) -> Duration {
        let is_for_people = self.keys.tracked_max < TRACKED_MAX;
        if is_for_people { LOOK_FOR_PEOPLE_EVERY } else { LOOK_EVERY }
    }

    /// Whether the tuner waits for another size.
    fn is_urgent(&self, observed: &Observed) -> bool {
        !self.keys.is_in_force(observed.has_two_layers)
    }

    /// The decision log gets an entry when a hot set begins or ends. A single key more or less is
    /// not reported, nor is a set without readers: without two layers no thread reads the set, and
    /// none is chosen.
    fn tick(&mut self, now: Instant, observed: &Observed) -> Option<Decision> {
        let change = self.look(now, observed.has_two_layers)?;
        let HotChange { item_count_before, item_count: after, .. } = change;
        if !observed.has_two_layers || self.is_told == (after > 0) {
            return None;
        }
        self.is_told = after > 0;
        let (before, reason) = match after {
            0 => (item_count_before, "no few keys draw many of the requests any more"),
            _ => (0, "few keys draw many of the requests"),
        };
        Some(Decision {
            what: Vec::new(),
            change: format!("hot keys from {before} to {after}"),
            reason: reason.to_owned(),
            inputs: vec![
                ("share_ratio", change.share_ratio),
                ("tracked_share_ratio", change.tracked_share_ratio),
                ("epoch_samples", change.sample_count as f64),
            ],
        })
    }
}

impl From<&Sample> for Tracked {
    fn from(sample: &Sample) -> Tracked {
        Tracked {
            hash: sample.hash,
            head: sample.head().into(),
            len_bytes: sample.key_len_bytes as usize,
        }
    }
}

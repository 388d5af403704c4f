//! Validates a whole store by recounting it from scratch, for tests and `check`.

use base::KeyHash;
use index::hash::slot::{Slot, Tag};
use index::tree::Census;

use crate::counters::fold;
use crate::inner::Inner;
use crate::log::SegmentState;

/// Panics if an invariant of index, log or counters is broken. No session may write meanwhile.
pub(crate) fn validate(inner: &Inner) {
    let mut all_slots = Vec::new();
    let census =
        inner.tree.as_ref().map(|tree| Census::of(tree, &inner.log, |slot| all_slots.push(slot)));
    let tree_count = all_slots.len() as u64;
    let node_lines = census.map_or(0, |census| census.line_count());
    let retired_lines = (inner.epochs.session_count() == 0).then(|| {
        let retired: u64 = inner.orphans().iter().map(|(_, block)| block.line_count()).sum();
        retired + node_lines
    });
    let entry_count = inner.index.validate(retired_lines) + tree_count;
    let counts = fold(inner.counts.iter().map(|counts| &**counts));
    assert_eq!(entry_count, counts.items, "items counted and items found");
    let mut live_bytes = vec![0_u64; inner.log.row_count() as usize];
    let (mut with_expiry, mut slots) = (0, Vec::new());
    let mut next = Some(KeyHash(0));
    while let Some(first_hash) = next {
        slots.clear();
        let place = inner.index.collect(first_hash, &mut slots);
        next = place.next_hash(first_hash);
        for slot in &slots {
            let hash = validate_slot(inner, *slot);
            assert_eq!(inner.index.head_of(hash), place.head, "an entry is in its key's chain");
        }
        assert!(inner.tree.is_none() || slots.is_empty(), "stripes hold no slots");
        all_slots.append(&mut slots);
    }
    for slot in &all_slots {
        validate_slot(inner, *slot);
        // SAFETY: no session writes, so the entry that a slot names stays.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        with_expiry += u64::from(entry.has_expiry());
        let segment = inner.log.segment_of(slot.offset_bytes());
        live_bytes[segment as usize] += entry.len_bytes() as u64;
    }
    assert_eq!(with_expiry, counts.items_with_expiry, "items with an expiry");
    assert_eq!(live_bytes.iter().sum::<u64>(), counts.entry_bytes, "bytes of live entries");
    let allocator = inner.log.allocator();
    allocator.validate();
    for (segment, row) in allocator.table.rows() {
        let state = row.state;
        let found = live_bytes[segment as usize];
        let counted = inner.log.live_bytes(segment);
        match inner.durable {
            None => assert_eq!(found, counted, "live bytes of segment {segment}"),
            // Deletes count as alive and have no slots.
            Some(_) => assert!(found <= counted, "live bytes of segment {segment}"),
        }
        let may_live =
            matches!(state, SegmentState::Using | SegmentState::Used | SegmentState::Reclaiming);
        assert!(may_live || found == 0, "segment {segment} is {state:?} with live entries");
        let queue = inner.log.queue_of(inner.log.segment_start(segment));
        assert!(!may_live || queue == row.queue, "both tables name the queue of {segment}");
    }
}

/// Checks one slot against its entry; returns the hash of the entry's key.
fn validate_slot(inner: &Inner, slot: Slot) -> KeyHash {
    // SAFETY: no session writes, so the entry that a slot names stays.
    let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
    let hash = inner.hasher.hash(entry.key());
    assert!(slot.has_tag(Tag::of(hash)), "a slot has its key's tag");
    let is_as_appended = entry.is_stamped() || entry.checksum_holds();
    assert!(is_as_appended, "an entry's bytes are as appended");
    assert!(entry.version() <= inner.index.word(hash).version(), "K1");
    hash
}

//! Recounting a whole store from scratch, for tests and `check`.

use base::KeyHash;

use crate::counters::fold;
use crate::index::slot::Tag;
use crate::log::SegmentState;
use crate::store::Inner;

/// Panics where an invariant of index, log or counters is broken. Nobody may write meanwhile.
pub(crate) fn validate(inner: &Inner) {
    let retired_lines = (inner.epochs.session_count() == 0)
        .then(|| inner.orphans().iter().map(|(_, block)| block.line_count()).sum());
    let entry_count = inner.index.validate(retired_lines);
    let counts = fold(inner.counts.iter().map(|counts| &**counts));
    assert_eq!(entry_count, counts.items, "items counted and items found");
    let mut live_bytes = vec![0_u64; inner.log.segment_count() as usize];
    let (mut with_expiry, mut slots) = (0, Vec::new());
    let mut next = Some(KeyHash(0));
    while let Some(first_hash) = next {
        slots.clear();
        let place = inner.index.collect(first_hash, &mut slots);
        next = place.next_hash(first_hash);
        for slot in &slots {
            // SAFETY: nobody writes, so what a slot names stays.
            let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
            let hash = inner.hasher.hash(entry.key());
            assert_eq!(inner.index.head_of(hash), place.head, "an entry is in its key's chain");
            assert!(slot.has_tag(Tag::of(hash)), "a slot has its key's tag");
            assert!(entry.checksum_holds(), "an entry's bytes are as appended");
            assert!(entry.version() <= inner.index.word(hash).version(), "K1");
            with_expiry += u64::from(entry.has_expiry());
            let segment = inner.log.segment_of(slot.offset_bytes());
            live_bytes[segment as usize] += entry.len_bytes() as u64;
        }
    }
    assert_eq!(with_expiry, counts.items_with_expiry, "items with an expiry");
    assert_eq!(live_bytes.iter().sum::<u64>(), counts.entry_bytes, "bytes of live entries");
    let allocator = inner.log.allocator();
    allocator.validate();
    for (segment, row) in allocator.rows() {
        let state = row.state;
        let found = live_bytes[segment as usize];
        assert_eq!(found, inner.log.live_bytes(segment), "live bytes of segment {segment}");
        let may_live =
            matches!(state, SegmentState::Using | SegmentState::Used | SegmentState::Reclaiming);
        assert!(may_live || found == 0, "segment {segment} is {state:?} with live entries");
        let queue = inner.log.queue_of(inner.log.segment_start(segment));
        assert!(!may_live || queue == row.queue, "both tables name the queue of {segment}");
    }
}

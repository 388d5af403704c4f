//! Metrics of compaction: windows, the writes they saved, their sizes and why they closed.
//!
//! A window opens and closes within one batch: the open windows are those of the batches being
//! executed at the moment of the scrape.

use counters::SIZE_CLASSES;
use counters::Totals;

use crate::metrics::openmetrics::Page;

/// The number of windows by the reason why they closed.
pub(super) fn closed(totals: &Totals) -> [(&'static str, u64); 3] {
    let full = totals.compaction_closed_full.min(totals.compaction_windows);
    [
        // No further request on its key was in sight (C-4 §7.2).
        ("drained", totals.compaction_windows - full),
        // More requests wait than may be looked at (K8).
        ("full", full),
        ("given-up", totals.compaction_given_up),
    ]
}

/// The upper bound of a class of windows, by the number of writes merged; `None`: it has none.
pub(super) fn class_max(class: usize) -> Option<u64> {
    (class + 1 < SIZE_CLASSES).then_some(2 << class)
}

pub(super) fn families(page: &mut Page, totals: &Totals) {
    page.gauge(
        "dovetail_compaction_windows_open",
        "Groups of writes of one key that are being put together",
        totals.compaction_open,
    );
    page.counter(
        "dovetail_compaction_windows",
        "Groups of writes of one key that were written at once",
        totals.compaction_windows,
    );
    page.counter(
        "dovetail_compacted_writes",
        "Writes that the store never saw, because a later one of their window took their place",
        totals.compacted_writes,
    );
    page.counter(
        "dovetail_compaction_given_up",
        "Groups that ran one by one after all",
        totals.compaction_given_up,
    );
    page.counter(
        "dovetail_compaction_joined",
        "Requests that were executed before their turn, with the window of their key",
        totals.compaction_joined,
    );
    page.family("dovetail_compaction_closed", "counter", "Windows by why they closed");
    for (reason, count) in closed(totals) {
        page.sample("dovetail_compaction_closed_total", &[("reason", reason)], count);
    }
    page.histogram(
        ("dovetail_compaction_batch_size", "Writes that a window put together"),
        &totals.compaction_by_writes,
        class_max,
        totals.compaction_windows + totals.compacted_writes,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_double_and_the_last_has_no_bound() {
        let bounds: Vec<_> = (0..SIZE_CLASSES).map(class_max).collect();
        assert_eq!(bounds[..3], [Some(2), Some(4), Some(8)]);
        assert_eq!(bounds[SIZE_CLASSES - 2..], [Some(64), None]);
    }

    #[test]
    fn every_window_closed_for_one_reason() {
        let totals = Totals {
            compaction_windows: 10,
            compaction_closed_full: 3,
            compaction_given_up: 2,
            ..Totals::default()
        };
        assert_eq!(closed(&totals), [("drained", 7), ("full", 3), ("given-up", 2)]);
    }
}

//! Metrics of long replies and commands: how many of their bytes other clients waited for (K16).

use counters::{BULK_CLASSES, BulkCells, Totals};

use crate::metrics::openmetrics::Page;

pub(super) fn families(page: &mut Page, totals: &Totals) {
    page.family(
        "dovetail_bulk_before_others_bytes",
        "histogram",
        "Bytes of long replies and commands moved at once while other requests came",
    );
    let mut count = 0;
    for (class, turns) in totals.bulk_by_bytes.iter().enumerate() {
        count += turns;
        let bound = BulkCells::class_max_bytes(class);
        let bound = bound.map_or("+Inf".to_owned(), |max| format!("{max}.0"));
        page.sample("dovetail_bulk_before_others_bytes_bucket", &[("le", &bound)], count);
    }
    debug_assert_eq!(totals.bulk_by_bytes.len(), BULK_CLASSES);
    page.sample("dovetail_bulk_before_others_bytes_sum", &[], totals.bulk_bytes);
    page.sample("dovetail_bulk_before_others_bytes_count", &[], count);
}

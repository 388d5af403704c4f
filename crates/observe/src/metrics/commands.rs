//! Metrics of the durations of commands (`timing`).

use counters::LatencyCounts;
use counters::{CommandIndex, Protocol};
use runtime::shared::Shared;

use super::Snapshot;
use super::openmetrics::Page;

/// The durations of every command that has run.
pub(super) fn durations(shared: &Shared) -> Vec<(Protocol, &'static str, LatencyCounts)> {
    let of = |index| {
        let counts = shared.durations(index)?;
        let (protocol, name) = CommandIndex::describe(index);
        Some((protocol, name, counts))
    };
    (0..CommandIndex::COUNT).filter_map(of).collect()
}

/// The families of `/metrics`.
pub(super) fn families(page: &mut Page, snapshot: &Snapshot) {
    let name = "dovetail_command_duration_seconds";
    page.family_with_unit(
        name,
        "histogram",
        "Commands from the round that read their last byte to the end of that round's replies",
        "seconds",
    );
    for (protocol, command, counts) in &snapshot.durations {
        let labels = [("proto", protocol.name()), ("cmd", *command)];
        for (end_ns, count) in counts.doublings() {
            let bound = (end_ns as f64 / 1e9).to_string();
            let labels = [labels[0], labels[1], ("le", bound.as_str())];
            page.sample(&format!("{name}_bucket"), &labels, count);
        }
        let labels_of_all = [labels[0], labels[1], ("le", "+Inf")];
        page.sample(&format!("{name}_bucket"), &labels_of_all, counts.samples);
        page.sample(&format!("{name}_sum"), &labels, counts.sum_ns as f64 / 1e9);
        page.sample(&format!("{name}_count"), &labels, counts.samples);
    }
    page.counter(
        "dovetail_slowlog",
        "Entries that SLOWLOG got since the start",
        snapshot.slow_log_total,
    );
}

#[cfg(test)]
mod tests {
    use counters::LatencyCells;

    use super::*;
    use crate::metrics::openmetrics;

    #[test]
    fn durations_are_histograms_by_command() {
        let cells = LatencyCells::default();
        cells.record_many(3_000, 2);
        let counts = LatencyCounts::sum([&cells].into_iter());
        let durations = vec![(Protocol::Resp, "get", counts)];
        let snapshot = Snapshot { durations, slow_log_total: 7, ..Snapshot::default() };
        let text = openmetrics::text(&snapshot);
        let labels = "proto=\"resp\",cmd=\"get\"";
        for line in [
            "dovetail_slowlog_total 7".to_owned(),
            format!("dovetail_command_duration_seconds_bucket{{{labels},le=\"0.000002048\"}} 0"),
            format!("dovetail_command_duration_seconds_bucket{{{labels},le=\"0.000004096\"}} 2"),
            format!("dovetail_command_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("dovetail_command_duration_seconds_sum{{{labels}}} 0.000006"),
        ] {
            assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
        }
    }
}

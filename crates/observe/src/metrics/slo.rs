//! Metrics of the latency objective: late requests, their latencies, and goodput.

use dispatch::published::Lately;
use serde_json::{Value, json};

use super::Snapshot;
use super::openmetrics::Page;

/// Its field in `/stats`; null: there is no objective.
pub(super) fn json(snapshot: &Snapshot) -> Value {
    if snapshot.slo_ns == 0 {
        return Value::Null;
    }
    json!({
        "target_ns": snapshot.slo_ns,
        "samples_total": snapshot.latency.samples,
        "over_total": snapshot.latency.over,
        "lately": snapshot.slo.as_ref().map(Lately::json),
    })
}

/// Its families of `/metrics`; none without an objective.
pub(super) fn families(page: &mut Page, snapshot: &Snapshot) {
    if snapshot.slo_ns == 0 {
        return;
    }
    let latency = &snapshot.latency;
    page.gauge(
        "dovetail_slo_seconds",
        "Within what time 99 of 100 requests are to be answered",
        snapshot.slo_ns as f64 / 1e9,
    );
    page.counter("dovetail_slo_samples", "Requests whose latency was sampled", latency.samples);
    page.counter(
        "dovetail_slo_over",
        "Of these, those that took longer than the objective",
        latency.over,
    );
    page.family(
        "dovetail_latency_seconds",
        "histogram",
        "Sampled requests from the earliest that they can have come to their reply",
    );
    for (end_ns, count) in latency.doublings() {
        let bound = (end_ns as f64 / 1e9).to_string();
        page.sample("dovetail_latency_seconds_bucket", &[("le", &bound)], count);
    }
    page.sample("dovetail_latency_seconds_bucket", &[("le", "+Inf")], latency.samples);
    page.sample("dovetail_latency_seconds_sum", &[], latency.sum_ns as f64 / 1e9);
    page.sample("dovetail_latency_seconds_count", &[], latency.samples);
    let Some(lately) = &snapshot.slo else { return };
    page.gauge(
        "dovetail_slo_over_ratio",
        "The part of the last second's samples that took longer",
        lately.over_ratio,
    );
    page.gauge(
        "dovetail_goodput_requests_per_second",
        "Requests of the last second that were in time, by the samples",
        lately.goodput_rps,
    );
}

#[cfg(test)]
mod tests {
    use counters::{LatencyCells, LatencyCounts};

    use super::*;
    use crate::metrics::openmetrics;

    #[test]
    fn an_objective_is_shown_with_what_was_late_and_none_shows_nothing() {
        let cells = LatencyCells::default();
        [1_000, 1_000, 3_000_000].iter().for_each(|ns| cells.record(*ns, 1_000_000));
        let lately = Lately { goodput_rps: 2_000.0, over_ratio: 0.5, ..Lately::default() };
        let latency = LatencyCounts::sum([&cells].into_iter());
        let slo = Some(lately);
        let snapshot = Snapshot { slo_ns: 1_000_000, latency, slo, ..Snapshot::default() };
        let text = openmetrics::text(&snapshot);
        for line in [
            "dovetail_slo_seconds 0.001",
            "dovetail_slo_samples_total 3",
            "dovetail_slo_over_total 1",
            "dovetail_latency_seconds_bucket{le=\"0.001048576\"} 2",
            "dovetail_latency_seconds_bucket{le=\"+Inf\"} 3",
            "dovetail_latency_seconds_sum 0.003002",
            "dovetail_slo_over_ratio 0.5",
            "dovetail_goodput_requests_per_second 2000",
        ] {
            assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
        }
        let json = snapshot.json();
        assert_eq!(
            (&json["slo"]["over_total"], &json["slo"]["lately"]["is_kept"]),
            (&json!(1), &json!(false))
        );
        let none = Snapshot { slo_ns: 0, ..snapshot };
        assert_eq!(none.json()["slo"], Value::Null);
        assert!(!openmetrics::text(&none).contains("dovetail_slo_"));
    }
}

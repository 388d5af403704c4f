//! Metrics of a data directory: commits, the bytes they wrote, and the data found at the start.

use runtime::shared::Shared;
use serde_json::{Value, json};
use store::durable::{COMMIT_BOUND_FIRST_NS, DurableStats, Health, Recovery};

use super::openmetrics::Page;

/// The data directory at one moment.
#[derive(Clone, Debug)]
pub struct DataNumbers {
    stats: DurableStats,
    health: Health,
    medium_name: &'static str,
    recovery: Recovery,
    recovery_seconds: f64,
    /// The entry bytes that clients' writes appended; the rest are copies of cleaning.
    new_bytes: u64,
    /// Bytes written per byte that a client's write appended.
    write_amplification_ratio: f64,
}

impl DataNumbers {
    /// The present state; `None`: there is no data directory.
    pub(super) fn take(shared: &Shared) -> Option<DataNumbers> {
        let data = shared.data()?;
        let stats = data.durable().stats();
        let cleaned_bytes = shared.store().stats().cleaned_bytes;
        let new_bytes = data.client_bytes(stats.entry_bytes.saturating_sub(cleaned_bytes));
        Some(DataNumbers {
            health: data.durable().health(),
            medium_name: data.medium_name,
            recovery: data.recovery.clone(),
            recovery_seconds: data.recovery_time.as_secs_f64(),
            write_amplification_ratio: match new_bytes {
                0 => 1.0,
                new_bytes => stats.entry_bytes as f64 / new_bytes as f64,
            },
            new_bytes,
            stats,
        })
    }

    fn is_writable(&self) -> bool {
        self.health == Health::Good
    }
}

/// Its field in `/stats`; null: there is no data directory.
pub(super) fn json(data: Option<&DataNumbers>) -> Value {
    let Some(data) = data else { return Value::Null };
    let DataNumbers { stats, recovery, .. } = data;
    json!({
        "is_writable": data.is_writable(),
        "medium": data.medium_name,
        "syncs_total": stats.syncs,
        "failures_total": stats.failures,
        "entry_bytes_total": stats.entry_bytes,
        "client_bytes_total": data.new_bytes,
        "cleaned_bytes_total": stats.entry_bytes.saturating_sub(data.new_bytes),
        "commit_bytes_total": stats.written_bytes.saturating_sub(stats.entry_bytes),
        "written_bytes_total": stats.written_bytes,
        "write_amplification_ratio": data.write_amplification_ratio,
        "uncommitted_bytes": stats.uncommitted_bytes,
        "tombstone_bytes": stats.tombstone_bytes,
        "commit_seconds_sum": stats.commit_ns as f64 / 1e9,
        "recovered": {
            "entries": recovery.entries,
            "items": recovery.items,
            "bytes": recovery.entry_bytes,
            "torn_tails": recovery.torn_tails,
            "damaged": recovery.damage.len(),
            "seconds": data.recovery_seconds,
            "threads": recovery.threads,
            "from_checkpoint": recovery.checkpoint.items(),
        },
    })
}

/// Its families of `/metrics`; none without a data directory.
pub(super) fn families(page: &mut Page, data: Option<&DataNumbers>) {
    let Some(data) = data else { return };
    let DataNumbers { stats, recovery, .. } = data;
    page.gauge(
        "dovetail_log_writable",
        "1 while what is written becomes durable, 0 while writes are refused",
        u8::from(data.is_writable()),
    );
    page.family("dovetail_log_medium", "gauge", "1 for the way by which the log is written");
    page.sample("dovetail_log_medium", &[("medium", data.medium_name)], 1);
    page.counter("dovetail_log_syncs", "Commits of the log that were synced", stats.syncs);
    page.counter("dovetail_log_failures", "Commits of the log that failed", stats.failures);
    page.counter(
        "dovetail_log_entry_bytes",
        "Bytes of entries written to the log, copies of cleaning among them",
        stats.entry_bytes,
    );
    page.counter(
        "dovetail_log_written_bytes",
        "All bytes written to the log, what it says of segments among them",
        stats.written_bytes,
    );
    page.counter(
        "dovetail_log_client_bytes",
        "Bytes of entries that writes of clients appended",
        data.new_bytes,
    );
    page.counter(
        "dovetail_log_cleaned_bytes",
        "Bytes of entries that cleaning copied",
        stats.entry_bytes.saturating_sub(data.new_bytes),
    );
    page.counter(
        "dovetail_log_commit_bytes",
        "Bytes that commits wrote beside entries: what they say of segments",
        stats.written_bytes.saturating_sub(stats.entry_bytes),
    );
    page.gauge(
        "dovetail_log_write_amplification_ratio",
        "Bytes of entries written for each that a write of a client appended",
        data.write_amplification_ratio,
    );
    page.gauge(
        "dovetail_log_uncommitted_bytes",
        "Bytes of entries that are not synced yet",
        stats.uncommitted_bytes,
    );
    page.gauge(
        "dovetail_log_tombstone_bytes",
        "Bytes of deletes that are kept until nothing older is left",
        stats.tombstone_bytes,
    );
    commits(page, stats);
    page.gauge("dovetail_recovered_entries", "Entries read at the start", recovery.entries);
    page.gauge(
        "dovetail_recovered_from_checkpoint",
        "Items that a checkpoint put into the index at the start",
        recovery.checkpoint.items(),
    );
    page.gauge(
        "dovetail_recovery_seconds",
        "How long reading the data directory took",
        data.recovery_seconds,
    );
}

fn commits(page: &mut Page, stats: &DurableStats) {
    page.family("dovetail_log_commit_seconds", "histogram", "From the wish to commit to its sync");
    let (mut sum, mut bound_ns) = (0, COMMIT_BOUND_FIRST_NS);
    let (beyond, within) = stats.commit_counts.split_last().expect("it has bounds");
    for count in within {
        sum += count;
        let bound = (bound_ns as f64 / 1e9).to_string();
        page.sample("dovetail_log_commit_seconds_bucket", &[("le", &bound)], sum);
        bound_ns *= 2;
    }
    sum += beyond;
    page.sample("dovetail_log_commit_seconds_bucket", &[("le", "+Inf")], sum);
    page.sample("dovetail_log_commit_seconds_sum", &[], stats.commit_ns as f64 / 1e9);
    page.sample("dovetail_log_commit_seconds_count", &[], sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_counted_up_to_each_bound() {
        let mut stats = DurableStats::default();
        stats.commit_counts[0] = 2;
        stats.commit_counts[1] = 3;
        *stats.commit_counts.last_mut().expect("it has bounds") = 1;
        let mut page = Page::default();
        commits(&mut page, &stats);
        let text = page.text();
        for line in [
            "dovetail_log_commit_seconds_bucket{le=\"0.000064\"} 2",
            "dovetail_log_commit_seconds_bucket{le=\"0.000128\"} 5",
            "dovetail_log_commit_seconds_bucket{le=\"+Inf\"} 6",
            "dovetail_log_commit_seconds_count 6",
        ] {
            assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
        }
    }
}

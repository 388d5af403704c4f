//! The report as a text table.

use std::fmt::Write;

use base::format_grouped;
use hdrhistogram::Histogram;
use workload::KeyStyle;

use crate::plan::Plan;
use crate::summary::{Summary, quantile_us};
use crate::tally::CallTimes;
use crate::target::Target;

/// The conditions of a run in one line.
pub(crate) fn title(plan: &Plan) -> String {
    let draw = &plan.draw;
    let (keys, key_len) = (format_grouped(draw.key_count), plan.key_format.len_max_bytes());
    let key_len = match plan.key_format.style() {
        KeyStyle::Decimal => format!("1 to {key_len} digits"),
        KeyStyle::Binary | KeyStyle::Text => format!("{key_len} B"),
    };
    let items = format!("{keys} keys of {key_len}, values of {} B", plan.value_sizes);
    let work = format!("{} {}", plan.workload, draw.popularity);
    let load = match &plan.target {
        Target::Embedded | Target::Null => {
            let what = if plan.target == Target::Null { "no store" } else { "embedded" };
            format!("{what}, {} threads, batch {}", plan.thread_count, plan.embedded.batch)
        }
        Target::Server { protocol, address } => format!(
            "{} {address}, {} connections x {} deep",
            protocol.name(),
            plan.connection_count,
            plan.pipeline
        ),
        Target::Native(target) => {
            format!("{target}, {} connections x {} deep", plan.connection_count, plan.pipeline)
        }
    };
    let mget = if plan.mget > 1 { format!(", {} keys per read", plan.mget) } else { String::new() };
    let pace = match plan.open_loop {
        None => "closed loop".to_owned(),
        Some(open) => {
            format!(
                "open loop, {} requests/s {}",
                format_grouped(open.per_second as u64),
                open.arrivals
            )
        }
    };
    let apart = match plan.large_thread_count {
        0 => String::new(),
        count => format!(", large values by {count} more threads"),
    };
    format!("{work}{mget}; {items}; {load}{apart}; {pace}")
}

pub(crate) fn format(plan: &Plan, summary: &Summary) -> String {
    let total = &summary.total;
    let mut rows: Vec<(&str, String)> = Vec::new();
    rows.push(("throughput", format!("{} ops/s", format_grouped(total.ops_per_second as u64))));
    if let Some(rate) = summary.ops_per_cpu_second {
        rows.push(("per CPU-second", format!("{} ops", format_grouped(rate as u64))));
    }
    rows.push(("operations", format_grouped(total.operation_count)));
    rows.push(("window", format!("{:.2} s", total.wall_seconds())));
    if let Some(ratio) = total.hit_ratio() {
        let (hits, misses) = (format_grouped(total.hit_count), format_grouped(total.miss_count));
        rows.push(("hits", format!("{:.2} % ({hits} hits, {misses} misses)", ratio * 100.0)));
    }
    for (name, count) in [
        ("mismatches", total.mismatch_count),
        ("errors", total.error_count),
        ("unanswered", total.unanswered_count),
        ("dropped", total.dropped_count),
    ] {
        if count > 0 {
            rows.push((name, format_grouped(count)));
        }
    }
    if total.scanned_count > 0 {
        rows.push(("scanned", format!("{} items", format_grouped(total.scanned_count))));
    }
    if let Some(words) = &total.error_first {
        rows.push(("first error", words.clone()));
    }
    cpu_rows(plan, summary, &mut rows);
    if let Some(store) = &summary.store {
        let text = format!(
            "{} MiB of {} MiB of log in use, {} MiB of index",
            store.log_used_bytes >> 20,
            store.log_bytes >> 20,
            store.index_used_bytes >> 20
        );
        rows.push(("memory", text));
    }
    let mut text = format!("{}\n", title(plan));
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<15} {value}");
    }
    text.push_str(&latency_rows(summary));
    text.push_str(&call_rows("calls while keys were stored", total.populate_calls.as_ref()));
    text.push_str(&call_rows("calls in the window", total.calls.as_ref()));
    text
}

/// Quantiles of each call into the embedded store, when each was timed.
fn call_rows(what: &str, calls: Option<&CallTimes>) -> String {
    let Some(calls) = calls else { return String::new() };
    let mut text = format!("  {what} (us): p50, p99, p99.9, p99.99, max\n");
    for (name, histogram) in [
        ("execute, wall", &calls.execute_wall_ns),
        ("execute, CPU", &calls.execute_cpu_ns),
        ("maintain, wall", &calls.maintain_wall_ns),
        ("maintain, CPU", &calls.maintain_cpu_ns),
        ("control, CPU", &calls.control_cpu_ns),
    ] {
        let _ = write!(text, "    {name:<15}");
        for quantile in [0.5, 0.99, 0.999, 0.9999, 1.0] {
            let _ = write!(text, "{:>10.1}", quantile_us(histogram, quantile));
        }
        text.push('\n');
    }
    text
}

fn cpu_rows(plan: &Plan, summary: &Summary, rows: &mut Vec<(&str, String)>) {
    if let (Some(ns), Some(share)) = (summary.server_cpu_ns_per_op(), summary.server_cpu_share()) {
        rows.push(("server CPU", format!("{ns:.0} ns per operation, {:.0} % busy", share * 100.0)));
    }
    let share = summary.client_cpu_share() * 100.0;
    let label = if plan.target.is_in_process() { "thread CPU" } else { "client CPU" };
    rows.push((label, format!("{share:.0} % of {} threads' time", summary.thread_count)));
}

fn latency_rows(summary: &Summary) -> String {
    let columns = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];
    let mut text = String::from("  latency (us)   ");
    for (name, _) in columns {
        let _ = write!(text, "{name:>10}");
    }
    let _ = writeln!(text, "{:>10}", "max");
    let mut row = |name: &str, latency_ns: &Histogram<u64>| {
        let _ = write!(text, "    {name:<13}");
        for (_, quantile) in columns {
            let _ = write!(text, "{:>10.1}", quantile_us(latency_ns, quantile));
        }
        let _ = writeln!(text, "{:>10.1}", latency_ns.max() as f64 / 1e3);
    };
    row("", &summary.total.latency_ns);
    if let Some([small, large]) = summary.latency_ns_by_size() {
        row("small values", &small);
        row("large values", &large);
    }
    text
}

//! Metrics of native clients.

use counters::{DropReason, NativeTotals};
use serde_json::{Map, Value, json};

use super::openmetrics::Page;

/// Their fields in `/stats`.
pub fn json(native: &NativeTotals) -> Value {
    let drops = DropReason::ALL.iter().zip(native.drops);
    let drops: Map<String, Value> =
        drops.map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect();
    json!({
        "sessions": native.sessions,
        "shm_clients": native.shm_clients,
        "zone_bytes": native.zone_bytes,
        "transfer_bytes": native.transfer_bytes,
        "frames_in_total": native.frames_in,
        "worker_frames_in_total": native.worker_frames_in,
        "frames_out_total": native.frames_out,
        "requests_total": native.requests,
        "requests_per_frame": requests_per_frame(native),
        "drops_total": drops,
        "kernel_drops_total": native.kernel_drops,
        "challenges_total": native.challenges,
        "answered_again_total": native.answered_again,
        "dropped_copies_total": native.dropped_copies,
        "busy_total": native.busy,
        "shed_total": native.shed,
        "lost_replies_total": native.lost_replies,
        "truncated_total": native.truncated,
        "zone_starved_total": native.starved,
    })
}

/// The average number of requests per frame since the start, which shows how well clients batch.
pub fn requests_per_frame(native: &NativeTotals) -> f64 {
    native.requests as f64 / native.frames_in.max(1) as f64
}

/// Their families of `/metrics`.
pub fn families(page: &mut Page, native: &NativeTotals) {
    page.gauge("dovetail_native_sessions", "Sessions of native clients", native.sessions);
    page.gauge("dovetail_shm_clients", "Clients in shared memory", native.shm_clients);
    page.gauge("dovetail_zone_bytes", "Memory that datagrams land in", native.zone_bytes);
    page.gauge(
        "dovetail_transfer_bytes",
        "Held for values that arrive in parts",
        native.transfer_bytes,
    );
    page.family("dovetail_native_frames", "counter", "Frames from and to native clients");
    page.sample("dovetail_native_frames_total", &[("dir", "in")], native.frames_in);
    page.sample("dovetail_native_frames_total", &[("dir", "out")], native.frames_out);
    page.counter("dovetail_native_requests", "Requests in those frames", native.requests);
    page.family("dovetail_native_drops", "counter", "Frames that were dropped, by reason");
    for (reason, count) in DropReason::ALL.iter().zip(native.drops) {
        page.sample("dovetail_native_drops_total", &[("reason", reason.name())], count);
    }
    let labels = [("reason", "kernel")];
    page.sample("dovetail_native_drops_total", &labels, native.kernel_drops);
    page.counter(
        "dovetail_native_challenges",
        "Hellos that were asked for a cookie",
        native.challenges,
    );
    page.family("dovetail_native_retries", "counter", "Writes that came again, by what was done");
    let labels = [("status", "answered")];
    page.sample("dovetail_native_retries_total", &labels, native.answered_again);
    let labels = [("status", "dropped")];
    page.sample("dovetail_native_retries_total", &labels, native.dropped_copies);
    page.family("dovetail_native_busy", "counter", "Frames and requests answered busy, by why");
    let labels = [("reason", "overload")];
    page.sample("dovetail_native_busy_total", &labels, native.shed);
    let labels = [("reason", "held")];
    page.sample("dovetail_native_busy_total", &labels, native.busy.saturating_sub(native.shed));
    page.counter(
        "dovetail_native_lost_replies",
        "Replies that found no room on their way out",
        native.lost_replies,
    );
    page.counter(
        "dovetail_zone_truncated",
        "Datagrams that were cut at the end of a buffer",
        native.truncated,
    );
    page.counter("dovetail_zone_starved", "Receives that found the zone full", native.starved);
}

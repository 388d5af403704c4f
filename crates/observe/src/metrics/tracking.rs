//! Metrics of client-side caching.

use sessions::tracking::Tracking;

use super::openmetrics::Page;

/// Client-side caching at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackingNumbers {
    /// Clients that track.
    pub clients: u64,
    /// Prefixes that they have named.
    pub prefixes: u64,
    /// Keys whose readers are remembered.
    pub keys: u64,
    /// Pairs of a key and a reader.
    pub items: u64,
    /// The memory of the table.
    pub table_bytes: u64,
    /// Messages that were sent.
    pub messages: u64,
    /// Keys removed to make room for others.
    pub crowded_out: u64,
}

impl TrackingNumbers {
    /// The present numbers.
    pub fn of(tracking: &Tracking) -> TrackingNumbers {
        let table = tracking.totals();
        TrackingNumbers {
            clients: tracking.tracker_count() as u64,
            prefixes: tracking.prefix_count() as u64,
            keys: table.keys as u64,
            items: table.items as u64,
            table_bytes: table.held_bytes as u64,
            messages: tracking.told_total(),
            crowded_out: tracking.crowded_out_total(),
        }
    }
}

/// Its families of `/metrics`.
pub fn families(page: &mut Page, numbers: &TrackingNumbers) {
    for (name, help, value) in [
        (
            "dovetail_tracking_clients",
            "Clients that keep copies of what they read",
            numbers.clients,
        ),
        (
            "dovetail_tracking_prefixes",
            "Prefixes that such clients have asked for",
            numbers.prefixes,
        ),
        ("dovetail_tracking_keys", "Keys whose readers are remembered", numbers.keys),
        ("dovetail_tracking_items", "Pairs of a key and a client that has read it", numbers.items),
        ("dovetail_tracking_table_bytes", "Memory for keys and readers", numbers.table_bytes),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    let help = "Invalidations that were sent";
    page.family("dovetail_tracking_invalidations", "counter", help);
    page.sample("dovetail_tracking_invalidations_total", &[], numbers.messages);
    let help = "Keys whose readers were told for want of room";
    page.family("dovetail_tracking_crowded_out_keys", "counter", help);
    page.sample("dovetail_tracking_crowded_out_keys_total", &[], numbers.crowded_out);
}

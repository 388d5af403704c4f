//! OpenMetrics 1.0 text, written by hand: a scrape reads a snapshot and needs no registry.

use std::fmt::{Display, Write};

use counters::BulkCells;
use policy::Policies;
use runtime::warm::Kept;
use store::StoreStats;

use crate::metrics::{
    Snapshot, budget, cluster, commands as durations, compaction, durable, facts, native, slo,
    tracking, udp,
};

/// The content type for scrapers.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole exposition, `# EOF` included.
pub fn text(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    identity(&mut page, snapshot);
    commands(&mut page, snapshot);
    durations::families(&mut page, snapshot);
    connections(&mut page, snapshot);
    roles(&mut page, snapshot);
    forwardings(&mut page, snapshot);
    manager(&mut page, snapshot);
    slo::families(&mut page, snapshot);
    ways(&mut page, snapshot.ways);
    dcrew(&mut page, snapshot);
    sizes(&mut page, snapshot);
    native::families(&mut page, &snapshot.totals.native);
    udp::families(&mut page, &snapshot.totals.udp);
    tracking::families(&mut page, &snapshot.tracking);
    memory(&mut page, snapshot);
    budget::families(&mut page, &snapshot.client_buffers);
    store(&mut page, &snapshot.store);
    durable::families(&mut page, snapshot.data.as_ref());
    warm(&mut page, snapshot.warm);
    cluster::families(&mut page, snapshot.cluster.as_ref());
    page.out.push_str("# EOF\n");
    page.out
}

fn identity(page: &mut Page, snapshot: &Snapshot) {
    page.family("dovetail_build", "info", "What is running");
    page.sample("dovetail_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge("dovetail_up", "Always 1 while the admin port answers", 1);
    page.gauge(
        "dovetail_uptime_seconds",
        "Time since the start",
        snapshot.uptime_ms as f64 / 1000.0,
    );
    page.gauge("dovetail_threads", "Worker threads", snapshot.thread_count);
    page.counter(
        "dovetail_process_cpu_seconds",
        "User and system time of all threads",
        snapshot.process.cpu_ms as f64 / 1000.0,
    );
}

fn commands(page: &mut Page, snapshot: &Snapshot) {
    let called = || snapshot.totals.commands.iter().filter(|command| command.calls > 0);
    page.family("dovetail_commands", "counter", "Commands by how they ended");
    for command in called() {
        let labels = [("proto", command.protocol.name()), ("cmd", command.name)];
        let ok = command.calls.saturating_sub(command.errors);
        for (status, count) in [("ok", ok), ("error", command.errors)] {
            let labels = [labels[0], labels[1], ("status", status)];
            page.sample("dovetail_commands_total", &labels, count);
        }
    }
    page.family("dovetail_keys", "counter", "Keys that commands looked up, by what they found");
    for command in called().filter(|command| command.hits + command.misses > 0) {
        let labels = [("proto", command.protocol.name()), ("cmd", command.name)];
        for (status, count) in [("hit", command.hits), ("miss", command.misses)] {
            let labels = [labels[0], labels[1], ("status", status)];
            page.sample("dovetail_keys_total", &labels, count);
        }
    }
    let totals = &snapshot.totals;
    page.counter("dovetail_batches", "Batches that went to the store", totals.batches);
    page.counter(
        "dovetail_batch_requests",
        "Store requests in those batches",
        totals.batch_requests,
    );
    page.histogram(
        (
            "dovetail_bulk_before_others_bytes",
            "Bytes of long replies and commands moved at once while other requests came",
        ),
        &totals.bulk_by_bytes,
        BulkCells::class_max_bytes,
        totals.bulk_bytes,
    );
    compaction::families(page, totals);
    page.gauge(
        "dovetail_turn_work_units_max",
        "The most that one turn of a worker has cost: 64 bytes, an eighth of a key or 8 steps each",
        totals.turn_work_units_max,
    );
    page.counter(
        "dovetail_atomic_refused",
        "Commands on many keys and transactions beyond --max-atomic-size",
        totals.atomic_refused,
    );
    page.family_with_unit(
        "dovetail_worker_busy_seconds",
        "counter",
        "Wall time of rounds that found something to serve: polling left out, preemption included",
        "seconds",
    );
    for (worker, busy_ns) in totals.worker_busy_ns.iter().enumerate() {
        let seconds = *busy_ns as f64 / 1e9;
        let worker = worker.to_string();
        page.sample("dovetail_worker_busy_seconds_total", &[("worker", &worker)], seconds);
    }
    refusals(page, snapshot);
}

fn refusals(page: &mut Page, snapshot: &Snapshot) {
    let totals = &snapshot.totals;
    page.counter(
        "dovetail_protocol_errors",
        "Requests that broke the protocol",
        totals.protocol_errors,
    );
    page.counter(
        "dovetail_oversized_commands",
        "Commands of Redis and memcached clients that were refused for their size and skipped",
        totals.oversized_commands,
    );
    page.counter("dovetail_auth_attempts", "Attempts to log in", totals.auth_attempts);
    page.family(
        "dovetail_admin_refused",
        "counter",
        "Requests that the admin port refused by reason, and connections that made room for others",
    );
    for (reason, count) in snapshot.admin_refused {
        page.sample("dovetail_admin_refused_total", &[("reason", reason)], count);
    }
    page.counter("dovetail_auth_errors", "Failed attempts to log in", totals.auth_errors);
    page.counter(
        "dovetail_auth_slowed",
        "Answers to logins that waited, because many of the same address had failed",
        totals.doors.logins_slowed,
    );
    page.counter(
        "dovetail_auth_refused",
        "Attempts to log in that were refused unlooked, for the same reason",
        totals.doors.logins_refused,
    );
}

/// The families of `--warm-file`, if it is set.
fn warm(page: &mut Page, kept: Option<Kept>) {
    let Some(kept) = kept else { return };
    page.family(
        "dovetail_warm_items",
        "gauge",
        "Items taken over at the start, by what came of them",
    );
    page.sample("dovetail_warm_items", &[("state", "kept")], kept.items);
    page.sample("dovetail_warm_items", &[("state", "lost")], kept.lost_items);
    let name = "dovetail_warm_attach_seconds";
    page.family_with_unit(name, "gauge", "How long taking them over lasted", "seconds");
    page.sample(name, &[], kept.attach_time.as_secs_f64());
}

fn connections(page: &mut Page, snapshot: &Snapshot) {
    let totals = &snapshot.totals;
    page.family("dovetail_connections", "gauge", "Open client connections");
    page.sample("dovetail_connections", &[("proto", "resp")], totals.connections_resp);
    page.sample("dovetail_connections", &[("proto", "memcached")], totals.connections_memcached);
    // Not `dovetail_connections_total`: a family may not be a gauge and a counter at once.
    page.counter(
        "dovetail_connections_accepted",
        "Connections accepted since the start",
        totals.connections_total,
    );
    page.family("dovetail_connections_rejected", "counter", "Connections refused, by reason");
    page.sample(
        "dovetail_connections_rejected_total",
        &[("reason", "max_connections")],
        totals.connections_rejected,
    );
    page.sample(
        "dovetail_connections_rejected_total",
        &[("reason", "max_connections_per_address")],
        totals.connections_rejected_of_address,
    );
    page.sample(
        "dovetail_connections_rejected_total",
        &[("reason", "protected_mode")],
        totals.doors.protected,
    );
    page.sample(
        "dovetail_connections_rejected_total",
        &[("reason", "door_closed")],
        totals.doors.closed,
    );
    let family = "dovetail_connections_closed";
    page.family(family, "counter", "Connections that the server closed, by reason");
    page.sample(
        "dovetail_connections_closed_total",
        &[("reason", "idle")],
        totals.connections_idle_closed,
    );
    page.counter(
        "dovetail_replies_refused",
        "Large values refused and slow readers closed, for the log or the buffers had no room",
        totals.replies_refused,
    );
    page.family("dovetail_tls_handshakes", "counter", "Handshakes of TLS, by how they ended");
    let tls = &totals.tls;
    let results = [
        ("ok", tls.handshakes),
        ("refused", tls.refused),
        ("late", tls.late),
        ("crowded_out", tls.crowded_out),
    ];
    for (result, count) in results {
        page.sample("dovetail_tls_handshakes_total", &[("result", result)], count);
    }
    page.family_with_unit("dovetail_net_bytes", "counter", "Bytes from and to clients", "bytes");
    page.sample("dovetail_net_bytes_total", &[("dir", "in")], totals.net_input_bytes);
    page.sample("dovetail_net_bytes_total", &[("dir", "out")], totals.net_output_bytes);
}

fn roles(page: &mut Page, snapshot: &Snapshot) {
    let forwardings = &snapshot.totals.forwardings;
    page.family("dovetail_cores", "gauge", "Threads by what they do");
    let (dispatchers, both, executors) = snapshot.roles;
    let idle = snapshot.thread_count.saturating_sub(dispatchers + both + executors);
    for (role, count) in [("cr", dispatchers), ("rtc", both), ("mr", executors), ("idle", idle)] {
        page.sample("dovetail_cores", &[("role", role)], count);
    }
    if let Some(sizes) = snapshot.sizes {
        for (role, count) in [("small", sizes.small_workers), ("large", sizes.large_workers)] {
            page.sample("dovetail_cores", &[("role", role)], count);
        }
    }
    page.family("dovetail_routing", "gauge", "1 for the policies that route requests now");
    let Policies { write_policy, dispatch } = snapshot.policies;
    let dispatch = dispatch.to_string();
    let labels = [("write_policy", write_policy.name()), ("dispatch", &*dispatch)];
    page.sample("dovetail_routing", &labels, 1);
    let help = "Counts the plans of which thread does what";
    page.gauge("dovetail_role_epoch", help, snapshot.role_epoch);
    page.counter(
        "dovetail_role_changes",
        "Times that a thread took up another role",
        forwardings.role_changes,
    );
    page.counter(
        "dovetail_connections_moved",
        "Connections that went from one worker to another",
        forwardings.connections_moved,
    );
}

fn forwardings(page: &mut Page, snapshot: &Snapshot) {
    let forwardings = &snapshot.totals.forwardings;
    page.family("dovetail_queue_depth", "gauge", "Requests of other workers that wait for one");
    for (worker, depth) in forwardings.queue_depth.iter().enumerate() {
        page.sample("dovetail_queue_depth", &[("queue", &worker.to_string())], depth);
    }
    page.counter(
        "dovetail_direct_requests",
        "Routed requests that stayed with the worker that received them",
        forwardings.direct,
    );
    page.gauge(
        "dovetail_hot_set_items",
        "Frequent keys that are read by the threads that received the request",
        snapshot.hot_set.item_count(),
    );
    page.gauge(
        "dovetail_hot_set_share_ratio",
        "The part of all sampled requests that is on these keys",
        snapshot.hot_set.share_ratio(),
    );
    page.counter("dovetail_hot_set_hits", "Reads of these keys", forwardings.hot_hits);
    page.counter(
        "dovetail_hot_set_in_place",
        "Reads of these keys that did not walk down the tree",
        forwardings.hot_in_place,
    );
    page.counter("dovetail_forwardings", "Requests sent to another worker", forwardings.sent);
    page.counter(
        "dovetail_forwarding_publications",
        "Times that requests were shown to another worker",
        forwardings.publications,
    );
    page.counter("dovetail_forwarding_batches", "Batches of routed requests", forwardings.batches);
    page.counter(
        "dovetail_forwarding_batch_requests",
        "Requests in those batches",
        forwardings.served,
    );
    page.counter(
        "dovetail_steals",
        "Requests that another worker executed than the one they waited for",
        forwardings.stolen,
    );
    page.family("dovetail_route_busy", "counter", "Times that no worker could be named, by reason");
    for (reason, count) in forwardings.busy() {
        page.sample("dovetail_route_busy_total", &[("reason", reason)], count);
    }
}

fn manager(page: &mut Page, snapshot: &Snapshot) {
    page.family("dovetail_tuner_changes", "counter", "Changes by the manager, by what was changed");
    for (what, count) in &snapshot.changes {
        page.sample("dovetail_tuner_changes_total", &[("what", what)], count);
    }
}

fn ways(page: &mut Page, ways: Option<(u32, u32)>) {
    let Some((mr_ways, cr_ways)) = ways else { return };
    page.family("dovetail_llc_ways", "gauge", "Ways of the last-level cache that a layer may use");
    page.sample("dovetail_llc_ways", &[("role", "mr")], mr_ways);
    page.sample("dovetail_llc_ways", &[("role", "cr")], cr_ways);
}

fn dcrew(page: &mut Page, snapshot: &Snapshot) {
    let (forwardings, Some(entry_count)) = (&snapshot.totals.forwardings, snapshot.table_entries)
    else {
        return;
    };
    let help = "Writes that the write table counted";
    page.counter("dovetail_dcrew_pins", help, forwardings.pins);
    page.counter(
        "dovetail_dcrew_conflicts",
        "Writes that went to another worker, or waited, because their partition had a writer",
        forwardings.pin_conflicts,
    );
    page.gauge("dovetail_dcrew_held", "Partitions with writes outstanding", forwardings.pins_held);
    page.gauge("dovetail_dcrew_capacity", "Entries of the write table", entry_count);
}

fn sizes(page: &mut Page, snapshot: &Snapshot) {
    let (forwardings, Some(sizes)) = (&snapshot.totals.forwardings, snapshot.sizes) else { return };
    let threshold = match sizes.threshold_bytes {
        u64::MAX => "+Inf".to_owned(),
        bytes => bytes.to_string(),
    };
    page.gauge("dovetail_size_threshold_bytes", "The largest item that is small", threshold);
    page.counter(
        "dovetail_handed_on",
        "Requests that a small worker did not execute, because their item is large",
        forwardings.handed_on,
    );
    page.counter(
        "dovetail_large_help",
        "Small requests that idle large workers executed",
        forwardings.helped,
    );
    page.counter("dovetail_lent_replies", "Outputs that a large worker sent", forwardings.lent);
    page.counter("dovetail_lent_reply_bytes", "Bytes of these", forwardings.lent_bytes);
}

fn memory(page: &mut Page, snapshot: &Snapshot) {
    page.gauge(
        "dovetail_memory_limit_bytes",
        "The cap on log, index and buffers together",
        snapshot.memory_limit_bytes,
    );
    page.gauge(
        "dovetail_memory_surplus_bytes",
        "What a log that shrinks has to give up yet",
        snapshot.memory_surplus_bytes,
    );
    let (done, refused) = snapshot.memory_changes;
    page.family("dovetail_memory_changes", "counter", "Changes of the cap while the server runs");
    for (outcome, count) in [("done", done), ("refused", refused)] {
        page.sample("dovetail_memory_changes_total", &[("outcome", outcome)], count);
    }
    page.family("dovetail_memory_used_bytes", "gauge", "Parts of the cap that are in use");
    for (kind, bytes) in [
        ("log", snapshot.store.log_used_bytes),
        ("index", snapshot.store.index_used_bytes),
        ("client", snapshot.client_buffer_bytes),
    ] {
        page.sample("dovetail_memory_used_bytes", &[("kind", kind)], bytes);
    }
    page.gauge(
        "dovetail_process_resident_memory_bytes",
        "Resident memory of the process",
        snapshot.process.resident_bytes,
    );
}

fn store(page: &mut Page, store: &StoreStats) {
    page.gauge("dovetail_items", "Items, those that expired unmet included", store.items);
    page.gauge("dovetail_items_with_expiry", "Items with an expiry", store.items_with_expiry);
    page.family("dovetail_evictions", "counter", "Live items given up, by reason");
    page.sample("dovetail_evictions_total", &[("reason", "log_wrap")], store.evicted_by_log);
    page.sample("dovetail_evictions_total", &[("reason", "index")], store.evicted_by_index);
    page.counter("dovetail_expired", "Items whose time had come", store.expired);
    page.counter(
        "dovetail_reinserted",
        "Items that outlived the reclaiming of their segment because they were read",
        store.reinserted,
    );
    page.counter("dovetail_cleaned_bytes", "Bytes that cleaning copied", store.cleaned_bytes);
    page.counter("dovetail_out_of_memory", "Writes refused for want of space", store.out_of_memory);
    queues(page, store);
    space(page, store);
    index(page, store);
}

fn queues(page: &mut Page, store: &StoreStats) {
    page.family("dovetail_queue_evictions", "counter", "Items the log gave up, by queue");
    for (queue, count) in facts::evicted_by_queue(store) {
        page.sample("dovetail_queue_evictions_total", &[("queue", queue)], count);
    }
    page.counter("dovetail_evicted_unread", "Items given up unread", store.evicted_unread);
    page.counter("dovetail_promoted", "Items that moved from small to main", store.promoted);
    page.counter(
        "dovetail_ghost_hits",
        "Writes of keys that the small queue had given up lately",
        store.ghost_hits,
    );
}

fn space(page: &mut Page, store: &StoreStats) {
    page.family("dovetail_log_space_bytes", "gauge", "Where the bytes of the log are");
    for (state, bytes) in facts::log_space(&store.space) {
        page.sample("dovetail_log_space_bytes", &[("state", state)], bytes);
    }
    page.gauge(
        "dovetail_log_fragmentation_ratio",
        "Of full segments, the part that holds nothing alive",
        facts::fragmentation(&store.space),
    );
    page.counter(
        "dovetail_dead_space_copied_bytes",
        "Bytes of live entries copied out of mostly dead segments",
        store.dead_space_copied_bytes,
    );
    page.gauge("dovetail_log_bytes", "Bytes of the log's segments", store.log_bytes);
    page.gauge("dovetail_ghost_bytes", "Bytes of the ghost table", store.ghost_bytes);
}

fn index(page: &mut Page, store: &StoreStats) {
    page.gauge("dovetail_tree_nodes", "Nodes of the ordered index", store.tree_nodes);
    page.gauge("dovetail_index_bytes", "Bytes that the index has", store.index_bytes);
    page.gauge(
        "dovetail_index_load_ratio",
        "Items over the slots of the chains' first buckets",
        facts::load(store),
    );
    page.gauge("dovetail_index_heads", "Chains of the index", store.index_heads);
    page.gauge(
        "dovetail_index_overflow_buckets",
        "Index buckets beyond the first of a chain",
        store.index_overflow_buckets,
    );
    page.counter(
        "dovetail_index_partitions_resized",
        "Times that a partition of the index doubled or halved",
        store.index_partitions_resized,
    );
    page.gauge(
        "dovetail_index_partitions_resizing",
        "Partitions of the index that are changing their size",
        store.index_partitions_resizing,
    );
}

/// The text so far.
#[derive(Default)]
pub(super) struct Page {
    out: String,
}

impl Page {
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.out
    }

    /// Head of a metric family; its samples must follow at once.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "# TYPE {name} {kind}\n# HELP {name} {help}.");
    }

    pub(super) fn family_with_unit(&mut self, name: &str, kind: &str, help: &str, unit: &str) {
        let _ =
            writeln!(self.out, "# TYPE {name} {kind}\n# UNIT {name} {unit}\n# HELP {name} {help}.");
    }

    /// One line; label values are the server's own and need no escapes (I2 of the parent).
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.out.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let mark = if index == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{mark}{label}=\"{text}\"");
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{close} {value}");
    }

    /// A histogram of counts by class; `class_max` is a class's upper bound, if it has one.
    pub(super) fn histogram(
        &mut self,
        (name, help): (&str, &str),
        counts: &[u64],
        class_max: fn(usize) -> Option<u64>,
        sum: u64,
    ) {
        self.family(name, "histogram", help);
        let mut count = 0;
        for (class, of_class) in counts.iter().enumerate() {
            count += of_class;
            let bound = class_max(class).map_or("+Inf".to_owned(), |max| format!("{max}.0"));
            self.sample(&format!("{name}_bucket"), &[("le", &bound)], count);
        }
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], count);
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// A family `name` with its one sample `name_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(&format!("{name}_total"), &[], value);
    }
}

//! The contents of `/metrics` and `/stats`: one snapshot of the server, as OpenMetrics text or as
//! JSON.
//!
//! ```text
//!  workers' cells ─┐
//!  store           ├─▶ Snapshot ─┬─▶ openmetrics::text   (names of STABILITY.md)
//!  /proc/self      ┘             └─▶ Snapshot::json
//! ```
//!
//! # Invariants
//! I1: a snapshot reads the numbers that workers publish; it never makes a worker wait.
//! I2: no label contains a key or other text chosen by a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::budget::KindNumbers;
use counters::LatencyCounts;
use counters::{CommandTotals, Protocol, Totals};
use dispatch::hot::{HotKey, Published as HotSet};
use dispatch::published::Entry;
use dispatch::published::Lately;
use dispatch::published::TunerView;
use dispatch::published::Workload;
use dispatch::sizes::{self, SizeNumbers};
use host::process::unix_now;
use policy::Policies;
use policy::size_class::SizeCount;
use runtime::shared::Shared;
use runtime::slo::Slo;
use runtime::warm::Kept;
use serde_json::{Value, json};
use store::Mode;
use store::StoreStats;

mod budget;
mod cluster;
mod commands;
mod compaction;
mod durable;
pub mod facts;
mod native;
pub mod openmetrics;
mod process;
mod roles;
mod slo;
mod tracking;
mod udp;

pub use roles::threads;

/// The server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Wall-clock time, as the decision log's.
    pub at_ms: u64,
    /// Since the start.
    pub uptime_ms: u64,
    /// Worker threads.
    pub thread_count: usize,
    /// The number of workers that only poll, do both, only execute; the others are idle.
    pub roles: (usize, usize, usize),
    /// The number that poll, if set by hand; `None`: `auto`.
    pub cr_threads: Option<usize>,
    /// Counts the plans of roles.
    pub role_epoch: u64,
    /// The policies that route requests.
    pub policies: Policies,
    /// The largest small size, and the worker of each size class, if the dispatch is size-aware or
    /// that may be tried.
    pub sizes: Option<SizeNumbers>,
    /// Requests by the size of their item, if the dispatch is size-aware.
    pub size_counts: Vec<SizeCount>,
    /// Items by their size, among those that were drawn.
    pub stored_sizes: Vec<SizeCount>,
    /// Entries of the write table, if there is one (d-CREW).
    pub table_entries: Option<usize>,
    /// `cache` or `store`.
    pub mode: &'static str,
    /// `hash` or `tree`.
    pub index: &'static str,
    /// The cap that the user set.
    pub memory_limit_bytes: u64,
    /// The bytes that a shrinking store still has to give up.
    pub memory_surplus_bytes: u64,
    /// Changes of the cap while the server ran, and refused ones.
    pub memory_changes: (u64, u64),
    /// Connections that may be open at one time.
    pub connections_max: usize,
    /// The workers' counts.
    pub totals: Totals,
    /// The durations of the commands that ran.
    pub durations: Vec<(Protocol, &'static str, LatencyCounts)>,
    /// The number of entries that the slow log ever got.
    pub slow_log_total: u64,
    /// Client-side caching.
    pub tracking: tracking::TrackingNumbers,
    /// The hot set.
    pub hot_set: Arc<HotSet>,
    /// Whether the hot keys' names are in the JSON.
    pub shows_keys: bool,
    /// The refusals of the admin port, by reason.
    pub admin_refused: [(&'static str, u64); 4],
    /// The store's contents and counts.
    pub store: StoreStats,
    /// The data directory; `None`: there is none.
    pub data: Option<durable::DataNumbers>,
    /// The cluster; `None`: this server is not a node.
    pub cluster: Option<cluster::ClusterNumbers>,
    /// Bytes granted to client buffers.
    pub client_buffer_bytes: u64,
    /// Those bytes by kind.
    pub client_buffers: Vec<KindNumbers>,
    /// The manager's recent decisions, oldest first.
    pub decision_log: Vec<Entry>,
    /// The recent workload; `None`: nothing ran.
    pub workload: Option<Workload>,
    /// The tuner's state; `None`: nothing is tuned.
    pub tuner: Option<TunerView>,
    /// The objective of latency in nanoseconds; 0: there is none.
    pub slo_ns: u64,
    /// The sampled latencies since the start.
    pub latency: LatencyCounts,
    /// Whether the objective was kept lately.
    pub slo: Option<Lately>,
    /// Ways of the last-level cache: of the memory-resident threads, of the others.
    pub ways: Option<(u32, u32)>,
    /// The number of changes by controller.
    pub changes: BTreeMap<&'static str, u64>,
    /// The data kept across a restart, if there is a file for it.
    pub warm: Option<Kept>,
    /// The kernel's figures on this process.
    pub process: process::Usage,
}

impl Snapshot {
    /// Folds all counters now.
    pub fn take(shared: &Shared) -> Snapshot {
        let (config, roles) = (shared.config(), shared.roles().latest());
        let plan = *roles.plan();
        let slo_ns = shared.slo().target_ns();
        let size_numbers = shared.sizes().map(|sizes| match roles.policies.tell_sizes() {
            true => SizeNumbers::from(&*sizes.plan()),
            false => SizeNumbers::all_small(plan.executors),
        });
        Snapshot {
            at_ms: unix_now().0,
            uptime_ms: u64::try_from(shared.run().uptime().as_millis()).unwrap_or(u64::MAX),
            thread_count: config.threads,
            role_epoch: plan.epoch,
            roles: plan.role_counts(),
            cr_threads: shared.roles().asked().1,
            policies: roles.policies,
            sizes: size_numbers,
            size_counts: sizes::sum(shared.size_counts()),
            stored_sizes: shared.control().stored_sizes.histogram(),
            table_entries: shared.roles().layers().table_entries(&plan, config),
            mode: match config.mode {
                Mode::Evict => "cache",
                Mode::Clean => "store",
            },
            index: config.index_name(),
            memory_limit_bytes: shared.memory_bytes(),
            memory_surplus_bytes: shared.store().surplus_bytes(),
            memory_changes: shared.memory().changes(),
            connections_max: shared.live().max_connections(),
            totals: shared.totals(),
            durations: commands::durations(shared),
            slow_log_total: shared.observations().slow_log.total(),
            tracking: tracking::TrackingNumbers::of(shared.tracking()),
            hot_set: shared.hot_keys().map(|keys| keys.now()).unwrap_or_default(),
            shows_keys: false,
            admin_refused: shared.observations().admin.by_reason(),
            store: shared.store().stats(),
            data: durable::DataNumbers::take(shared),
            warm: shared.warm().map(|warm| warm.kept()),
            cluster: shared.cluster().map(|view| cluster::ClusterNumbers::take(view)),
            client_buffer_bytes: shared.buffer_budget().granted_bytes(),
            client_buffers: shared.buffer_budget().kinds().collect(),
            decision_log: shared.control().decision_log.entries(),
            workload: shared.control().workload.get(),
            tuner: shared.control().tuner.get(),
            slo_ns,
            latency: Slo::counts(shared.all_counters()),
            slo: shared.control().slo.get().filter(|lately| lately.target_ns == slo_ns),
            ways: shared.control().ways(),
            changes: shared.control().decision_log.counts(),
            process: process::Usage::now(),
        }
    }

    fn commands_json(&self) -> Vec<Value> {
        let called = self.totals.commands.iter().filter(|command| command.calls > 0);
        called
            .map(|command| {
                json!({
                    "proto": command.protocol.name(),
                    "cmd": command.name,
                    "calls": command.calls,
                    "hits": command.hits,
                    "misses": command.misses,
                    "errors": command.errors,
                    "spent_us": command.spent_ns / 1000,
                })
            })
            .collect()
    }

    fn connections_json(&self) -> Value {
        let totals = &self.totals;
        json!({
            "resp": totals.connections_resp,
            "memcached": totals.connections_memcached,
            "max": self.connections_max,
            "accepted_total": totals.connections_total,
            "rejected_total": totals.rejected(),
            "idle_closed_total": totals.connections_idle_closed,
            "replies_refused_total": totals.replies_refused,
        })
    }

    fn store_json(&self) -> Value {
        let store = &self.store;
        let mut members = json!({
            "items": store.items,
            "items_with_expiry": store.items_with_expiry,
            "entry_bytes": store.entry_bytes,
            "evicted_by_log_total": store.evicted_by_log,
            "evicted_by_index_total": store.evicted_by_index,
            "evicted_unread_total": store.evicted_unread,
            "expired_total": store.expired,
            "reinserted_total": store.reinserted,
            "cleaned_bytes_total": store.cleaned_bytes,
            "out_of_memory_total": store.out_of_memory,
        });
        if let Some(members) = members.as_object_mut() {
            members.extend(facts::facts(store).iter().map(facts::Fact::member));
        }
        members
    }

    fn hot_set_json(&self) -> Value {
        let key = |key: &HotKey| {
            json!({
                "key": self.shows_keys.then(|| String::from_utf8_lossy(&key.head)),
                "len_bytes": key.len_bytes,
                "share_ratio": key.share_ratio,
            })
        };
        json!({
            "items": self.hot_set.item_count(),
            "share_ratio": self.hot_set.share_ratio(),
            "hits_total": self.totals.forwardings.hot_hits,
            "in_place_total": self.totals.forwardings.hot_in_place,
            "keys": self.hot_set.listed().iter().map(key).collect::<Vec<_>>(),
        })
    }

    fn forwardings_json(&self) -> Value {
        let forwardings = &self.totals.forwardings;
        let (dispatchers, both, executors) = self.roles;
        json!({
            "threads": {
                "cr": dispatchers,
                "rtc": both,
                "mr": executors,
                "idle": self.thread_count.saturating_sub(dispatchers + both + executors),
            },
            "cr_threads": self.cr_threads.map_or(json!("auto"), |count| json!(count)),
            "write_policy": self.policies.write_policy.name(),
            "dispatch": self.policies.dispatch.to_string(),
            "epoch": self.role_epoch,
            "role_changes_total": forwardings.role_changes,
            "connections_moved_total": forwardings.connections_moved,
            "queue_depths": forwardings.queue_depth,
            "direct_total": forwardings.direct,
            "sent_total": forwardings.sent,
            "publications_total": forwardings.publications,
            "batches_total": forwardings.batches,
            "batch_requests_total": forwardings.served,
            "stolen_total": forwardings.stolen,
            "busy_total": forwardings.busy().iter().map(|(_, count)| count).sum::<u64>(),
        })
    }

    fn sizes_json(&self) -> Value {
        let forwardings = &self.totals.forwardings;
        let Some(sizes) = self.sizes else { return Value::Null };
        let is_known = sizes.threshold_bytes < u64::MAX;
        json!({
            "threshold_bytes": is_known.then_some(sizes.threshold_bytes),
            "buckets": buckets(&self.size_counts),
            "helped_total": self.totals.forwardings.helped,
            "threads": { "small": sizes.small_workers, "large": sizes.large_workers },
            "handed_on_total": forwardings.handed_on,
            "lent_total": forwardings.lent,
            "lent_bytes_total": forwardings.lent_bytes,
        })
    }

    fn dcrew_json(&self) -> Value {
        let forwardings = &self.totals.forwardings;
        let Some(capacity) = self.table_entries else { return Value::Null };
        json!({
            "occupied": forwardings.pins_held,
            "capacity": capacity,
            "pins_total": forwardings.pins,
            "conflicts_total": forwardings.pin_conflicts,
        })
    }

    /// Everything, as one JSON object.
    pub fn json(&self) -> Value {
        let totals = &self.totals;
        let sum =
            |field: fn(&CommandTotals) -> u64| -> u64 { totals.commands.iter().map(field).sum() };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "at_ms": self.at_ms,
            "uptime_seconds": self.uptime_ms as f64 / 1000.0,
            "threads": self.thread_count,
            "mode": self.mode,
            "index": self.index,
            "commands_total": sum(|command| command.calls),
            "hits_total": sum(|command| command.hits),
            "misses_total": sum(|command| command.misses),
            "errors_total": sum(|command| command.errors),
            "commands": self.commands_json(),
            "connections": self.connections_json(),
            "native": native::json(&totals.native),
            "net": {
                "in_bytes_total": totals.net_input_bytes,
                "out_bytes_total": totals.net_output_bytes,
            },
            "batches": {
                "count_total": totals.batches,
                "requests_total": totals.batch_requests,
            },
            "compaction": {
                "windows_open": totals.compaction_open,
                "windows_total": totals.compaction_windows,
                "writes_saved_total": totals.compacted_writes,
                "given_up_total": totals.compaction_given_up,
                "joined_total": totals.compaction_joined,
                "closed_full_total": totals.compaction_closed_full,
                "windows_by_writes": totals.compaction_by_writes,
            },
            "workers": { "busy_ns_total": totals.worker_busy_ns },
            "forwardings": self.forwardings_json(),
            "dcrew": self.dcrew_json(),
            "sizes": self.sizes_json(),
            "stored_sizes": { "buckets": buckets(&self.stored_sizes) },
            "hot_set": self.hot_set_json(),
            "protocol_errors_total": totals.protocol_errors,
            "oversized_commands_total": totals.oversized_commands,
            "auth": { "attempts_total": totals.auth_attempts, "errors_total": totals.auth_errors },
            "memory": {
                "limit_bytes": self.memory_limit_bytes,
                "resident_bytes": self.process.resident_bytes,
                "log_used_bytes": self.store.log_used_bytes,
                "log_bytes": self.store.log_bytes,
                "index_used_bytes": self.store.index_used_bytes,
                "index_bytes": self.store.index_bytes,
                "client_buffer_bytes": self.client_buffer_bytes,
                "client_buffers": budget::json(&self.client_buffers),
            },
            "store": self.store_json(),
            "cluster": self.cluster.as_ref().map(cluster::ClusterNumbers::json),
            "data": durable::json(self.data.as_ref()),
            "workload": self.workload.as_ref().map(Workload::json),
            "tuner": self.tuner.as_ref().map(TunerView::json),
            "slo": slo::json(self),
            "llc_ways": self.ways.map(|(mr, cr)| json!({ "mr": mr, "cr": cr })),
            "manager": {
                "changes_total": self.changes,
                "decision_log": self.decision_log.iter().map(Entry::json).collect::<Vec<_>>(),
            },
            "cpu_seconds_total": self.process.cpu_ms as f64 / 1000.0,
        })
    }
}

fn buckets(sizes: &[SizeCount]) -> Vec<Value> {
    let bucket = |size: &SizeCount| {
        let (size_max_bytes, count) = (size.size_max_bytes, size.requests);
        json!({ "size_max_bytes": size_max_bytes, "count": count })
    };
    sizes.iter().map(bucket).collect()
}

#[cfg(test)]
mod tests;

//! INFO: the sections and field names that monitoring tools for Redis read.

use std::fmt::{Display, Write};

use counters::{CommandTotals, Protocol, Totals};
use host::process::Usage;
use observe::metrics::facts::{Kind, facts};
use replication::cluster::announced::{Peers, RoleCounts};
use runtime::shared::Shared;
use runtime::walks::Caller;
use rustix::process::getpid;
use store::StoreStats;
use store::durable::Health;
use wire::resp::{ArgIter, ErrorCode, Spec};

use super::config::memory_policy;
use super::connection::REDIS_VERSION;
use crate::gather::Gather;

/// The sections in their order, and whether a plain INFO shows them.
const SECTIONS: [(&str, bool, Writer); 13] = [
    ("server", true, server),
    ("clients", true, clients),
    ("memory", true, memory),
    ("persistence", true, persistence),
    ("stats", true, stats),
    ("replication", true, replication),
    ("cpu", true, cpu),
    ("modules", true, |_| {}),
    ("commandstats", false, command_stats),
    ("errorstats", true, error_stats),
    ("latencystats", false, latency_stats),
    ("cluster", true, cluster),
    ("keyspace", true, keyspace),
];

/// Writes the lines of a section.
type Writer = fn(&mut Section<'_>);

/// One section in the making.
struct Section<'s> {
    text: &'s mut String,
    shared: &'s Shared,
    totals: &'s Totals,
}

impl Section<'_> {
    /// The store's own figures of one kind.
    fn facts(&mut self, store: &StoreStats, kind: Kind) {
        for fact in facts(store).iter().filter(|fact| fact.kind == kind) {
            self.line(&format!("dovetail_{}", fact.name), fact.amount);
        }
    }

    fn line(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{name}:{value}\r\n");
    }
}

/// INFO.
pub(super) fn info<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, sections: ArgIter<'a>) {
    gather.settle(caller.slot);
    let text = report(&gather.core.shared, sections);
    gather.say(caller, |encoder| encoder.verbatim(text.as_bytes()));
}

fn report(shared: &Shared, wanted: ArgIter<'_>) -> String {
    let totals = shared.totals_since_reset();
    let mut text = String::new();
    for (name, is_default, write) in SECTIONS {
        let mut wanted_names = wanted;
        let is_wanted = wanted_names.any(|word| {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            is(name) || is("all") || is("everything") || (is_default && is("default"))
        });
        if !(is_wanted || (wanted.len() == 0 && is_default)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let title = name[..1].to_uppercase() + &name[1..];
        let _ = write!(text, "# {}\r\n", if name == "cpu" { "CPU".to_owned() } else { title });
        write(&mut Section { text: &mut text, shared, totals: &totals });
    }
    text
}

fn server(section: &mut Section<'_>) {
    let shared = section.shared;
    let config = shared.config();
    let uptime = shared.run().uptime().as_secs();
    section.line("redis_version", REDIS_VERSION);
    section.line("dovetail_version", env!("CARGO_PKG_VERSION"));
    section.line("redis_git_sha1", "00000000");
    section.line("redis_git_dirty", 0);
    section.line("redis_mode", if shared.cluster().is_some() { "cluster" } else { "standalone" });
    section.line("os", kernel());
    section.line("arch_bits", usize::BITS);
    section.line("monotonic_clock", "POSIX clock_gettime");
    section.line("multiplexing_api", "epoll");
    section.line("process_id", getpid().as_raw_nonzero());
    let is_of_systemd = std::env::var_os("NOTIFY_SOCKET").is_some();
    section.line("process_supervised", if is_of_systemd { "systemd" } else { "no" });
    section.line("run_id", shared.run().id());
    section.line("tcp_port", config.resp.map_or(0, |address| address.port()));
    section.line("hz", 1000);
    section.line("configured_hz", 1000);
    section.line("server_time_usec", host::process::unix_now().0 * 1000);
    section.line("uptime_in_seconds", uptime);
    section.line("uptime_in_days", uptime / 86_400);
    section.line("io_threads_active", section.shared.roles().plan().threads);
    section.line("lru_clock", (host::process::unix_now().0 / 1000) & 0xff_ffff);
    let executable = std::env::current_exe().unwrap_or_default();
    section.line("executable", executable.display());
    let file = config.origin.file.as_ref().map_or(String::new(), |file| file.display().to_string());
    section.line("config_file", file);
}

/// As Redis shows sizes: `1.50M`.
fn human(bytes: u64) -> String {
    let units = [(30, 'G'), (20, 'M'), (10, 'K')];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2}{unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

fn kernel() -> String {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {} {}", text(name.sysname()), text(name.release()), text(name.machine()))
}

fn clients(section: &mut Section<'_>) {
    let totals = section.totals;
    section.line("connected_clients", totals.connections_resp + totals.connections_memcached);
    section.line("cluster_connections", 0);
    section.line("maxclients", section.shared.live().max_connections());
    section.line("blocked_clients", 0);
    section.line("tracking_clients", section.shared.tracking().tracker_count());
    section.line("pubsub_clients", section.shared.clients().subscribed_count());
    section.line("clients_in_timeout_table", 0);
    section.line("dovetail_memcached_clients", totals.connections_memcached);
    section.line("dovetail_native_sessions", totals.native.sessions);
    section.line("dovetail_shm_clients", totals.native.shm_clients);
}

fn memory(section: &mut Section<'_>) {
    let shared = section.shared;
    let store = shared.store().stats();
    let buffers_bytes = shared.buffer_budget().booked_bytes();
    let used_bytes = store.log_used_bytes + store.index_used_bytes + buffers_bytes;
    let process = Usage::now();
    let config = shared.config();
    let peak_bytes = used_bytes.max(process.resident_max_bytes);
    let part = |bytes: u64, whole: u64| 100.0 * bytes as f64 / whole.max(1) as f64;
    section.line("used_memory", used_bytes);
    section.line("used_memory_human", human(used_bytes));
    section.line("used_memory_rss", process.resident_bytes);
    section.line("used_memory_rss_human", human(process.resident_bytes));
    section.line("used_memory_peak", peak_bytes);
    section.line("used_memory_peak_human", human(peak_bytes));
    let peak_part = part(used_bytes, peak_bytes);
    section.line("used_memory_peak_perc", format_args!("{peak_part:.2}%"));
    section.line("used_memory_overhead", used_bytes.saturating_sub(store.entry_bytes));
    section.line("used_memory_dataset", store.entry_bytes);
    let data_part = part(store.entry_bytes, used_bytes);
    section.line("used_memory_dataset_perc", format_args!("{data_part:.2}%"));
    let system_bytes = host::process::machine_memory_bytes();
    section.line("total_system_memory", system_bytes);
    section.line("total_system_memory_human", human(system_bytes));
    section.line("maxmemory", shared.memory_bytes());
    section.line("maxmemory_human", human(shared.memory_bytes()));
    section.line("maxmemory_policy", memory_policy(config));
    let ratio = process.resident_bytes as f64 / used_bytes.max(1) as f64;
    section.line("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
    let fragmented_bytes = process.resident_bytes.cast_signed() - used_bytes.cast_signed();
    section.line("mem_fragmentation_bytes", fragmented_bytes);
    section.line("mem_not_counted_for_evict", 0);
    section.line("mem_clients_slaves", 0);
    section.line("mem_clients_normal", buffers_bytes);
    let uncommitted = shared.data().map_or(0, |data| data.durable().stats().uncommitted_bytes);
    section.line("mem_aof_buffer", uncommitted);
    section.line("mem_allocator", "jemalloc");
    section.line("active_defrag_running", 0);
    section.line("lazyfree_pending_objects", 0);
    section.line("dovetail_eviction", config.eviction_name());
    section.line("dovetail_index", config.index_name());
    section.line("dovetail_pages", shared.store().page_kind());
    section.line("dovetail_log_bytes", store.log_bytes);
    section.line("dovetail_log_used_bytes", store.log_used_bytes);
    section.line("dovetail_index_bytes", store.index_bytes);
    section.line("dovetail_index_used_bytes", store.index_used_bytes);
    section.line("dovetail_buffers_bytes", shared.buffer_budget().limit_bytes());
    for numbers in shared.buffer_budget().kinds() {
        let (bytes, limit_bytes, refusals) = (numbers.bytes, numbers.limit_bytes, numbers.refusals);
        section.line(
            &format!("dovetail_buffers_{}", numbers.kind.name()),
            format_args!("bytes={bytes},limit={limit_bytes},refusals={refusals}"),
        );
    }
    section.facts(&store, Kind::Gauge);
}

fn persistence(section: &mut Section<'_>) {
    section.line("loading", 0);
    section.line("async_loading", 0);
    section.line("rdb_changes_since_last_save", 0);
    section.line("rdb_bgsave_in_progress", 0);
    section.line("rdb_last_save_time", section.shared.observations().saved_at().0 / 1000);
    section.line("rdb_last_bgsave_status", "ok");
    section.line("rdb_last_bgsave_time_sec", -1);
    section.line("rdb_current_bgsave_time_sec", -1);
    if let Some(warm) = section.shared.warm() {
        let kept = warm.kept();
        section.line("dovetail_warm_items", kept.items);
        section.line("dovetail_warm_lost_items", kept.lost_items);
        section.line("dovetail_warm_attach_ms", kept.attach_time.as_millis());
    }
    let data = section.shared.data();
    let is_good = data.is_none_or(|data| data.durable().health() == Health::Good);
    section.line("aof_enabled", u8::from(data.is_some()));
    section.line("aof_rewrite_in_progress", 0);
    section.line("aof_rewrite_scheduled", 0);
    section.line("aof_last_bgrewrite_status", "ok");
    section.line("aof_last_write_status", if is_good { "ok" } else { "err" });
    let Some(data) = data else { return };
    let stats = data.durable().stats();
    section.line("aof_current_size", stats.entry_bytes);
    section.line("aof_buffer_length", stats.uncommitted_bytes);
    section.line("dovetail_log_medium", data.medium_name);
    section.line("dovetail_log_syncs_total", stats.syncs);
    section.line("dovetail_log_written_bytes_total", stats.written_bytes);
    section.line("dovetail_recovered_entries", data.recovery.entries);
    section.line("dovetail_recovery_ms", data.recovery_time.as_millis());
}

fn stats(section: &mut Section<'_>) {
    let (totals, store) = (section.totals, section.shared.store().stats());
    let (rates, (expired, evicted)) = (section.shared.rates(), section.shared.gone_since_reset());
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    section.line("total_connections_received", totals.connections_total);
    let rejected: u64 = totals.commands.iter().map(|command| command.rejected).sum();
    section.line("total_commands_processed", totals.calls().saturating_sub(rejected));
    section.line("instantaneous_ops_per_sec", rates.calls);
    section.line("total_net_input_bytes", totals.net_input_bytes);
    section.line("total_net_output_bytes", totals.net_output_bytes);
    section.line("instantaneous_input_kbps", kilobytes(rates.input_bytes));
    section.line("instantaneous_output_kbps", kilobytes(rates.output_bytes));
    section.line("rejected_connections", totals.rejected());
    section.line("unexpected_error_replies", 0);
    section.line("total_error_replies", totals.errors_by_code.iter().sum::<u64>());
    section.line("slowlog_entries_total", section.shared.observations().slow_log.total());
    section.line("expired_keys", expired);
    section.line("evicted_keys", evicted);
    section.line("evicted_clients", 0);
    section.line("dovetail_turn_work_units_max", totals.turn_work_units_max);
    section.line("dovetail_atomic_refused", totals.atomic_refused);
    let (hits, misses) = totals.lookups();
    section.line("keyspace_hits", hits);
    section.line("keyspace_misses", misses);
    for name in ["pubsub_channels", "pubsub_patterns", "latest_fork_usec", "total_forks"] {
        section.line(name, 0);
    }
    let table = section.shared.tracking().totals();
    section.line("tracking_total_keys", table.keys);
    section.line("tracking_total_items", table.items);
    section.line("tracking_total_prefixes", section.shared.tracking().prefix_count());
    section.line("acl_access_denied_auth", totals.auth_errors);
    section.line("acl_access_denied_cmd", totals.denied_commands);
    section.line("acl_access_denied_key", totals.denied_keys);
    section.line("acl_access_denied_channel", 0);
    section.line("dovetail_native_frames_in", totals.native.frames_in);
    section.line("dovetail_native_requests", totals.native.requests);
    section.line("dovetail_native_drops", totals.native.drops.iter().sum::<u64>());
    section.line("dovetail_native_answered_again", totals.native.answered_again);
    section.line("dovetail_batches", totals.batches);
    section.line("dovetail_batch_requests", totals.batch_requests);
    section.line("dovetail_out_of_memory", store.out_of_memory);
    section.line("dovetail_evicted_by_log", store.evicted_by_log);
    section.line("dovetail_evicted_by_index", store.evicted_by_index);
    section.line("dovetail_evicted_unread", store.evicted_unread);
    section.line("dovetail_reinserted", store.reinserted);
    section.line("dovetail_cleaned_bytes", store.cleaned_bytes);
    section.facts(&store, Kind::Counter);
}

fn replication(section: &mut Section<'_>) {
    let peers = section.shared.cluster().map(|view| Peers::of(view)).unwrap_or_default();
    section.line("role", if peers.master.is_some() { "slave" } else { "master" });
    if let Some((host, port)) = &peers.master {
        section.line("master_host", host);
        section.line("master_port", port);
        section.line("master_link_status", "up");
        section.line("slave_read_only", 1);
    }
    section.line("connected_slaves", peers.backups.len());
    for (index, (host, port, lag_bytes)) in peers.backups.iter().enumerate() {
        let state = format_args!("ip={host},port={port},state=online,offset=0,lag=0");
        // A borrowed format cannot leave the statement.
        let _ = write!(section.text, "slave{index}:{state}\r\n");
        section.line(&format!("dovetail_slave{index}_lag_bytes"), lag_bytes);
    }
    section.line("master_failover_state", "no-failover");
    section.line("master_replid", section.shared.observations().replication_id());
    section.line("master_replid2", "0".repeat(40));
    section.line("master_repl_offset", 0);
    section.line("second_repl_offset", -1);
    for name in ["active", "size", "first_byte_offset", "histlen"] {
        section.line(&format!("repl_backlog_{name}"), 0);
    }
}

fn cluster(section: &mut Section<'_>) {
    let Some(view) = section.shared.cluster() else { return section.line("cluster_enabled", 0) };
    section.line("cluster_enabled", 1);
    let figures = view.figures();
    let Some(configuration) = view.configuration() else { return };
    let counts = RoleCounts::of(&configuration, view.own());
    section.line("dovetail_term", configuration.term.0);
    section.line("dovetail_members", configuration.members.len());
    section.line("dovetail_shards_primary", counts.primary);
    section.line("dovetail_shards_backup", counts.backup);
    section.line("dovetail_shards_joining", counts.joining);
    section.line("dovetail_shards_filling", counts.filling);
    section.line("dovetail_failovers_total", figures.failovers);
}

fn cpu(section: &mut Section<'_>) {
    let process = Usage::now();
    section.line("used_cpu_sys", format_args!("{:.6}", process.system_cpu_seconds));
    section.line("used_cpu_user", format_args!("{:.6}", process.user_cpu_seconds));
    section.line("used_cpu_sys_children", "0.000000");
    section.line("used_cpu_user_children", "0.000000");
}

fn command_stats(section: &mut Section<'_>) {
    for command in &section.totals.commands {
        // Redis does not list unknown commands.
        if command.protocol == Protocol::Resp && command.calls > 0 && command.name != "unknown" {
            let ran = command.calls.saturating_sub(command.rejected);
            let spent_us = ran_us(command);
            let _ = write!(
                section.text,
                "cmdstat_{}:calls={ran},usec={},usec_per_call={:.2},rejected_calls={},\
                 failed_calls={}\r\n",
                command.name,
                spent_us as u64,
                spent_us / ran.max(1) as f64,
                command.rejected,
                command.errors.saturating_sub(command.rejected),
            );
        }
    }
}

/// The time of the calls that were begun. Calls that were not begun also share a round's time, but
/// are not counted.
fn ran_us(command: &CommandTotals) -> f64 {
    let ran = command.calls.saturating_sub(command.rejected);
    command.spent_ns as f64 / 1000.0 * ran as f64 / command.calls.max(1) as f64
}

fn error_stats(section: &mut Section<'_>) {
    for (code, count) in ErrorCode::ALL.iter().zip(section.totals.errors_by_code) {
        if count > 0 {
            let _ = write!(section.text, "errorstat_{}:count={count}\r\n", code.name());
        }
    }
}

fn latency_stats(section: &mut Section<'_>) {
    for spec in Spec::all() {
        let (shared, index) = (section.shared, spec.id as usize);
        let durations = shared.durations(index);
        let Some(counts) = shared.observations().durations_since_reset(index, durations) else {
            continue;
        };
        let us = |part| counts.quantile_ns(part).unwrap_or(0) as f64 / 1000.0;
        let _ = write!(
            section.text,
            "latency_percentiles_usec_{}:p50={:.3},p99={:.3},p99.9={:.3}\r\n",
            spec.name,
            us(0.5),
            us(0.99),
            us(0.999),
        );
    }
}

fn keyspace(section: &mut Section<'_>) {
    let store = section.shared.store().stats();
    if store.items > 0 {
        let value =
            format_args!("keys={},expires={},avg_ttl=0", store.items, store.items_with_expiry);
        // A borrowed format cannot leave the statement.
        let _ = write!(section.text, "db0:{value}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_shown_as_redis_shows_them() {
        let shown = [0, 1023, 1024, 941_064, 7_090_176, 25_276_502_016].map(human);
        assert_eq!(shown, ["0B", "1023B", "1.00K", "919.01K", "6.76M", "23.54G"]);
    }
}

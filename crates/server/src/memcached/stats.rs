//! stats: the names that memcached's tools read.

use rustix::process::getpid;
use wire::memcached::{Encoder, Reply, StatsKind};

use super::MEMCACHED_VERSION;
use crate::Mode;
use crate::counters::{CommandTotals, Dialect, MemcachedCommand, Protocol, Totals};
use crate::engine::Engine;
use crate::gather::Gather;
use crate::metrics::facts::facts;
use crate::process::Usage;
use crate::shared::{Shared, unix_now};

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Answers `stats [kind]`.
    pub(super) fn stats(&mut self, slot: usize, kind: StatsKind<'a>) {
        let caller = self.caller(slot, MemcachedCommand::Stats, false);
        self.settle(slot);
        let shared = std::sync::Arc::clone(&self.core.shared);
        let reply = match kind {
            StatsKind::Reset => {
                shared.reset_totals();
                Reply::Reset
            }
            StatsKind::Detail { is_dump: false } => Reply::Ok,
            StatsKind::Other(_) => Reply::Error,
            _ => Reply::End,
        };
        self.reply_to(caller.slot, |out| {
            let mut encoder = Encoder::new(out);
            match kind {
                StatsKind::General => general(&mut encoder, &shared),
                StatsKind::Settings => settings(&mut encoder, &shared),
                StatsKind::Items => items(&mut encoder, &shared),
                StatsKind::Slabs => slabs(&mut encoder, &shared),
                // No histogram of sizes is kept.
                StatsKind::Sizes => encoder.stat("sizes_status", "disabled"),
                StatsKind::Connections => connections(&mut encoder, &shared),
                StatsKind::Reset | StatsKind::Detail { .. } | StatsKind::Other(_) => {}
            }
            encoder.reply(reply);
        });
    }
}

fn general(encoder: &mut Encoder<'_>, shared: &Shared) {
    let (totals, store, config) =
        (shared.totals_since_reset(), shared.store_stats(), shared.config());
    let usage = Usage::now();
    encoder.stat("pid", getpid().as_raw_nonzero());
    encoder.stat("uptime", shared.uptime().as_secs());
    encoder.stat("time", unix_now().0 / 1000);
    encoder.stat("version", MEMCACHED_VERSION);
    encoder.stat("dovetail_version", env!("CARGO_PKG_VERSION"));
    encoder.stat("pointer_size", usize::BITS);
    encoder.stat("rusage_user", format_args!("{:.6}", usage.user_cpu_seconds));
    encoder.stat("rusage_system", format_args!("{:.6}", usage.system_cpu_seconds));
    encoder.stat("max_connections", shared.live().max_connections());
    let connections = totals.connections_resp + totals.connections_memcached;
    encoder.stat("curr_connections", connections);
    encoder.stat("total_connections", totals.connections_total);
    encoder.stat("rejected_connections", totals.connections_rejected);
    encoder.stat("connection_structures", connections);
    commands(encoder, &totals);
    encoder.stat("auth_cmds", totals.auth_attempts);
    encoder.stat("auth_errors", totals.auth_errors);
    encoder.stat("bytes_read", totals.net_input_bytes);
    encoder.stat("bytes_written", totals.net_output_bytes);
    encoder.stat("limit_maxbytes", config.memory_bytes);
    encoder.stat("accepting_conns", u8::from(!shared.is_stopping()));
    encoder.stat("listen_disabled_num", 0);
    encoder.stat("threads", config.threads);
    encoder.stat("hash_power_level", store.index_heads.max(1).ilog2());
    encoder.stat("hash_bytes", store.index_bytes);
    encoder.stat("hash_is_expanding", u8::from(store.index_partitions_resizing > 0));
    encoder.stat("bytes", store.entry_bytes);
    encoder.stat("curr_items", store.items);
    encoder.stat("total_items", stored_count(&totals));
    encoder.stat("evictions", store.evicted_by_log + store.evicted_by_index);
    encoder.stat("evicted_unfetched", store.evicted_unread);
    encoder.stat("reclaimed", store.expired);
    for fact in facts(&store) {
        encoder.stat(&format!("dovetail_{}", fact.name), fact.amount);
    }
}

/// Writes that memcached would count as items stored, of both protocols' storage commands.
fn stored_count(totals: &Totals) -> u64 {
    let verbs = ["set", "add", "replace", "append", "prepend", "cas", "ms"];
    let of = |protocol, name| totals.command(protocol, name).map_or(0, |command| command.calls);
    verbs.iter().map(|verb| of(Protocol::Memcached, verb)).sum::<u64>() + of(Protocol::Resp, "set")
}

fn commands(encoder: &mut Encoder<'_>, totals: &Totals) {
    let command = |name: &str| totals.command(Protocol::Memcached, name).copied();
    let sum = |names: &[&str], pick: fn(&CommandTotals) -> u64| {
        names.iter().filter_map(|name| command(name)).map(|command| pick(&command)).sum::<u64>()
    };
    let reads = ["get", "gets", "gat", "gats", "mg"];
    let writes = ["set", "add", "replace", "append", "prepend", "cas", "ms"];
    let metas = ["mg", "ms", "md", "ma", "me", "mn"];
    let touches = ["touch", "gat", "gats"];
    // memcached counts keys here, not commands.
    let looked_up = sum(&reads, |command| command.hits + command.misses);
    encoder.stat("cmd_get", looked_up);
    encoder.stat("cmd_set", sum(&writes, |command| command.calls));
    encoder.stat("cmd_flush", sum(&["flush_all"], |command| command.calls));
    encoder.stat("cmd_touch", sum(&touches, |command| command.hits + command.misses));
    encoder.stat("cmd_meta", sum(&metas, |command| command.calls));
    encoder.stat("get_hits", sum(&reads, |command| command.hits));
    encoder.stat("get_misses", sum(&reads, |command| command.misses));
    encoder.stat("get_expired", 0);
    encoder.stat("get_flushed", 0);
    // A count of ma says nothing of its direction.
    let counted =
        [("delete", &["delete", "md"][..]), ("incr", &["incr", "ma"]), ("decr", &["decr"])];
    for (name, names) in counted.into_iter().chain([("touch", &["touch"][..])]) {
        encoder.stat(&format!("{name}_misses"), sum(names, |command| command.misses));
        encoder.stat(&format!("{name}_hits"), sum(names, |command| command.hits));
    }
    // A cas that neither missed nor failed has hit.
    let cas_hits =
        |command: &CommandTotals| command.calls.saturating_sub(command.misses + command.errors);
    encoder.stat("cas_hits", sum(&["cas"], cas_hits));
    encoder.stat("cas_misses", sum(&["cas"], |command| command.misses));
    encoder.stat("cas_badval", sum(&["cas"], |command| command.errors));
}

fn settings(encoder: &mut Encoder<'_>, shared: &Shared) {
    let config = shared.config();
    let port = config.memcached.map_or(0, |address| address.port());
    let interface = config.memcached.map_or(String::new(), |address| address.ip().to_string());
    let on_off = |on: bool| if on { "on" } else { "off" };
    encoder.stat("maxbytes", config.memory_bytes);
    encoder.stat("maxconns", shared.live().max_connections());
    encoder.stat("tcpport", port);
    encoder.stat("udpport", 0);
    encoder.stat("inter", interface);
    encoder.stat("verbosity", 0);
    encoder.stat("oldest", 0);
    encoder.stat("evictions", on_off(config.mode == Mode::Evict));
    encoder.stat("domain_socket", "NULL");
    encoder.stat("num_threads", config.threads);
    encoder.stat("cas_enabled", "yes");
    let has_auth = shared.needs_auth(Dialect::Memcached);
    encoder.stat("auth_enabled_ascii", if has_auth { "yes" } else { "no" });
    encoder.stat("item_size_max", config.max_item_size_bytes);
    encoder.stat("maxconns_fast", "yes");
    encoder.stat("flush_enabled", "yes");
    encoder.stat("binding_protocol", "ascii");
    encoder.stat("dovetail_eviction", config.eviction_name());
    encoder.stat("dovetail_index", config.index_name());
    encoder.stat("dovetail_pages", shared.store().page_kind());
}

/// There are no size classes: everything is in class 1.
fn items(encoder: &mut Encoder<'_>, shared: &Shared) {
    let store = shared.store_stats();
    if store.items == 0 {
        return;
    }
    encoder.stat("items:1:number", store.items);
    encoder.stat("items:1:mem_requested", store.entry_bytes);
    encoder.stat("items:1:evicted", store.evicted_by_log + store.evicted_by_index);
    encoder.stat("items:1:evicted_unfetched", store.evicted_unread);
    encoder.stat("items:1:outofmemory", store.out_of_memory);
    encoder.stat("items:1:reclaimed", store.expired);
}

fn slabs(encoder: &mut Encoder<'_>, shared: &Shared) {
    let (store, limits) = (shared.store_stats(), shared.store().limits());
    encoder.stat("1:chunk_size", limits.segment_bytes);
    encoder.stat("1:total_pages", store.log_bytes / limits.segment_bytes.max(1));
    encoder.stat("1:used_chunks", store.items);
    encoder.stat("1:mem_requested", store.entry_bytes);
    encoder.stat("active_slabs", 1);
    encoder.stat("total_malloced", store.log_bytes);
}

fn connections(encoder: &mut Encoder<'_>, shared: &Shared) {
    let now = unix_now();
    for client in shared.clients().list() {
        if client.protocol == Dialect::Memcached {
            let descriptor = client.descriptor;
            let seconds_idle = now.0.saturating_sub(client.last_active_at().0) / 1000;
            encoder.stat(&format!("{descriptor}:addr"), format_args!("tcp:{}", client.peer));
            encoder
                .stat(&format!("{descriptor}:listen_addr"), format_args!("tcp:{}", client.local));
            encoder.stat(&format!("{descriptor}:state"), "conn_read");
            encoder.stat(&format!("{descriptor}:secs_since_last_cmd"), seconds_idle);
        }
    }
}

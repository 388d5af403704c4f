//! stats: the names that memcached's tools read.

use base::UnixMillis;
use commands::work::Work;
use counters::{
    CommandTotals, Dialect, MemcachedCommand, MemcachedCommand as C, MetaForm, MetaForm as F,
    Protocol, Totals,
};
use host::process::Usage;
use host::process::unix_now;
use observe::metrics::facts::facts;
use runtime::shared::Shared;
use rustix::process::getpid;
use sessions::clients::Client;
use sessions::doors::Door;
use sessions::end::End;
use sessions::event_stream::LINES_BYTES_MAX;
use store::Mode;
use wire::memcached::binary::{self, Request, Status};
use wire::memcached::{Encoder, Reply, StatsKind};

use self::Of::{Form, Plain};
use super::MEMCACHED_VERSION;
use crate::gather::Gather;
use crate::memcached::binary::binary_refuse;
use crate::memcached::caller;

/// Answers `stats [kind]`.
pub(super) fn stats<'a>(gather: &mut Gather<'_, 'a>, slot: usize, kind: StatsKind<'a>) {
    let caller = caller(gather, slot, MemcachedCommand::Stats, false);
    gather.settle(slot);
    let shared = std::sync::Arc::clone(&gather.core.shared);
    let reply = match kind {
        StatsKind::Reset => {
            shared.reset_totals();
            Reply::Reset
        }
        StatsKind::Detail { is_on } => {
            count_prefixes(gather, is_on);
            Reply::Ok
        }
        StatsKind::Other(_) => Reply::Error,
        _ => Reply::End,
    };
    gather.reply_to(caller.slot, |out| {
        if kind == StatsKind::DetailDump {
            out.extend_from_slice(shared.observations().event_stream.prefixes.dump().as_bytes());
        }
        write_group(&mut Writer::Text(Encoder::new(out)), kind, &shared);
        Encoder::new(out).reply(reply);
    });
}

/// Answers `stats` in the binary protocol, where the group is the key.
pub(super) fn binary_stats<'a>(gather: &mut Gather<'_, 'a>, slot: usize, request: &Request<'a>) {
    caller(gather, slot, MemcachedCommand::Stats, false);
    gather.settle(slot);
    let head = request.head;
    let kind = match request.key {
        b"" => StatsKind::General,
        b"items" => StatsKind::Items,
        b"slabs" => StatsKind::Slabs,
        b"sizes" => StatsKind::Sizes,
        b"conns" => StatsKind::Connections,
        // memcached compares only the beginning of these names.
        key if key.starts_with(b"settings") => StatsKind::Settings,
        key if key.starts_with(b"reset") => StatsKind::Reset,
        key if key.starts_with(b"detail dump") => StatsKind::DetailDump,
        key if key.starts_with(b"detail on") => StatsKind::Detail { is_on: true },
        key if key.starts_with(b"detail off") => StatsKind::Detail { is_on: false },
        _ => return binary_refuse(gather, slot, head, Status::NotFound),
    };
    let shared = std::sync::Arc::clone(&gather.core.shared);
    match kind {
        StatsKind::Reset => shared.reset_totals(),
        StatsKind::Detail { is_on } => count_prefixes(gather, is_on),
        _ => {}
    }
    gather.reply_to(slot, |out| {
        write_group(&mut Writer::Binary(binary::Encoder::new(out, head)), kind, &shared);
        if kind == StatsKind::DetailDump {
            // memcached puts the text of its dump in here, including the text protocol's end.
            let text = shared.observations().event_stream.prefixes.dump() + "END\r\n";
            binary::Encoder::new(out, head).stat("detailed", &text);
        }
        binary::Encoder::new(out, head).done(0);
    });
    if kind == StatsKind::Connections {
        let clients = shared.clients();
        gather.core.charge(Work::clients(clients.total(), clients.count(Dialect::Memcached)));
    }
}

/// Starts counting prefixes from the next request on, or stops.
fn count_prefixes(gather: &mut Gather<'_, '_>, is_on: bool) {
    gather.core.shared.observations().event_stream.count_prefixes(is_on);
    // Other workers look when their next round begins.
    gather.core.shows_items |= is_on;
}

/// The target of names and values.
enum Writer<'o> {
    Text(Encoder<'o>),
    Binary(binary::Encoder<'o>),
}

impl Writer<'_> {
    fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        match self {
            Writer::Text(encoder) => encoder.stat(name, value),
            Writer::Binary(encoder) => encoder.stat(name, &value.to_string()),
        }
    }
}

fn write_group(to: &mut Writer<'_>, kind: StatsKind<'_>, shared: &Shared) {
    match kind {
        StatsKind::General => general(to, shared),
        StatsKind::Settings => settings(to, shared),
        StatsKind::Items => items(to, shared),
        StatsKind::Slabs => slabs(to, shared),
        // No histogram of sizes is kept.
        StatsKind::Sizes => to.stat("sizes_status", "disabled"),
        StatsKind::Connections => connections(to, shared),
        StatsKind::Reset
        | StatsKind::Detail { .. }
        | StatsKind::DetailDump
        | StatsKind::Other(_) => {}
    }
}

fn general(to: &mut Writer<'_>, shared: &Shared) {
    let (totals, store, config) =
        (shared.totals_since_reset(), shared.store().stats(), shared.config());
    let usage = Usage::now();
    to.stat("pid", getpid().as_raw_nonzero());
    to.stat("uptime", shared.run().uptime().as_secs());
    to.stat("time", unix_now().0 / 1000);
    to.stat("version", MEMCACHED_VERSION);
    to.stat("dovetail_version", env!("CARGO_PKG_VERSION"));
    to.stat("pointer_size", usize::BITS);
    to.stat("rusage_user", format_args!("{:.6}", usage.user_cpu_seconds));
    to.stat("rusage_system", format_args!("{:.6}", usage.system_cpu_seconds));
    to.stat("max_connections", shared.live().max_connections());
    let connections = totals.connections_resp + totals.connections_memcached;
    to.stat("curr_connections", connections);
    to.stat("total_connections", totals.connections_total);
    to.stat("rejected_connections", totals.rejected());
    to.stat("connection_structures", connections);
    commands(to, &totals);
    to.stat("auth_cmds", totals.auth_attempts);
    to.stat("auth_errors", totals.auth_errors);
    if shared.live().idle_timeout_ms() > 0 {
        to.stat("idle_kicks", totals.connections_idle_closed);
    }
    to.stat("bytes_read", totals.net_input_bytes);
    to.stat("bytes_written", totals.net_output_bytes);
    to.stat("limit_maxbytes", shared.memory_bytes());
    to.stat("accepting_conns", u8::from(!shared.run().is_stopping()));
    to.stat("listen_disabled_num", 0);
    to.stat("threads", config.threads);
    to.stat("hash_power_level", store.index_heads.max(1).ilog2());
    to.stat("hash_bytes", store.index_bytes);
    to.stat("hash_is_expanding", u8::from(store.index_partitions_resizing > 0));
    to.stat("bytes", store.entry_bytes);
    to.stat("curr_items", store.items);
    to.stat("total_items", stored_count(&totals));
    to.stat("evictions", store.evicted_by_log + store.evicted_by_index);
    to.stat("evicted_unfetched", store.evicted_unread);
    to.stat("reclaimed", store.expired);
    let event_stream = &shared.observations().event_stream;
    event_stream.counts.named().into_iter().for_each(|(name, count)| to.stat(name, count));
    to.stat("log_watchers", event_stream.subscriber_count());
    to.stat("store_too_large", totals.oversized_commands);
    to.stat("store_no_memory", store.out_of_memory);
    for fact in facts(&store) {
        to.stat(&format!("dovetail_{}", fact.name), fact.amount);
    }
}

/// Writes that memcached would count as stored items, over both protocols.
fn stored_count(totals: &Totals) -> u64 {
    let of_resp = totals.command(Protocol::Resp, "set").map_or(0, |set| {
        // A SET that returns the old value may miss and store.
        set.calls.saturating_sub(set.errors + set.not_stored)
    });
    of_resp + sum(totals, &[(WRITES, stored), (MAKES, misses)])
}

/// A source of counts: a command without its separately counted forms, or such a form.
#[derive(Clone, Copy)]
enum Of {
    Plain(MemcachedCommand),
    Form(MetaForm),
}

/// The number taken from it.
type Pick = fn(&CommandTotals) -> u64;

/// The sources that add a number to a count.
type Part = (&'static [Of], Pick);

const GETS: &[Of] = &[Plain(C::Get), Plain(C::Gets), Plain(C::Mg)];
const TOUCHES: &[Of] = &[Plain(C::Touch), Plain(C::Gat), Plain(C::Gats)];
const WRITES: &[Of] = &[
    Plain(C::Set),
    Plain(C::Add),
    Plain(C::Replace),
    Plain(C::Append),
    Plain(C::Prepend),
    Plain(C::Cas),
    Plain(C::Ms),
    Form(F::Compare),
];
const CAS: &[Of] = &[Plain(C::Cas), Form(F::Compare)];
const DELETES: &[Of] = &[Plain(C::Delete), Plain(C::Md)];
const METAS: &[Of] =
    &[Plain(C::Mg), Plain(C::Ms), Plain(C::Md), Plain(C::Ma), Plain(C::Me), Plain(C::Mn)];
const FORMS: &[Of] = &[
    Form(F::Touch),
    Form(F::Make),
    Form(F::MakeAndTouch),
    Form(F::Compare),
    Form(F::Invalidate),
    Form(F::Decrease),
    Form(F::IncreaseOrMake),
    Form(F::DecreaseOrMake),
];
/// Forms that create an item on a miss.
const MAKES: &[Of] =
    &[Form(F::Make), Form(F::MakeAndTouch), Form(F::IncreaseOrMake), Form(F::DecreaseOrMake)];
const INCREASES: &[Of] = &[Plain(C::Incr), Plain(C::Ma), Form(F::IncreaseOrMake)];
const DECREASES: &[Of] = &[Plain(C::Decr), Form(F::Decrease), Form(F::DecreaseOrMake)];

/// The counts by memcached's names: which outcomes of which commands add to each. Keys are counted
/// rather than commands.
///
/// As in memcached, gat counts as a touch and not as a get; so does `mg` with a T that hits, while
/// one that misses counts as a missed get. An item that `mg` creates with an N counts as a hit; one
/// that `ma` creates with an N counts nowhere. `md` with an I counts where it fails, and a
/// different version is a failure.
const COUNTS: [(&str, &[Part]); 20] = [
    (
        "cmd_get",
        &[(GETS, found_or_not), (&[Form(F::Touch)], misses), (&[Form(F::Make)], found_or_not)],
    ),
    ("cmd_set", &[(WRITES, calls)]),
    ("cmd_flush", &[(&[Plain(C::FlushAll)], calls)]),
    (
        "cmd_touch",
        &[
            (TOUCHES, found_or_not),
            (&[Form(F::Touch)], hits),
            (&[Form(F::MakeAndTouch)], found_or_not),
        ],
    ),
    ("cmd_meta", &[(METAS, calls), (FORMS, calls)]),
    ("get_hits", &[(GETS, hits), (&[Form(F::Make)], found_or_not)]),
    ("get_misses", &[(GETS, misses), (&[Form(F::Touch)], misses)]),
    // An expired item is not distinguished from one that never existed.
    ("get_expired", &[]),
    ("get_flushed", &[]),
    (
        "delete_misses",
        &[(DELETES, misses), (&[Plain(C::Md)], errors), (&[Form(F::Invalidate)], failed)],
    ),
    ("delete_hits", &[(DELETES, hits)]),
    ("incr_misses", &[(&[Plain(C::Incr), Plain(C::Ma)], misses)]),
    ("incr_hits", &[(INCREASES, hits)]),
    ("decr_misses", &[(&[Plain(C::Decr), Form(F::Decrease)], misses)]),
    ("decr_hits", &[(DECREASES, hits)]),
    ("touch_misses", &[(TOUCHES, misses)]),
    (
        "touch_hits",
        &[(TOUCHES, hits), (&[Form(F::Touch)], hits), (&[Form(F::MakeAndTouch)], found_or_not)],
    ),
    ("cas_misses", &[(CAS, misses)]),
    ("cas_hits", &[(CAS, stored)]),
    ("cas_badval", &[(CAS, errors)]),
];

fn calls(of: &CommandTotals) -> u64 {
    of.calls
}

fn hits(of: &CommandTotals) -> u64 {
    of.hits
}

fn misses(of: &CommandTotals) -> u64 {
    of.misses
}

fn found_or_not(of: &CommandTotals) -> u64 {
    of.hits + of.misses
}

fn errors(of: &CommandTotals) -> u64 {
    of.errors
}

fn failed(of: &CommandTotals) -> u64 {
    of.misses + of.errors
}

/// Writes that neither missed nor failed, and whose condition held.
fn stored(of: &CommandTotals) -> u64 {
    of.calls.saturating_sub(of.misses + of.errors + of.not_stored)
}

fn sum(totals: &Totals, parts: &[Part]) -> u64 {
    let one = |of: &Of, pick: &Pick| match of {
        Plain(command) => pick(&totals.plain(*command)),
        Form(form) => pick(totals.form(*form)),
    };
    parts.iter().flat_map(|(of, pick)| of.iter().map(move |of| one(of, pick))).sum()
}

/// The value of one of [`COUNTS`].
fn counted(totals: &Totals, name: &str) -> u64 {
    let parts = COUNTS.iter().find(|(of, _)| *of == name);
    parts.map_or(0, |(_, parts)| sum(totals, parts))
}

fn commands(to: &mut Writer<'_>, totals: &Totals) {
    for (name, parts) in COUNTS {
        to.stat(name, sum(totals, parts));
    }
}

fn settings(to: &mut Writer<'_>, shared: &Shared) {
    let config = shared.config();
    let port = config.memcached.map_or(0, |address| address.port());
    let interface = config.memcached.map_or(String::new(), |address| address.ip().to_string());
    let on_off = |on: bool| if on { "on" } else { "off" };
    to.stat("maxbytes", shared.memory_bytes());
    to.stat("maxconns", shared.live().max_connections());
    to.stat("tcpport", port);
    to.stat("udpport", config.udp.port);
    to.stat("inter", interface);
    to.stat("verbosity", 0);
    to.stat("oldest", 0);
    to.stat("evictions", on_off(config.mode == Mode::Evict));
    match &config.memcached_unix_socket {
        Some(path) => {
            to.stat("domain_socket", path.display());
            to.stat("umask", format_args!("{:o}", config.unix_mode));
        }
        None => to.stat("domain_socket", "NULL"),
    }
    to.stat("num_threads", config.threads);
    to.stat("cas_enabled", "yes");
    let has_auth = shared.doors().of(Door::Memcached).asks_login();
    let yes_no = |yes: bool| if yes { "yes" } else { "no" };
    to.stat("auth_enabled_sasl", yes_no(has_auth));
    to.stat("auth_enabled_ascii", yes_no(has_auth));
    to.stat("item_size_max", config.max_item_size_bytes);
    to.stat("maxconns_fast", "yes");
    to.stat("flush_enabled", "yes");
    to.stat("binding_protocol", "auto-negotiate");
    to.stat("shutdown_command", yes_no(config.enable_shutdown));
    to.stat("dump_enabled", "yes");
    to.stat("stat_key_prefix", ":");
    to.stat("detail_enabled", yes_no(shared.observations().event_stream.prefixes.is_on()));
    to.stat("idle_timeout", shared.live().idle_timeout_ms() / 1000);
    to.stat("ssl_enabled", yes_no(config.tls_memcached.is_some()));
    to.stat("watcher_logbuf_size", LINES_BYTES_MAX);
    to.stat("dovetail_eviction", config.eviction_name());
    to.stat("dovetail_index", config.index_name());
    to.stat("dovetail_pages", shared.store().page_kind());
}

/// There are no size classes: everything is in class 1.
fn items(to: &mut Writer<'_>, shared: &Shared) {
    let store = shared.store().stats();
    if store.items == 0 {
        return;
    }
    to.stat("items:1:number", store.items);
    to.stat("items:1:mem_requested", store.entry_bytes);
    to.stat("items:1:evicted", store.evicted_by_log + store.evicted_by_index);
    to.stat("items:1:evicted_unfetched", store.evicted_unread);
    to.stat("items:1:outofmemory", store.out_of_memory);
    to.stat("items:1:reclaimed", store.expired);
}

fn slabs(to: &mut Writer<'_>, shared: &Shared) {
    let (store, limits) = (shared.store().stats(), shared.store().limits());
    to.stat("1:chunk_size", limits.segment_bytes);
    to.stat("1:chunks_per_page", 1);
    to.stat("1:total_pages", store.log_bytes / limits.segment_bytes.max(1));
    to.stat("1:total_chunks", store.items);
    to.stat("1:used_chunks", store.items);
    to.stat("1:free_chunks", 0);
    to.stat("1:free_chunks_end", 0);
    to.stat("1:mem_requested", store.entry_bytes);
    // memcached_exporter takes a server whose class has no counts for one that is down.
    let totals = shared.totals_since_reset();
    for name in [
        "get_hits",
        "cmd_set",
        "delete_hits",
        "incr_hits",
        "decr_hits",
        "cas_hits",
        "cas_badval",
        "touch_hits",
    ] {
        to.stat(&format!("1:{name}"), counted(&totals, name));
    }
    to.stat("active_slabs", 1);
    to.stat("total_malloced", store.log_bytes);
}

/// The connections of memcached clients.
fn connections(to: &mut Writer<'_>, shared: &Shared) {
    let now = unix_now();
    let clients = shared.clients().list();
    let ours = clients.iter().filter(|client| client.protocol == Dialect::Memcached);
    ours.for_each(|client| connection(to, client, now));
}

/// The lines of one connection.
pub(super) fn list_connection(lines: &mut Vec<u8>, client: &Client, now: UnixMillis) {
    connection(&mut Writer::Text(Encoder::new(lines)), client, now);
}

fn connection(to: &mut Writer<'_>, client: &Client, now: UnixMillis) {
    let descriptor = client.descriptor;
    let seconds_idle = now.0.saturating_sub(client.last_active_at().0) / 1000;
    for (name, end) in [("addr", &client.peer), ("listen_addr", &client.local)] {
        let name = format!("{descriptor}:{name}");
        match end {
            End::Ip(address) => to.stat(&name, format_args!("tcp:{address}")),
            End::Unix(path) => to.stat(&name, format_args!("unix:{}", path.display())),
        }
    }
    to.stat(&format!("{descriptor}:state"), "conn_read");
    to.stat(&format!("{descriptor}:secs_since_last_cmd"), seconds_idle);
}

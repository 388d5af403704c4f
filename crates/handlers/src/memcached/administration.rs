//! Commands of operators to a running server: shutdown, certificates, memory, the event stream.

use counters::MemcachedCommand;
use runtime::connection::Ending;
use wire::memcached::{Encoder, EventTopics, Reply};

use super::Caller;
use crate::gather::Gather;
use crate::memcached::{caller, say_line};

/// shutdown: the server ends as on SIGTERM, if the settings allow clients to end it.
pub(super) fn shut_down(gather: &mut Gather<'_, '_>, slot: usize, is_valid: bool) {
    let caller = caller(gather, slot, MemcachedCommand::Shutdown, false);
    // A datagram's sender may be forged.
    let is_datagram = gather.core.connections[slot].exchange.is_some();
    if is_datagram || !gather.core.shared.config().enable_shutdown {
        return say_line(gather, caller, Reply::ShutdownDisabled);
    }
    if !is_valid {
        return say_line(gather, caller, Reply::InvalidShutdown);
    }
    gather.settle(slot);
    tracing::info!("a client of memcached's port asked for shutdown");
    gather.core.connections[slot].ending = Ending::AfterFlush;
    gather.core.shared.run().request_shutdown();
}

/// refresh_certs: reads the certificates again, as SIGHUP does, for new connections.
pub(super) fn refresh_certificates(gather: &mut Gather<'_, '_>, slot: usize, noreply: bool) {
    let caller = caller(gather, slot, MemcachedCommand::RefreshCerts, noreply);
    match gather.core.shared.tls().map(|tls| tls.reload()) {
        // An error is answered even with noreply, as is the one below.
        None => say_line(gather, Caller { is_quiet: false, ..caller }, Reply::TlsDisabled),
        Some(Ok(())) => {
            tracing::info!("certificates: read again, for connections that come");
            say_line(gather, caller, Reply::Ok);
        }
        Some(Err(reason)) => {
            tracing::warn!("certificates stay as they were: {reason}");
            let line = reason.replace(['\r', '\n'], " ");
            gather.reply_to(slot, |out| Encoder::new(out).certificate_error(&line));
        }
    }
}

/// cache_memlimit: changes the memory as CONFIG SET maxmemory does.
pub(super) fn limit_memory(gather: &mut Gather<'_, '_>, slot: usize, mib: u64, noreply: bool) {
    let caller = caller(gather, slot, MemcachedCommand::CacheMemlimit, noreply);
    // A datagram's sender may be forged.
    let is_datagram = gather.core.connections[slot].exchange.is_some();
    let set = match is_datagram {
        true => Err("a datagram cannot".to_owned()),
        false => crate::resp::set_live(&gather.core.shared, &[("memory", format!("{mib}MiB"))]),
    };
    match set {
        Ok(()) => say_line(gather, caller, Reply::Ok),
        Err(_) if noreply => {}
        Err(reason) => gather.reply_to(slot, |out| Encoder::new(out).limit_refused(&reason)),
    }
}

/// `watch`: from now on the connection gets lines, and its input is skipped.
pub(super) fn stream_events(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    topics: EventTopics,
    noreply: bool,
) {
    let caller = caller(gather, slot, MemcachedCommand::Watch, noreply);
    let is_datagram = gather.core.connections[slot].exchange.is_some();
    // Other nodes of a cluster have items too.
    if is_datagram || gather.core.cluster.is_some() {
        return say_line(gather, caller, Reply::NoWatchers);
    }
    say_line(gather, caller, Reply::Ok);
    let connection = &mut gather.core.connections[slot];
    connection.input.skip_bytes = u64::MAX;
    gather.core.shared.observations().event_stream.add(&connection.client, topics);
}

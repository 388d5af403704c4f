//! Commands of operators to a running server: shutdown, certificates, memory, the event stream.

use counters::MemcachedCommand;
use runtime::connection::Ending;
use runtime::engine::Engine;
use wire::memcached::{Encoder, EventTopics, Reply};

use super::Caller;
use crate::gather::Gather;

impl<E: Engine> Gather<'_, '_, E> {
    /// shutdown: the server ends as on SIGTERM, if the settings allow clients to end it.
    pub(super) fn shut_down(&mut self, slot: usize, is_valid: bool) {
        let caller = self.caller(slot, MemcachedCommand::Shutdown, false);
        // A datagram's sender may be forged.
        let is_datagram = self.core.connections[slot].exchange.is_some();
        if is_datagram || !self.core.shared.config().enable_shutdown {
            return self.say_line(caller, Reply::ShutdownDisabled);
        }
        if !is_valid {
            return self.say_line(caller, Reply::InvalidShutdown);
        }
        self.settle(slot);
        tracing::info!("a client of memcached's port asked for shutdown");
        self.core.connections[slot].ending = Ending::AfterFlush;
        self.core.shared.request_shutdown();
    }

    /// refresh_certs: reads the certificates again, as SIGHUP does, for new connections.
    pub(super) fn refresh_certificates(&mut self, slot: usize, noreply: bool) {
        let caller = self.caller(slot, MemcachedCommand::RefreshCerts, noreply);
        match self.core.shared.tls().map(|tls| tls.reload()) {
            // An error is answered even with noreply, as is the one below.
            None => self.say_line(Caller { is_quiet: false, ..caller }, Reply::TlsDisabled),
            Some(Ok(())) => {
                tracing::info!("certificates: read again, for connections that come");
                self.say_line(caller, Reply::Ok);
            }
            Some(Err(reason)) => {
                tracing::warn!("certificates stay as they were: {reason}");
                let line = reason.replace(['\r', '\n'], " ");
                self.reply_to(slot, |out| Encoder::new(out).certificate_error(&line));
            }
        }
    }

    /// cache_memlimit: changes the memory as CONFIG SET maxmemory does.
    pub(super) fn limit_memory(&mut self, slot: usize, mib: u64, noreply: bool) {
        let caller = self.caller(slot, MemcachedCommand::CacheMemlimit, noreply);
        // A datagram's sender may be forged.
        let is_datagram = self.core.connections[slot].exchange.is_some();
        let set = match is_datagram {
            true => Err("a datagram cannot".to_owned()),
            false => crate::resp::set_live(&self.core.shared, &[("memory", format!("{mib}MiB"))]),
        };
        match set {
            Ok(()) => self.say_line(caller, Reply::Ok),
            Err(_) if noreply => {}
            Err(reason) => self.reply_to(slot, |out| Encoder::new(out).limit_refused(&reason)),
        }
    }

    /// `watch`: from now on the connection gets lines, and its input is skipped.
    pub(super) fn stream_events(&mut self, slot: usize, topics: EventTopics, noreply: bool) {
        let caller = self.caller(slot, MemcachedCommand::Watch, noreply);
        let is_datagram = self.core.connections[slot].exchange.is_some();
        // Other nodes of a cluster have items too.
        if is_datagram || self.core.cluster.is_some() {
            return self.say_line(caller, Reply::NoWatchers);
        }
        self.say_line(caller, Reply::Ok);
        let connection = &mut self.core.connections[slot];
        connection.input.skip_bytes = u64::MAX;
        self.core.shared.event_stream().add(&connection.client, topics);
    }
}

//! watch in a worker's round: what is watched, and what is shown to its own clients.

use std::io::Write;

use wire::memcached::WatchTopics;

use super::Worker;
use crate::clients::Client;
use crate::connection::ProtocolState;
use crate::engine::Home;
use crate::poller::Poller;
use crate::watchers::Watched;

impl<E: Home, P: Poller> Worker<E, P> {
    /// A round begins: what somebody watches.
    #[inline]
    pub(super) fn look_at_watchers(&mut self) {
        let topics = self.core.shared.watchers().topics();
        if topics != self.core.watch_topics {
            self.set_watched(topics);
        }
    }

    #[cold]
    fn set_watched(&mut self, topics: WatchTopics) {
        self.core.watch_topics = topics;
        self.core.is_watched = topics.has(WatchTopics::ITEMS);
        self.engine.own_session().watch_evictions(topics.has(WatchTopics::EVICTIONS));
    }

    /// A round ends: its lines go to the watchers.
    #[inline]
    pub(super) fn send_watched(&mut self) {
        if self.core.shared.watchers().topics() != WatchTopics::NONE {
            self.send_lines();
        }
    }

    #[cold]
    fn send_lines(&mut self) {
        let core = &mut self.core;
        let (shared, now) = (&core.shared, core.now);
        let lines = &mut core.lines;
        let session = self.engine.own_session();
        let lost = session.take_evicted(|evicted| lines.add_eviction(shared, now, evicted));
        lines.lose(lost);
        if !lines.is_empty() {
            lines.send(shared);
        }
    }

    /// A connection came, or goes for a reason.
    #[inline]
    pub(super) fn tell_watchers(&mut self, client: &Client, closed: Option<&str>) {
        if self.core.shared.watchers().topics().has(WatchTopics::CONNECTIONS) {
            self.core.lines.add_connection(&self.core.shared, client, closed);
        }
    }

    /// Shows a client of this worker's what it watches, as far as it has taken what came before.
    pub(super) fn show_watcher(&mut self, client_id: u64, lines: &Watched) {
        self.core.shared.watchers().under_way.remove(lines.text.len());
        self.core.renew_passes(); // As MONITOR: acl A2.
        let is_it = |slot: &usize| {
            let connection = &self.core.connections[*slot];
            connection.client.id == client_id && !connection.is_closing()
        };
        let Some(slot) = self.core.connections.slots().into_iter().find(is_it) else {
            return self.core.shared.watchers().counts.skip_sent(lines.count);
        };
        let limit_bytes = self.core.output_limit_bytes;
        self.core.lend_buffer(slot);
        let connection = &mut self.core.connections[slot];
        let ProtocolState::Memcached(memcached) = &mut connection.protocol_state else { return };
        memcached.skipped_lines += lines.lost + connection.client.take_lost_lines();
        if connection.output.unsent_bytes() + lines.text.len() > limit_bytes {
            memcached.skipped_lines += lines.count;
            self.core.shared.watchers().counts.skip_sent(lines.count);
        } else {
            let skipped = std::mem::take(&mut memcached.skipped_lines);
            connection.output.append(|out| {
                if skipped > 0 {
                    // Writing to a vector cannot fail.
                    let _ = writeln!(out, "skipped={skipped}");
                }
                out.extend_from_slice(lines.text.as_bytes());
            });
        }
        self.core.touch(slot);
    }
}

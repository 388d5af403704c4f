//! The event stream in a worker's round: its topics, and the lines for its own clients.

use std::io::Write;

use commands::work::Work;
use host::poller::Poller;
use runtime::connection::ProtocolState;
use runtime::engine::Home;
use runtime::mailbox::Control;
use sessions::clients::Client;
use sessions::event_stream::EventLines;
use wire::memcached::EventTopics;

use super::Worker;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Takes up the topics of all subscribers. Called when a round begins.
    #[inline]
    pub(super) fn look_at_topics(&mut self) {
        let topics = self.core.shared.event_stream().topics();
        if topics != self.core.event_topics {
            self.set_topics(topics);
        }
    }

    #[cold]
    fn set_topics(&mut self, topics: EventTopics) {
        self.core.event_topics = topics;
        self.core.shows_items = topics.has(EventTopics::ITEMS);
        self.engine.own_session().record_evictions(topics.has(EventTopics::EVICTIONS));
    }

    /// Sends the round's lines to the subscribers. Called when a round ends.
    #[inline]
    pub(super) fn send_events(&mut self) {
        if self.core.shared.event_stream().topics() != EventTopics::NONE {
            self.send_lines();
        }
    }

    #[cold]
    fn send_lines(&mut self) {
        let core = &mut self.core;
        let (shared, now) = (&core.shared, core.now);
        let (lines, stream) = (&mut core.lines, shared.event_stream());
        let session = self.engine.own_session();
        let lost = session.take_evicted(|evicted| lines.add_eviction(stream, now, evicted));
        lines.lose(lost);
        if !lines.is_empty() {
            lines.send((stream, shared.buffer_budget()), |client, lines| {
                let events = Control::Events { client_id: client.id, lines };
                shared.send(client.worker().index(), events);
            });
        }
    }

    /// Shows that a connection was opened, or closed for a reason.
    #[inline]
    pub(super) fn show_connection(&mut self, client: &Client, closed: Option<&str>) {
        if self.core.shared.event_stream().topics().has(EventTopics::CONNECTIONS) {
            self.core.lines.add_connection(self.core.shared.event_stream(), client, closed);
        }
    }

    /// Sends lines to one of this worker's subscribers, if it has read the earlier ones.
    pub(super) fn show_events(&mut self, client_id: u64, lines: &EventLines) {
        self.core.shared.event_stream().under_way.remove(lines.text.len());
        self.core.renew_passes(); // As MONITOR: acl A2.
        self.core.charge(Work::messages(1));
        let slot = self.slot_of(client_id);
        let open = slot.filter(|slot| !self.core.connections[*slot].is_closing());
        let Some(slot) = open else {
            return self.core.shared.event_stream().counts.skip_sent(lines.count);
        };
        let limit_bytes = self.core.output_limit_bytes;
        self.core.lend_buffer(slot);
        let connection = &mut self.core.connections[slot];
        let ProtocolState::Memcached(memcached) = &mut connection.protocol_state else { return };
        memcached.skipped_lines += lines.lost + connection.client.take_lost_lines();
        if connection.output.unsent_bytes() + lines.text.len() > limit_bytes {
            memcached.skipped_lines += lines.count;
            self.core.shared.event_stream().counts.skip_sent(lines.count);
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

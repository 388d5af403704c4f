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

use super::{Worker, control};

/// Takes up the topics of all subscribers. Called when a round begins.
#[inline]
pub(super) fn look_at_topics<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let topics = worker.core.shared.observations().event_stream.topics();
    if topics != worker.core.event_topics {
        set_topics(worker, topics);
    }
}

#[cold]
fn set_topics<E: Home, P: Poller>(worker: &mut Worker<E, P>, topics: EventTopics) {
    worker.core.event_topics = topics;
    worker.core.shows_items = topics.has(EventTopics::ITEMS);
    worker.engine.own_session().record_evictions(topics.has(EventTopics::EVICTIONS));
}

/// Sends the round's lines to the subscribers. Called when a round ends.
#[inline]
pub(super) fn send<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.core.shared.observations().event_stream.topics() != EventTopics::NONE {
        send_lines(worker);
    }
}

#[cold]
fn send_lines<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let core = &mut worker.core;
    let (shared, now) = (&core.shared, core.now);
    let (lines, stream) = (&mut core.lines, &shared.observations().event_stream);
    let session = worker.engine.own_session();
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
pub(super) fn show_connection<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    client: &Client,
    closed: Option<&str>,
) {
    if worker.core.shared.observations().event_stream.topics().has(EventTopics::CONNECTIONS) {
        worker.core.lines.add_connection(
            &worker.core.shared.observations().event_stream,
            client,
            closed,
        );
    }
}

/// Sends lines to one of this worker's subscribers, if it has read the earlier ones.
pub(super) fn show<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    client_id: u64,
    lines: &EventLines,
) {
    worker.core.shared.observations().event_stream.under_way.remove(lines.text.len());
    worker.core.renew_passes(); // As MONITOR: acl A2.
    worker.core.charge(Work::messages(1));
    let slot = control::slot_of(worker, client_id);
    let open = slot.filter(|slot| !worker.core.connections[*slot].is_closing());
    let Some(slot) = open else {
        return worker.core.shared.observations().event_stream.counts.skip_sent(lines.count);
    };
    let limit_bytes = worker.core.output_limit_bytes;
    worker.core.lend_buffer(slot);
    let connection = &mut worker.core.connections[slot];
    let ProtocolState::Memcached(memcached) = &mut connection.protocol_state else { return };
    memcached.skipped_lines += lines.lost + connection.client.take_lost_lines();
    if connection.output.encoded_bytes() + lines.text.len() > limit_bytes {
        memcached.skipped_lines += lines.count;
        worker.core.shared.observations().event_stream.counts.skip_sent(lines.count);
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
    worker.core.touch(slot);
}

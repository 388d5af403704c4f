//! Messages from other threads to a worker: probes, kills, shutdown.

use commands::compaction::Answering;
use commands::rmw::{Refusal, Rmw};
use commands::work::Work;
use dispatch::sizes::DRAWN_PER_LOOK;
use host::poller::{Poller, Ready};
use host::process::random_u64;
use runtime::connection::Ending;
use runtime::core::tell;
use runtime::engine::Home;
use runtime::mailbox::Control;
use store::{Condition, Expiry, Item, Op, Outcome, Pins, Request, Set, Sink};

use super::{Due, Worker, events, flushing, lend, native, roles, udp};

/// Buckets that a sample visits, at most: in a store with few items it finds fewer than it wants.
const LOOK_HEADS_MAX: u64 = 32_768;

/// Clients that a turn kills on behalf of others: a quarter of its work.
const KILLS_PER_TURN: usize = 32;

/// Checks that a SET is stored and a GET finds it.
#[derive(Default)]
struct ProbeSink {
    is_stored: bool,
    is_found: bool,
    /// A full store still answers reads and deletes: it counts as ready, because a supervisor that
    /// restarted it would lose the data. The metrics show that it is full.
    is_full: bool,
}

impl Sink<Refusal> for ProbeSink {
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        match (request_index, outcome) {
            (0, Outcome::Stored { .. }) => self.is_stored = true,
            (0, Outcome::OutOfMemory | Outcome::Unwritable) => self.is_full = true,
            (1, Outcome::Hit(item)) => self.is_found = item.value == PROBE_VALUE,
            _ => {}
        }
    }
}

/// The probe asks the store itself.
impl Answering for ProbeSink {}

const PROBE_VALUE: &[u8] = b"ready";

/// Handles every message in the mailbox.
pub(super) fn take<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let shared = std::sync::Arc::clone(&worker.core.shared);
    let (mailbox, receiver) = shared.mailbox(worker.core.worker.index());
    mailbox.waker.reset();
    let mut kill_count = 0;
    while kill_count < KILLS_PER_TURN
        && let Ok(message) = receiver.try_recv()
    {
        match message {
            Control::Probe(answer) => {
                // The thread that waits for the answer may be gone.
                let _ = answer.send(probe(worker));
            }
            Control::Draw => draw(worker),
            Control::Kill { client_id } => {
                kill_count += 1;
                kill(worker, client_id);
            }
            Control::Feed { client_id, lines } => feed(worker, client_id, &lines),
            Control::Events { client_id, lines } => events::show(worker, client_id, &lines),
            Control::Track(messages) => tell::receive(&mut worker.core, messages),
            Control::Adopt(guest) => native::adopt_shm(worker, *guest),
            Control::MoveShm(client) => {
                worker.roles.shm_arrivals.push(client);
                worker.due.push(Due::Roles);
            }
            Control::Serve(lane) => worker.engine.adopt(*lane),
            Control::Roles => worker.due.push(Due::Roles),
            Control::Move(moving) => {
                worker.roles.arrivals.push(moving);
                worker.due.push(Due::Roles);
            }
            Control::Lend(loan) => worker.engine.borrow(*loan),
            Control::Return(returned) => lend::take_back(worker, returned),
        }
    }
    if kill_count == KILLS_PER_TURN {
        mailbox.waker.wake(); // The others are closed in later turns.
    }
    if shared.run().is_stopping() {
        start_draining(worker);
    }
}

/// Executes a real SET and GET through this worker's session, which leave no key behind; in a
/// cluster, checks whether the node may serve.
fn probe<E: Home, P: Poller>(worker: &mut Worker<E, P>) -> bool {
    // In a cluster every write is replicated: it is enough that the node serves.
    if let Some(view) = &worker.core.cluster {
        return view.may_answer(replication::cluster::clock::now().ns);
    }
    // A key that no client writes: it starts with a zero byte and names the run.
    let key = format!("\0probe:{}:{}", worker.core.shared.run().id(), worker.core.worker.index());
    let (key, hash) = (key.as_bytes(), worker.core.hash(key.as_bytes()));
    let set = Set {
        value: PROBE_VALUE,
        client_flags: 0,
        expiry: Expiry::Never,
        condition: Condition::Always,
    };
    let ops: [Op<'_, Rmw<'_>>; 3] = [Op::Set(set), Op::Get, Op::Delete];
    let requests = ops.map(|op| Request { key, hash, op });
    let mut sink = ProbeSink::default();
    worker.engine.execute(worker.core.now, &requests, &mut sink);
    sink.is_full || (sink.is_stored && sink.is_found)
}

/// Samples the sizes of some items; a worker without a session of its own samples none.
fn draw<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let now = worker.core.now;
    let shared = std::sync::Arc::clone(&worker.core.shared);
    let stored_sizes = &shared.control().stored_sizes;
    let Some(session) = worker.engine.session() else { return stored_sizes.end_asked() };
    let mut drawn = Vec::with_capacity(DRAWN_PER_LOOK);
    let mut left_heads = LOOK_HEADS_MAX;
    while drawn.len() < DRAWN_PER_LOOK && left_heads > 0 {
        let size = |item: &Item<'_>| drawn.push((item.key.len() + item.value.len()) as u64);
        let found = session.random_item(now, random_u64(), left_heads, size);
        left_heads -= found.visited.min(left_heads);
        if !found.is_found {
            break;
        }
    }
    worker.core.charge(Work::buckets(LOOK_HEADS_MAX - left_heads));
    stored_sizes.add(&drawn);
    stored_sizes.end_asked();
}

fn kill<E: Home, P: Poller>(worker: &mut Worker<E, P>, client_id: u64) {
    worker.core.charge(Work::closed());
    if let Some(slot) = slot_of(worker, client_id) {
        worker.core.connections[slot].ending = Ending::Now;
        worker.core.touch(slot);
    }
}

/// The slot of a client at this worker; a client that has moved is found where it arrives.
pub(super) fn slot_of<E: Home, P: Poller>(worker: &Worker<E, P>, client_id: u64) -> Option<usize> {
    let slot = worker.core.shared.clients().get(client_id)?.slot();
    let connection = worker.core.connections.get(slot)?;
    (connection.client.id == client_id).then_some(slot)
}

/// Sends MONITOR lines to a client; a client that has not read the earlier ones is cut off.
fn feed<E: Home, P: Poller>(worker: &mut Worker<E, P>, client_id: u64, lines: &str) {
    worker.core.shared.observations().monitors.under_way.remove(lines.len());
    worker.core.charge(Work::messages(1));
    // Commands executed after a change of its rights are not shown to it: acl A2.
    worker.core.renew_passes();
    let Some(slot) = slot_of(worker, client_id) else { return };
    let connection = &mut worker.core.connections[slot];
    if connection.is_closing() {
        return;
    }
    if connection.output.encoded_bytes() > worker.core.output_limit_bytes {
        tracing::warn!("a client that does not read what MONITOR shows was cut off");
        connection.ending = Ending::Now;
    } else {
        worker.core.lend_buffer(slot);
        let output = &mut worker.core.connections[slot].output;
        output.append(|out| out.extend_from_slice(lines.as_bytes()));
    }
    worker.core.touch(slot);
}

/// Stops accepting; each open connection is read once more, answered and closed.
pub(super) fn start_draining<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.is_draining {
        return;
    }
    worker.is_draining = true;
    flushing::end_all(worker);
    worker.listeners.close(&mut worker.poller);
    worker.shm_door = None;
    (worker.polling.has_served_queues, worker.has_native_work) = (false, false);
    if let Some(native) = &mut worker.native {
        native.drain(&mut worker.engine, &worker.core);
    }
    udp::close(worker);
    read_all_last(worker);
    // A worker that was parked continues in its present role.
    worker.due.push(Due::Roles);
}

/// Reads once more each connection whose input has not ended. That includes a connection that
/// was not read in its turn, because its replies were being sent, and one whose bytes ended
/// where a read did.
pub(super) fn read_all_last<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let connections = &worker.core.connections;
    let open = connections.slots().into_iter().filter(|slot| !connections[*slot].input_ended);
    worker.due.extend(open.map(Due::ReadLast));
}

/// Begins a round with the work that is due.
pub(super) fn begin_due<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    for due in std::mem::take(&mut worker.due) {
        match due {
            Due::ReadLast(slot) => read_last(worker, slot),
            Due::Roles => roles::change(worker),
            Due::TakeBack(returned) => lend::take_back(worker, returned),
        }
    }
}

/// Adds a connection that is read a last time to the ready ones. A client that does not read
/// its replies is not read any more.
fn read_last<E: Home, P: Poller>(worker: &mut Worker<E, P>, slot: usize) {
    let Some(connection) = worker.core.connections.get_mut(slot) else { return };
    if connection.in_bulk.receives {
        // It is read in its turn.
    } else if connection.interest.read {
        let token = slot as u64;
        worker.ready.push(Ready { token, read: true, write: false, broken: false });
    } else {
        connection.input_ended = true;
        worker.core.touch(slot);
    }
}

//! Messages from other threads to a worker: probes, kills, shutdown.

use std::os::fd::AsFd;

use commands::compaction::Answering;
use commands::rmw::{Refusal, Rmw};
use commands::work::Work;
use dispatch::sizes::DRAWN_PER_LOOK;
use host::poller::{Poller, Ready};
use host::process::random_u64;
use runtime::connection::Ending;
use runtime::engine::Home;
use runtime::mailbox::Control;
use store::{Condition, Expiry, Item, Op, Outcome, Pins, Request, Set, Sink};

use super::{Due, Worker};

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

impl<E: Home, P: Poller> Worker<E, P> {
    /// Handles every message in the mailbox.
    pub(super) fn take_control(&mut self) {
        let shared = std::sync::Arc::clone(&self.core.shared);
        let (mailbox, receiver) = shared.mailbox(self.core.worker.index());
        mailbox.waker.reset();
        let mut kill_count = 0;
        while kill_count < KILLS_PER_TURN
            && let Ok(message) = receiver.try_recv()
        {
            match message {
                Control::Probe(answer) => {
                    // The thread that waits for the answer may be gone.
                    let _ = answer.send(self.probe());
                }
                Control::Draw => self.draw(),
                Control::Kill { client_id } => {
                    kill_count += 1;
                    self.kill(client_id);
                }
                Control::Feed { client_id, lines } => self.feed(client_id, &lines),
                Control::Events { client_id, lines } => self.show_events(client_id, &lines),
                Control::Track(messages) => self.core.receive(messages),
                Control::Adopt(guest) => self.adopt_shm(*guest),
                Control::MoveShm(client) => {
                    self.shm_arrivals.push(client);
                    self.due.push(Due::Roles);
                }
                Control::Serve(lane) => self.engine.adopt(*lane),
                Control::Roles => self.due.push(Due::Roles),
                Control::Move(moving) => {
                    self.arrivals.push(moving);
                    self.due.push(Due::Roles);
                }
                Control::Lend(loan) => self.engine.borrow(*loan),
                Control::Return(returned) => self.take_back(returned),
            }
        }
        if kill_count == KILLS_PER_TURN {
            mailbox.waker.wake(); // The others are closed in later turns.
        }
        if shared.is_stopping() {
            self.start_draining();
        }
    }

    /// Executes a real SET and GET through this worker's session, which leave no key behind; in a
    /// cluster, checks whether the node may serve.
    fn probe(&mut self) -> bool {
        // In a cluster every write is replicated: it is enough that the node serves.
        if let Some(view) = &self.core.cluster {
            return view.may_answer(replication::cluster::clock::now().ns);
        }
        // A key that no client writes: it starts with a zero byte and names the run.
        let key = format!("\0probe:{}:{}", self.core.shared.run_id(), self.core.worker.index());
        let (key, hash) = (key.as_bytes(), self.core.hash(key.as_bytes()));
        let set = Set {
            value: PROBE_VALUE,
            client_flags: 0,
            expiry: Expiry::Never,
            condition: Condition::Always,
        };
        let ops: [Op<'_, Rmw<'_>>; 3] = [Op::Set(set), Op::Get, Op::Delete];
        let requests = ops.map(|op| Request { key, hash, op });
        let mut sink = ProbeSink::default();
        self.engine.execute(self.core.now, &requests, &mut sink);
        sink.is_full || (sink.is_stored && sink.is_found)
    }

    /// Samples the sizes of some items; a worker without a session of its own samples none.
    fn draw(&mut self) {
        let now = self.core.now;
        let shared = std::sync::Arc::clone(&self.core.shared);
        let stored_sizes = &shared.control().stored_sizes;
        let Some(session) = self.engine.session() else { return stored_sizes.end_asked() };
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
        self.core.charge(Work::buckets(LOOK_HEADS_MAX - left_heads));
        stored_sizes.add(&drawn);
        stored_sizes.end_asked();
    }

    fn kill(&mut self, client_id: u64) {
        self.core.charge(Work::closed());
        if let Some(slot) = self.slot_of(client_id) {
            self.core.connections[slot].ending = Ending::Now;
            self.core.touch(slot);
        }
    }

    /// The slot of a client at this worker; a client that has moved is found where it arrives.
    pub(super) fn slot_of(&self, client_id: u64) -> Option<usize> {
        let slot = self.core.shared.clients().get(client_id)?.slot();
        let connection = self.core.connections.get(slot)?;
        (connection.client.id == client_id).then_some(slot)
    }

    /// Sends MONITOR lines to a client; a client that has not read the earlier ones is cut off.
    fn feed(&mut self, client_id: u64, lines: &str) {
        self.core.shared.monitors().under_way.remove(lines.len());
        self.core.charge(Work::messages(1));
        // Commands executed after a change of its rights are not shown to it: acl A2.
        self.core.renew_passes();
        let Some(slot) = self.slot_of(client_id) else { return };
        let connection = &mut self.core.connections[slot];
        if connection.is_closing() {
            return;
        }
        if connection.output.unsent_bytes() > self.core.output_limit_bytes {
            tracing::warn!("a client that does not read what MONITOR shows was cut off");
            connection.ending = Ending::Now;
        } else {
            self.core.lend_buffer(slot);
            let output = &mut self.core.connections[slot].output;
            output.append(|out| out.extend_from_slice(lines.as_bytes()));
        }
        self.core.touch(slot);
    }

    /// Stops accepting; each open connection is read once more, answered and closed.
    pub(super) fn start_draining(&mut self) {
        if self.is_draining {
            return;
        }
        self.is_draining = true;
        self.end_flushes();
        for listener in self.listeners.drain(..) {
            // A Unix socket is open as long as any worker has it: it would be reported forever.
            let _ = self.poller.remove(listener.socket.as_fd());
        }
        self.shm_door = None;
        (self.has_served_queues, self.has_native_work) = (false, false);
        if let Some(mut native) = self.native.take() {
            native.drain(&mut self.engine, &self.core);
        }
        self.close_udp();
        self.accept_again_at = None;
        self.read_all_last();
        // A worker that was parked continues in its present role.
        self.due.push(Due::Roles);
    }

    /// Reads once more each connection whose input has not ended. That includes a connection that
    /// was not read in its turn, because its replies were being sent, and one whose bytes ended
    /// where a read did.
    pub(super) fn read_all_last(&mut self) {
        let connections = &self.core.connections;
        let open = connections.slots().into_iter().filter(|slot| !connections[*slot].input_ended);
        self.due.extend(open.map(Due::ReadLast));
    }

    /// Begins a round with the work that is due.
    pub(super) fn begin_due(&mut self) {
        for due in std::mem::take(&mut self.due) {
            match due {
                Due::ReadLast(slot) => self.read_last(slot),
                Due::Roles => self.change_roles(),
                Due::TakeBack(returned) => self.take_back(returned),
            }
        }
    }

    /// Adds a connection that is read a last time to the ready ones. A client that does not read
    /// its replies is not read any more.
    fn read_last(&mut self, slot: usize) {
        let Some(connection) = self.core.connections.get_mut(slot) else { return };
        if connection.interest.read {
            let token = slot as u64;
            self.ready.push(Ready { token, read: true, broken: false });
        } else {
            connection.input_ended = true;
            self.core.touch(slot);
        }
    }
}

//! Native clients: frames of requests over UDP and shared memory, on the same store, session and
//! counters as the other protocols.
//!
//! ```text
//!  UDP group ─▶ worker's ports ─▶ zones  ─┐                                 ┌─▶ frames, sendmmsg
//!                                         ├─▶ FrameHandler ─▶ batch ─▶ store ┤
//!  Unix socket ─▶ worker's rings ─▶ arena ┘    │                            └─▶ frames, rings
//!                                              ├─ inboxes of other workers, and back
//!                                              └─ NativeState, of all workers: sessions,
//!                                                 transfers, cookies
//! ```
//!
//! Requests are parsed where they landed, and replies are written directly into the outgoing
//! frames; serving a request allocates nothing. Requests that another worker executes are copied to
//! it ([`forward`]).
//!
//! # Invariants
//! I1: the memory that the server keeps for native clients (sessions, remembered outcomes, values
//!     in parts) is bounded and part of the client buffers.
//! I2: a get and a plain set that the receiving worker executes touch no state that workers share
//!     except the store.
//!
//! # References
//! docs/formats/native.md for the bytes, docs/design/native-server.md for how this works.

#![forbid(unsafe_code)]

pub mod answers;
pub mod batch;
pub mod forward;
pub mod frame_handler;
pub mod greet;
pub mod outgoing;
pub mod page;
pub mod port;
pub mod ports;
pub mod sessions;
pub mod shm;
pub mod shm_places;
pub mod transfers;
pub mod udp;
pub mod xdp;

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use base::Instant;
use config::StartError;
use host::small_file;
use sessions::Sessions;
use store::IndexKind;
use wire::native::{Cookies, TagKey, Welcome};

use forward::{Exit, ForwardedBatch, Forwarder, Inboxes};
use frame_handler::{FrameHandler, Service};
use ports::{AnyPort, Ports};
use replication::durable::{Data, Passage};
use runtime::core::Core;
use runtime::engine::Engine;
use runtime::shared::Shared;
use runtime::shm_client::{ShmClient, ShmGuest};
use shm::{AtDoor, ShmDoor, ShmPort};
use shm_places::ShmPlaces;
use transfers::Transfers;
use udp::Helm;

pub use greet::{NativeState, Terms};

/// The longest datagram, to receive and to send.
pub const DATAGRAM_MAX_BYTES: usize = 16 << 10;

/// Length of the longest frame of any transport.
pub const FRAME_MAX_BYTES: usize = 64 << 10;

/// Batches of other workers that a round executes, and of its own that it takes back, at most.
const EXECUTED_PER_ROUND: usize = 4;
const RETURNED_PER_ROUND: usize = 64;

/// Time between two sweeps of idle sessions.
const SWEEP_EVERY_MS: u64 = 1_000;

/// A round's time on a clock that does not jump.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Since the server's start.
    pub monotonic: Instant,
}

impl Clock {
    /// Now.
    pub fn now(shared: &Shared) -> Clock {
        let ns = u64::try_from(shared.run().uptime().as_nanos()).unwrap_or(u64::MAX);
        Clock { monotonic: Instant { ns } }
    }

    /// Milliseconds since the server's start.
    pub fn uptime_ms(self) -> u64 {
        self.monotonic.ns / 1_000_000
    }
}

/// Reads the file of `--native-key-file`.
pub fn read_key(path: &Path) -> Result<TagKey, StartError> {
    let refused = |reason: String| StartError::KeyFile { path: path.to_owned(), reason };
    let text = small_file::read_text(path, small_file::SETTINGS_MAX_BYTES)
        .map_err(|error| refused(error.to_string()))?;
    TagKey::from_hex(&text).map_err(|error| refused(error.to_string()))
}

impl NativeState {
    /// Opens the state that the workers of a server share for native clients.
    pub fn open(shared: &Shared, key: Option<TagKey>) -> Result<NativeState, StartError> {
        let config = shared.config();
        let mut secret = [0; wire::native::COOKIE_SECRET_LEN_BYTES];
        fill_random(&mut secret)
            .map_err(|source| StartError::System { what: "draw random bytes", source })?;
        let mut steering_seed = [0; 8];
        fill_random(&mut steering_seed)
            .map_err(|source| StartError::System { what: "draw random bytes", source })?;
        let steering_seed = u64::from_le_bytes(steering_seed);
        let bits = shared.store().partition_bits().partition_count().ilog2() as u8;
        // A node of a cluster has only a part of each range.
        let has_ranges = config.index == IndexKind::Tree && config.cluster.is_none();
        let terms = Terms {
            steering_bits: bits,
            steering_seed,
            value_max_bytes: u32::try_from(config.max_item_size_bytes).unwrap_or(u32::MAX),
            features: if has_ranges { Welcome::RANGES } else { 0 },
        };
        let budget = shared.buffer_budget();
        Ok(NativeState {
            sessions: Sessions::new(
                config.max_connections,
                Arc::clone(budget),
                Arc::clone(shared.clients().addresses()),
            ),
            transfers: Transfers::new(Arc::clone(budget), config.max_item_size_bytes),
            key,
            cookies: Cookies::new(&secret),
            terms,
            dispatcher_count: AtomicUsize::new(shared.roles().layers().start.dispatchers),
            shm_count: AtomicUsize::new(0),
            shm_places: ShmPlaces::default(),
            inboxes: Inboxes::new(config.threads),
            doors: Mutex::new(shared.doors()),
        })
    }
}

fn fill_random(bytes: &mut [u8]) -> std::io::Result<()> {
    use std::io::Read;
    fs::File::open("/dev/urandom")?.read_exact(bytes)
}

/// One worker's native side.
pub struct Native {
    state: Arc<NativeState>,
    frame_handler: FrameHandler,
    ports: Ports,
    shm: ShmPort,
    /// The steering handles, one for each way that datagrams arrive; only one worker has them.
    helms: Vec<Helm>,
    swept_at_ms: u64,
    /// What other workers have executed, in this round.
    #[expect(clippy::vec_box, reason = "they go through the inboxes as boxes")]
    returned: Vec<Box<ForwardedBatch>>,
    /// The server stops: nothing is received any more.
    is_draining: bool,
}

impl Native {
    /// A side that serves the datagrams of these ports.
    pub fn new(state: Arc<NativeState>, ports: Vec<AnyPort>) -> Native {
        let (frame_handler, ports, shm) =
            (FrameHandler::default(), Ports::new(ports), ShmPort::default());
        let (helms, swept_at_ms, is_draining) = (Vec::new(), 0, false);
        let returned = Vec::new();
        Native { state, frame_handler, ports, shm, helms, swept_at_ms, returned, is_draining }
    }

    /// Lets other workers execute requests that this thread receives, as the router decides.
    pub fn forward(&mut self, thread: usize, thread_count: usize) {
        let budget = self.state.sessions.budget();
        let forwarder = Forwarder::new(thread, thread_count, budget);
        self.frame_handler.forwarder = Some(Box::new(forwarder));
    }

    /// Makes this side steer datagrams to threads.
    pub fn take_helms(&mut self, helms: Vec<Helm>) {
        self.helms = helms;
    }

    /// Steers datagrams to the first `dispatcher_count` threads, because other threads poll from
    /// now on. Clients learn the number with their welcome; those welcomed earlier need not know
    /// (U2).
    pub fn steer(&self, dispatcher_count: usize) {
        for helm in &self.helms {
            match helm.steer(dispatcher_count) {
                Ok(()) => self.state.set_dispatcher_count(dispatcher_count),
                // The previous threads continue to serve them.
                Err(error) => tracing::warn!("native datagrams stay with their threads: {error}"),
            }
        }
    }

    /// The ports for datagrams.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Serves the datagrams that have arrived at a port.
    pub fn serve_port(&mut self, index: usize, engine: &mut dyn Engine, core: &Core) {
        if self.is_draining {
            return;
        }
        if self.is_crowded() {
            let Native { state, frame_handler, ports, .. } = self;
            let clock = Clock::now(&core.shared);
            return ports.shed(index, frame_handler, &mut Service { engine, core, state, clock });
        }
        self.receive_at(index, engine, core);
    }

    fn receive_at(&mut self, index: usize, engine: &mut dyn Engine, core: &Core) {
        let Native { state, frame_handler, ports, .. } = self;
        let clock = Clock::now(&core.shared);
        if let Some(forwarder) = &mut frame_handler.forwarder {
            forwarder.begin(Exit::Port(index));
        }
        ports.serve(index, frame_handler, &mut Service { engine, core, state, clock });
    }

    /// Serves the ports that are due, whatever the poller reports. Returns whether some still are.
    #[inline]
    pub fn serve_due(&mut self, engine: &mut dyn Engine, core: &Core) -> bool {
        let mut from = 0;
        while let Some(index) = self.ports.next_due(from) {
            self.serve_port(index, engine, core);
            from = index + 1;
        }
        from > 0 && self.ports.next_due(0).is_some()
    }

    /// Serves the clients in shared memory that have work. Returns whether any had.
    #[inline]
    pub fn serve_shm(&mut self, engine: &mut dyn Engine, core: &Core) -> bool {
        if self.shm.is_empty() || self.is_draining || self.is_crowded() {
            return false;
        }
        self.serve_rings(engine, core)
    }

    #[inline]
    fn is_crowded(&self) -> bool {
        self.frame_handler.forwarder.as_ref().is_some_and(|forwarder| forwarder.is_crowded())
    }

    fn serve_rings(&mut self, engine: &mut dyn Engine, core: &Core) -> bool {
        let Native { state, frame_handler, shm, .. } = self;
        if !shm.collect() {
            shm.sweep(state);
            return false;
        }
        let clock = Clock::now(&core.shared);
        if let Some(forwarder) = &mut frame_handler.forwarder {
            forwarder.begin(Exit::Shm);
        }
        shm.serve(frame_handler, &mut Service { engine, core, state, clock });
        true
    }

    /// Whether requests of other workers, or replies to forwarded ones, have arrived.
    #[inline]
    pub fn has_forwarded(&self, core: &Core) -> bool {
        self.state.inboxes.has_any(core.worker.index())
    }

    /// Executes what other workers have forwarded here, and sends the replies to what this worker
    /// has forwarded, some batches in a round. Returns whether there were any.
    #[inline]
    pub fn serve_forwarded(&mut self, engine: &mut dyn Engine, core: &Core) -> bool {
        let has_any = self.has_forwarded(core);
        if has_any {
            self.serve_inbox(engine, core);
        }
        has_any
    }

    fn serve_inbox(&mut self, engine: &mut dyn Engine, core: &Core) {
        let own = core.worker.index();
        let (state, clock) = (Arc::clone(&self.state), Clock::now(&core.shared));
        let mut executed_count = 0;
        while executed_count < EXECUTED_PER_ROUND && self.returned.len() < RETURNED_PER_ROUND {
            let Some(mut batch) = state.inboxes.take(own) else { break };
            if batch.is_executed() {
                self.returned.push(batch);
                continue;
            }
            executed_count += 1;
            let mut service = Service { engine: &mut *engine, core, state: &state, clock };
            self.frame_handler.execute_forwarded(&mut service, &mut batch);
            state.inboxes.give_back(batch, &*engine, core);
            if core.native_work.get().is_spent() {
                break; // K28: the others wait for a round.
            }
        }
        if !self.returned.is_empty() {
            self.send_returned(engine, core);
        }
        if self.is_draining {
            self.close_if_drained();
        }
    }

    /// Sends the replies to what other workers have executed, once the log is on the disk (F5 of
    /// `forward`).
    fn send_returned(&mut self, engine: &mut dyn Engine, core: &Core) {
        let refusals_seen = self.returned.iter().map(|batch| batch.refusals_seen).min();
        let gate = core.shared.data().and_then(Data::gate);
        let may_leave = match (gate, engine.session()) {
            (Some(mut gate), Some(session)) => {
                gate.refusals_seen = refusals_seen.unwrap_or(0);
                gate.pass(session) != Passage::Failed
            }
            _ => true,
        };
        for batch in self.returned.drain(..) {
            match batch.exit() {
                _ if !may_leave => {}
                Exit::Port(index) => self.ports.send(index, &batch, core),
                Exit::Shm => self.shm.send(&batch, core),
            }
            if let Some(forwarder) = &mut self.frame_handler.forwarder {
                forwarder.take_back(batch, engine);
            }
        }
        self.ports.send_unsent(core);
        self.shm.publish();
    }

    /// Whether the server stops and nothing is received any more.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Accepts a client in shared memory, if one waits.
    pub fn accept_shm(&self, door: &mut ShmDoor) -> std::io::Result<AtDoor> {
        door.accept(&self.state.sessions)
    }

    /// Takes a client in shared memory in; returns its place.
    pub fn adopt(&mut self, guest: ShmGuest) -> Option<usize> {
        self.shm.adopt(guest, &self.state)
    }

    /// The number of its clients in shared memory.
    pub fn shm_client_count(&self) -> usize {
        self.shm.client_count()
    }

    /// Hands over that many clients in shared memory.
    pub fn part_with_shm(&mut self, count: usize) -> Vec<ShmClient> {
        self.shm.part_with(count)
    }

    /// Takes in a client that another worker has handed over; returns its place.
    pub fn take_in_shm(&mut self, client: ShmClient) -> usize {
        self.shm.take_in(client)
    }

    /// The doorbell of the client at a place.
    pub fn doorbell(&self, slot: usize) -> Option<BorrowedFd<'_>> {
        self.shm.doorbell(slot)
    }

    /// Notes that the doorbell of a client was rung.
    pub fn hear(&mut self, slot: usize) {
        self.shm.hear(slot, &self.state);
    }

    /// Sends replies again for which the kernel had no room. Returns whether some are still unsent.
    #[inline]
    pub fn send_unsent(&mut self, core: &Core) -> bool {
        self.ports.send_unsent(core)
    }

    /// Called before the worker sleeps: tells clients to ring. Returns false if there is work.
    pub fn may_sleep(&mut self) -> bool {
        let may_ports_sleep = self.ports.may_sleep();
        self.shm.may_sleep() && may_ports_sleep
    }

    /// Forgets idle sessions, once in a while. One worker sweeps for all.
    pub fn keep_house(&mut self, core: &Core) {
        let clock = Clock::now(&core.shared);
        if clock.uptime_ms().saturating_sub(self.swept_at_ms) < SWEEP_EVERY_MS {
            return;
        }
        self.swept_at_ms = clock.uptime_ms();
        if core.worker.index() == 0 {
            self.state.sweep(clock);
        }
        self.frame_handler.known.sweep();
        self.ports.keep_house(core);
    }

    /// Answers all frames that have arrived, and closes everything once those that were forwarded
    /// before are answered too. The frames of now are executed here.
    pub fn drain(&mut self, engine: &mut dyn Engine, core: &Core) {
        let forwarder = self.frame_handler.forwarder.take();
        for index in 0..self.ports.count() {
            self.receive_at(index, engine, core);
        }
        self.serve_rings(engine, core);
        self.frame_handler.forwarder = forwarder;
        self.is_draining = true;
        self.close_if_drained();
    }

    fn close_if_drained(&mut self) {
        let forwarder = self.frame_handler.forwarder.as_ref();
        if forwarder.is_none_or(|forwarder| forwarder.is_drained()) {
            self.shm.close(&self.state);
            self.ports = Ports::new(Vec::new());
            self.helms.clear();
        }
    }
}

//! Native clients: frames of requests over UDP and shared memory, on the same store, session and
//! counters as the other protocols.
//!
//! ```text
//!  UDP group ─▶ worker's ports ─▶ zones  ─┐                                 ┌─▶ frames, sendmmsg
//!                                         ├─▶ FrameHandler ─▶ batch ─▶ store ┤
//!  Unix socket ─▶ worker's rings ─▶ arena ┘    │                            └─▶ frames, rings
//!                                              └─ NativeState, of all workers: sessions,
//!                                                 transfers, cookies
//! ```
//!
//! Requests are parsed where they landed, and replies are written directly into the outgoing
//! frames; serving a request allocates nothing.
//!
//! # Invariants
//! I1: the memory that the server keeps for native clients (sessions, remembered outcomes, values
//!     in parts) is bounded and part of the client buffers.
//! I2: a get and a plain set touch no state that workers share except the store.
//!
//! # References
//! docs/formats/native.md for the bytes, docs/design/native-server.md for how this works.

#![forbid(unsafe_code)]

pub mod answers;
pub mod batch;
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

use frame_handler::{FrameHandler, Service};
use ports::{AnyPort, Ports};
use runtime::core::Core;
use runtime::engine::Engine;
use runtime::shared::Shared;
use runtime::shm_client::{ShmClient, ShmGuest};
use shm::{AtDoor, ShmDoor, ShmPort};
use shm_places::ShmPlaces;
use transfers::Transfers;
use udp::Helm;

pub use greet::{NativeState, Terms};

/// Length of the longest frame of any transport.
pub const FRAME_MAX_BYTES: usize = 64 << 10;

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
}

impl Native {
    /// A side that serves the datagrams of these ports.
    pub fn new(state: Arc<NativeState>, ports: Vec<AnyPort>) -> Native {
        let (frame_handler, ports, shm) =
            (FrameHandler::default(), Ports::new(ports), ShmPort::default());
        Native { state, frame_handler, ports, shm, helms: Vec::new(), swept_at_ms: 0 }
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
        let Native { state, frame_handler, ports, .. } = self;
        let clock = Clock::now(&core.shared);
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
        if self.shm.is_empty() {
            return false;
        }
        let Native { state, frame_handler, shm, .. } = self;
        if !shm.collect() {
            shm.sweep(state);
            return false;
        }
        let clock = Clock::now(&core.shared);
        shm.serve(frame_handler, &mut Service { engine, core, state, clock });
        true
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

    /// Answers all frames that have arrived, then closes everything.
    pub fn drain(&mut self, engine: &mut dyn Engine, core: &Core) {
        for index in 0..self.ports.count() {
            self.serve_port(index, engine, core);
        }
        self.serve_shm(engine, core);
        self.shm.close(&self.state);
        self.ports = Ports::new(Vec::new());
        self.helms.clear();
    }
}

//! Clients in shared memory: one worker polls the rings of each client.
//!
//! ```text
//!  acceptor (worker 0) ── ServerEnd ──▶ a worker, in turn
//!  rings of its clients ──copied──▶ arena ──▶ FrameHandler ──▶ rings ──publish──▶ clients
//!                                                └──▶ unsent, while a ring is full
//! ```
//!
//! # Invariants
//! I1: no reply is lost: a reply for which its ring has no room is kept, and its client is not read
//!     until all kept replies have left.
//! I2: a worker sleeps only after it has told every client to ring.
//! I3: a client belongs to one worker, or is in a mailbox on its way to another when roles change;
//!     its rings, its unsent replies and its lane stay the same wherever it is.
//! I4: while all places are taken and a client waits, the oldest client without a session that has
//!     sent a request gives its place up. So clients without the key only delay one that has it: by
//!     100 ms for as many that wait before it as there are places.
//! I5: kept replies, and those of other workers on their way, are booked. While half of the buffers
//!     for replies is taken, values are cut short and pulled, and a client that has read nothing
//!     for 5 s is closed: so connections' replies have the other half.
//!
//! # Limits
//! The replies kept for a client are bounded by those to the frames of one round, and to the
//! requests at other workers (F3 of `forward`). Those to a frame are bounded by `outgoing`: values
//! are cut short once there is much to send.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use budget::{BufferBudget, Kind, Reservation};
use config::Config;
use config::StartError;
use counters::WorkerCounters;
use landing::shm::{Accepted, Acceptor, AcceptorConfig, Access, Armed, HangUp, RingSize};
use landing::{Lane, Sender};
use runtime::core::Core;
use runtime::shm_client::{SLOT_BITS, ShmClient, ShmGuest};

use super::forward::ForwardedBatch;
use super::frame_handler::{FrameHandler, Service};
use super::greet::NativeState;
use super::outgoing::{Outlet, is_tight};
use super::sessions::Sessions;
use super::shm_places::CLIENTS_MAX;

/// Frames taken from one client in one round, at most.
const BURST_MAX: usize = 32;

/// Size of the buffer for one round's frames: it stays in the second-level cache.
const ARENA_BYTES: usize = 512 << 10;

const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// A serial number has the bits of a lane that its place leaves.
const SERIAL_MAX: u32 = u32::MAX >> SLOT_BITS;

/// The time that a client has for its first request before its place may be given to another.
const FIRST_REQUEST_MAX: Duration = Duration::from_millis(100);

/// The time for which a client's ring may be full while others need room (I5).
const STUCK_MAX: Duration = Duration::from_secs(5);

/// The time that a worker has to drop a client whose place is needed.
const DROP_MAX: Duration = Duration::from_secs(1);

/// Accepts clients for all workers.
pub struct ShmDoor {
    acceptor: Acceptor,
    ring: RingSize,
    budget: Arc<BufferBudget>,
    /// Serial number of the next lane.
    serial: u32,
    /// The worker whose turn it is.
    next_worker: usize,
    /// The clients that are here, oldest first; some may have left.
    admitted: VecDeque<Admitted>,
}

/// A client, whichever worker serves it.
struct Admitted {
    serial: u32,
    since: Instant,
    hang_up: HangUp,
    /// Since when its place is needed.
    hung_up_at: Option<Instant>,
}

/// The result of an attempt to accept.
pub enum AtDoor {
    /// No client waits.
    NoClient,
    /// A client waits for the place of another.
    Waits,
    /// A client was not admitted.
    Refused,
    /// A client.
    Guest(Box<ShmGuest>),
}

impl ShmDoor {
    /// Listens, if the configuration requires it. Rings take at most a quarter of the client
    /// buffers.
    pub fn open(
        config: &Config,
        budget: &Arc<BufferBudget>,
    ) -> Result<Option<ShmDoor>, StartError> {
        let Some(path) = &config.shm else { return Ok(None) };
        let ring = RingSize::DEFAULT;
        let fit_count = budget.limit_bytes() / 4 / rings_bytes(ring);
        let clients_max = usize::try_from(fit_count).unwrap_or(CLIENTS_MAX).clamp(1, CLIENTS_MAX);
        let access = match config.shm_mode {
            mode if mode & 0o077 == 0 => Access::SameUser,
            mode => Access::FileMode(mode),
        };
        let acceptor_config = AcceptorConfig { ring, clients_max, access };
        let acceptor = Acceptor::listen(path, acceptor_config)
            .map_err(|error| StartError::Shm { path: path.clone(), reason: error.to_string() })?;
        Ok(Some(ShmDoor {
            acceptor,
            ring,
            budget: Arc::clone(budget),
            serial: 0,
            next_worker: 0,
            admitted: VecDeque::new(),
        }))
    }

    /// Accepts one waiting client, if there is any.
    pub fn accept(&mut self, sessions: &Sessions) -> io::Result<AtDoor> {
        if self.acceptor.lacks_place() && self.needs_place(sessions, Instant::now()) {
            return Ok(AtDoor::Waits);
        }
        let end = match self.acceptor.accept()? {
            Accepted::NoClient => return Ok(AtDoor::NoClient),
            Accepted::Client(end) => end,
            Accepted::Refused(refusal) => {
                tracing::debug!("a client in shared memory was refused: {refusal}");
                return Ok(AtDoor::Refused);
            }
            Accepted::Vanished => return Ok(AtDoor::Refused),
        };
        let rings_bytes = rings_bytes(self.ring);
        let Some(booked) = Reservation::try_new(&self.budget, Kind::SharedMemory, rings_bytes)
        else {
            return Ok(AtDoor::Refused);
        };
        let serial = self.serial & SERIAL_MAX;
        self.serial = serial + 1;
        self.admitted.retain(|client| client.hang_up.is_held());
        let (since, hang_up) = (Instant::now(), end.hang_up());
        self.admitted.push_back(Admitted { serial, since, hang_up, hung_up_at: None });
        Ok(AtDoor::Guest(Box::new(ShmGuest { end, serial, booked })))
    }

    /// Whether a place will be free soon: the oldest client without a session that works gives its
    /// place up, once it had its time (I4).
    #[cold]
    fn needs_place(&mut self, sessions: &Sessions, now: Instant) -> bool {
        self.admitted.retain(|client| client.hang_up.is_held());
        let is_recent = |at: Instant, max| now.saturating_duration_since(at) < max;
        let mut hung_up = self.admitted.iter().filter_map(|client| client.hung_up_at);
        if hung_up.any(|at| is_recent(at, DROP_MAX)) {
            return true;
        }
        let working: Vec<u32> =
            sessions.working_lanes().iter().map(|lane| lane.0 >> SLOT_BITS).collect();
        let is_stranger = |client: &&mut Admitted| {
            client.hung_up_at.is_none() && !working.contains(&client.serial)
        };
        let Some(oldest) = self.admitted.iter_mut().find(is_stranger) else { return false };
        if !is_recent(oldest.since, FIRST_REQUEST_MAX) {
            tracing::debug!("a client in shared memory that sent no request gives its place up");
            oldest.hang_up.hang_up();
            oldest.hung_up_at = Some(now);
        }
        true
    }

    /// The worker that serves the next client.
    pub fn next_worker(&mut self, worker_count: usize) -> usize {
        self.next_worker = self.next_worker.wrapping_add(1);
        self.next_worker % worker_count.max(1)
    }
}

impl AsFd for ShmDoor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.acceptor.as_fd()
    }
}

/// The bytes of both rings and their control page.
fn rings_bytes(ring: RingSize) -> u64 {
    2 * ring.bytes() as u64 + 4096
}

/// A frame in the arena.
#[derive(Clone, Copy)]
struct Arrived {
    lane: Lane,
    start: usize,
    end: usize,
}

/// One worker's clients. Without clients nothing is allocated.
#[derive(Default)]
pub struct ShmPort {
    clients: Vec<Option<ShmClient>>,
    client_count: usize,
    arena: Box<[u8]>,
    frames: Vec<Arrived>,
    /// The client that is read first in the next round, so that a full arena does not always hold
    /// the frames of the same ones.
    first: usize,
}

impl ShmPort {
    /// Whether there is no client.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.client_count == 0
    }

    /// The number of clients.
    pub fn client_count(&self) -> usize {
        self.client_count
    }

    /// Takes a client in; returns its place, unless there are too many.
    pub fn adopt(&mut self, guest: ShmGuest, state: &NativeState) -> Option<usize> {
        let place = state.shm_places.take()?;
        let ShmGuest { end, serial, booked } = guest;
        let lane = Lane((serial << SLOT_BITS) | place);
        state.shm_count.fetch_add(1, Ordering::Relaxed);
        let unsent = VecDeque::new();
        let (is_gone, stuck_since, _booked) = (false, None, booked);
        Some(self.take_in(ShmClient { end, lane, unsent, stuck_since, is_gone, _booked }))
    }

    /// Takes in a client that another worker has handed over; returns its place, which stays the
    /// same.
    pub fn take_in(&mut self, client: ShmClient) -> usize {
        let slot = (client.lane.0 & SLOT_MASK) as usize;
        if self.clients.len() <= slot {
            self.clients.resize_with(slot + 1, || None);
        }
        if self.arena.is_empty() {
            self.arena = vec![0; ARENA_BYTES].into_boxed_slice();
        }
        debug_assert!(self.clients[slot].is_none(), "a place is one client's");
        self.clients[slot] = Some(client);
        self.client_count += 1;
        slot
    }

    /// Hands over that many clients, between two rounds: their rings, their unsent replies and
    /// their places are their whole state.
    pub fn part_with(&mut self, count: usize) -> Vec<ShmClient> {
        let clients = self.clients.iter_mut().filter_map(Option::take);
        let parted: Vec<ShmClient> = clients.take(count).collect();
        self.client_count -= parted.len();
        parted
    }

    /// A client's doorbell, for the worker's poller.
    pub fn doorbell(&self, slot: usize) -> Option<BorrowedFd<'_>> {
        Some(self.clients.get(slot)?.as_ref()?.end.as_fd())
    }

    /// Notes that a client's doorbell was rung, or that the client has left.
    pub fn hear(&mut self, slot: usize, state: &NativeState) {
        let Some(Some(client)) = self.clients.get_mut(slot) else { return };
        if let Err(error) = client.end.hear() {
            client.part(&error);
            self.forget(slot, state);
        }
    }

    fn forget(&mut self, slot: usize, state: &NativeState) {
        let Some(client) = self.clients[slot].take() else { return };
        self.client_count -= 1;
        state.shm_count.fetch_sub(1, Ordering::Relaxed);
        state.shm_places.give_back(client.lane.0 & SLOT_MASK);
        state.end_peer(client.lane.into());
    }

    /// Executes and answers the collected frames.
    pub fn serve(&mut self, frame_handler: &mut FrameHandler, service: &mut Service<'_>) {
        let ShmPort { clients, arena, frames, .. } = self;
        let arena = &**arena;
        let arrivals =
            frames.iter().map(|frame| (Sender::lane(frame.lane), &arena[frame.start..frame.end]));
        let mut outlet = ShmOutlet { clients, budget: service.state.sessions.budget() };
        frame_handler.serve(service, arrivals, &mut outlet);
        self.publish();
        self.sweep(service.state);
    }

    /// Writes the replies to what other workers have executed.
    pub fn send(&mut self, batch: &ForwardedBatch, core: &Core) {
        let (clients, budget) = (&mut self.clients[..], core.shared.buffer_budget());
        batch.send(&mut ShmOutlet { clients, budget }, core.counters());
    }

    /// Shows the clients what was written for them.
    pub fn publish(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            client.end.publish();
        }
    }

    /// Polls all rings: copies their frames to the arena. Returns whether there were any.
    pub fn collect(&mut self) -> bool {
        self.frames.clear();
        let (mut used_bytes, count) = (0, self.clients.len());
        for step in 0..count {
            let slot = (self.first + step) % count;
            let Some(client) = &mut self.clients[slot] else { continue };
            if !client.send_unsent() {
                continue;
            }
            if self.arena.len() - used_bytes < client.end.frame_len_max() {
                self.first = slot;
                break;
            }
            let (lane, frames) = (client.lane, &mut self.frames);
            let landed = |frame: landing::shm::Frame| {
                let start = used_bytes + frame.offset;
                frames.push(Arrived { lane, start, end: start + frame.len_bytes });
            };
            if let Err(error) = client.end.poll(&mut self.arena[used_bytes..], BURST_MAX, landed) {
                client.part(&error);
            }
            used_bytes = self.frames.last().map_or(0, |last| last.end.next_multiple_of(8));
        }
        !self.frames.is_empty()
    }

    /// Drops clients that were found to have left.
    pub fn sweep(&mut self, state: &NativeState) {
        if is_tight(state.sessions.budget()) {
            self.part_stuck();
        }
        for slot in 0..self.clients.len() {
            if self.clients[slot].as_ref().is_some_and(|client| client.is_gone) {
                self.forget(slot, state);
            }
        }
    }

    /// I5.
    #[cold]
    fn part_stuck(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            if client.stuck_since.is_some_and(|since| since.elapsed() > STUCK_MAX) {
                let process = client.end.peer().process_id;
                tracing::warn!(process, "shared memory: closed, it does not read its replies");
                client.is_gone = true;
            }
        }
    }

    /// Tells every client to ring (I2). Returns false if one has sent something already.
    pub fn may_sleep(&mut self) -> bool {
        self.clients.iter_mut().flatten().all(|client| {
            let unsent_bytes = client.unsent.front().map_or(0, |kept| kept.frame.len());
            match client.end.arm(unsent_bytes) {
                Ok(armed) => armed == Armed::Sleep,
                Err(error) => {
                    client.part(&error);
                    false
                }
            }
        })
    }

    /// Drops all clients.
    pub fn close(&mut self, state: &NativeState) {
        for slot in 0..self.clients.len() {
            self.forget(slot, state);
        }
    }
}

/// Writes frames into the rings of their clients.
struct ShmOutlet<'c> {
    clients: &'c mut [Option<ShmClient>],
    budget: &'c Arc<BufferBudget>,
}

impl Outlet for ShmOutlet<'_> {
    fn is_lossless(&self) -> bool {
        true
    }

    /// I5: replies that rings have no room for leave room for others.
    fn is_generous(&self) -> bool {
        !is_tight(self.budget)
    }

    fn frame_max_bytes(&self) -> usize {
        RingSize::DEFAULT.frame_len_max() & !7
    }

    #[inline]
    fn send(&mut self, to: Sender, frame: &[u8], counters: &WorkerCounters) {
        let lane = to.as_lane();
        let client =
            lane.and_then(|lane| self.clients.get_mut((lane.0 & SLOT_MASK) as usize)?.as_mut());
        let Some(client) = client.filter(|client| Some(client.lane) == lane) else {
            return counters.native.lost_replies.add(1);
        };
        if client.is_gone {
            return;
        }
        if client.unsent.is_empty() {
            match client.end.write(frame) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => return client.part(&error),
            }
        }
        client.keep(frame, self.budget);
    }
}

//! A worker thread: reads, gathers, executes or sends to other workers, replies.
//!
//! ```text
//!      ┌──────────────────────────────── one round ────────────────────────────────┐
//!  wait ──▶ read each ready connection once ──▶ gather one batch ──▶ execute ──▶ send each once
//!   ▲            into the arena                  across connections                    │
//!   └── keep house, control messages ◀── serve and collect forwarded requests, if any ─┘
//!                                        change roles, if requested
//! ```
//!
//! # Invariants
//! I1: per round a connection is read at most once and written at most once, unless its output
//!     holds pinned values.
//! I2: the wall clock is read once per round.
//! I3: a worker that sleeps in the kernel has parked its session (K12).
//!
//! # Limits
//! A round reads at most an arena of bytes, plus a slice of each command that has its own buffer,
//! so that one client's large value does not delay the others (K16).

mod accept;
mod control;
mod events;
mod feed;
mod finish;
pub mod flushing;
mod idle;
mod latency;
mod lend;
mod linger;
mod monitors;
mod native;
mod read;
pub mod resting;
mod roles;
mod sealed;
mod slow;
mod starve;
mod tracking;
mod udp;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::native::Native;
use ::native::shm::ShmDoor;
use base::roles::Member;
use base::{UnixMillis, WorkerId};
use budget::Kind;
use config::Poll;
use counters::Dialect;
use dispatch::hot::key_sampler::KeySampler;
use dispatch::lanes::{PublishedRoles, Returned};
use handlers::gather::Fed;
use handlers::gather::Gather;
use handlers::memcached::udp::UdpPort;
use host::poller::{Interest, Poller, Ready};
use host::process::unix_now;
use replication::durable::{Data, Gate};
use replication::replicate::GroupAnswer;
use runtime::core::Core;
use runtime::engine::Home;
use runtime::moving::Moving;
use runtime::shared::Shared;
use runtime::shm_client::ShmClient;

use crate::listen::UnixListener;
use idle::IdlePass;
use latency::Latency;
use linger::Lingering;
use read::Region;
use sealed::Handshakes;
use starve::Starved;

/// The most that one round reads into the arena: small enough to stay in the processor's
/// second-level cache.
const ARENA_BYTES: usize = 256 << 10;

/// `Poll::Auto` continues to poll for this long after the last work.
const SPIN_TIME: Duration = Duration::from_micros(50);

/// Longest sleep, after which a worker checks for housekeeping.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Longest sleep while items are waiting to expire.
const SLEEP_MAX_EXPIRING: Duration = Duration::from_millis(20);

/// Longest sleep while a connection waits for buffer room or accepting is suspended.
const SLEEP_MAX_WAITING: Duration = Duration::from_millis(10);

/// Time between two steps of housekeeping while there is work.
const KEEP_HOUSE_EVERY: Duration = Duration::from_millis(1);

/// Tokens of the poller: connections count from 0.
const TOKEN_WAKER: u64 = u64::MAX;
const TOKEN_RESP: u64 = u64::MAX - 1;
const TOKEN_MEMCACHED: u64 = u64::MAX - 2;
const TOKEN_SHM_DOOR: u64 = u64::MAX - 3;
const TOKEN_RECEIVER: u64 = u64::MAX - 4;
const TOKEN_TLS_RESP: u64 = u64::MAX - 5;
const TOKEN_TLS_MEMCACHED: u64 = u64::MAX - 6;
const TOKEN_UDP: u64 = u64::MAX - 7;
const TOKEN_UNIX_RESP: u64 = u64::MAX - 8;
const TOKEN_UNIX_MEMCACHED: u64 = u64::MAX - 9;
/// Ports for datagrams count from here.
const TOKEN_PORT: u64 = 1 << 61;
/// Doorbells of clients in shared memory count from here.
const TOKEN_SHM: u64 = 1 << 62;

/// While clients in shared memory or other workers are busy, the sockets are polled only once in
/// this many rounds: polling costs as much as serving a small batch.
const ROUNDS_PER_WAIT: u32 = 16;

/// A listener of this worker.
struct Listener {
    socket: ListeningSocket,
    protocol: Dialect,
    is_tls: bool,
    token: u64,
}

/// The socket of a listener.
enum ListeningSocket {
    /// This worker's own share of a port.
    Tcp(TcpListener),
    /// A Unix socket, which all workers share: the first one to accept gets the connection.
    Unix(Arc<UnixListener>),
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(socket) => socket.as_fd(),
            ListeningSocket::Unix(listener) => listener.claim.as_fd(),
        }
    }
}

/// Rare work with which a round begins.
enum Due {
    /// Read this connection a last time.
    ReadLast(usize),
    /// Roles were published, or connections have arrived.
    Roles,
    /// Take back the loan of a connection that is moving to another worker.
    TakeBack(Returned),
}

/// One worker.
pub struct Worker<E, P> {
    core: Core,
    engine: E,
    poller: P,
    listeners: Vec<Listener>,
    native: Option<Native>,
    shm_door: Option<ShmDoor>,
    /// Its socket for memcached over UDP.
    udp: Option<UdpPort>,
    /// Rounds since the sockets were last polled.
    rounds_without_wait: u32,
    /// Whether the last round served clients in shared memory, or other workers.
    has_served_queues: bool,
    /// Whether datagrams wait for the kernel to take them, or ports have to be polled.
    has_native_work: bool,
    arena: Box<[u8]>,
    regions: Vec<Region>,
    ready: Vec<Ready>,
    /// Connections that can continue without new input.
    resumable: Vec<usize>,
    starved: Starved,
    lingering: Lingering,
    /// Accepting is suspended until then, because no descriptor was left.
    accept_again_at: Option<Instant>,
    last_work_at: Instant,
    kept_house_at: Instant,
    /// The earliest time at which reading for the next gathering can have begun.
    gathers_since: Instant,
    /// Whether some items have an expiry, as of `expiring_checked_at`.
    is_expiring: bool,
    expiring_checked_at: UnixMillis,
    is_draining: bool,
    /// Rare work with which the next round begins.
    due: Vec<Due>,
    /// How it waits for work in its role.
    poll: Poll,
    member: Member,
    /// The roles that it has taken up.
    published: Arc<PublishedRoles>,
    /// Connections that other workers have handed over.
    #[expect(clippy::vec_box, reason = "they come boxed by mail, and are large")]
    arrivals: Vec<Box<Moving>>,
    /// Clients in shared memory that other workers have handed over.
    #[expect(clippy::vec_box, reason = "they come boxed by mail, and are large")]
    shm_arrivals: Vec<Box<ShmClient>>,
    /// Counts handed-over connections, so that their targets take turns.
    next_target: usize,
    latency: Latency,
    handshakes: Handshakes,
    /// Set if replies wait for the disk.
    gate: Option<Gate>,
    idle: IdlePass,
    /// Samples of keys, unless the engine takes them.
    key_sampler: Option<KeySampler>,
    /// Whether the next gathering is sampled.
    is_key_sample_due: bool,
}

/// The sockets with which a worker starts.
#[derive(Default)]
pub struct WorkerSockets {
    /// Its share of the RESP port.
    pub resp: Option<TcpListener>,
    /// Its share of the memcached port.
    pub memcached: Option<TcpListener>,
    /// Its share of RESP's TLS port.
    pub tls_resp: Option<TcpListener>,
    /// Its share of memcached's TLS port.
    pub tls_memcached: Option<TcpListener>,
    /// RESP's Unix socket.
    pub unix_resp: Option<Arc<UnixListener>>,
    /// memcached's Unix socket.
    pub unix_memcached: Option<Arc<UnixListener>>,
    /// Its side of the native protocol, if that is on.
    pub native: Option<Native>,
    /// Where clients in shared memory arrive; one worker accepts them for all.
    pub shm_door: Option<ShmDoor>,
    /// Its share of memcached over UDP, if that is on.
    pub udp: Option<UdpPort>,
}

impl WorkerSockets {
    fn take_listeners(&mut self) -> Vec<Listener> {
        let sockets = [
            (self.resp.take().map(ListeningSocket::Tcp), Dialect::Resp, false, TOKEN_RESP),
            (
                self.memcached.take().map(ListeningSocket::Tcp),
                Dialect::Memcached,
                false,
                TOKEN_MEMCACHED,
            ),
            (self.tls_resp.take().map(ListeningSocket::Tcp), Dialect::Resp, true, TOKEN_TLS_RESP),
            (
                self.tls_memcached.take().map(ListeningSocket::Tcp),
                Dialect::Memcached,
                true,
                TOKEN_TLS_MEMCACHED,
            ),
            (
                self.unix_resp.take().map(ListeningSocket::Unix),
                Dialect::Resp,
                false,
                TOKEN_UNIX_RESP,
            ),
            (
                self.unix_memcached.take().map(ListeningSocket::Unix),
                Dialect::Memcached,
                false,
                TOKEN_UNIX_MEMCACHED,
            ),
        ];
        let listeners = sockets.into_iter().filter_map(|(socket, protocol, is_tls, token)| {
            Some(Listener { socket: socket?, protocol, is_tls, token })
        });
        listeners.collect()
    }
}

impl<E: Home, P: Poller> Worker<E, P> {
    /// A worker that is not running yet.
    pub fn new(
        shared: Arc<Shared>,
        worker: WorkerId,
        mut engine: E,
        mut poller: P,
        mut sockets: WorkerSockets,
    ) -> io::Result<Worker<E, P>> {
        let (mailbox, _) = shared.mailbox(worker.index());
        poller.add(mailbox.waker.as_fd(), TOKEN_WAKER, Interest::READ)?;
        let listeners = sockets.take_listeners();
        for listener in &listeners {
            poller.add(listener.socket.as_fd(), listener.token, Interest::READ)?;
        }
        if let Some(native) = &sockets.native {
            for (token, descriptor) in (TOKEN_PORT..).zip(native.ports().descriptors()) {
                poller.add(descriptor, token, Interest::READ)?;
            }
            let zone_bytes = native.ports().zone_bytes();
            shared.counters(worker.index()).native.zone_bytes.set(zone_bytes);
        }
        if let Some(door) = &sockets.shm_door {
            poller.add(door.as_fd(), TOKEN_SHM_DOOR, Interest::READ)?;
        }
        let mut core = Core::new(Arc::clone(&shared), worker);
        if let Some(udp) = &sockets.udp {
            poller.add(udp.as_fd(), TOKEN_UDP, Interest::READ)?;
            core.ledger.force(Kind::Udp, udp.held_bytes());
        }
        if let Some(receiver) = engine.receiver() {
            poller.add(receiver.as_fd(), TOKEN_RECEIVER, Interest::READ)?;
        }
        let now = Instant::now();
        let (poll, published) = (shared.config().poll, shared.roles().latest());
        Ok(Worker {
            gate: shared.data().and_then(Data::gate),
            core,
            key_sampler: shared.hot_keys().filter(|_| !E::ROUTES).map(|keys| {
                KeySampler::new(keys, shared.store().key_hasher().clone(), worker, now)
            }),
            is_key_sample_due: false,
            engine,
            poller,
            listeners,
            // New ports are polled once at first.
            has_native_work: sockets.native.is_some(),
            native: sockets.native,
            shm_door: sockets.shm_door,
            udp: sockets.udp,
            rounds_without_wait: 0,
            has_served_queues: false,
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            regions: Vec::new(),
            ready: Vec::new(),
            resumable: Vec::new(),
            starved: Starved::new(now),
            lingering: Lingering::default(),
            accept_again_at: None,
            last_work_at: now,
            kept_house_at: now,
            gathers_since: now,
            is_expiring: false,
            expiring_checked_at: UnixMillis(0),
            is_draining: false,
            due: Vec::new(),
            poll,
            member: Member::new(*published.plan()),
            published,
            arrivals: Vec::new(),
            shm_arrivals: Vec::new(),
            next_target: worker.index(),
            latency: Latency::new(now),
            idle: IdlePass::default(),
            handshakes: Handshakes::default(),
        })
    }

    /// Serves until the server is stopped and everything is drained, or the drain is cut short.
    pub fn run(mut self) {
        while !self.is_finished() {
            // It cannot fail with valid descriptors; a server without one of its workers would
            // leave clients without replies.
            self.wait()
                .unwrap_or_else(|error| panic!("a worker cannot wait for requests: {error}"));
            self.round();
        }
        self.close_all();
    }

    /// Runs one round, for a thread that runs several workers in turn.
    #[cfg(any(test, feature = "drive"))]
    pub fn step(&mut self) -> io::Result<()> {
        self.wait()?;
        self.round();
        Ok(())
    }

    fn is_finished(&mut self) -> bool {
        self.core.shared.is_aborting()
            || (self.is_draining
                && self.core.connections.is_empty()
                && self.due.is_empty()
                && !self.core.flushing.is_on()
                && self.core.shared.roles().transit.is_over()
                && self.engine.may_end(&self.core))
    }

    /// Waits for work, as configured.
    fn wait(&mut self) -> io::Result<()> {
        if self.has_served_queues && self.rounds_without_wait < ROUNDS_PER_WAIT {
            self.rounds_without_wait += 1;
            self.ready.clear();
            return Ok(());
        }
        self.rounds_without_wait = 0;
        if self.poll == Poll::Busy || self.has_work_at_hand() {
            let waited = self.poller.wait(&mut self.ready, Some(Duration::ZERO));
            if self.is_draining && self.ready.is_empty() && !self.has_work_at_hand() {
                self.read_all_last(); // As after a sleep.
            }
            return waited;
        }
        if self.poll == Poll::Auto {
            self.poller.wait(&mut self.ready, Some(Duration::ZERO))?;
            if !self.ready.is_empty() || self.last_work_at.elapsed() < SPIN_TIME {
                return Ok(());
            }
        }
        self.core.now = unix_now();
        self.close_idle();
        self.close_reply_holders();
        let has_more_to_do = self.engine.own_session().maintain(self.core.now);
        self.tell_changes();
        if has_more_to_do || !self.core.touched.is_empty() {
            return self.poller.wait(&mut self.ready, Some(Duration::ZERO));
        }
        if let Some(native) = &mut self.native {
            native.keep_house(&self.core);
            if !native.may_sleep() {
                return self.poller.wait(&mut self.ready, Some(Duration::ZERO));
            }
        }
        if let Some(udp) = &mut self.udp {
            udp.keep_house(&self.core);
        }
        let sleep_max = self.sleep_max();
        if !self.engine.lie_down() {
            return self.poller.wait(&mut self.ready, Some(Duration::ZERO));
        }
        self.engine.own_session().park(); // I3.
        let waited = self.poller.wait(&mut self.ready, Some(sleep_max));
        self.engine.own_session().unpark();
        self.engine.get_up();
        if self.is_draining {
            self.read_all_last();
        }
        if Self::MEASURES {
            self.latency.has_slept = true;
        }
        waited
    }

    fn has_work_at_hand(&self) -> bool {
        !self.resumable.is_empty()
            || !self.due.is_empty()
            || self.has_native_work
            || self.core.flushing.is_on()
            || self.core.telling.has_more()
            || !self.core.touched.is_empty()
            || (E::ROUTES && (self.can_take_up() || self.engine.has_loans()))
    }

    /// Whether the worker, parked for new roles, can take them up now.
    fn can_take_up(&self) -> bool {
        self.member.is_parked() && self.engine.is_drained()
    }

    fn sleep_max(&mut self) -> Duration {
        let shared = &self.core.shared;
        // Summing the counters at every sleep would cost a blocking server a few percent.
        if self.expiring_checked_at != self.core.now {
            self.expiring_checked_at = self.core.now;
            self.is_expiring = shared.store().is_expiring();
        }
        let mut sleep = if self.is_expiring { SLEEP_MAX_EXPIRING } else { SLEEP_MAX };
        if !self.starved.is_empty()
            || !self.lingering.is_empty()
            || self.accept_again_at.is_some()
            || self.is_draining
            || self.core.telling.is_pressing()
        {
            sleep = sleep.min(SLEEP_MAX_WAITING);
        }
        let paused = shared.paused(self.core.now);
        if self.core.pauses.holds() && paused.is_none() {
            return Duration::ZERO; // What it holds may go on (P1).
        }
        let rested_at = self.core.resting.next_at();
        for at in
            [shared.flush_at(), paused.map(|pause| pause.until), rested_at].into_iter().flatten()
        {
            if at > self.core.now {
                sleep = sleep.min(Duration::from_millis(at.0 - self.core.now.0));
            }
        }
        let timeout_ms = shared.live().idle_timeout_ms();
        if let Some(idle) = self.idle.sleep_max(timeout_ms, self.core.now) {
            sleep = sleep.min(idle);
        }
        sleep.min(self.engine.sleep_max())
    }

    /// The work between two waits.
    fn round(&mut self) {
        let had_work = !self.ready.is_empty() || self.has_work_at_hand();
        let started_at = Instant::now();
        if Self::MEASURES {
            self.begin_latency(started_at);
        }
        self.gathers_since = started_at;
        self.before_round();
        self.end_handshakes(started_at);
        self.begin_due();
        if had_work {
            // The ready list is taken out so that handlers may borrow the worker.
            let mut ready = std::mem::take(&mut self.ready);
            let mut resumable = std::mem::take(&mut self.resumable);
            if !resumable.is_empty() || self.core.has_left_unread() {
                self.put_in_order(&mut ready, &mut resumable);
            }
            let mut rest = ready.iter().copied().peekable();
            let mut rest_resumable = resumable.drain(..).peekable();
            loop {
                let used_bytes = self.read_ready(&mut rest, &mut rest_resumable);
                if self.regions.is_empty() && self.core.touched.is_empty() {
                    break;
                }
                self.gather(used_bytes);
                self.finish_touched();
            }
            drop(rest_resumable);
            if E::ROUTES {
                self.wake_loans(&ready);
            }
            self.serve_native(&ready);
            self.accept_ready(&ready);
            ready.clear();
            self.ready = ready;
            if self.resumable.is_empty() {
                self.resumable = resumable;
            }
        }
        self.has_served_queues = false;
        self.has_native_work = false;
        if let Some(native) = &mut self.native {
            self.has_served_queues = native.serve_shm(&mut self.engine, &self.core);
            let is_due = native.serve_due(&mut self.engine, &self.core);
            self.has_native_work = native.send_unsent(&self.core) || is_due;
        }
        if E::ROUTES {
            self.has_served_queues |= self.engine.turn(&mut self.core);
            if self.engine.take_has_stolen() {
                self.rounds_without_wait = ROUNDS_PER_WAIT;
            }
            self.finish_touched();
            if self.member.is_moving() {
                self.change_roles();
            }
            // Last: small replies have been sent by now.
            self.send_loans();
        }
        if let Some(udp) = &mut self.udp {
            self.has_native_work |= udp.flush(self.core.counters());
        }
        self.send_events();
        self.tell_changes();
        self.finish_touched();
        self.after_round(had_work || self.has_served_queues, started_at);
    }

    /// Parses the bytes that were read and executes the commands.
    fn gather(&mut self, used_bytes: usize) {
        self.core.renew_passes(); // Behind the reads: acl A2.
        self.core.begin_replies();
        let arena = &self.arena[..used_bytes];
        let mut gather = Gather::new(&mut self.engine, &mut self.core);
        let (mut consumed_bytes, is_alone) = (0, self.regions.len() == 1);
        for region in &self.regions {
            gather.receive_buffer = region.receive_buffer();
            gather.core.begin_part(is_alone);
            (gather.only_reads, gather.command_count) = (true, 0);
            if E::ROUTES {
                let connection = &gather.core.connections[region.slot];
                let is_first = connection.says_nothing() && connection.is_between_replies();
                region.is_answer_alone.set(is_first);
                region.may_repeat.set(is_first && connection.has_whole_replies());
            }
            let before = gather.core.work();
            let fed = match gather.core.may_feed(region.slot) {
                true => feed::feed(&mut gather, region.slot, region.bytes(arena)),
                false => Fed::up_to(0, 0),
            };
            gather.settle_heavy(region.slot);
            region.command_count.set(gather.command_count);
            if E::ROUTES && !gather.only_reads {
                region.is_answer_alone.set(false);
                region.may_repeat.set(false);
            }
            if fed.consumed_bytes > 0 {
                gather.core.end_part(region.slot, before);
            }
            consumed_bytes += fed.consumed_bytes as u64;
            region.fed.set(Some(fed));
        }
        gather.finish();
        gather.core.charge_fed(consumed_bytes);
        drop(gather);
        if E::ROUTES {
            self.look_at_reads();
        }
        self.starve_short_of_pins();
        self.tell_changes();
        let took = self.look_at_slowness();
        self.feed_monitors(took);
        self.engine.publish(&mut self.core);
        if Self::MEASURES {
            self.time_a_read();
        }
        if self.core.is_spent() {
            self.note_waiting();
        }
        self.keep_rests();
    }

    /// W1: connections that could not begin a command come first in the next round, the longest
    /// waiting first.
    #[cold]
    fn note_waiting(&mut self) {
        for region in &self.regions {
            let consumed_bytes = region.fed.get().map_or(0, |fed| fed.consumed_bytes);
            self.core.note_waited(region.slot, consumed_bytes, region.bytes(&self.arena).len());
        }
    }

    /// Sets the round's time, and does the work that is due with it.
    fn before_round(&mut self) {
        self.core.now = unix_now(); // I2.
        if self.gate.as_mut().is_some_and(Gate::has_failed) {
            self.cut_writers();
        }
        self.core.begin_turn();
        self.core.renew_passes();
        self.flush_on();
        self.end_rests();
        self.look_at_topics();
        self.look_at_trackers();
        if let Some(view) = self.core.shared.cluster() {
            self.core.places_seen = view.generation();
        }
        if self.core.shared.take_due_flush(self.core.now) {
            match self.engine.flush_shards(true) {
                None if self.flush_later() => {}
                // The log cannot be written now: the flush becomes due again.
                None => self.core.shared.set_flush_at(Some(self.core.now)),
                Some(GroupAnswer::Good) => {}
                Some(_) => tracing::warn!("flush_all came due, and not all shards were flushed"),
            }
        }
        self.core.pauses.set(self.core.shared.paused(self.core.now));
        self.core.note_exceptions();
        if self.core.pauses.take_over() {
            self.resume_all();
        }
    }

    fn after_round(&mut self, had_work: bool, started_at: Instant) {
        self.core.end_turn();
        let is_stopping = self.core.shared.is_stopping();
        if let Some(outgrown) = self.core.ledger.outgrown() {
            self.core.ledger.return_idle();
            self.evict_clients(outgrown);
            self.wake_those_that_hold_more();
        }
        let is_waiting = !self.starved.is_empty()
            || self.core.ledger.budget().asked_bytes(self.core.now) > 0
            || !self.lingering.is_empty()
            || self.accept_again_at.is_some();
        let never_sleeps = self.poll == Poll::Busy;
        if !had_work && !is_waiting && !is_stopping && !never_sleeps {
            return; // The wait that follows keeps house before it sleeps.
        }
        let now = Instant::now();
        if had_work {
            self.last_work_at = now;
            let busy_ns = now.duration_since(started_at).as_nanos() as u64;
            self.core.counters().busy_ns.add(busy_ns);
            self.close_timing(now.duration_since(started_at));
            if Self::MEASURES {
                self.end_latency(now);
            }
        }
        let is_due = now.duration_since(self.kept_house_at) >= KEEP_HOUSE_EVERY;
        // If free segments are short, a step after every batch, so that no write reclaims a whole
        // one.
        if is_due || self.engine.own_session().wants_room() {
            self.kept_house_at = now;
            self.is_key_sample_due =
                self.key_sampler.as_mut().is_some_and(|key_sampler| key_sampler.is_due(now));
            self.close_idle();
            self.close_reply_holders();
            self.engine.own_session().maintain(self.core.now);
            if let Some(native) = &mut self.native {
                native.keep_house(&self.core);
            }
            if let Some(udp) = &mut self.udp {
                udp.keep_house(&self.core);
            }
        }
        self.feed_starved(now);
        if !self.lingering.is_empty() {
            self.lingering.tend(now, &mut self.arena);
        }
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
            self.poll_listeners();
        }
        if is_stopping {
            self.start_draining();
        }
    }
}

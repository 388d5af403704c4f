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
//! A phase of the round is a function of the module of its name. State that phases share has an
//! owner:
//!
//! | state | its owner |
//! |---|---|
//! | what all parts of a worker use: connections, ledger, time | `core` (`runtime`) |
//! | when the sockets are polled | `polling` |
//! | listeners, and the pause of accepting | `listeners` |
//! | the arena, and the bytes of a gathering | `regions` |
//! | long replies and commands, in turn | `bulk` |
//! | connections that wait for room; clients closed for it | `starve::starved`; `evict` |
//! | the role, and what other workers have handed over | `roles` |
//! | handshakes under way; sockets that linger | `sealed`; `linger` |
//! | the pass over idle connections | `idle` |
//! | samples of keys; of latencies | `monitors`; `latency` |
//!
//! # Invariants
//! I1: per round a connection is read at most once and written at most once, unless its output
//!     holds pinned values, or replies of other workers or messages come later in the round.
//! I2: the wall clock is read once per round.
//! I3: a worker that sleeps in the kernel has parked its session (K12).
//!
//! # Limits
//! A round reads at most an arena of bytes, and moves a quantum of long commands and replies, so
//! that one client's large value does not delay the others (K16).

mod accept;
mod bulk;
mod control;
mod events;
mod evict;
mod feed;
mod finish;
mod flushing;
mod idle;
mod latency;
mod lend;
mod linger;
mod listeners;
mod monitors;
mod native;
mod polling;
mod read;
mod regions;
mod resting;
mod roles;
mod sealed;
mod slow;
mod starve;
mod tracking;
mod udp;

use std::io;
use std::net::TcpListener;
#[cfg(any(test, feature = "drive"))]
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::native::Native;
use ::native::shm::ShmDoor;
use base::WorkerId;
use budget::Kind;
use config::Poll;
#[cfg(any(test, feature = "drive"))]
use counters::Dialect;
use dispatch::hot::key_sampler::KeySampler;
use dispatch::lanes::Returned;
use handlers::gather::Fed;
use handlers::gather::Gather;
use handlers::memcached::udp::UdpPort;
use host::poller::{Interest, Poller, Ready};
use host::process::unix_now;
use replication::durable::{Data, Gate};
use replication::replicate::GroupAnswer;
use runtime::core::Core;
use runtime::engine::Home;
use runtime::shared::Shared;

use crate::listen::UnixListener;
use bulk::Bulk;
use evict::Evictions;
use idle::IdlePass;
use latency::Latency;
use linger::Lingering;
use listeners::Listeners;
use monitors::KeySamples;
use polling::Polling;
use regions::Regions;
use roles::Roles;
use sealed::Handshakes;
use starve::Starved;

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
    polling: Polling,
    listeners: Listeners,
    native: Option<Native>,
    shm_door: Option<ShmDoor>,
    /// Its socket for memcached over UDP.
    udp: Option<UdpPort>,
    /// Whether datagrams wait for the kernel to take them, or ports have to be polled.
    has_native_work: bool,
    regions: Regions,
    ready: Vec<Ready>,
    /// Connections that can continue without new input.
    resumable: Vec<usize>,
    bulk: Bulk,
    starved: Starved,
    evictions: Evictions,
    lingering: Lingering,
    kept_house_at: Instant,
    /// The earliest time at which reading for the next gathering can have begun.
    gathers_since: Instant,
    is_draining: bool,
    /// Rare work with which the next round begins.
    due: Vec<Due>,
    roles: Roles,
    latency: Latency,
    handshakes: Handshakes,
    /// Set if replies wait for the disk.
    gate: Option<Gate>,
    idle: IdlePass,
    key_samples: KeySamples,
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

impl<E: Home, P: Poller> Worker<E, P> {
    /// Whether this kind of worker can take times.
    const MEASURES: bool = E::ROUTES || P::MEASURES;

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
        let listeners = Listeners::new(&mut sockets, &mut poller)?;
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
        let key_sampler = shared
            .hot_keys()
            .filter(|_| !E::ROUTES)
            .map(|keys| KeySampler::new(keys, shared.store().key_hasher().clone(), worker, now));
        Ok(Worker {
            gate: shared.data().and_then(Data::gate),
            core,
            key_samples: KeySamples::new(key_sampler),
            engine,
            poller,
            polling: Polling::new(shared.config().poll, now),
            listeners,
            // New ports are polled once at first.
            has_native_work: sockets.native.is_some(),
            native: sockets.native,
            shm_door: sockets.shm_door,
            udp: sockets.udp,
            regions: Regions::new(),
            ready: Vec::new(),
            resumable: Vec::new(),
            bulk: Bulk::default(),
            starved: Starved::new(now),
            evictions: Evictions::default(),
            lingering: Lingering::default(),
            kept_house_at: now,
            gathers_since: now,
            is_draining: false,
            due: Vec::new(),
            roles: Roles::new(worker.index(), shared.roles().latest()),
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
        finish::close_all(&mut self);
    }

    /// Runs one round, for a thread that runs several workers in turn.
    #[cfg(any(test, feature = "drive"))]
    pub fn step(&mut self) -> io::Result<()> {
        self.wait()?;
        self.round();
        Ok(())
    }

    /// Admits a connection, for a thread that runs several workers in turn.
    #[cfg(any(test, feature = "drive"))]
    pub fn admit(&mut self, socket: TcpStream, protocol: Dialect, is_tls: bool) {
        accept::admit_from(self, socket, None, (protocol, is_tls));
    }

    fn is_finished(&mut self) -> bool {
        self.core.shared.run().is_aborting()
            || (self.is_draining
                && self.core.connections.is_empty()
                && self.due.is_empty()
                && !self.core.flushing.is_on()
                && self.core.shared.roles().transit.is_over()
                && self.engine.may_end(&self.core))
    }

    /// Sleeps until a socket is ready, another thread rings the mailbox or the bell, or `sleep_max`
    /// ends. While it sleeps, its session is parked (I3).
    fn wait(&mut self) -> io::Result<()> {
        if self.polling.skips_sockets() {
            self.ready.clear();
            return Ok(());
        }
        if self.polling.poll == Poll::Busy || self.has_work_at_hand() {
            let waited = self.poller.wait(&mut self.ready, Some(Duration::ZERO));
            if self.is_draining && self.ready.is_empty() && !self.has_work_at_hand() {
                control::read_all_last(self); // As after a sleep.
            }
            return waited;
        }
        if self.polling.poll == Poll::Auto {
            self.poller.wait(&mut self.ready, Some(Duration::ZERO))?;
            if !self.ready.is_empty() || self.polling.is_spinning(self.core.connections.len()) {
                return Ok(());
            }
        }
        self.core.now = unix_now();
        idle::close_some(self);
        starve::close_reply_holders(self);
        let has_more_to_do = self.engine.own_session().maintain(self.core.now);
        tracking::tell_changes(self);
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
        if E::ROUTES && self.native.as_ref().is_some_and(|it| it.has_forwarded(&self.core)) {
            self.engine.get_up();
            return self.poller.wait(&mut self.ready, Some(Duration::ZERO));
        }
        self.polling.note_sleep();
        self.engine.own_session().park(); // I3.
        let waited = self.poller.wait(&mut self.ready, Some(sleep_max));
        self.engine.own_session().unpark();
        self.engine.get_up();
        if self.is_draining {
            control::read_all_last(self);
        }
        if Self::MEASURES {
            self.latency.has_slept = true;
        }
        waited
    }

    fn has_work_at_hand(&self) -> bool {
        !self.resumable.is_empty()
            || !self.bulk.is_empty()
            || !self.due.is_empty()
            || self.has_native_work
            || self.core.flushing.is_on()
            || self.core.telling.has_more()
            || !self.core.touched.is_empty()
            || (E::ROUTES && (self.can_take_up() || self.engine.has_loans()))
    }

    /// Whether the worker, parked for new roles, can take them up now.
    fn can_take_up(&self) -> bool {
        self.roles.is_parked() && self.engine.is_drained()
    }

    fn sleep_max(&mut self) -> Duration {
        let shared = &self.core.shared;
        let mut sleep = self.polling.sleep_max(shared, self.core.now);
        if !self.starved.is_empty()
            || !self.lingering.is_empty()
            || self.listeners.is_paused()
            || self.is_draining
            || self.core.telling.is_pressing()
        {
            sleep = sleep.min(SLEEP_MAX_WAITING);
        }
        let paused = shared.delays().paused(self.core.now);
        if self.core.pauses.holds() && paused.is_none() {
            return Duration::ZERO; // What it holds may go on (P1).
        }
        let rested_at = self.core.resting.next_at();
        if rested_at.is_some_and(|at| at <= self.core.now) {
            return Duration::ZERO;
        }
        for at in [shared.delays().flush_at(), paused.map(|pause| pause.until), rested_at]
            .into_iter()
            .flatten()
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
            latency::begin(self, started_at);
        }
        self.gathers_since = started_at;
        self.before_round();
        self.bulk.note_waits(&self.core.counters().bulk, !self.ready.is_empty());
        sealed::cut_late(self, started_at);
        control::begin_due(self);
        if had_work {
            // The ready list is taken out so that handlers may borrow the worker.
            let mut ready = std::mem::take(&mut self.ready);
            let mut resumable = std::mem::take(&mut self.resumable);
            if !resumable.is_empty() {
                read::put_in_order(self, &mut ready, &mut resumable);
            }
            let mut rest = ready.iter().copied().peekable();
            let mut rest_resumable = resumable.drain(..).peekable();
            loop {
                let used_bytes = read::read_ready(self, &mut rest, &mut rest_resumable);
                if self.regions.all.is_empty() && self.core.touched.is_empty() {
                    break;
                }
                self.gather(used_bytes);
                finish::finish_touched(self);
            }
            drop(rest_resumable);
            if E::ROUTES {
                lend::wake(self, &ready);
            }
            native::serve(self, &ready);
            accept::accept_ready(self, &ready);
            ready.clear();
            self.ready = ready;
            if self.resumable.is_empty() {
                self.resumable = resumable;
            }
        }
        native::turn(self);
        if E::ROUTES {
            self.polling.has_served_queues |= self.engine.turn(&mut self.core);
            if self.engine.take_has_stolen() {
                self.polling.poll_next();
            }
            finish::finish_touched(self);
            if self.roles.is_moving() {
                roles::change(self);
            }
        }
        if let Some(udp) = &mut self.udp {
            self.has_native_work |= udp.flush(self.core.counters());
        }
        events::send(self);
        tracking::tell_changes(self);
        finish::finish_touched(self);
        // Last: small replies have been sent by now.
        if E::ROUTES || !self.bulk.is_empty() {
            bulk::serve(self);
        }
        self.after_round(had_work || self.polling.has_served_queues, started_at);
    }

    /// Parses the bytes that were read and executes the commands.
    fn gather(&mut self, used_bytes: usize) {
        self.core.renew_passes(); // Behind the reads: acl A2.
        self.core.begin_replies();
        let arena = &self.regions.arena[..used_bytes];
        let mut gather = Gather::new(&mut self.engine, &mut self.core);
        let (mut consumed_bytes, is_alone) = (0, self.regions.all.len() == 1);
        for region in &self.regions.all {
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
            if E::ROUTES && !(gather.routes() && gather.only_reads) {
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
            finish::look_at_reads(self);
        }
        self.starved.add_short_of_pins(&mut self.core);
        tracking::tell_changes(self);
        let took = slow::look(self);
        monitors::feed(self, took);
        self.engine.publish(&mut self.core);
        if Self::MEASURES {
            latency::time_a_read(self);
        }
        if self.core.is_spent() {
            self.note_waiting();
        }
        read::keep_rests(self);
    }

    /// W1: connections that could not begin a command come first in the next round, the longest
    /// waiting first.
    #[cold]
    fn note_waiting(&mut self) {
        for region in &self.regions.all {
            let consumed_bytes = region.fed.get().map_or(0, |fed| fed.consumed_bytes);
            self.core.note_waited(
                region.slot,
                consumed_bytes,
                region.bytes(&self.regions.arena).len(),
            );
        }
    }

    /// Sets the round's time, and does the work that is due with it.
    fn before_round(&mut self) {
        self.core.now = unix_now(); // I2.
        if self.gate.as_mut().is_some_and(Gate::has_failed) {
            finish::cut_writers(self);
        }
        self.core.begin_turn();
        self.core.renew_passes();
        flushing::go_on(self);
        resting::end_due(self);
        if E::ROUTES && self.engine.take_group_answers() {
            resting::end_answered(self);
        }
        events::look_at_topics(self);
        tracking::look_at_trackers(self);
        if let Some(view) = self.core.shared.cluster() {
            self.core.places_seen = view.generation();
        }
        if self.core.shared.delays().take_due_flush(self.core.now) {
            match self.engine.flush_shards(true) {
                None if flushing::begin_later(self) => {}
                // The log cannot be written now: the flush becomes due again.
                None => self.core.shared.set_flush_at(Some(self.core.now)),
                Some(GroupAnswer::Good) => {}
                Some(_) => tracing::warn!("flush_all came due, and not all shards were flushed"),
            }
        }
        self.core.pauses.set(self.core.shared.delays().paused(self.core.now));
        self.core.note_exceptions();
        if self.core.pauses.take_over() {
            finish::resume_all(self);
        }
    }

    fn after_round(&mut self, had_work: bool, started_at: Instant) {
        self.core.end_turn();
        let is_stopping = self.core.shared.run().is_stopping();
        if let Some(outgrown) = self.core.ledger.outgrown() {
            self.core.ledger.return_idle();
            evict::close_clients(self, outgrown);
            self.evictions.wake_those_that_hold_more(&self.core);
        }
        let is_waiting = !self.starved.is_empty()
            || self.core.ledger.budget().asked_bytes(self.core.now) > 0
            || !self.lingering.is_empty()
            || self.listeners.is_paused();
        let never_sleeps = self.polling.poll == Poll::Busy;
        if !had_work && !is_waiting && !is_stopping && !never_sleeps {
            return; // The wait that follows keeps house before it sleeps.
        }
        let now = Instant::now();
        if had_work {
            self.polling.note_work(now);
            let busy_ns = now.duration_since(started_at).as_nanos() as u64;
            self.core.counters().busy_ns.add(busy_ns);
            slow::close_timing(self, now.duration_since(started_at));
            if Self::MEASURES {
                latency::end(self, now);
            }
        }
        let is_due = now.duration_since(self.kept_house_at) >= KEEP_HOUSE_EVERY;
        // If free segments are short, a step after every batch, so that no write reclaims a whole
        // one.
        if is_due || self.engine.own_session().wants_room() {
            self.kept_house_at = now;
            self.key_samples.tick(now);
            idle::close_some(self);
            starve::close_reply_holders(self);
            self.engine.own_session().maintain(self.core.now);
            if let Some(native) = &mut self.native {
                native.keep_house(&self.core);
            }
            if let Some(udp) = &mut self.udp {
                udp.keep_house(&self.core);
            }
            if E::ROUTES && self.core.shared.sizes().is_some() {
                roles::divide_by_size(self, now);
            }
        }
        starve::feed(self, now);
        if !self.lingering.is_empty() {
            self.lingering.tend(now, &mut self.regions.arena);
        }
        accept::end_pause(self, now);
        if is_stopping {
            control::start_draining(self);
        }
    }
}

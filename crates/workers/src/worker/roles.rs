//! A worker's change of role: it parks, hands its connections over, and takes up another plan.
//!
//! ```text
//!  Control::Roles ─▶ park ─▶ drained ─▶ hand over ─▶ take up, acknowledge ─▶ settle
//!  Control::Move  ─▶ arrivals ─▶ polls itself: add, finish     else: on to a worker that polls
//! ```
//!
//! # Invariants
//! I1: a connection is at one worker, or counted in the `Transit`.
//! I2: connections change workers between two rounds, when none is in use: no event, region or
//!     batch of the round refers to a position that has become another connection's.
//! I3: a listener stays open permanently; a worker that does not poll accepts, and hands the
//!     connection over at once (K16).

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use base::roles::{Facts, Member, RolePlan, Step};
use config::Poll;
use dispatch::lanes::PublishedRoles;
use host::poller::Poller;
use policy::size_class::{HandOver, Pollers};
use runtime::connection::{Connection, Ending, InBulk};
use runtime::engine::Home;
use runtime::mailbox::Control;
use runtime::moving::Moving;
use runtime::shm_client::ShmClient;
use sessions::acl::Fate;

use super::{Due, TOKEN_PORT, Worker, finish, flushing, native, udp};

/// The role of a worker, and what other workers have handed over to it.
pub(super) struct Roles {
    own: usize,
    member: Member,
    /// The roles that it has taken up.
    published: Arc<PublishedRoles>,
    /// Connections that other workers have handed over.
    #[expect(clippy::vec_box, reason = "they come boxed by mail, and are large")]
    pub arrivals: Vec<Box<Moving>>,
    /// Clients in shared memory that other workers have handed over.
    #[expect(clippy::vec_box, reason = "they come boxed by mail, and are large")]
    pub shm_arrivals: Vec<Box<ShmClient>>,
    /// Counts handed-over connections, so that their targets take turns.
    next_target: usize,
    /// Which workers have connections, where sizes decide it.
    pollers: Pollers,
    /// So many of the connections still go to these workers for that reason.
    parting: (usize, Range<usize>),
    began_at: Instant,
}

impl Roles {
    /// Of a worker that begins with the latest roles.
    pub fn new(own: usize, published: Arc<PublishedRoles>) -> Roles {
        Roles {
            own,
            member: Member::new(*published.plan()),
            pollers: Pollers::new(published.plan().threads),
            parting: (0, 0..0),
            began_at: Instant::now(),
            published,
            arrivals: Vec::new(),
            shm_arrivals: Vec::new(),
            next_target: own,
        }
    }

    /// Whether this worker polls connections.
    #[inline]
    pub fn is_dispatcher(&self) -> bool {
        self.member.plan().is_dispatcher(self.own)
    }

    /// Whether it has stopped for new roles.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.member.is_parked()
    }

    /// Whether it changes roles.
    #[inline]
    pub fn is_moving(&self) -> bool {
        self.member.is_moving()
    }

    /// The next of `targets`, in turn.
    pub fn next_of(&mut self, targets: &Range<usize>) -> usize {
        self.next_target = self.next_target.wrapping_add(1);
        targets.start + self.next_target % targets.len()
    }

    /// Whether this worker polls now and under the plan does not, or shares its connections with
    /// additional pollers.
    fn parts_with_some(&self, latest: &RolePlan) -> bool {
        let (own, plan) = (self.own, self.member.plan());
        plan.is_dispatcher(own)
            && (!latest.is_dispatcher(own) || latest.dispatchers > plan.dispatchers)
    }

    /// Which connections leave, and to which threads: all of a thread that polls no longer; of a
    /// thread that shares with new ones, enough that all have equally many.
    fn leaving(&self, mut slots: Vec<usize>, plan: &RolePlan) -> (Vec<usize>, Range<usize>) {
        let before = self.published.plan();
        if !plan.is_dispatcher(self.own) {
            return (slots, 0..plan.dispatchers);
        }
        let new_dispatchers = plan.dispatchers.saturating_sub(before.dispatchers);
        let kept_count = slots.len() - slots.len() * new_dispatchers / plan.dispatchers;
        (slots.split_off(kept_count), before.dispatchers..plan.dispatchers)
    }
}

/// Advances towards the latest plan as far as is possible now, and takes in connections that
/// have arrived.
#[cold]
pub(super) fn change<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    finish::finish_touched(worker); // I2.
    let latest = worker.core.shared.roles().latest();
    loop {
        let is_drained = worker.engine.is_drained();
        let parts = is_drained && worker.roles.parts_with_some(latest.plan());
        let is_kept = parts && !worker.core.shared.roles().transit.try_begin();
        let facts = Facts {
            is_drained,
            is_settled: worker.roles.published.publication.is_settled(),
            is_stopping: worker.is_draining || is_kept,
        };
        let step = worker.roles.member.step(latest.plan(), facts);
        match step {
            Step::Rest => {}
            Step::Park => worker.engine.park(),
            Step::GoOn => worker.engine.go_on(&mut worker.core),
            Step::TakeUp(plan) => take_up(worker, &latest, plan),
            Step::Settle => worker.engine.settle(&worker.core, worker.roles.member.plan()),
        }
        if parts && !is_kept {
            worker.core.shared.roles().transit.end();
        }
        if step == Step::Rest {
            break;
        }
    }
    receive(worker);
    finish::finish_touched(worker);
}

/// Takes up the plan. A worker that hands connections over has begun a transit, so the server
/// keeps running.
fn take_up<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    latest: &Arc<PublishedRoles>,
    plan: RolePlan,
) {
    let own = worker.core.worker.index();
    udp::steer(worker, plan.dispatchers);
    let (slots, targets) = worker.roles.leaving(worker.core.connections.slots(), &plan);
    if !slots.is_empty() {
        // Events of this round name slots that become free (I2).
        worker.ready.retain(|event| event.token >= TOKEN_PORT);
    }
    for slot in slots {
        hand_over_from(worker, slot, &targets);
    }
    let before = std::mem::replace(&mut worker.roles.published, Arc::clone(latest));
    if before.plan().threads != plan.threads {
        (worker.roles.pollers, worker.roles.parting) = (Pollers::new(plan.threads), (0, 0..0));
    }
    let role = |plan: &RolePlan| (plan.is_dispatcher(own), plan.is_executor(own));
    if role(before.plan()) != role(&plan) {
        worker.core.counters().forwardings.role_changes.add(1);
    }
    worker.polling.poll = poll_of(worker.core.shared.config().poll, role(&plan) == (false, false));
    worker.engine.take_up(&mut worker.core, latest.turn_of(own));
    if let Some(native) = &worker.native {
        native.steer(plan.dispatchers);
    }
    native::hand_over_shm(worker, before.plan(), &plan);
    if latest.publication.acknowledge() {
        // All workers look once more, and settle.
        worker.core.shared.wake_all();
    }
}

/// Connections that one step of housekeeping hands over because of their worker's size, at most.
const BY_SIZE_MAX: usize = 32;

/// Hands connections over to the workers of small items, as the plan of sizes has them now, or
/// shares them with one that serves small items again (`policy::size_class`). A connection that
/// waits for a reply, or has one under way, stays until a later step.
pub(super) fn divide_by_size<E: Home, P: Poller>(worker: &mut Worker<E, P>, now: Instant) {
    let plan = *worker.roles.member.plan();
    let is_busy = worker.is_draining || worker.roles.is_moving() || worker.core.flushing.is_on();
    if plan.has_two_layers() || is_busy {
        return;
    }
    let small_workers = worker.engine.size_plan().map_or(plan.threads, |sizes| sizes.small_workers);
    let now_ns = now.duration_since(worker.roles.began_at).as_nanos() as u64;
    let own = worker.roles.own;
    let hand_over = worker.roles.pollers.step(small_workers, own, now_ns);
    if hand_over.is_none() && worker.roles.parting.0 == 0 {
        return;
    }
    let slots = worker.core.connections.slots();
    if let Some(hand_over) = hand_over {
        let HandOver { numerator, denominator, targets } = hand_over;
        worker.roles.parting = (slots.len() * numerator / denominator, targets);
    }
    let (left, targets) = worker.roles.parting.clone();
    let count = left.min(BY_SIZE_MAX);
    if count == 0 {
        return;
    }
    let idle = |slot: &usize| is_idle(&worker.core.connections[*slot]);
    let leaving: Vec<usize> = slots.into_iter().filter(idle).take(count).collect();
    if leaving.is_empty() || !worker.core.shared.roles().transit.try_begin() {
        return;
    }
    worker.roles.parting.0 -= leaving.len();
    for slot in leaving {
        hand_over_from(worker, slot, &targets);
    }
    worker.core.shared.roles().transit.end();
}

/// Whether nothing of a connection is under way at its worker.
fn is_idle(connection: &Connection) -> bool {
    connection.ending == Ending::Open
        && connection.exchange.is_none()
        && connection.awaiting.is_empty()
        && connection.awaiting.may_go_on()
        && connection.output.is_empty()
        && connection.input.held.is_empty()
        && connection.is_between_replies()
        && connection.in_bulk
            == (InBulk { is_limited: connection.in_bulk.is_limited, ..InBulk::default() })
        && !connection.is_lent
        && !connection.is_touched
        && !connection.is_starved
        && !connection.is_held
        && !connection.input_ended
}

/// Hands one of this worker's connections over to one of `targets`.
fn hand_over_from<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    slot: usize,
    targets: &Range<usize>,
) {
    flushing::end_all(worker);
    if worker.core.connections[slot].ending == Ending::Now {
        return finish::close(worker, slot);
    }
    let Some(mut connection) = worker.core.connections.remove(slot) else { return };
    if connection.ending == Ending::Resting {
        connection.ending = Ending::Open; // It is answered sooner, and there.
        connection.end_turned_away();
    }
    // It fails only if it is not polled.
    let _ = worker.poller.remove(connection.socket.as_fd());
    // There the poller reports what waited in bulk's queue here.
    connection.interest.read |= connection.in_bulk.receives;
    connection.interest.write |= connection.in_bulk.sends;
    connection.in_bulk = InBulk::default();
    worker.core.shared.roles().transit.begin_another();
    hand_over(worker, connection, targets);
}

/// Sends a connection that is counted in the transit to one of `targets`.
fn hand_over<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    connection: Connection,
    targets: &Range<usize>,
) {
    let booked = worker.core.ledger.part_with_books(connection.booked);
    send_on(worker, Box::new(Moving::pack(connection, booked)), targets);
}

/// The workers that poll under the latest plan; while the server drains, those that poll under
/// every plan.
pub(super) fn dispatchers_now<E: Home, P: Poller>(worker: &Worker<E, P>) -> Range<usize> {
    0..if worker.is_draining { 1 } else { worker.core.shared.roles().plan().dispatchers }
}

fn send_on<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    moving: Box<Moving>,
    targets: &Range<usize>,
) {
    let target = worker.roles.next_of(targets);
    worker.core.shared.send(target, Control::Move(moving));
}

/// Passes on a connection that was accepted by a worker that does not poll (I3).
pub(super) fn pass_on<E: Home, P: Poller>(worker: &mut Worker<E, P>, connection: Connection) {
    if worker.core.shared.roles().transit.try_begin() {
        hand_over(worker, connection, &dispatchers_now(worker));
    } else {
        // The server has stopped accepting meanwhile.
        worker.core.shared.clients().remove(connection.client.id);
    }
}

/// Takes in connections that have arrived, or passes them on; a parked worker lets them wait
/// until it knows whether it polls.
fn receive<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.roles.is_parked() {
        return;
    }
    native::receive_shm(worker);
    let is_dispatcher = worker.roles.is_dispatcher();
    for moving in std::mem::take(&mut worker.roles.arrivals) {
        if is_dispatcher {
            take_in(worker, *moving);
        } else {
            send_on(worker, moving, &dispatchers_now(worker));
        }
    }
}

fn take_in<E: Home, P: Poller>(worker: &mut Worker<E, P>, moving: Moving) {
    let Moving { connection, booked } = moving;
    booked.into_iter().for_each(|booked| worker.core.ledger.take_over(booked));
    let slot = worker.core.connections.insert(connection);
    let connection = &mut worker.core.connections[slot];
    connection.client.set_slot(slot);
    // A pause may have ended during the move: if it lasts, it holds the command again.
    connection.is_held = false;
    Moving::settle_at(connection, slot);
    let is_killed = connection.client.move_to(worker.core.worker);
    // Users may have changed during the move.
    let is_killed = worker.core.renew_pass(slot) == Fate::Closes || is_killed;
    let connection = &mut worker.core.connections[slot];
    let token = slot as u64;
    let polled = worker.poller.add(connection.socket.as_fd(), token, connection.interest);
    if is_killed || polled.is_err() {
        connection.ending = Ending::Now;
    }
    if std::mem::take(&mut connection.is_starved) {
        worker.starved.add(&mut worker.core, slot);
    }
    if worker.is_draining {
        worker.due.push(Due::ReadLast(slot));
    }
    worker.core.counters().forwardings.connections_taken.add(1);
    worker.core.touch(slot);
    worker.handshakes.add(slot, &worker.core.connections[slot]);
    worker.core.shared.roles().transit.end(); // I1.
}

/// A thread without a role sleeps, whatever the setting says.
fn poll_of(configured: Poll, is_idle: bool) -> Poll {
    if is_idle { Poll::Block } else { configured }
}

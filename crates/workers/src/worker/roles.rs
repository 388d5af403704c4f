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

use base::roles::{Facts, RolePlan, Step};
use config::Poll;
use dispatch::lanes::PublishedRoles;
use host::poller::Poller;
use runtime::connection::{Connection, Ending};
use runtime::engine::Home;
use runtime::mailbox::Control;
use runtime::moving::Moving;
use sessions::acl::Fate;

use super::{Due, TOKEN_PORT, Worker};

impl<E: Home, P: Poller> Worker<E, P> {
    /// Advances towards the latest plan as far as is possible now, and takes in connections that
    /// have arrived.
    #[cold]
    pub(super) fn change_roles(&mut self) {
        self.finish_touched(); // I2.
        let latest = self.core.shared.roles().latest();
        loop {
            let is_drained = self.engine.is_drained();
            let parts = is_drained && self.parts_with_some(latest.plan());
            let is_kept = parts && !self.core.shared.roles().transit.try_begin();
            let facts = Facts {
                is_drained,
                is_settled: self.published.publication.is_settled(),
                is_stopping: self.is_draining || is_kept,
            };
            let step = self.member.step(latest.plan(), facts);
            match step {
                Step::Rest => {}
                Step::Park => self.engine.park(),
                Step::GoOn => self.engine.go_on(&mut self.core),
                Step::TakeUp(plan) => self.take_up(&latest, plan),
                Step::Settle => self.engine.settle(&self.core, self.member.plan()),
            }
            if parts && !is_kept {
                self.core.shared.roles().transit.end();
            }
            if step == Step::Rest {
                break;
            }
        }
        self.receive();
        self.finish_touched();
    }

    /// Whether this worker polls now and under the plan does not, or shares its connections with
    /// additional pollers.
    fn parts_with_some(&self, latest: &RolePlan) -> bool {
        let (own, plan) = (self.core.worker.index(), self.member.plan());
        plan.is_dispatcher(own)
            && (!latest.is_dispatcher(own) || latest.dispatchers > plan.dispatchers)
    }

    /// Which connections leave, and to which threads: all of a thread that polls no longer; of a
    /// thread that shares with new ones, enough that all have equally many.
    fn leaving_connections(&self, plan: &RolePlan) -> (Vec<usize>, Range<usize>) {
        let (own, before) = (self.core.worker.index(), self.published.plan());
        let mut slots = self.core.connections.slots();
        if !plan.is_dispatcher(own) {
            return (slots, 0..plan.dispatchers);
        }
        let new_dispatchers = plan.dispatchers.saturating_sub(before.dispatchers);
        let kept_count = slots.len() - slots.len() * new_dispatchers / plan.dispatchers;
        (slots.split_off(kept_count), before.dispatchers..plan.dispatchers)
    }

    /// Takes up the plan. A worker that hands connections over has begun a transit, so the server
    /// keeps running.
    fn take_up(&mut self, latest: &Arc<PublishedRoles>, plan: RolePlan) {
        let own = self.core.worker.index();
        self.steer_udp(plan.dispatchers);
        let (slots, targets) = self.leaving_connections(&plan);
        if !slots.is_empty() {
            // Events of this round name slots that become free (I2).
            self.ready.retain(|event| event.token >= TOKEN_PORT);
        }
        for slot in slots {
            self.hand_over_from(slot, &targets);
        }
        let before = std::mem::replace(&mut self.published, Arc::clone(latest));
        let role = |plan: &RolePlan| (plan.is_dispatcher(own), plan.is_executor(own));
        if role(before.plan()) != role(&plan) {
            self.core.counters().forwardings.role_changes.add(1);
        }
        self.poll = poll_of(self.core.shared.config().poll, role(&plan) == (false, false));
        self.engine.take_up(&mut self.core, latest.turn_of(own));
        if let Some(native) = &self.native {
            native.steer(plan.dispatchers);
        }
        self.hand_over_shm(before.plan(), &plan);
        if latest.publication.acknowledge() {
            // All workers look once more, and settle.
            self.core.shared.wake_all();
        }
    }

    /// Hands one of this worker's connections over to one of `targets`.
    fn hand_over_from(&mut self, slot: usize, targets: &Range<usize>) {
        self.end_flushes();
        if self.core.connections[slot].ending == Ending::Now {
            return self.close(slot);
        }
        let Some(mut connection) = self.core.connections.remove(slot) else { return };
        if connection.ending == Ending::Resting {
            connection.ending = Ending::Open; // It is answered sooner, and there.
        }
        // It fails only if it is not polled.
        let _ = self.poller.remove(connection.socket.as_fd());
        self.core.shared.roles().transit.begin_another();
        self.hand_over(connection, targets);
    }

    /// Sends a connection that is counted in the transit to one of `targets`.
    fn hand_over(&mut self, connection: Connection, targets: &Range<usize>) {
        let booked = self.core.ledger.part_with_books(connection.booked);
        self.send_on(Box::new(Moving::pack(connection, booked)), targets);
    }

    /// The workers that poll under the latest plan; while the server drains, those that poll under
    /// every plan.
    pub(super) fn dispatchers_now(&self) -> Range<usize> {
        0..if self.is_draining { 1 } else { self.core.shared.role_plan().dispatchers }
    }

    fn send_on(&mut self, moving: Box<Moving>, targets: &Range<usize>) {
        let target = self.next_of(targets);
        self.core.shared.send(target, Control::Move(moving));
    }

    /// The next of `targets`, in turn.
    pub(super) fn next_of(&mut self, targets: &Range<usize>) -> usize {
        self.next_target = self.next_target.wrapping_add(1);
        targets.start + self.next_target % targets.len()
    }

    /// Passes on a connection that was accepted by a worker that does not poll (I3).
    pub(super) fn pass_on(&mut self, connection: Connection) {
        if self.core.shared.roles().transit.try_begin() {
            self.hand_over(connection, &self.dispatchers_now());
        } else {
            // The server has stopped accepting meanwhile.
            self.core.shared.clients().remove(connection.client.id);
        }
    }

    /// Takes in connections that have arrived, or passes them on; a parked worker lets them wait
    /// until it knows whether it polls.
    fn receive(&mut self) {
        if self.member.is_parked() {
            return;
        }
        self.receive_shm();
        let is_dispatcher = self.member.plan().is_dispatcher(self.core.worker.index());
        for moving in std::mem::take(&mut self.arrivals) {
            if is_dispatcher {
                self.take_in(*moving);
            } else {
                self.send_on(moving, &self.dispatchers_now());
            }
        }
    }

    fn take_in(&mut self, moving: Moving) {
        let Moving { connection, booked } = moving;
        booked.into_iter().for_each(|booked| self.core.ledger.take_over(booked));
        let slot = self.core.connections.insert(connection);
        let connection = &mut self.core.connections[slot];
        connection.client.set_slot(slot);
        // A pause may have ended during the move: if it lasts, it holds the command again.
        connection.is_held = false;
        Moving::settle_at(connection, slot);
        let is_killed = connection.client.move_to(self.core.worker);
        // Users may have changed during the move.
        let is_killed = self.core.renew_pass(slot) == Fate::Closes || is_killed;
        let connection = &mut self.core.connections[slot];
        let token = slot as u64;
        let polled = self.poller.add(connection.socket.as_fd(), token, connection.interest);
        if is_killed || polled.is_err() {
            connection.ending = Ending::Now;
        }
        if std::mem::take(&mut connection.is_starved) {
            self.starve(slot);
        }
        if self.is_draining {
            self.due.push(Due::ReadLast(slot));
        }
        self.core.counters().forwardings.connections_taken.add(1);
        self.core.touch(slot);
        self.await_handshake(slot);
        self.core.shared.roles().transit.end(); // I1.
    }
}

/// A thread without a role sleeps, whatever the setting says.
fn poll_of(configured: Poll, is_idle: bool) -> Poll {
    if is_idle { Poll::Block } else { configured }
}

//! The control thread: drives this node's state machine with input from workers, links, datagrams
//! and the clock.
//!
//! ```text
//!  workers ─ requests ┐                         ┌─▶ replies: slots go back to their dispatchers
//!  links ── messages ─┼─▶ node.input ─ actions ─┼─▶ messages: links
//!  UDP ─── datagrams ─┤        │                └─▶ frames, acknowledgements: datagrams
//!  clock ────── ticks ┘        ├ stages, lease ─▶ View
//!                              └ landed entries ─▶ digest threads, if any: replica_store/crew.rs
//! ```
//!
//! # Invariants
//! T1: the view is updated after each input that may change roles, and before the messages that
//!     this input causes are sent: no manager learns that this node has installed a configuration
//!     while workers still read by the old one (N1).
//! T2: the thread blocks only in the poller, and for a digest thread that is behind (D3 of
//!     replica_store/crew.rs) or that holds a shard needed for something else. It never blocks for
//!     a disk: separate threads do (syncing.rs, keeper.rs).
//! T3: a round's work is bounded, whatever the store holds and however much input has arrived: the
//!     lease is renewed between two rounds (K28).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Instant;
use cluster::message::{Change, Compute};
use cluster::node::{Action, Event, TURN_WORK};
use cluster::{ClientId, Message, Node, Operation, Outcome, Peer, Request};
use cluster_io::{Found, LinkEvent, LinkId};
use crossbeam_channel::Receiver;
use dispatch::lanes::Fabric;
use host::poller::{Epoll, Interest, Poller};
use host::process::unix_now;
use replication::cluster::clock;
use replication::cluster::inbound_log::{self, InboundLogs, Taken};
use replication::cluster::landing::Landing;
use replication::cluster::replica_store::ServerReplicaStore;
use replication::cluster::syncing::Syncing;
use replication::cluster::view::View;
use replication::replicate::{Asker, ControlRequest, Ends, Guests, Means, Refused, RequestChange};
use runtime::shared::Shared;

use super::departure::Departure;
use super::facts::Facts;
use super::flushes::Flushes;
use super::forwards::{Forwards, NodeReply, elsewhere, may_begin_late};
use super::groups::Groups;
use super::outstanding::Outstanding;
use super::peers::Peers;
use super::published::Published;
use super::{facts, flushes, forwards, groups, inbound};

/// Inputs of one kind that are taken before the other kinds get their turn.
const INPUTS_MAX: usize = 512;
/// Once a round has taken this long, it takes in no more requests: a request that makes a long
/// value takes part of it.
const ROUND_NS: u64 = 5_000_000;
/// Time between two ticks while work is under way, ...
const TICK_BUSY: Duration = Duration::from_millis(1);
/// ... shortly after it, ...
const TICK_SOON: Duration = Duration::from_millis(5);
/// The time between ticks is multiplied by this while datagrams wait to be received.
const TICK_BEHIND: u32 = 4;
const WIND_DOWN_NS: u64 = 50_000_000;
/// ... and at most while there is none.
const TICK_IDLE_MAX: Duration = Duration::from_millis(50);
/// How long a request waits for its shard to be served.
pub(super) const PATIENCE_NS: u64 = 2_000_000_000;

const TOKEN_WAKER: u64 = 0;
const TOKEN_LANDING: u64 = 1;

/// The control thread's links and state.
pub(super) struct Control {
    pub shared: Arc<Shared>,
    /// What requests are executed with.
    pub means: Arc<Means>,
    pub fabric: Arc<Fabric>,
    pub view: Arc<View>,
    pub node: Node<ServerReplicaStore>,
    pub ends: Ends,
    pub peers: Peers,
    pub events: Receiver<LinkEvent>,
    pub found: Receiver<Found>,
    pub landing: Landing,
    /// The inbound logs of the workers, under the scheme `rpc`.
    pub inbound_logs: Option<Arc<InboundLogs>>,
    pub syncing: Syncing,
    pub guests: Guests,
    pub published: Published,
    /// Time between two ticks while no work is under way: an eighth of a lease.
    pub tick_idle: Duration,
    pub departure: Departure,
    /// The workers have ended: no thread waits for an answer any more.
    pub is_ended: Arc<AtomicBool>,
    pub state: State,
}

impl Control {
    /// The idle tick for that length of a lease.
    pub fn tick_idle(lease_ns: u64) -> Duration {
        Duration::from_nanos(lease_ns / 8).min(TICK_IDLE_MAX)
    }
}

/// The control thread's state between two rounds.
#[derive(Default)]
pub(super) struct State {
    pub outstanding: Outstanding,
    pub groups: Groups,
    pub flushes: Flushes,
    pub facts: Facts,
    pub actions: Vec<Action>,
    /// Empty; kept for its memory.
    performed: Vec<Action>,
    ticked_at: Instant,
    busy_at: Instant,
    /// Number of attempts to perform requests that were put off.
    tries: usize,
    /// The landing socket may have more datagrams.
    has_landed: bool,
    /// The frames last emptied out of inbound logs.
    pub taken: Taken,
    /// A sync that could not be ordered, because the floors that have to be on disk first are not.
    owes_sync: bool,
    /// Requests that other nodes execute for this one's clients, by number.
    pub forwards: Forwards,
}

impl Control {
    /// Runs until the server stops and all requests are answered.
    pub fn run(mut self) {
        let mut poller = match self.open_poller() {
            Ok(poller) => poller,
            Err(error) => {
                tracing::error!("the cluster's control thread cannot poll: {error}");
                return;
            }
        };
        while !self.is_over() {
            self.wait(&mut poller);
            self.round();
        }
    }

    fn open_poller(&self) -> std::io::Result<Epoll> {
        let mut poller = Epoll::new()?;
        poller.add(self.ends.waker.as_fd(), TOKEN_WAKER, Interest::READ)?;
        poller.add(self.landing.as_fd(), TOKEN_LANDING, Interest::READ)?;
        Ok(poller)
    }

    fn is_over(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    fn wait(&mut self, poller: &mut Epoll) {
        let has_steps = self.node.has_steps();
        let has_work = has_steps || !self.events.is_empty() || !self.found.is_empty();
        let is_clearing = self.node.replica_store().work();
        let is_sending = self.landing.has_unsent();
        let has_more = has_work || is_clearing || is_sending || self.state.has_landed;
        // Digest threads are checked last: they, too, wake this thread once it may sleep.
        let is_woken =
            has_more || !self.ends.may_sleep() || self.node.replica_store().has_digested();
        let time = match is_woken {
            true => Duration::ZERO,
            false => self.tick_time(clock::now()),
        };
        let mut ready = Vec::new();
        self.node.replica_store().park();
        if let Err(error) = poller.wait(&mut ready, Some(time)) {
            tracing::error!("the cluster's control thread cannot poll: {error}");
            std::thread::sleep(TICK_SOON);
        }
        self.node.replica_store().unpark();
        self.ends.get_up(ready.iter().any(|ready| ready.token == TOKEN_WAKER));
        self.state.has_landed |= ready.iter().any(|ready| ready.token == TOKEN_LANDING);
    }

    fn round(&mut self) {
        let now = clock::now();
        self.node.replica_store().set_now(unix_now());
        if self.node.replica_store().has_digested() {
            self.input(Event::Digested, now);
        }
        while let Ok(found) = self.found.try_recv() {
            self.peers.hear(found);
        }
        self.hear_links(now);
        self.perform(now); // Put-off requests come before new ones (O1).
        if self.state.forwards.take_has_answers() {
            self.try_again(now);
        }
        for _ in 0..INPUTS_MAX {
            let Ok(control_request) = self.ends.control_requests.try_recv() else { break };
            self.take(control_request, now);
            if self.is_spent(now) {
                break;
            }
        }
        self.perform(now);
        forwards::send_replies(self, now);
        if self.state.has_landed {
            self.receive(now);
        }
        if self.node.is_durable() {
            inbound::empty_logs(self, now);
        }
        self.node.replica_store().hand_on();
        while let Some(through_bytes) = self.syncing.done() {
            self.input(Event::Synced { through_bytes }, now);
        }
        self.perform(now);
        groups::turn(self, now);
        flushes::turn(self, now);
        if self.is_busy() {
            self.state.busy_at = now;
        }
        // Waiting datagrams may acknowledge entries that a tick would send again.
        let hurry = if self.state.has_landed { TICK_BEHIND } else { 1 };
        let time = self.tick_time(now) * hurry;
        if now.ns.saturating_sub(self.state.ticked_at.ns) >= time.as_nanos() as u64 {
            self.state.ticked_at = now;
            self.input(Event::Tick, now);
            self.publish(now);
            self.perform(now);
            self.try_again(now);
            forwards::give_up_late(self, now);
            self.syncing.keep(self.node.replica_store(), now);
            facts::tell(self, now);
            self.state.facts.look_at_room(self.shared.store());
            self.look_at_departure();
        }
        self.keep();
        if self.state.owes_sync {
            self.order_sync();
        }
        self.landing.send(now);
        self.ends.wake_dispatchers(&self.fabric, |worker| self.shared.wake(worker));
    }

    /// Takes messages, until they have made enough work (T3), and does a step of the work that they
    /// cause.
    fn hear_links(&mut self, now: Instant) {
        let mut work = self.node.take_work();
        for _ in 0..INPUTS_MAX {
            if work >= TURN_WORK {
                break;
            }
            let Ok(event) = self.events.try_recv() else { break };
            if let LinkEvent::Message { from, link, message, .. } = event {
                self.hear(from, link, message, now);
            }
            work += self.node.take_work();
        }
        if self.node.has_steps() {
            self.input(Event::Step, now);
            self.perform(now);
        }
    }

    /// Whether the round's time is spent: the rest comes with the next round (T3).
    fn is_spent(&self, began: Instant) -> bool {
        clock::now().ns.saturating_sub(began.ns) >= ROUND_NS
    }

    fn is_busy(&self) -> bool {
        let State { outstanding, groups, flushes, .. } = &self.state;
        let is_asked = outstanding.count() > 0 || groups.is_busy() || flushes.is_busy();
        is_asked || self.state.forwards.has_unsent() || self.node.is_busy()
    }

    fn look_at_departure(&mut self) {
        if self.departure.is_asked() {
            self.node.end();
        }
        // Without a manager no node can take over, and a node that is no member has nothing to
        // give.
        let is_alone = self.node.is_ending() && !self.peers.has_leader();
        if is_alone || self.node.has_left() {
            self.departure.tell(!self.node.is_member());
        }
    }

    /// Time between two ticks; recent writes are announced as being on all copies within some 15
    /// ms.
    fn tick_time(&self, now: Instant) -> Duration {
        let since_busy_ns = now.ns.saturating_sub(self.state.busy_at.ns);
        match self.is_busy() {
            true => TICK_BUSY,
            false if since_busy_ns < WIND_DOWN_NS => TICK_SOON,
            false => self.tick_idle,
        }
    }

    pub(super) fn input(&mut self, event: Event<'_>, now: Instant) {
        self.node.input(event, now, &mut self.state.actions);
    }

    fn hear(&mut self, from: Peer, link: LinkId, message: Message, now: Instant) {
        match (from, message) {
            (Peer::Node(node), Message::Forward { id, bytes }) => {
                forwards::take_guest(self, Asker { node, link, id }, &bytes, now);
            }
            (Peer::Node(_), Message::Forwarded { id, bytes }) => {
                forwards::forwarded(self, id, bytes, now)
            }
            (from, message) => {
                inbound::close_for(self, &message, now);
                self.input(Event::Message { from, message }, now);
                self.publish(now); // T1
                inbound::open(self);
                self.perform(now);
            }
        }
    }

    /// Receives landed frames.
    fn receive(&mut self, now: Instant) {
        let Control { landing, node, state, inbound_logs, .. } = self;
        let State { actions, taken, .. } = state;
        state.has_landed = landing.receive(INPUTS_MAX, |lane, mut way, frames| {
            node.replica_store().foresee(frames.clone());
            for bytes in frames {
                if let Some(inbound_logs) = inbound_logs.as_ref().filter(|_| way.is_mark()) {
                    // D2 of `inbound_log`.
                    inbound_log::empty(inbound_logs, node, taken, now, actions);
                }
                node.input(Event::Landed { lane, way, bytes }, now, actions);
                way.at = way.at.map(|at| at.saturating_add(bytes.len() as u64));
            }
        });
        self.perform(now);
        while let Some((from, term, blocks)) = self.landing.take_acked() {
            let message = Message::Acked { term, blocks };
            self.input(Event::Message { from: Peer::Node(from), message }, now);
        }
        self.perform(now);
    }

    // ---- requests of this server's clients ----

    pub(super) fn take(&mut self, control_request: ControlRequest, now: Instant) {
        // Also before there is a configuration: later requests on the key join this queue (O1).
        let shard = self.node.shard_of_slot(control_request.slot());
        let key = control_request.key();
        let control_request =
            Arc::new(RequestChange::new(control_request, Arc::clone(&self.means)));
        let waiting_bytes = self.state.outstanding.filling_bytes();
        let is_refused =
            self.state.facts.is_full(&control_request, waiting_bytes, self.shared.buffer_budget())
                || (control_request.is_filling() && self.node.is_crowded(shard, now));
        let (ticket, may_go) = self.state.outstanding.add(control_request.clone(), key, shard, now);
        if is_refused && may_go {
            return self.finish(ticket, &control_request, Some(Refused::Full));
        }
        if may_go {
            self.ask(ticket, now);
            if self.was_put_off(&control_request) {
                self.perform(now); // Before the next request of its shard (O1).
            }
        }
    }

    /// Whether the node has put off the request that it was just asked for, or there was no room
    /// for its reply.
    fn was_put_off(&self, control_request: &RequestChange) -> bool {
        let last = self.state.actions.last();
        let is_refused = last.is_some_and(|action| {
            let Action::Send { message: Message::Reply { outcome, .. }, .. } = action else {
                return false;
            };
            *outcome == Outcome::TryAgain
        });
        is_refused || control_request.is_cut() || control_request.lacks_reply_bytes() > 0
    }

    fn ask(&mut self, ticket: u32, now: Instant) {
        let waiter = self.state.outstanding.at(ticket);
        let Some(change) = waiter.and_then(|waiter| waiter.control_request.clone()) else { return };
        if forwards::waits_for_key(self, ticket, &change, now) {
            return self.state.outstanding.put_off(ticket); // F6
        }
        if change.lacks_reply_bytes() > 0 {
            change.let_past(self.state.outstanding.is_oldest_read(ticket));
        }
        self.ask_for(ticket, change, now);
    }

    /// Asks the node to compute the change of a ticket.
    pub(super) fn ask_for(&mut self, ticket: u32, change: Arc<dyn Change>, now: Instant) {
        let Some(waiter) = self.state.outstanding.at(ticket) else { return };
        let dispatcher = waiter
            .control_request
            .as_ref()
            .map_or(0, |control_request| u64::from(control_request.dispatcher()));
        let request = Request {
            client: ClientId::anonymous(u64::from(ticket) | dispatcher << 32),
            sequence: waiter.sequence,
            key: Arc::clone(&waiter.key),
            operation: Operation::Compute(Compute(change)),
        };
        let shard = waiter.shard;
        let bytes = waiter
            .control_request
            .as_ref()
            .map_or(0, |control_request| control_request.len_bytes());
        self.state.facts.count(shard, request.operation.is_read(), bytes);
        self.state.outstanding.count_asked(shard);
        let from = Peer::Client(request.client);
        self.input(Event::Message { from, message: Message::Request(request) }, now);
    }

    fn replied(&mut self, client: ClientId, sequence: u64, outcome: Outcome, now: Instant) {
        let ticket = client.bits() as u32;
        let Some(waiter) = self.state.outstanding.get(ticket, sequence) else { return };
        let (shard, control_request) = (waiter.shard, waiter.control_request.clone());
        let is_patient = forwards::is_patient(self, waiter, now);
        let may_forward = is_patient || may_begin_late(waiter, now);
        let is_unsent = self.state.forwards.is_unsent(waiter);
        self.state.outstanding.count_answered(shard);
        // The round's time may be long past: this process may have been stopped within the round
        // (K22).
        let is_good = matches!(outcome, Outcome::Computed | Outcome::Done);
        let is_late = is_good && clock::now() >= self.node.serves_until();
        let outcome = if is_late { Outcome::Unknown } else { outcome };
        let Some(control_request) = control_request else {
            self.state.outstanding.remove(ticket);
            if self.state.flushes.replied(ticket, &outcome) {
                return;
            }
            return self.state.groups.replied(ticket, &outcome);
        };
        let refused = match outcome {
            Outcome::Computed
                if is_patient && control_request.is_read() && control_request.is_cut() =>
            {
                return self.put_off_reply(ticket, &control_request);
            }
            Outcome::Computed => None,
            Outcome::Unknown if !control_request.is_read() => Some(Refused::Uncertain),
            Outcome::TooFewCopies => Some(Refused::TooFewCopies),
            Outcome::Elsewhere(Some(configuration)) => {
                if may_forward
                    && forwards::forward(self, ticket, &control_request, &configuration, now)
                {
                    return;
                }
                if control_request.lacks_reply_bytes() > 0 {
                    control_request.cut(self.shared.buffer_budget());
                    return self.finish(ticket, &control_request, None);
                }
                match is_unsent && control_request.is_forwarded() {
                    true => Some(Refused::Full),
                    false => Some(elsewhere(&configuration, &control_request)),
                }
            }
            _ if is_patient => return self.state.outstanding.put_off(ticket),
            _ if control_request.lacks_room() || self.node.is_crowded(shard, now) => {
                Some(Refused::Full)
            }
            _ => Some(Refused::Down),
        };
        self.finish(ticket, &control_request, refused);
    }

    /// A read whose reply has no room waits here; a read of another node's client waits at that
    /// node.
    fn put_off_reply(&mut self, ticket: u32, control_request: &ControlRequest) {
        match self.guests.has(control_request) {
            true => self.finish(ticket, control_request, None),
            false => self.state.outstanding.put_off(ticket),
        }
    }

    /// Completes a control request: its request slot goes back to its worker.
    pub(super) fn finish(
        &mut self,
        ticket: u32,
        control_request: &ControlRequest,
        refused: Option<Refused>,
    ) {
        self.state.outstanding.remove(ticket);
        let is_elsewhere =
            matches!(refused, Some(Refused::Moved { .. } | Refused::Down | Refused::NotBegun));
        if let Some(why) = refused {
            control_request.refuse(&why, self.means.counters());
        }
        if !self.guests.has(control_request) {
            return self.ends.give_back(control_request);
        }
        let (bytes, hold) = control_request.take_reply();
        // If there is no room for a read's reply here, its node asks again.
        let is_asked_again =
            is_elsewhere || (control_request.is_read() && control_request.is_cut());
        let bytes = (!is_asked_again).then_some(bytes);
        if let Some(to) = self.guests.leave(control_request) {
            forwards::reply_to_node(self, NodeReply { to, bytes, hold }, clock::now());
        }
    }

    /// Asks the node again for requests that it has put off, in order.
    pub(super) fn try_again(&mut self, now: Instant) {
        let (began, mut shards) = (clock::now(), self.state.outstanding.shards_put_off());
        // The shards take turns: those at the front take the available memory.
        self.state.tries = self.state.tries.wrapping_add(1);
        let first = self.state.tries % shards.len().max(1);
        shards.rotate_left(first);
        for shard in shards {
            while let Some(ticket) = self.state.outstanding.next_of(shard) {
                if self.waits_for_room(ticket, now) {
                    self.state.outstanding.put_off(ticket);
                    break;
                }
                self.ask(ticket, now);
                self.perform(now);
                if self.state.outstanding.is_put_off(ticket, shard) || self.is_spent(began) {
                    break;
                }
            }
        }
    }

    /// Whether there is still no memory for it; then computing it would be in vain.
    fn waits_for_room(&self, ticket: u32, now: Instant) -> bool {
        let Some(waiter) = self.state.outstanding.at(ticket) else { return false };
        forwards::is_patient(self, waiter, now)
            && waiter
                .control_request
                .as_ref()
                .is_some_and(|control_request| !control_request.may_begin())
            && !self.state.outstanding.is_oldest_read(ticket)
    }

    // ---- actions of the node ----

    pub(super) fn perform(&mut self, now: Instant) {
        if self.node.replica_store().take_flushed() {
            self.publish(now); // No worker reads keys that a reply reports as gone.
        }
        // Performing actions may cause further ones.
        while !self.state.actions.is_empty() {
            let mut actions = std::mem::take(&mut self.state.performed);
            std::mem::swap(&mut self.state.actions, &mut actions);
            for action in actions.drain(..) {
                self.act(action, now);
            }
            self.state.performed = actions; // Its memory.
        }
    }

    fn act(&mut self, action: Action, now: Instant) {
        match action {
            Action::Send { to: Peer::Client(client), message } => {
                if let Message::Reply { sequence, outcome } = message {
                    self.replied(client, sequence, outcome, now);
                }
            }
            Action::Send { to: Peer::Node(to), message: Message::Acked { term, blocks } } => {
                self.landing.acknowledge(to, term, &blocks);
            }
            Action::Send { to: Peer::Node(to), message } => self.peers.tell(to, message),
            Action::Send { message: Message::Lease { .. }, .. } if !self.syncing.may_serve() => {}
            Action::Send { to, message } => self.peers.tell_leader(to, message),
            Action::Land { to, term, way, bytes } => {
                self.landing.land(to, term, way, &bytes, now);
            }
            Action::Append(_) => {}
            Action::Sync => self.order_sync(),
        }
    }

    /// Publishes what workers read (T1).
    fn publish(&mut self, now: Instant) {
        self.published.update(&self.node, (&mut self.peers, &mut self.landing), now);
    }

    /// Orders a sync of the installed entries. Floors of flushes are made durable before any of it
    /// counts as durable.
    fn order_sync(&mut self) {
        self.keep();
        self.state.owes_sync = !self.node.replica_store().has_kept_floors();
        if !self.state.owes_sync {
            self.syncing.order(self.node.appended_bytes());
        }
    }

    /// Has the records beside the log written: another thread writes them, and wakes this one.
    fn keep(&self) {
        if let Err(error) = self.node.replica_store().keep_step() {
            tracing::warn!("the data directory's file NODE cannot be written: {error}");
        }
    }
}

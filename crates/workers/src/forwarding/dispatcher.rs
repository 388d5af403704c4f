//! The dispatcher half of a worker: decides which worker executes a request, sends it there, and
//! puts the replies into each connection's order.
//!
//! ```text
//!             ┌ free ◀────────────────────────────────────────────────┐
//!   request ──┴▶ route ──To(worker)──▶ sent ──tail passed──▶ done ─────┤ its turn: into the output
//!                  │ Busy                                              │
//!                  └▶ parked ──tried again after completions──▶ sent   │
//!                                            connection closed ────────┘
//!
//!   connection.awaiting:  first ▶ [done] ▶ [sent] ▶ [done] ▶ [parked]   in the order of commands
//! ```
//!
//! | state | its owner |
//! |---|---|
//! | tickets and request slots, which of them are free | `tickets` |
//! | requests that wait for a worker | `parking` |
//! | buffers that request slots borrow from | `receive_buffers` |
//! | the size plan; counts of the write table | `by_size`; `pins` |
//! | offers to thieves, to large workers | `offering`, `helped` |
//! | requests at the control thread | `replicated` |
//! | the batch in the making | `direct::Here` |
//! | requests of native clients, which need no ticket | `picking` |
//!
//! Replies are put out by `deliver`.
//!
//! # Invariants
//! I1: a ticket is free, parked, sent, here, offered, replicating or done. Its request slot belongs
//!     to the executor exactly while the ticket is sent, or offered and taken, and to the control
//!     thread while it is replicating. No ticket is here outside a gathering.
//! I2: a connection's replies leave in the order of its tickets (K10).
//! I3: if the connection has already sent a request on the same key, the next one goes to the same
//!     worker (K10); if it has a parked one on that key, the next one is parked behind it. Only a
//!     request that came back, because its item is large or no large worker took it, is parked with
//!     others of its connection behind it.
//! I4: the router's `finish` is called once for each ticket that was sent, with the request that
//!     the router was asked about. Requests that stay here have no ticket (`direct`), and those of
//!     native clients have none (`picking`).
//! I5: a ring has room for all request slots of its dispatcher, so a push always succeeds.
//!
//! # Limits
//! 1024 requests of connections in flight per dispatcher and 256 per connection; beyond that,
//! connections are not parsed, and so not read, until some requests are done (K18).
//!
//! # Changes of roles
//! A parked dispatcher gives out no tickets. Once all tickets are free, the dispatcher continues
//! under another plan, with another router and other depths, or is dropped (`base::roles`).

mod by_size;
mod deliver;
mod direct;
mod helped;
mod offering;
mod parking;
mod picking;
mod pins;
mod receive_buffers;
mod replicated;
mod tickets;

use std::collections::VecDeque;
use std::sync::Arc;

use base::ring::{Sender, ring};
use base::roles::RolePlan;
use base::{KeyHash, PartitionBits, WorkerId};
use budget::Kind;
use commands::reply::{Answer, Pending};
use commands::rmw::Rmw;
use dispatch::hot::HotTracker;
use dispatch::lanes::Turn;
use dispatch::lanes::awaiting::{Awaiting, NO_TICKET, Wait};
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::lane::Lane;
use dispatch::lanes::layers::Decider;
use dispatch::lanes::request_slot::{Origin, REQUEST_SLOTS, RequestSlots};
use policy::size_class::SizePlan;
use policy::{Busy, Depths, Helping, Route, RouteRequest};
use runtime::core::Core;
use runtime::engine::{Away, Sending};
use runtime::mailbox::Control;
use store::request::Request;

use offering::Offering;
use parking::Parked;
use receive_buffers::ReceiveBuffers;
use tickets::{NO_CONNECTION, REQUEST_SLOTS_RESERVED, State, Ticket, Tickets};

pub use direct::{Here, HereSink};
pub use replicated::Replicated;

/// A worker's dispatcher half.
pub(super) struct Dispatcher {
    fabric: Arc<Fabric>,
    /// The threads that may be sent to.
    plan: RolePlan,
    decider: Decider,
    /// Small and large items have different workers.
    tells_sizes: bool,
    /// Which small requests idle large workers may take.
    helping: Option<Helping>,
    hot: Option<HotTracker>,
    /// By the router's worker.
    depths: Depths,
    partition_bits: PartitionBits,
    own: WorkerId,
    /// The router's number for this worker, if it may execute.
    own_worker: Option<WorkerId>,
    /// Reads stay here without asking the router, as the router allows.
    keeps_reads: bool,
    /// Under two layers no receiving thread executes, so the executors stand for the receiver in
    /// turn.
    next_receiver: u16,
    tickets: Tickets,
    parked: Parked,
    /// By thread; created when the first request goes there.
    senders: Vec<Option<Sender>>,
    /// Connections that wait for a free request slot, or until the dispatcher is no longer parked,
    /// oldest first.
    short: VecDeque<usize>,
    receive_buffers: ReceiveBuffers,
    /// Another plan is to be taken up: the dispatcher gives out no ticket.
    is_parked: bool,
    /// Set under `--dispatch steal`.
    offering: Option<Box<Offering>>,
    /// Set if idle large workers may take small requests, now or under other policies.
    helped: Option<Box<helped::Helped>>,
    /// Set on a server that may route by size: workers that already do may give requests back.
    by_size: Option<by_size::BySize>,
    pins: pins::Pins,
    /// Connections whose completed replies wait for room in their output (`deliver`).
    holders: Vec<usize>,
    /// Set at a node of a cluster.
    replicated: Option<Box<replicated::Replicated>>,
    /// Requests of native clients that were picked and are not settled.
    picked_count: usize,
}

impl Dispatcher {
    pub fn new(
        fabric: Arc<Fabric>,
        (turn, decider): (&Turn, Decider),
        partition_bits: PartitionBits,
        own: WorkerId,
    ) -> Dispatcher {
        let plan = turn.plan;
        let own_worker = plan.is_executor(own.index()).then_some(own);
        let mut dispatcher = Dispatcher {
            plan,
            tells_sizes: turn.tells_sizes,
            helping: turn.helping,
            decider,
            hot: None,
            depths: Depths::new(plan.executors),
            partition_bits,
            own,
            own_worker,
            keeps_reads: false,
            next_receiver: 0,
            tickets: Tickets::new(&fabric, own),
            parked: Parked::default(),
            senders: (0..fabric.thread_count()).map(|_| None).collect(),
            offering: Offering::new(&fabric),
            helped: helped::Helped::new(&fabric, own),
            fabric,
            short: VecDeque::new(),
            receive_buffers: ReceiveBuffers::default(),
            is_parked: false,
            by_size: None,
            pins: pins::Pins::default(),
            holders: Vec::new(),
            replicated: None,
            picked_count: 0,
        };
        dispatcher.ask_once();
        dispatcher
    }

    /// Takes samples from now on, and executes hot reads itself if it may not execute the others.
    pub fn set_hot_tracker(&mut self, hot: HotTracker) {
        self.hot = Some(hot);
    }

    /// Gives out no tickets until [`Dispatcher::go_on`] or [`Dispatcher::take_up`].
    pub fn park(&mut self) {
        self.is_parked = true;
    }

    /// Whether no request is in flight, of connections or of native clients.
    pub fn is_drained(&self) -> bool {
        self.tickets.are_all_free() && self.picked_count == 0
    }

    /// Gives out tickets again.
    pub fn go_on(&mut self, core: &mut Core) {
        self.is_parked = false;
        self.feed_short(core);
    }

    /// Continues under another plan.
    pub fn take_up(&mut self, core: &mut Core, turn: &Turn, decider: Decider) {
        debug_assert!(self.is_drained(), "a plan is taken up when nothing is on the way");
        let plan = turn.plan;
        (self.tells_sizes, self.helping) = (turn.tells_sizes, turn.helping);
        for (thread, sender) in self.senders.iter_mut().enumerate() {
            if !plan.is_executor(thread) {
                *sender = None;
            }
        }
        self.pins.end(self.decider.pin_counts(), core);
        self.plan = plan;
        self.decider = decider;
        self.depths = Depths::new(plan.executors);
        self.own_worker = plan.is_executor(self.own.index()).then_some(self.own);
        if let Some(by_size) = &mut self.by_size {
            by_size.forget_plan();
        }
        self.ask_once();
        self.go_on(core);
    }

    /// Whether the connection can have another ticket.
    #[inline]
    pub fn may_send(&mut self, core: &mut Core, slot: usize) -> bool {
        let connection = &mut core.connections[slot];
        let awaiting = &mut connection.awaiting;
        if !awaiting.may_go_on() {
            return false;
        }
        if connection.is_large_reader && !awaiting.is_empty() {
            // So that the output limit is checked after each (K12).
            awaiting.wait = Wait::Barrier;
        } else if awaiting.count >= awaiting.depth_max {
            awaiting.wait = Wait::Depth;
        } else if self.is_parked || self.tickets.free_count() <= REQUEST_SLOTS_RESERVED {
            awaiting.wait = Wait::RequestSlots;
            self.short.push_back(slot);
            deliver::cut_holders(self, core);
            return false;
        }
        awaiting.may_go_on()
    }

    /// Sends a request, or parks it.
    #[inline]
    pub fn send(&mut self, core: &mut Core, sending: Sending<'_>, away: Away) {
        let Sending { request, receive_buffer, answer } = sending;
        let slot = answer.slot;
        let index = self.tickets.take();
        let origin = self.origin(core, answer);
        // SAFETY: the ticket is free, so the dispatcher holds the request slot (I1).
        let request_slot = unsafe { &mut *self.tickets.request_slot(index) };
        let copied_bytes = request_slot.fill(&request, receive_buffer, &origin) as u64;
        request_slot.order = self.tickets.take_order();
        let booked_bytes =
            if copied_bytes > self.fabric.kept_bytes_max as u64 { copied_bytes } else { 0 };
        core.ledger.force(Kind::Bodies, booked_bytes);
        self.tickets[index] = Ticket {
            state: State::Parked,
            slot: slot as u32,
            next: NO_TICKET,
            worker: self.own,
            hash: request.hash,
            request: away.question,
            booked_bytes,
        };
        if self.replicated.is_some() {
            replicated::send_to_control(self, index);
            let awaiting = &mut core.connections[slot].awaiting;
            self.tickets.append(awaiting, index);
            awaiting.filter |= Awaiting::bit_of(request.hash);
            return;
        }
        let is_sent = self.follow_route(core, index, away.route)
            || (away.route == Route::Busy(Busy::QueuesFull)
                && helped::offer_new(self, core, index));
        let awaiting = &mut core.connections[slot].awaiting;
        self.tickets.append(awaiting, index);
        awaiting.filter |= Awaiting::bit_of(request.hash);
        if !is_sent {
            awaiting.wait = Wait::Parked;
            self.parked.push(index);
            self.pins.note_wait(core, index, away.route);
        }
    }

    /// Adds a reply that is known already: it takes its place behind replies that are not.
    pub fn say(&mut self, core: &mut Core, slot: usize, encode: &mut dyn FnMut(&mut Vec<u8>)) {
        let index = self.tickets.take();
        // SAFETY: the ticket is free, so the dispatcher holds the request slot (I1).
        let request_slot = unsafe { &mut *self.tickets.request_slot(index) };
        encode(&mut request_slot.reply);
        let ticket = &mut self.tickets[index];
        ticket.state = State::Done;
        ticket.slot = slot as u32;
        ticket.next = NO_TICKET;
        self.tickets.append(&mut core.connections[slot].awaiting, index);
    }

    /// The origin of a request.
    #[inline]
    fn origin<'c>(&self, core: &'c Core, answer: Answer) -> Origin<'c> {
        let connection = &core.connections[answer.slot];
        Origin {
            answer,
            notes: &core.notes,
            protocol: connection.protocol(),
            is_tls: connection.tls.is_some(),
            connection: u64::from(self.own.0) << 32 | answer.slot as u64,
            now: core.now,
        }
    }

    /// Whether there is a request slot for a refusal.
    pub fn has_reserve(&self) -> bool {
        self.tickets.free_count() > 0
    }

    /// This dispatcher's request slots.
    #[inline]
    pub fn request_slots(&self) -> &RequestSlots {
        self.tickets.request_slots()
    }

    /// Asks the router again for a parked ticket, the last of its connection; sends it if there is
    /// a worker.
    fn place(&mut self, core: &mut Core, index: u32) -> bool {
        let Ticket { slot, hash, request, .. } = self.tickets[index];
        let awaiting = &core.connections[slot as usize].awaiting;
        let route = pins::route_again(self, awaiting, (index, hash), &request);
        self.follow_route(core, index, route)
    }

    /// The route of a request, which has to follow earlier requests of its connection up to
    /// `ticket`.
    #[inline]
    fn route(
        &self,
        awaiting: &Awaiting,
        hash: KeyHash,
        ticket: u32,
        question: &RouteRequest,
    ) -> Route {
        let before = self.tickets.before(awaiting, hash, ticket);
        match before.map(|before| &self.tickets[before]) {
            None => self.decider.route(question, &self.depths),
            Some(Ticket { state: State::Parked | State::Offered, .. }) => {
                Route::Busy(Busy::HeldElsewhere)
            }
            // As far as it can (`offer`).
            Some(before) if self.offering.is_some() => Route::To(before.worker),
            Some(Ticket { worker, .. }) => self.decider.follow(question, *worker, &self.depths),
        }
    }

    /// Sends a ticket where the router decided. Returns false if it has to wait.
    #[inline]
    fn follow_route(&mut self, core: &mut Core, index: u32, route: Route) -> bool {
        match route {
            Route::To(worker) if self.offering.is_some() => {
                offering::offer(self, core, index, worker)
            }
            Route::To(worker) => {
                self.enqueue(core, index, worker);
                true
            }
            Route::Busy(why) => {
                count_busy(core, why);
                false
            }
        }
    }

    #[inline]
    fn enqueue(&mut self, core: &mut Core, index: u32, worker: WorkerId) {
        let ticket = &mut self.tickets[index];
        ticket.state = State::Sent;
        ticket.worker = worker;
        self.depths.add(worker);
        let thread = self.plan.thread_of(worker.index());
        if self.senders[thread].is_none() {
            self.open_lane(core, thread);
        }
        let returned_seen = self.by_size.as_ref().map_or(0, |by| by.returned_seen(thread));
        // SAFETY: the ticket was parked until now, so the dispatcher holds the request slot (I1).
        unsafe { (*self.tickets.request_slot(index)).returned_seen = returned_seen };
        let Some(sender) = &mut self.senders[thread] else {
            unreachable!("opened above");
        };
        sender.push([self.tickets[index].hash.0, u64::from(index)]); // I5
        if sender.unpublished_count() >= core.shared.config().batch as u64 {
            self.publish_to(core, thread);
        }
    }

    #[cold]
    fn open_lane(&mut self, core: &mut Core, thread: usize) {
        let (sender, receiver) = ring(REQUEST_SLOTS);
        self.senders[thread] = Some(sender);
        if let Some(by_size) = &mut self.by_size {
            by_size.begin_lane(thread);
        }
        let lane = Lane::new(
            self.own,
            self.plan.epoch,
            Arc::clone(self.tickets.request_slots()),
            receiver,
        );
        core.shared.send(thread, Control::Serve(Box::new(lane)));
    }

    /// Publishes to an executor the requests sent to it, and wakes it if it sleeps.
    #[inline]
    fn publish_to(&mut self, core: &Core, thread: usize) {
        let Some(sender) = &mut self.senders[thread] else { return };
        let count = sender.unpublished_count();
        if !sender.publish() || thread == self.own.index() {
            return;
        }
        core.counters().forwardings.sent.add(count);
        core.counters().forwardings.publications.add(1);
        if self.fabric.bells[thread].must_ring() {
            core.shared.wake(thread);
        }
    }

    /// Publishes to all executors.
    #[inline]
    pub fn publish(&mut self, core: &Core) {
        replicated::call_control(self);
        for thread in self.plan.first_executor..self.plan.threads {
            match self.offering {
                None => self.publish_to(core, thread),
                Some(_) => offering::publish_offers(self, core, thread),
            }
        }
    }

    /// Whether an executor has completed a request.
    #[inline]
    pub fn has_done(&mut self) -> bool {
        self.senders.iter_mut().flatten().any(Sender::has_done)
            || offering::has_offers_done(self)
            || helped::has_help_done(self)
            || replicated::has_replicated(self)
    }

    /// Whether requests wait that perhaps no completion of this dispatcher's own requests can
    /// release.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Takes back completed requests: delivers replies to their connections, and routes parked
    /// requests again.
    pub fn collect(&mut self, core: &mut Core) -> bool {
        let mut has_any = offering::collect_offers(self, core)
            | helped::collect_help(self, core)
            | replicated::collect_replicated(self, core);
        for thread in self.plan.first_executor..self.plan.threads {
            while let Some([_, index]) = self.senders[thread].as_mut().and_then(Sender::reclaim) {
                self.complete(core, index as u32);
                has_any = true;
            }
        }
        let has_placed = !self.parked.is_empty() && parking::try_parked(self, core);
        if has_any {
            if self.by_size.is_some() {
                self.publish(core); // Requests that were handed on.
            }
            self.receive_buffers.release(core);
            self.feed_short(core);
        }
        has_any || has_placed
    }

    /// The tail has passed a ticket's entry.
    #[inline]
    fn complete(&mut self, core: &mut Core, index: u32) {
        let ticket = &mut self.tickets[index];
        let was = std::mem::replace(&mut ticket.state, State::Done);
        debug_assert!(matches!(was, State::Sent | State::Offered | State::Replicating), "I1");
        let slot = ticket.slot;
        if was == State::Sent {
            self.depths.remove(ticket.worker);
            self.decider.finish(&ticket.request, ticket.worker); // I4
        }
        if by_size::is_handed_on(self, core, index) {
            return;
        }
        if slot == NO_CONNECTION {
            self.tickets.release(core, index);
        } else if core.connections[slot as usize].awaiting.first == index {
            deliver::deliver(self, core, slot as usize);
        }
    }

    /// Lets as many connections continue as there are request slots.
    fn feed_short(&mut self, core: &mut Core) {
        if self.is_parked {
            return;
        }
        // With no request in flight, no completion would come for the connections left over now.
        let count = match self.tickets.free_count().saturating_sub(REQUEST_SLOTS_RESERVED) {
            _ if self.tickets.are_all_free() => self.short.len(),
            count => count,
        };
        for _ in 0..count {
            let Some(slot) = self.short.pop_front() else { return };
            // It may be another connection's by now; an extra look at that one does no harm.
            let Some(connection) = core.connections.get_mut(slot) else { continue };
            if connection.awaiting.wait == Wait::RequestSlots {
                connection.awaiting.wait = Wait::Nothing;
                core.touch(slot);
            }
        }
    }

    /// Ends this dispatcher, because its worker polls no longer.
    pub fn close(mut self, core: &mut Core) {
        debug_assert!(self.is_drained(), "a dispatcher ends when nothing is on the way");
        self.pins.end(self.decider.pin_counts(), core);
        self.receive_buffers.release(core);
        debug_assert!(self.receive_buffers.is_empty(), "no slot borrows");
    }

    /// Abandons the tickets of a closed connection: each ends with the work that has begun.
    pub fn abandon(&mut self, core: &mut Core, awaiting: &mut Awaiting) {
        let mut index = awaiting.first;
        while index != NO_TICKET {
            let Ticket { next, state, .. } = self.tickets[index];
            self.tickets[index].slot = NO_CONNECTION;
            match state {
                State::Sent | State::Offered | State::Replicating => {}
                State::Done => self.tickets.release(core, index),
                State::Parked => {
                    self.parked.forget(index);
                    self.tickets.release(core, index);
                }
                State::Free | State::Here => {
                    unreachable!("I1: of a connection that closes, the batch is executed")
                }
            }
            index = next;
        }
        awaiting.got_all();
        self.receive_buffers.release(core);
        self.feed_short(core);
    }

    /// Keeps a buffer that request slots borrow from.
    pub fn keep_receive_buffer(&mut self, core: &mut Core, receive_buffer: Arc<Vec<u8>>) {
        self.receive_buffers.keep(core, receive_buffer);
    }

    /// Delivers replies that waited for room in a connection's output, if it has some now.
    #[inline]
    pub fn deliver_more(&mut self, core: &mut Core, slot: usize) {
        if !self.holders.is_empty() {
            deliver::deliver_held(self, core, slot);
        }
    }

    /// Called before the last batch of a gathering is executed: offers its last requests to idle
    /// large workers, and returns how many.
    #[inline]
    pub fn offer_tail(
        &mut self,
        core: &mut Core,
        here: &mut Here,
        requests: &[Request<'_, Rmw<'_>>],
        pendings: &[Pending],
    ) -> usize {
        if self.helping.is_none() || !self.keeps_reads {
            return 0;
        }
        helped::offer_tail(self, core, here, (requests, pendings))
    }

    /// Sends all changes through the control thread from now on.
    pub fn replicate(&mut self, replicated: Replicated) {
        self.replicated = Some(Box::new(replicated));
    }

    /// Publishes the counts of the write table. Called once a round.
    #[inline]
    pub fn show_pins(&mut self, core: &Core) {
        if let Some(now) = self.decider.pin_counts() {
            self.pins.show(now, core);
        }
    }

    /// Takes the new size plan if there is one. Called once a round.
    #[inline]
    pub fn renew_plan(&mut self, core: &Core) {
        let Some(sizes) = core.shared.sizes() else { return };
        let Some(plan) = self.by_size.get_or_insert_default().renew(sizes) else { return };
        if plan.worker_count == self.plan.executors {
            self.decider.set_plan(plan);
            self.ask_once();
        }
    }

    /// The thread behind a worker number of the router.
    pub fn thread_of(&self, worker: WorkerId) -> usize {
        self.plan.thread_of(worker.index())
    }

    /// The size plan of this dispatcher's epoch, if it tells sizes apart.
    #[inline]
    pub fn size_plan(&self) -> Option<&SizePlan> {
        if !self.tells_sizes {
            return None;
        }
        let plan = self.by_size.as_ref()?.plan()?;
        // Otherwise it is for another division of the threads, which has not reached this one yet.
        (plan.worker_count == self.plan.executors).then_some(&**plan)
    }
}

/// Counts that the router has found no worker.
fn count_busy(core: &Core, why: Busy) {
    let counters = &core.counters().forwardings;
    match why {
        Busy::QueuesFull => counters.queues_full.add(1),
        Busy::WriteTableFull => counters.write_table_full.add(1),
        Busy::HeldElsewhere => counters.held_elsewhere.add(1),
    }
}

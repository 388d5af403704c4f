//! The engine of a worker that routes: its session, its dispatcher half and its executor half.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use base::hash::KeyHasher;
use base::roles::RolePlan;
use base::{KeyHash, UnixMillis, WorkerId};
use budget::Reservation;
use cluster::Slot;
use commands::compaction::Answering;
use commands::reply::Pending;
use commands::rmw::Rmw;
use counters::Compacted;
use dispatch::hot::{HotKeys, HotTracker};
use dispatch::lanes::awaiting::Awaiting;
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::lane::Lane;
use dispatch::lanes::layers::Decider;
use dispatch::lanes::roles::Turn;
use dispatch::lanes::{Loan, Returned, TOKEN_LOAN};
use host::poller::Poller;
use policy::size_class::SizePlan;
use replication::cluster::{Receiver, View};
use replication::replicate::{
    Apart, Asked as GroupAsked, ControlChannel, GroupAnswer, GroupHandle, GroupRoom, PendingGroup,
    has_writes,
};
use runtime::core::Core;
use runtime::engine::{
    Asked, Asking, Away, Engine, Home, Picked, Picking, RunToCompletion, Sending,
};
use runtime::mailbox::Control;
use runtime::reply_sink::ReplySink;
use runtime::shared::Shared;
use store::request::{Item, Request};
use store::{NoOrder, Range, RangeEnd, Session};

use super::dispatcher::{Dispatcher, Here, HereSink, Replicated};
use super::executor::Executor;
use super::loans::Loans;

/// Batches that one round executes at most, before sockets are polled again.
const BATCHES_PER_TURN: usize = 4;

/// Another dispatcher's writes may block a parked request, and their end rings no bell here.
const SLEEP_MAX_PARKED: Duration = Duration::from_millis(1);

const HAS_DISPATCHER: &str = "only a worker with a dispatcher has connections";

/// A session with the links between this worker and the others.
pub struct Routed {
    /// The session, which executes.
    home: RunToCompletion,
    fabric: Arc<Fabric>,
    own: WorkerId,
    partition_bits: base::PartitionBits,
    hasher: KeyHasher,
    /// None: no request is sampled.
    hot_keys: Option<Arc<HotKeys>>,
    /// None on a thread that only executes, or is idle.
    dispatcher: Option<Dispatcher>,
    executor: Executor,
    /// The batch in the making.
    here: Here,
    /// Whether requests go to workers other than the receiving one.
    is_routing: bool,
    /// It will send nothing more.
    is_closed: bool,
    /// Large replies that this worker sends, of any dispatcher.
    loans: Loans,
    /// At a node of a cluster: the view, and the channel to the control thread.
    cluster: Option<(Arc<View>, Arc<ControlChannel>)>,
    /// For groups, at a node of a cluster.
    group_handle: Option<GroupHandle>,
    /// [`Engine::set_estimating`].
    is_estimating: bool,
}

impl Routed {
    /// A worker's engine; one whose turn has no decider only executes.
    pub fn new(
        home: RunToCompletion,
        fabric: Arc<Fabric>,
        own: WorkerId,
        mut turn: Turn,
        shared: &Shared,
    ) -> Routed {
        let mut executor = Executor::new(Arc::clone(&fabric));
        executor.take_up(&turn, own);
        let loans = Loans::new();
        let partition_bits = shared.store().partition_bits();
        let hasher = shared.store().key_hasher().clone();
        let hot_keys = shared.hot_keys().cloned();
        let is_routing = turn.is_routing;
        let (dispatcher, is_closed) = (None, false);
        let mut routed = Routed {
            home,
            fabric,
            own,
            partition_bits,
            hasher,
            hot_keys,
            dispatcher,
            executor,
            here: Here::default(),
            is_routing,
            is_closed,
            loans,
            group_handle: shared.cluster_and_channel().map(|(view, channel)| {
                let receiver = view.take_receiver(own.index());
                let means = (Arc::clone(shared.store()), Arc::clone(shared.buffer_budget()));
                GroupHandle::new(channel, own.index(), receiver, means)
            }),
            cluster: shared.cluster_and_channel(),
            is_estimating: false,
        };
        let decider = turn.decider.take();
        routed.dispatcher = decider.map(|decider| routed.open_dispatcher(&turn, decider));
        routed
    }

    fn open_dispatcher(&self, turn: &Turn, decider: Decider) -> Dispatcher {
        let fabric = Arc::clone(&self.fabric);
        let mut dispatcher =
            Dispatcher::new(fabric, (turn, decider), self.partition_bits, self.own);
        if let Some(keys) = &self.hot_keys {
            dispatcher.set_hot_tracker(HotTracker::new(keys, self.own.index()));
        }
        if let Some((view, channel)) = &self.cluster {
            dispatcher.replicate(Replicated::new(Arc::clone(view), Arc::clone(channel)));
        }
        dispatcher
    }

    /// Executes a batch about which the router was not asked; counts the sizes of some.
    fn execute_unrouted(&mut self, requests: &[Request<'_, Rmw<'_>>], mut sink: ReplySink<'_>) {
        let dispatcher = self.dispatcher.as_mut().expect(HAS_DISPATCHER);
        dispatcher.note_all(requests);
        self.here.count_batch();
        let now = sink.now;
        if self.here.counts_sizes() {
            let mut sink = HereSink::new(sink, requests, dispatcher, &self.here);
            self.home.execute_into(now, requests, &mut sink);
        } else {
            self.home.execute_into(now, requests, &mut sink);
        }
    }

    fn dispatcher(&mut self) -> &mut Dispatcher {
        self.dispatcher.as_mut().expect(HAS_DISPATCHER)
    }
}

impl Engine for Routed {
    /// A worker whose requests all stay, and that awaits none from before, gathers as one that runs
    /// to completion.
    fn routes(&self) -> bool {
        self.is_routing || !self.is_drained()
    }

    #[inline]
    fn prefetch(&mut self, hash: KeyHash) {
        self.home.prefetch(hash);
    }

    fn execute(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        mut sink: &mut dyn Answering,
    ) {
        match &mut self.group_handle {
            Some(group_handle)
                if !self.is_estimating && (group_handle.is_held() || has_writes(requests)) =>
            {
                group_handle.execute(&mut self.home.session, now, requests, &mut sink);
            }
            _ => self.home.execute(now, requests, sink),
        }
    }

    fn begin_group(&mut self, slot: Slot) -> Option<GroupAsked> {
        Some(self.group_handle.as_mut()?.begin(&mut self.home.session, slot))
    }

    fn take_group_answers(&mut self) -> bool {
        self.group_handle.as_mut().is_some_and(GroupHandle::take_answers)
    }

    fn hold_group(&mut self, group: PendingGroup) {
        if let Some(group_handle) = &mut self.group_handle {
            group_handle.hold(group);
        }
    }

    fn lend_group_room(&mut self, kept: Reservation) {
        if let Some(group_handle) = &mut self.group_handle {
            group_handle.lend(kept);
        }
    }

    fn set_estimating(&mut self, is_on: bool) {
        self.is_estimating = is_on;
    }

    fn keep_group_room(&mut self, room: GroupRoom) -> bool {
        let Some(group_handle) = &mut self.group_handle else { return true };
        group_handle.keep(&mut self.home.session, room)
    }

    fn execute_apart(
        &mut self,
        now: UnixMillis,
        requests: (Slot, &[Request<'_, Rmw<'_>>]),
        mut sink: &mut dyn Answering,
    ) -> Apart {
        let Some(group_handle) = &mut self.group_handle else { return Apart::NotExecuted };
        group_handle.execute_apart(&mut self.home.session, now, requests, &mut sink)
    }

    fn end_group(&mut self) -> GroupAsked {
        match &mut self.group_handle {
            Some(group_handle) => group_handle.end(&mut self.home.session),
            None => GroupAsked::Answered(GroupAnswer::Good),
        }
    }

    fn flush_shards(&mut self, is_everywhere: bool) -> Option<GroupAnswer> {
        Some(self.group_handle.as_mut()?.flush(&mut self.home.session, is_everywhere))
    }

    fn take_compacted(&mut self) -> Compacted {
        self.home.take_compacted()
    }

    fn session(&mut self) -> Option<&mut Session> {
        match &self.group_handle {
            Some(group_handle) if group_handle.is_held() && !self.is_estimating => None,
            _ => self.home.session(),
        }
    }

    fn range(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visit: &mut dyn FnMut(&Item<'_>),
    ) -> Option<Result<RangeEnd, NoOrder>> {
        if let (Some(dispatcher), Bound::Included(key)) = (&mut self.dispatcher, range.origin()) {
            dispatcher.note_range(&self.hasher, key);
        }
        Some(self.home.session.range_from_hot(now, range, visit))
    }

    #[inline]
    fn is_routing(&self) -> bool {
        self.is_routing
    }

    #[inline]
    fn may_send(&mut self, core: &mut Core, slot: usize) -> bool {
        self.dispatcher().may_send(core, slot)
    }

    #[inline]
    fn ask(&mut self, core: &mut Core, asking: Asking<'_>) -> Asked {
        let dispatcher = self.dispatcher.as_mut().expect(HAS_DISPATCHER);
        dispatcher.ask(core, &mut self.here, asking)
    }

    #[inline]
    fn join(&mut self, hash: KeyHash, key: &[u8]) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.note(hash, key);
        }
        self.here.join();
    }

    #[inline]
    fn offer_tail(
        &mut self,
        core: &mut Core,
        requests: &[Request<'_, Rmw<'_>>],
        pendings: &[Pending],
    ) -> usize {
        let here = &mut self.here;
        let dispatcher = self.dispatcher.as_mut();
        dispatcher.map_or(0, |dispatcher| dispatcher.offer_tail(core, here, requests, pendings))
    }

    #[inline]
    fn execute_batch(&mut self, requests: &[Request<'_, Rmw<'_>>], sink: ReplySink<'_>) {
        if self.here.is_empty() && self.group_handle.is_none() {
            return self.execute_unrouted(requests, sink);
        }
        let (now, here) = (sink.now, &self.here);
        let dispatcher = self.dispatcher.as_ref().expect(HAS_DISPATCHER);
        let forwardings = &sink.counters.forwardings;
        let mut sink = HereSink::new(sink, requests, dispatcher, here);
        if let Some(group_handle) = &mut self.group_handle
            && (group_handle.is_held() || has_writes(requests))
        {
            group_handle.execute(&mut self.home.session, now, requests, &mut sink);
        } else if dispatcher.is_all_hot(here) {
            self.home.session.read_hot(now, requests, &mut sink);
            forwardings.hot_in_place.add(self.home.session.take_hot_reads());
        } else {
            self.home.execute_into(now, requests, &mut sink);
        }
    }

    #[inline]
    fn finish(&mut self, core: &mut Core) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.finish(core, &mut self.here);
        }
    }

    #[inline]
    fn send(&mut self, core: &mut Core, sending: Sending<'_>, away: Away) {
        self.dispatcher().send(core, sending, away);
    }

    fn tells_sizes(&self) -> bool {
        self.executor.tells_sizes()
    }

    fn can_pick(&self) -> bool {
        self.is_routing && self.dispatcher.as_ref().is_some_and(Dispatcher::can_pick)
    }

    #[inline]
    fn pick(&mut self, core: &Core, picking: Picking<'_>) -> Option<Picked> {
        self.dispatcher().pick(core, picking)
    }

    fn pick_for_range(&mut self) -> Option<Picked> {
        self.dispatcher().pick_for_range()
    }

    #[inline]
    fn settle_picked(&mut self, picked: &Picked) {
        self.dispatcher().settle_picked(picked);
    }

    fn wake_sleeping(&self, core: &Core, thread: usize) {
        if thread != self.own.index() && self.fabric.bells[thread].must_ring() {
            core.shared.wake(thread);
        }
    }

    fn say(&mut self, core: &mut Core, slot: usize, encode: &mut dyn FnMut(&mut Vec<u8>)) {
        self.dispatcher().say(core, slot, encode);
    }
}

impl Home for Routed {
    const ROUTES: bool = true;

    fn own_session(&mut self) -> &mut Session {
        self.home.own_session()
    }

    fn receiver(&mut self) -> Option<&mut Receiver> {
        self.group_handle.as_mut()?.receiver()
    }

    fn publish(&mut self, core: &mut Core) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.publish(core);
        }
    }

    fn turn(&mut self, core: &mut Core) -> bool {
        let mut has_any = false;
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.renew_plan(core);
            if dispatcher.look_at_hot_set() {
                self.home.session.set_hot_array(dispatcher.hot_array());
            }
        }
        for _ in 0..BATCHES_PER_TURN {
            // The needs of a large reply come first.
            let may_help = !self.loans.has_ready();
            let served_count = self.executor.serve(&mut self.home, core, may_help);
            let has_collected =
                self.dispatcher.as_mut().is_some_and(|dispatcher| dispatcher.collect(core));
            if served_count == 0 && !has_collected {
                break;
            }
            has_any = true;
        }
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.show_pins(core);
        }
        has_any
    }

    fn take_has_stolen(&mut self) -> bool {
        self.executor.take_has_stolen()
    }

    fn lie_down(&mut self) -> bool {
        self.executor.stop_helping();
        let bell = &self.fabric.bells[self.own.index()];
        bell.raise();
        let has_work = self.executor.has_work(self.own)
            || self.has_loans()
            || self.group_handle.as_ref().is_some_and(GroupHandle::has_answers)
            || self.dispatcher.as_mut().is_some_and(Dispatcher::has_done);
        if has_work {
            bell.lower();
        }
        !has_work
    }

    fn get_up(&mut self) {
        self.fabric.bells[self.own.index()].lower();
    }

    fn sleep_max(&self) -> Duration {
        let has_parked = self.dispatcher.as_ref().is_some_and(Dispatcher::has_parked);
        if has_parked { SLEEP_MAX_PARKED } else { Duration::MAX }
    }

    fn adopt(&mut self, lane: Lane) {
        self.executor.adopt(lane);
    }

    fn park(&mut self) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.park();
        }
    }

    fn go_on(&mut self, core: &mut Core) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.go_on(core);
        }
    }

    fn is_drained(&self) -> bool {
        self.dispatcher.as_ref().is_none_or(Dispatcher::is_drained)
    }

    fn take_up(&mut self, core: &mut Core, mut turn: Turn) {
        self.is_routing = turn.is_routing;
        self.executor.take_up(&turn, self.own);
        match (&mut self.dispatcher, turn.decider.take()) {
            (Some(dispatcher), Some(decider)) => dispatcher.take_up(core, &turn, decider),
            (None, Some(decider)) => {
                self.dispatcher = Some(self.open_dispatcher(&turn, decider));
            }
            (Some(_), None) => {
                if let Some(dispatcher) = self.dispatcher.take() {
                    dispatcher.close(core);
                }
            }
            (None, None) => {}
        }
        self.home.session.set_hot_array(self.dispatcher.as_ref().and_then(Dispatcher::hot_array));
    }

    fn settle(&mut self, core: &Core, plan: &RolePlan) {
        self.executor.settle(core, plan);
    }

    fn size_plan(&self) -> Option<&SizePlan> {
        self.dispatcher.as_ref().and_then(Dispatcher::size_plan)
    }

    fn lend(&mut self, core: &Core, worker: WorkerId, loan: Loan) {
        core.counters().forwardings.lent.add(1);
        match self.dispatcher.as_ref().map(|dispatcher| dispatcher.thread_of(worker)) {
            Some(thread) if thread != self.own.index() => {
                core.shared.send(thread, Control::Lend(Box::new(loan)));
            }
            _ => self.loans.take(loan),
        }
    }

    fn borrow(&mut self, loan: Loan) {
        self.loans.take(loan);
    }

    fn wake_loan(&mut self, token: u64) {
        self.loans.set_ready((token - TOKEN_LOAN) as usize);
    }

    #[inline]
    fn has_loans(&self) -> bool {
        self.loans.has_ready()
    }

    fn send_loans<P: Poller>(
        &mut self,
        core: &Core,
        poller: &mut P,
        left_bytes: &mut usize,
    ) -> Vec<Returned> {
        self.loans.send(core, poller, left_bytes);
        self.loans.take_returned_here()
    }

    fn keep_receive_buffer(&mut self, core: &mut Core, receive_buffer: Arc<Vec<u8>>) {
        self.dispatcher().keep_receive_buffer(core, receive_buffer);
    }

    fn can_refuse(&self) -> bool {
        self.dispatcher.as_ref().is_some_and(Dispatcher::has_reserve)
    }

    #[inline]
    fn deliver_more(&mut self, core: &mut Core, slot: usize) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.deliver_more(core, slot);
        }
    }

    fn abandon(&mut self, core: &mut Core, awaiting: &mut Awaiting) {
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.abandon(core, awaiting);
        }
    }

    fn may_end(&mut self, core: &Core) -> bool {
        if !self.is_closed && self.is_drained() {
            self.is_closed = true;
            if self.fabric.close_sender() {
                core.shared.wake_all();
            }
        }
        self.fabric.are_senders_closed()
    }
}

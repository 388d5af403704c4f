//! Engines: execute a batch. An engine is a whole session, or some of its keys under their locks,
//! or a dispatcher that sends requests to other workers.
//!
//! Commands are written once, against this trait; inside EXEC they run on locked keys.

use std::sync::Arc;
use std::time::Duration;

use base::roles::RolePlan;
use base::{KeyHash, UnixMillis, WorkerId};
use budget::Reservation;
use cluster::Slot;
use commands::compaction::{Answering, Compaction};
use commands::reply::Answer;
use commands::reply::Pending;
use commands::rmw::Rmw;
use config::Config;
use counters::Compacted;
use dispatch::lanes::{Awaiting, Lane, Loan, Returned, Turn};
use host::poller::Poller;
use policy::size_class::SizePlan;
use policy::{Access, Route, RouteRequest};
use replication::cluster::Receiver;
use replication::replicate::{Apart, Asked as GroupAsked, GroupAnswer, GroupRoom, PendingGroup};
use store::request::{Item, Request};
use store::{Changes, LockedSession, NoOrder, Range, RangeEnd, Session};

use crate::core::Core;
use crate::reply_sink::ReplySink;

/// Requests that may read or copy whole values and go to the store together: if the values are
/// large, more would be the work of many turns.
pub const HEAVY_REQUESTS_MAX: usize = 8;

/// Executes batches of requests.
pub trait Engine {
    /// Whether requests go to the worker that a router names.
    fn routes(&self) -> bool {
        false
    }

    /// The key is in the batch in the making: its bucket may be fetched from memory.
    fn prefetch(&mut self, hash: KeyHash);

    /// Executes requests, in order.
    fn execute(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut dyn Answering,
    );

    /// Executes a worker's batch. If the engine routes, it is the batch of which it remembers what
    /// it was told by [`Engine::ask`] and [`Engine::join`].
    fn execute_batch(&mut self, requests: &[Request<'_, Rmw<'_>>], sink: ReplySink<'_>);

    /// The compactions since the last call.
    fn take_compacted(&mut self) -> Compacted {
        Compacted::default()
    }

    /// The session, unless keys are locked.
    fn session(&mut self) -> Option<&mut Session>;

    /// The changes of the session, also while keys are locked, in exchange for empty notes.
    fn take_changes(&mut self, empty: &mut Changes) {
        if let Some(session) = self.session() {
            session.take_changes(empty);
        }
    }

    /// In a cluster, begins a group of requests on keys of that slot: no others come between them,
    /// and [`Engine::session`] is `None`. `None`: keys are locked instead.
    fn begin_group(&mut self, _slot: Slot) -> Option<GroupAsked> {
        None
    }

    /// Whether an answer to a group has come since the last call.
    fn take_group_answers(&mut self) -> bool {
        false
    }

    /// Goes on with a group that was granted later.
    fn hold_group(&mut self, _group: PendingGroup) {}

    /// Hands over what was kept for the group before it began.
    fn lend_group_room(&mut self, _kept: Reservation) {}

    /// In a group of a cluster, while it has written nothing: whether the following reads are
    /// executed here, for an estimate alone.
    fn set_estimating(&mut self, _is_on: bool) {}

    /// In a group of a cluster, keeps room for all that it stores, unless that was done before;
    /// false: there is none, and nothing of it may run.
    fn keep_group_room(&mut self, _room: GroupRoom) -> bool {
        true
    }

    /// Executes the first requests, or all, of one slot's shard where a cluster's writes are
    /// executed; otherwise like [`Engine::execute`].
    fn execute_apart(
        &mut self,
        now: UnixMillis,
        (_slot, requests): (Slot, &[Request<'_, Rmw<'_>>]),
        sink: &mut dyn Answering,
    ) -> Apart {
        self.execute(now, requests, sink);
        Apart::Done { count: requests.len() }
    }

    /// Ends the group. Its replies must be discarded unless the answer is good.
    fn end_group(&mut self) -> GroupAsked {
        GroupAsked::Answered(GroupAnswer::Good)
    }

    /// Deletes all keys that this node of a cluster serves, or all of the cluster. `None`: there is
    /// no cluster, and the session does it.
    fn flush_shards(&mut self, _is_everywhere: bool) -> Option<GroupAnswer> {
        None
    }

    /// A step of a walk over keys in their order; `None`: keys are locked.
    #[inline]
    fn range(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visit: &mut dyn FnMut(&Item<'_>),
    ) -> Option<Result<RangeEnd, NoOrder>> {
        self.session().map(|session| session.range(now, range, visit))
    }

    /// Whether a router is asked at all at the moment; only for an engine that routes.
    #[inline]
    fn is_routing(&self) -> bool {
        true
    }

    /// Whether [`Engine::send`] or [`Engine::say`] can be called for this connection now; if not,
    /// the connection is touched when it can continue.
    #[inline]
    fn may_send(&mut self, _core: &mut Core, _slot: usize) -> bool {
        true
    }

    /// Picks the worker for a request, given the length of the batch in the making. A request that
    /// stays here must join it. Call it only after [`Engine::may_send`].
    fn ask(&mut self, _core: &mut Core, _asking: Asking<'_>) -> Asked {
        unreachable!("only an engine that routes is asked where a request goes");
    }

    /// A request joins the batch without a call of [`Engine::ask`].
    fn join(&mut self, _hash: KeyHash, _key: &[u8]) {
        unreachable!("only an engine that routes remembers anything of a batch");
    }

    /// Called before the last batch of a gathering is executed: how many of its last requests other
    /// workers execute instead.
    #[inline]
    fn offer_tail(
        &mut self,
        _core: &mut Core,
        _requests: &[Request<'_, Rmw<'_>>],
        _pendings: &[Pending],
    ) -> usize {
        0
    }

    /// Finishes the batch, after it was executed and its replies were written.
    fn finish(&mut self, _core: &mut Core) {
        unreachable!("only an engine that routes has requests to finish");
    }

    /// Sends a request to the worker that the router named, or lets it wait for one; its reply
    /// arrives in a later round.
    fn send(&mut self, _core: &mut Core, _sending: Sending<'_>, _away: Away) {
        unreachable!("only an engine that routes is asked to send");
    }

    /// Whether [`Engine::pick`] can be called now. It cannot while roles change, in a cluster, or
    /// where thieves execute.
    fn can_pick(&self) -> bool {
        false
    }

    /// Picks the worker for a request of a native client; `None`: this one, and nothing is to be
    /// settled. What was picked is settled once it is executed.
    fn pick(&mut self, _core: &Core, _picking: Picking<'_>) -> Option<Picked> {
        unreachable!("only an engine that routes picks a worker");
    }

    /// Picks the worker for a range; `None`: this one.
    fn pick_for_range(&mut self) -> Option<Picked> {
        None
    }

    /// Settles a request that was picked.
    fn settle_picked(&mut self, _picked: &Picked) {
        unreachable!("only an engine that routes picks a worker");
    }

    /// Wakes a thread, if it sleeps, for what was left for it.
    fn wake_sleeping(&self, core: &Core, thread: usize) {
        core.shared.wake(thread);
    }

    /// Whether large items have workers of their own now.
    fn tells_sizes(&self) -> bool {
        false
    }

    /// Adds a reply behind those that the connection awaits. Call it only after
    /// [`Engine::may_send`].
    fn say(&mut self, _core: &mut Core, _slot: usize, _encode: &mut dyn FnMut(&mut Vec<u8>)) {
        unreachable!("only an engine that routes has replies that are waited for");
    }
}

/// A request for which a worker is to be picked.
pub struct Asking<'s> {
    /// The request, which borrows the bytes that were read.
    pub request: &'s Request<'s, Rmw<'s>>,
    /// How it is answered.
    pub answer: Answer,
    /// Length of the batch in the making.
    pub batch_len: usize,
}

/// A request of a native client for which a worker is to be picked.
#[derive(Clone, Copy)]
pub struct Picking<'s> {
    /// The key's hash.
    pub hash: KeyHash,
    /// Its key.
    pub key: &'s [u8],
    /// Whether it reads or writes.
    pub access: Access,
    /// The size of key and value, if the request carries it.
    pub size_bytes: Option<u64>,
    /// The worker that it follows (K10).
    pub follows: Option<WorkerId>,
}

/// The worker that executes a request of a native client.
#[derive(Clone, Copy, Debug)]
pub struct Picked {
    /// The router's number for it.
    pub worker: WorkerId,
    /// Its thread.
    pub thread: usize,
    /// The question to the router.
    pub question: RouteRequest,
    /// Whether the router was asked, and has to be told of the end.
    pub is_asked: bool,
}

/// Which worker executes a request.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// This worker, in the batch in the making.
    Here,
    /// Another one, or this one later.
    Away(Away),
}

/// A request that does not join the batch.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// The question to the router.
    pub question: RouteRequest,
    /// The router's answer.
    pub route: Route,
    /// Whether the batch must be executed first, because it may hold a request of the connection on
    /// that key.
    pub settles: bool,
}

/// A request on its way to the worker that executes it.
pub struct Sending<'s> {
    /// The request, which borrows the bytes that were read.
    pub request: Request<'s, Rmw<'s>>,
    /// The buffer that holds these bytes, if it can be kept.
    pub receive_buffer: Option<&'s Arc<Vec<u8>>>,
    /// How it is answered.
    pub answer: Answer,
}

/// The engine of a worker: its own session, and the links to other workers.
pub trait Home: Engine {
    /// What [`Engine::routes`] returns: a constant, so that a worker that executes its own requests
    /// pays nothing for the question in its loop. A batch tests a flag instead (decision 0106).
    const ROUTES: bool = false;

    /// The worker's session.
    fn own_session(&mut self) -> &mut Session;

    /// Receives entries for the node, under the scheme `rpc`.
    #[inline]
    fn receiver(&mut self) -> Option<&mut Receiver> {
        None
    }

    /// Publishes sent requests to the workers that execute them. Called at the end of a gathering
    /// (K15).
    #[inline]
    fn publish(&mut self, _core: &mut Core) {}

    /// Executes requests from other workers and takes back those that they have executed, in
    /// bounded steps. Connections that got replies are touched. Returns whether there was any work.
    #[inline]
    fn turn(&mut self, _core: &mut Core) -> bool {
        false
    }

    /// Whether the last turn executed requests that waited for others: then the worker's own
    /// clients are served before the next.
    #[inline]
    fn take_has_stolen(&mut self) -> bool {
        false
    }

    /// Called before the worker sleeps: whether no work waits here. From then on other workers wake
    /// it.
    #[inline]
    fn lie_down(&mut self) -> bool {
        true
    }

    /// Notes that the worker is awake.
    #[inline]
    fn get_up(&mut self) {}

    /// The longest time that a worker sleeps without being woken.
    #[inline]
    fn sleep_max(&self) -> Duration {
        Duration::MAX
    }

    /// Serves another worker's requests from now on.
    fn adopt(&mut self, _lane: Lane) {}

    /// Sends nothing more, until [`Home::go_on`] or [`Home::take_up`].
    fn park(&mut self) {}

    /// Sends again.
    fn go_on(&mut self, _core: &mut Core) {}

    /// Whether no sent request is in flight.
    #[inline]
    fn is_drained(&self) -> bool {
        true
    }

    /// Acts by another plan from now on; only when drained.
    fn take_up(&mut self, _core: &mut Core, _turn: Turn) {}

    /// Drops the lanes of dispatchers that, under this plan, no longer send to this worker.
    fn settle(&mut self, _core: &Core, _plan: &RolePlan) {}

    /// The plan of sizes, where sizes matter.
    #[inline]
    fn size_plan(&self) -> Option<&SizePlan> {
        None
    }

    /// Gives a connection's output to the worker that the plan names.
    fn lend(&mut self, _core: &Core, _worker: WorkerId, _loan: Loan) {
        unreachable!("only an engine that routes has a plan");
    }

    /// Sends another worker's large reply from now on.
    fn borrow(&mut self, _loan: Loan) {}

    /// Notes that the poller has reported the socket of a loan, by its token.
    fn wake_loan(&mut self, _token: u64) {}

    /// Whether large replies could continue to leave.
    #[inline]
    fn has_loans(&self) -> bool {
        false
    }

    /// Sends slices of large replies that can continue, until none of so many bytes is left;
    /// returns this worker's own loans that have ended.
    fn send_loans<P: Poller>(
        &mut self,
        _core: &Core,
        _poller: &mut P,
        _left_bytes: &mut usize,
    ) -> Vec<Returned> {
        Vec::new()
    }

    /// Keeps a buffer that requests borrow until they are done.
    fn keep_receive_buffer(&mut self, _core: &mut Core, _receive_buffer: Arc<Vec<u8>>) {}

    /// Whether [`Engine::say`] has room for a refusal.
    fn can_refuse(&self) -> bool {
        true
    }

    /// Called after a connection's output was sent: delivers replies that waited for room in it.
    #[inline]
    fn deliver_more(&mut self, _core: &mut Core, _slot: usize) {}

    /// Drops the replies that a closing connection awaits.
    #[inline]
    fn abandon(&mut self, _core: &mut Core, _awaiting: &mut Awaiting) {}

    /// The worker has no connections and accepts no more: whether it may end.
    #[inline]
    fn may_end(&mut self, _core: &Core) -> bool {
        true
    }
}

/// The engine of a worker that executes the requests that it receives.
pub struct RunToCompletion {
    /// The worker's session.
    pub session: Session,
    /// Combines several writes of a key in one batch into one; `None`: switched off.
    pub compaction: Option<Compaction>,
}

impl RunToCompletion {
    /// A session, and compaction if that is on.
    pub fn new(session: Session, config: &Config) -> RunToCompletion {
        RunToCompletion {
            session,
            compaction: config.compaction.then(|| Compaction::new(config.compacts)),
        }
    }

    /// [`Engine::execute`], compiled for a type of sink.
    #[inline]
    pub fn execute_into<S: Answering>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        match &mut self.compaction {
            Some(compaction) => compaction.execute(&mut self.session, now, requests, sink),
            None => self.session.execute(now, requests, sink),
        }
    }
}

impl Engine for RunToCompletion {
    #[inline]
    fn prefetch(&mut self, hash: KeyHash) {
        self.session.prefetch(hash);
    }

    fn execute(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        mut sink: &mut dyn Answering,
    ) {
        self.execute_into(now, requests, &mut sink);
    }

    fn execute_batch(&mut self, requests: &[Request<'_, Rmw<'_>>], mut sink: ReplySink<'_>) {
        self.execute_into(sink.now, requests, &mut sink);
    }

    #[inline]
    fn take_compacted(&mut self) -> Compacted {
        self.compaction.as_mut().map(Compaction::take_counted).unwrap_or_default()
    }

    fn session(&mut self) -> Option<&mut Session> {
        Some(&mut self.session)
    }
}

impl Home for RunToCompletion {
    #[inline]
    fn own_session(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl Engine for LockedSession<'_> {
    /// Taking the locks has fetched the buckets.
    fn prefetch(&mut self, _hash: KeyHash) {}

    fn execute(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        mut sink: &mut dyn Answering,
    ) {
        LockedSession::execute(self, now, requests, &mut sink);
    }

    fn execute_batch(&mut self, requests: &[Request<'_, Rmw<'_>>], mut sink: ReplySink<'_>) {
        LockedSession::execute(self, sink.now, requests, &mut sink);
    }

    fn session(&mut self) -> Option<&mut Session> {
        None
    }

    fn take_changes(&mut self, empty: &mut Changes) {
        LockedSession::take_changes(self, empty);
    }
}

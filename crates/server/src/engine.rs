//! Engines: execute a batch. An engine is a whole session, or some of its keys under their locks,
//! or a dispatcher that sends requests to other workers.
//!
//! Commands are written once, against this trait; inside EXEC they run on locked keys.

use std::sync::Arc;
use std::time::Duration;

use base::roles::RolePlan;
use base::{KeyHash, UnixMillis, WorkerId};
use cluster::Slot;
use policy::size_class::SizePlan;
use policy::{Route, RouteRequest};
use store::request::{Item, Request};
use store::{Changes, LockedSession, NoOrder, Range, RangeEnd, Session};

use crate::compaction::{Answering, Compacted, Compaction};
use crate::config::Config;
use crate::core::Core;
use crate::forwarding::replicate::{Apart, GroupAnswer};
use crate::forwarding::{Awaiting, Lane, Loan, Returned, Turn};
use crate::gather::Answer;
use crate::poller::Poller;
use crate::reply::{Pending, ReplySink};
use crate::rmw::Rmw;

/// Executes batches of requests.
pub trait Engine {
    /// Whether requests go to the worker that a router names. A constant, so that a worker that
    /// executes what it receives pays nothing for the question.
    const ROUTES: bool = false;

    /// What the engine remembers of a batch in the making: nothing, unless it routes.
    type Here: Default;

    /// The key is in the batch that is gathered: its bucket may be fetched from memory.
    fn prefetch(&mut self, hash: KeyHash);

    /// Executes a batch, in order.
    fn execute<S: Answering>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    );

    /// What compaction has done since the last call.
    fn take_compacted(&mut self) -> Compacted {
        Compacted::default()
    }

    /// The session, unless keys are locked.
    fn session(&mut self) -> Option<&mut Session>;

    /// What the session has changed, also while keys are locked, in exchange for empty notes.
    fn take_changes(&mut self, empty: &mut Changes) {
        if let Some(session) = self.session() {
            session.take_changes(empty);
        }
    }

    /// Requests on keys of that slot belong together from now on, in a cluster: no others come
    /// between, and [`Engine::session`] is `None`. `None`: keys are locked instead.
    fn begin_group(&mut self, _slot: Slot) -> Option<GroupAnswer> {
        None
    }

    /// Executes requests of one slot's shard where a cluster's writes are executed; else as
    /// [`Engine::execute`].
    fn execute_apart<S: Answering>(
        &mut self,
        now: UnixMillis,
        (_slot, requests): (Slot, &[Request<'_, Rmw<'_>>]),
        sink: &mut S,
    ) -> Apart {
        self.execute(now, requests, sink);
        Apart::Done
    }

    /// Ends the group. Returns false if its replies must be discarded.
    fn end_group(&mut self) -> bool {
        true
    }

    /// Deletes all keys that this node of a cluster serves, or all of the cluster. `None`: there is
    /// none, and the session does it.
    fn flush_shards(&mut self, _is_everywhere: bool) -> Option<GroupAnswer> {
        None
    }

    /// A step of a walk over keys in their order; `None`: keys are locked.
    #[inline]
    fn range(
        &mut self,
        now: UnixMillis,
        range: &Range<'_>,
        visit: impl FnMut(&Item<'_>),
    ) -> Option<Result<RangeEnd, NoOrder>> {
        self.session().map(|session| session.range(now, range, visit))
    }

    /// Whether a router is asked at all at the moment; only of an engine that routes.
    #[inline]
    fn is_routing(&self) -> bool {
        true
    }

    /// Whether [`Engine::send`] or [`Engine::say`] can be called for this connection now; if not,
    /// it is told when it can go on.
    #[inline]
    fn may_send(&mut self, _core: &mut Core, _slot: usize) -> bool {
        true
    }

    /// Picks the worker for a request, given the length of the batch that is gathered. One that
    /// stays here must join it. Only after [`Engine::may_send`].
    fn ask(&mut self, _core: &mut Core, _here: &mut Self::Here, _asking: Asking<'_>) -> Asked {
        unreachable!("only an engine that routes is asked where a request goes");
    }

    /// A request joins the batch without a call of [`Engine::ask`].
    fn join(&mut self, _here: &mut Self::Here, _hash: KeyHash, _key: &[u8]) {
        unreachable!("only an engine that routes remembers anything of a batch");
    }

    /// The last batch of a gathering is about to be executed: how many of its last requests others
    /// shall execute instead.
    #[inline]
    fn offer_tail(
        &mut self,
        _core: &mut Core,
        _here: &mut Self::Here,
        _requests: &[Request<'_, Rmw<'_>>],
        _pendings: &[Pending],
    ) -> usize {
        0
    }

    /// Executes the batch that is gathered here.
    fn execute_here(
        &mut self,
        _requests: &[Request<'_, Rmw<'_>>],
        _sink: ReplySink<'_>,
        _here: &mut Self::Here,
    ) {
        unreachable!("only an engine that routes remembers anything of a batch");
    }

    /// The batch is executed and its replies are written.
    fn finish(&mut self, _core: &mut Core, _here: &mut Self::Here) {
        unreachable!("only an engine that routes has requests to finish");
    }

    /// Sends a request to the worker that the router named, or lets it wait for one; its reply
    /// comes in a later round.
    fn send(&mut self, _core: &mut Core, _sending: Sending<'_>, _away: Away) {
        unreachable!("only an engine that routes is asked to send");
    }

    /// Puts a reply behind those that the connection waits for. Only after [`Engine::may_send`].
    fn say<T>(
        &mut self,
        _core: &mut Core,
        _slot: usize,
        _encode: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> T {
        unreachable!("only an engine that routes has replies that are waited for");
    }
}

/// A request that somebody shall execute.
pub struct Asking<'s> {
    /// Borrows the bytes that were read.
    pub request: &'s Request<'s, Rmw<'s>>,
    /// How it is answered.
    pub answer: Answer,
    /// Requests in the batch that is gathered.
    pub batch_len: usize,
}

/// Which worker executes a request.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// This worker, in the batch that is gathered.
    Here,
    /// Another one, or this one later.
    Away(Away),
}

/// A request that does not join the batch.
#[derive(Clone, Copy, Debug)]
pub struct Away {
    /// What the router was asked.
    pub question: RouteRequest,
    /// What it said.
    pub route: Route,
    /// Whether the batch must be executed first: its connection may have that key there.
    pub settles: bool,
}

/// A request on its way to the worker that executes it.
pub struct Sending<'s> {
    /// Borrows the bytes that were read.
    pub request: Request<'s, Rmw<'s>>,
    /// The buffer that these bytes lie in, if it can be kept.
    pub receive_buffer: Option<&'s Arc<Vec<u8>>>,
    /// How it is answered.
    pub answer: Answer,
}

/// An engine that a worker lives on: its own session, and what lies between workers.
pub trait Home: Engine {
    /// The worker's session.
    fn own_session(&mut self) -> &mut Session;

    /// The end of a gathering: what was sent is shown to the workers that execute it (K15).
    #[inline]
    fn publish(&mut self, _core: &mut Core) {}

    /// Executes what other workers sent and takes back what they have executed, in bounded steps.
    /// Connections that got replies are touched. Whether there was anything.
    #[inline]
    fn turn(&mut self, _core: &mut Core) -> bool {
        false
    }

    /// Whether the last turn executed what waited for others: then the worker's own clients are
    /// looked at before the next.
    #[inline]
    fn take_has_stolen(&mut self) -> bool {
        false
    }

    /// Before the worker sleeps: whether nothing waits here. From then on others wake it.
    #[inline]
    fn lie_down(&mut self) -> bool {
        true
    }

    /// The worker is awake.
    #[inline]
    fn get_up(&mut self) {}

    /// A worker sleeps at most so long without being woken.
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

    /// Whether nothing that was sent is on the way.
    #[inline]
    fn is_drained(&self) -> bool {
        true
    }

    /// Acts by another plan from now on; only when drained.
    fn take_up(&mut self, _core: &mut Core, _turn: Turn) {}

    /// Nothing comes any more from the fronts that, by this plan, send to this worker no longer.
    fn settle(&mut self, _core: &Core, _plan: &RolePlan) {}

    /// Which sizes are small, where that matters.
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

    /// The poller reports the socket of a loan, by its token.
    fn wake_loan(&mut self, _token: u64) {}

    /// Whether large replies could go on leaving.
    #[inline]
    fn has_loans(&self) -> bool {
        false
    }

    /// Sends a slice of each large reply that can go on; which of this worker's own are over.
    fn send_loans<P: Poller>(&mut self, _core: &Core, _poller: &mut P) -> Vec<Returned> {
        Vec::new()
    }

    /// A buffer that requests borrow stays until they are done.
    fn keep_receive_buffer(&mut self, _core: &mut Core, _receive_buffer: Arc<Vec<u8>>) {}

    /// Whether [`Engine::say`] has room for a refusal.
    fn can_refuse(&self) -> bool {
        true
    }

    /// A connection's output is sent: what waited for room in it may have some.
    #[inline]
    fn deliver_more(&mut self, _core: &mut Core, _slot: usize) {}

    /// A connection closes: the replies that it waits for are dropped.
    #[inline]
    fn abandon(&mut self, _core: &mut Core, _awaiting: &mut Awaiting) {}

    /// The worker has no connections and takes no more: whether it may end.
    #[inline]
    fn may_end(&mut self, _core: &Core) -> bool {
        true
    }
}

/// A worker that executes what it receives.
pub struct RunToCompletion {
    /// The worker's.
    pub session: Session,
    /// Several writes of a key in one batch become one; `None`: switched off.
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
}

impl Engine for RunToCompletion {
    type Here = ();

    #[inline]
    fn prefetch(&mut self, hash: KeyHash) {
        self.session.prefetch(hash);
    }

    #[inline]
    fn execute<S: Answering>(
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
    type Here = ();

    /// Taking the locks has brought the buckets.
    fn prefetch(&mut self, _hash: KeyHash) {}

    fn execute<S: Answering>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        LockedSession::execute(self, now, requests, sink);
    }

    fn session(&mut self) -> Option<&mut Session> {
        None
    }

    fn take_changes(&mut self, empty: &mut Changes) {
        LockedSession::take_changes(self, empty);
    }
}

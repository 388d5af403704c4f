//! Native clients at a node of a cluster: requests on slots that it serves are executed, all others
//! are answered with "moved".
//!
//! ```text
//!  request ─ slot of the key ─▶ View ┬ Here, a read ────▶ the batch, executed by this worker
//!                                    ├ Here, a write ─┐
//!                                    ├ ThroughControl ┴▶ a group of its shard ─▶ on all copies
//!                                    └ Elsewhere, Nowhere ▶ moved: slots and address
//!  frames of replies wait ─ lease and places still good? ─▶ leave, or those of reads are dropped
//! ```
//!
//! # Invariants
//! L1: no reply to a read that this worker executed leaves unless the lease holds and no place has
//!     changed since the batch began (K22). The client repeats it; over shared memory it is
//!     answered "busy" (I2 of `outgoing`). What a group has done is on all copies, whatever changes
//!     then.
//! L2: requests of a shard that come behind one that goes through the control thread do so too, so
//!     that they see its effect (I2 of `batch`).
//! L3: a write whose outcome is unknown is not answered, and stays under way for its session: it is
//!     never executed again. A read of the same group is answered "busy".
//! L4: "moved" says that this node did not execute the request. So a repetition is first looked for
//!     in the session's memory, whichever node has the key by now.

use std::sync::Arc;

use base::Slot;
use cluster::ShardId;
use commands::rmw::Rmw;
use replication::cluster::{Place, View, clock};
use replication::replicate::Apart;
use store::request::{Op as StoreOp, Request};
use wire::native::{Moved, Op, Reply, RequestId, Status};

use super::Batch;
use crate::answers::{Answers, Pending};
use crate::outgoing::{Origin, Outlet};

/// A batch's view of the cluster.
pub struct Placed {
    view: Arc<View>,
    /// The view's generation when the batch began.
    generation: u64,
}

impl Placed {
    /// For one batch.
    pub fn new(view: Arc<View>) -> Placed {
        Placed { generation: view.generation(), view }
    }

    /// Whether the batch's replies of reads may leave (L1).
    pub fn may_answer(&self) -> bool {
        self.view.generation() == self.generation && self.view.may_answer(clock::now().ns)
    }

    fn is_own(&self, key: &[u8]) -> bool {
        self.view.is_own(Slot::of(key))
    }

    fn is_here(&self, slot: Slot) -> bool {
        self.view.place(slot) == Place::Here
    }

    fn shard_of(&self, slot: Slot) -> ShardId {
        let configuration = self.view.configuration();
        configuration.map_or(ShardId(0), |configuration| configuration.shard_of_slot(slot))
    }

    /// The node that has a slot, as a reply states it; empty: not even that is known.
    fn moved(&self, slot: Slot) -> String {
        let Some(configuration) = self.view.configuration() else { return String::new() };
        let Some(shard) = configuration.shard(configuration.shard_of_slot(slot)) else {
            return String::new();
        };
        let (own, primary) = (self.view.own(), shard.primary);
        let is_other = primary != own && configuration.has(primary);
        let addresses = configuration.addresses(primary).filter(|it| is_other && it.native != 0);
        let address = addresses.map(|at| match at.host.contains(':') {
            true => format!("[{}]:{}", at.host, at.native),
            false => format!("{}:{}", at.host, at.native),
        });
        let (term, first, last) = (configuration.term.0, shard.first.0, shard.last.0);
        Moved { term, first, last, address: address.as_deref() }.to_string()
    }
}

/// Requests that go through the control thread together, in their order.
pub(super) struct Group<'a> {
    slot: Slot,
    shard: ShardId,
    requests: Vec<Request<'a, Rmw<'a>>>,
    pendings: Vec<Pending>,
}

impl<'a, 'k, T: Outlet> Batch<'_, 'a, 'k, T> {
    /// Whether another server has the request's key; then it is answered without being executed
    /// (L4).
    pub(super) fn is_moved(&mut self, id: RequestId, op: &Op<'_>) -> bool {
        let Some(placed) = &self.placed else { return false };
        let Some(key) = op.key() else {
            // Every server has a part of each range.
            let is_range = matches!(op, Op::Range(_));
            if is_range {
                self.direct(&Reply::new(id, Status::Unsupported));
            }
            return is_range;
        };
        if placed.is_own(key) {
            return false;
        }
        let value = placed.moved(Slot::of(key));
        if let RequestId::Once(sequence) = id
            && !self.may_execute(sequence)
        {
            return true;
        }
        self.direct(&Reply { value: value.as_bytes(), ..Reply::new(id, Status::Moved) });
        true
    }

    /// Takes the requests out of the batch that do not stay with this worker. They are executed
    /// after the others, which came before all writes of their shard (L2).
    pub(super) fn take_groups(&mut self) -> Vec<Group<'a>> {
        let Some(placed) = &self.placed else { return Vec::new() };
        let requests = std::mem::take(&mut self.requests);
        let pendings = std::mem::take(&mut self.pendings);
        let mut groups: Vec<Group<'a>> = Vec::new();
        for (request, pending) in requests.into_iter().zip(pendings) {
            let slot = Slot::of(request.key);
            let shard = placed.shard_of(slot);
            let group = groups.iter_mut().find(|group| group.shard == shard);
            let is_here = matches!(request.op, StoreOp::Get) && placed.is_here(slot);
            match group {
                Some(group) => {
                    group.requests.push(request); // L2
                    group.pendings.push(pending);
                }
                None if is_here => {
                    self.requests.push(request);
                    self.pendings.push(pending);
                }
                None => groups.push(Group {
                    slot,
                    shard,
                    requests: vec![request],
                    pendings: vec![pending],
                }),
            }
        }
        groups
    }

    /// Executes the groups.
    pub(super) fn run_groups(&mut self, groups: Vec<Group<'a>>) {
        let origins = self.origins.clone();
        for group in groups {
            let Group { slot, requests, pendings, .. } = group;
            self.run_apart(slot, (&requests, &pendings), &origins);
        }
    }

    /// Executes requests of one shard as a group.
    pub(super) fn run_apart(
        &mut self,
        slot: Slot,
        (mut requests, mut pendings): (&[Request<'_, Rmw<'_>>], &[Pending]),
        origins: &[Origin<'k>],
    ) {
        while !requests.is_empty() {
            let counters = self.core.counters();
            let work = &self.core.native_work;
            let (out, sizes) = (&mut self.out, None);
            let mut answers = Answers { pendings, sizes, origins, out, counters, work };
            match self.engine.execute_apart(self.core.now, (slot, requests), &mut answers) {
                Apart::Done { count } => {
                    (requests, pendings) = (&requests[count..], &pendings[count..]);
                }
                Apart::NotExecuted => break,
                Apart::Unknown { count } => {
                    let unknown = requests[..count].iter().zip(&pendings[..count]);
                    for (request, pending) in unknown {
                        if matches!(request.op, StoreOp::Get) {
                            self.answer_busy(pending, origins); // L3
                        }
                    }
                    pendings = &pendings[count..];
                    break;
                }
            }
        }
        pendings.iter().for_each(|pending| self.answer_busy(pending, origins));
    }

    /// Answers a request that was not executed, or is a read.
    fn answer_busy(&mut self, pending: &Pending, origins: &[Origin<'k>]) {
        let origin = &origins[usize::from(pending.origin)];
        if let RequestId::Once(sequence) = pending.id {
            origin.session.once().once.forget(sequence);
        }
        self.out.turn_to(origin);
        let is_written = self.out.push(&Reply::new(pending.id, Status::Busy));
        debug_assert!(is_written, "a reply without a value fits any frame");
    }
}

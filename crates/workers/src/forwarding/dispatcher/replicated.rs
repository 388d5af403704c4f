//! A dispatcher at a node of a cluster: reads of slots that the node serves stay here, all other
//! requests go through the control thread (`replicate`).
//!
//! # Invariants
//! C1: a read stays here only if its slot's place is `Here` and its connection has no request in
//!     flight on that key (K10).
//! C2: a read that stayed here is answered only if the place and the lease are still good after its
//!     execution (`worker::finish`, K22).

use std::sync::Arc;

use cluster::Slot;
use counters::Dialect;
use policy::Route;
use replication::cluster::{Place, SlotReads, View};
use replication::replicate::{ControlChannel, ControlRequest};
use runtime::core::Core;
use runtime::engine::{Asked, Asking, Away};
use store::request::Op;

use super::{Dispatcher, Here, State};

/// The cluster state of a dispatcher.
pub struct Replicated {
    pub view: Arc<View>,
    pub channel: Arc<ControlChannel>,
    reads: Arc<SlotReads>,
    /// A request was sent, and the control thread was not called for it yet.
    has_sent: bool,
}

impl Replicated {
    pub fn new(view: Arc<View>, channel: Arc<ControlChannel>) -> Replicated {
        Replicated { reads: view.count_reads(), view, channel, has_sent: false }
    }
}

/// Decides where a request goes; one that stays here joins the batch.
pub(super) fn ask_cluster(
    dispatcher: &mut Dispatcher,
    core: &mut Core,
    here: &mut Here,
    asking: Asking<'_>,
) -> Asked {
    let Asking { request, answer, .. } = &asking;
    let question = dispatcher.question(request);
    let is_read = matches!(request.op, Op::Get);
    let place = match &dispatcher.replicated {
        Some(replicated) if is_read => replicated.view.place(Slot::of(request.key)),
        _ => Place::ThroughControl,
    };
    let leader = dispatcher.leader(core, here, answer.slot, request.hash);
    let stays = match leader {
        super::direct::Leader::Away => false,
        super::direct::Leader::Here => is_read,
        super::direct::Leader::NoWorker => {
            place == Place::Here || reads_copy(dispatcher, core, answer.slot, is_read, request.key)
        }
    };
    if !stays {
        let settles = here.has_unasked() || leader == super::direct::Leader::Here;
        return Asked::Away(Away { question, route: Route::To(dispatcher.own), settles });
    }
    core.note_read_here(answer.slot); // C2
    if let Some(replicated) = &dispatcher.replicated {
        replicated.reads.count(Slot::of(request.key));
    }
    here.enter(answer.slot, request.hash);
    if !core.connections[answer.slot].awaiting.is_empty() {
        dispatcher.take_place(core, here, &asking, question);
    }
    Asked::Here
}

/// READONLY: whether a read may use this node's copy, however old that is.
fn reads_copy(
    dispatcher: &Dispatcher,
    core: &mut Core,
    slot: usize,
    is_read: bool,
    key: &[u8],
) -> bool {
    let connection = &mut core.connections[slot];
    is_read
        && connection.client.protocol == Dialect::Resp
        && connection.resp().reads_copies
        && dispatcher.replicated.as_ref().is_some_and(|it| it.view.has_copy(Slot::of(key)))
}

/// Sends a ticket through the control thread.
pub(super) fn send_to_control(dispatcher: &mut Dispatcher, index: u32) {
    dispatcher.tickets[index].state = State::Replicating;
    let control_request = ControlRequest {
        request_slots: Arc::clone(dispatcher.tickets.request_slots()),
        index,
        dispatcher: dispatcher.own.index() as u16,
    };
    if let Some(replicated) = &mut dispatcher.replicated {
        replicated.has_sent = true;
        // The control thread ends after the dispatchers, or the whole process does.
        let _ = replicated.channel.send(control_request);
    }
}

/// Wakes the control thread for the requests that were sent.
pub(super) fn call_control(dispatcher: &mut Dispatcher) {
    if let Some(replicated) = &mut dispatcher.replicated
        && std::mem::take(&mut replicated.has_sent)
    {
        replicated.channel.call();
    }
}

/// Whether request slots have come back.
pub(super) fn has_replicated(dispatcher: &Dispatcher) -> bool {
    let own = dispatcher.own.index();
    dispatcher.replicated.as_ref().is_some_and(|replicated| replicated.channel.has_any(own))
}

/// Takes back the requests that the control thread has answered.
pub(super) fn collect_replicated(dispatcher: &mut Dispatcher, core: &mut Core) -> bool {
    let mut has_any = false;
    let own = dispatcher.own.index();
    while let Some(index) =
        dispatcher.replicated.as_ref().and_then(|replicated| replicated.channel.take(own))
    {
        dispatcher.complete(core, index);
        has_any = true;
    }
    has_any
}

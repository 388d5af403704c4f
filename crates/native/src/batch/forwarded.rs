//! Requests of a batch that other workers execute, and the batches that others have forwarded here.

use base::KeyHash;
use counters::{DropReason, NativeCommand};
use policy::Access;
use runtime::engine::{Picked, Picking};
use wire::native::{Op, Request, RequestError, RequestId, Requests, Set};

use super::{Batch, changes_item};
use crate::forward::{Forwarder, Piece};
use crate::outgoing::Outlet;

/// What becomes of a request for which a worker was picked.
enum Gone {
    /// It has left, or is answered.
    Yes,
    /// This worker executes it.
    No,
}

/// What the router and a refusal need of a request on a key.
struct Routable<'r> {
    id: RequestId,
    key: &'r [u8],
    access: Access,
    size_bytes: Option<u64>,
}

impl<'a, 'k, T: Outlet> Batch<'_, 'a, 'k, T> {
    /// Takes all requests of a frame, each to the worker that executes it.
    #[inline(never)]
    pub(super) fn frame_to_workers(&mut self, body: &'a [u8]) {
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.begin_frame();
        }
        let mut requests = Requests::new(body);
        loop {
            let from_here = requests.rest();
            let Some(parsed) = requests.next() else { break };
            self.message = &from_here[..from_here.len() - requests.rest().len()];
            match parsed {
                Ok(request) => {
                    if let Gone::No = self.forward_request(&request) {
                        self.take(request.id, request.want, request.op);
                        self.note_stay();
                    }
                }
                Err(RequestError::Refused { id, status }) => {
                    self.refuse(NativeCommand::Unknown, id, status);
                }
                Err(RequestError::Overrun) => self.core.counters().protocol_errors.add(1),
            }
        }
        self.message = b"";
    }

    /// Takes a piece of a frame that another worker has forwarded here.
    pub fn piece(&mut self, piece: &'k Piece, messages: &'a [u8]) {
        let origin = piece.origin();
        if origin.session.is_ended() {
            // Its client was told that no unanswered write of it happens any more.
            return self.core.counters().native.drop_frame(DropReason::UnknownSession);
        }
        let Some(value) = &piece.value else { return self.frame(origin, messages) };
        if self.origins.is_full() {
            self.flush();
        }
        self.origins.push(origin);
        let Some(Ok(request)) = Requests::new(messages).next() else { return };
        let Op::Set(set) = request.op else { return };
        if self.core.pauses.current().is_some() {
            return self.put_off(request.id);
        }
        self.set_whole(request.id, request.want, &set, value);
    }

    /// Sends what was forwarded, behind the requests that stay (F2 of `forward`).
    pub(super) fn publish(&mut self) {
        if let Some(forwarder) = &mut self.forwarder {
            let refusals_seen = self.gate.as_ref().map_or(0, |gate| gate.refusals_seen);
            forwarder.publish(&self.state.inboxes, self.engine, (self.core, refusals_seen));
        }
    }

    /// Forwards a request if another worker is to execute it.
    fn forward_request(&mut self, request: &Request<'a>) -> Gone {
        let op = &request.op;
        let is_write = changes_item(op);
        if is_write && self.core.pauses.current().is_some() {
            return Gone::No; // It is refused here.
        }
        let size_bytes = match op {
            Op::Ping | Op::Set(Set { part: Some(_), .. }) => return Gone::No,
            Op::Range(_) => return self.forward_range(),
            Op::Set(set) => Some((set.key.len() + set.value.len()) as u64),
            _ => None,
        };
        let access = if is_write { Access::Write } else { Access::Read };
        let key = op.key().unwrap_or_default();
        self.forward(&Routable { id: request.id, key, access, size_bytes }, &mut None)
    }

    /// Forwards a set whose value has arrived in parts, and which was admitted; returns the value
    /// if the set stays.
    pub(super) fn forward_whole(
        &mut self,
        id: RequestId,
        set: &Set<'a>,
        value: Vec<u8>,
    ) -> Option<Vec<u8>> {
        if self.forwarder.is_none() {
            return Some(value);
        }
        let size_bytes = Some((set.key.len() + value.len()) as u64);
        let routable = Routable { id, key: set.key, access: Access::Write, size_bytes };
        let mut value = Some(value);
        self.forward(&routable, &mut value);
        value
    }

    /// Forwards a request, with the value that its parts made, if it has one.
    fn forward(&mut self, routable: &Routable<'_>, value: &mut Option<Vec<u8>>) -> Gone {
        let Routable { id, key, access, size_bytes } = *routable;
        let hash = self.core.hash(key);
        let Some(forwarder) = &mut self.forwarder else { return Gone::No };
        let follows = forwarder.earlier(hash);
        let picking = Picking { hash, key, access, size_bytes, follows };
        let Some(picked) = self.engine.pick(self.core, picking) else { return Gone::No };
        if picked.thread == self.core.worker.index() {
            self.core.counters().forwardings.direct.add(1);
            self.staying = Some(picked);
            return Gone::No;
        }
        if self.make_room(&picked, value.as_ref().map_or(0, Vec::len)) {
            self.add((picked, Some(hash)), value.take());
            return Gone::Yes;
        }
        if follows.is_none() {
            self.staying = Some(picked);
            return Gone::No;
        }
        // It may not overtake the request that it follows (F2).
        self.engine.settle_picked(&picked);
        *value = None;
        self.put_off(id);
        Gone::Yes
    }

    /// Forwards a range where this worker executes nothing. A range has no key, so it has no order
    /// with the other requests of its frame.
    fn forward_range(&mut self) -> Gone {
        if self.forwarder.is_none() {
            return Gone::No;
        }
        let Some(picked) = self.engine.pick_for_range() else { return Gone::No };
        if !self.make_room(&picked, 0) {
            self.engine.settle_picked(&picked);
            return Gone::No;
        }
        self.add((picked, None), None);
        Gone::Yes
    }

    /// Makes room for a request in the batch for its worker; a full one is sent before. False:
    /// there is none (F3).
    fn make_room(&mut self, picked: &Picked, value_bytes: usize) -> bool {
        let is_full = |forwarder: &Forwarder| forwarder.is_full(picked.thread);
        if self.forwarder.as_deref().is_some_and(is_full) {
            self.flush();
            self.publish();
        }
        let message_bytes = self.message.len();
        self.forwarder
            .as_mut()
            .is_some_and(|forwarder| forwarder.make_room(picked.thread, message_bytes, value_bytes))
    }

    fn add(&mut self, picked: (Picked, Option<KeyHash>), value: Option<Vec<u8>>) {
        let (origin, message) = (*self.origin(), self.message);
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.add(picked, &origin, message, value);
        }
    }

    /// Notes that the request that was taken last is to be settled with the router, once the batch
    /// that holds it is executed.
    pub(super) fn note_stay(&mut self) {
        if let Some(picked) = self.staying.take()
            && let Some(forwarder) = &mut self.forwarder
        {
            forwarder.stay(picked);
        }
    }
}

//! Handles the frames that have arrived at a worker, whatever their transport.
//!
//! ```text
//!  (sender, bytes) ... ──▶ look: tag, header, session ──▶ requests ──▶ batch ──▶ replies
//!                             ├──▶ hello, bye: at once
//!                             └──▶ dropped and counted, or refused
//! ```

use arrayvec::ArrayVec;
use counters::{DropReason, WorkerCounters};
use landing::Sender;
use runtime::core::Core;
use runtime::engine::Engine;
use wire::native::{Frame, FrameError, Kind, Reason};

use super::batch::{Batch, RequestsGo};
use super::forward::{ForwardedBatch, Forwarder};
use super::greet::{Caller, NativeState};
use super::outgoing::{Origin, Outgoing, Outlet};
use super::sessions::Known;
use super::{Clock, FRAME_MAX_BYTES};

/// Frames that are examined before their requests are executed.
const LOOK_AHEAD_FRAMES: usize = 64;

/// One worker's side of the native protocol, apart from its transports.
pub struct FrameHandler {
    /// The sessions that it knows.
    pub known: Known,
    /// The frame of replies in the making.
    frame: Box<[u8]>,
    /// The items of a range in the making.
    items: Box<[u8]>,
    /// Set if other workers may execute requests.
    pub forwarder: Option<Box<Forwarder>>,
}

/// The state for serving frames.
pub struct Service<'s> {
    /// Executes the batches.
    pub engine: &'s mut (dyn Engine + 's),
    /// Hash, limits, counters.
    pub core: &'s Core,
    /// The state that all workers share.
    pub state: &'s NativeState,
    /// The round's times.
    pub clock: Clock,
}

/// A frame of requests whose session is known.
struct Seen<'a> {
    place: u32,
    frame: Frame<'a>,
}

impl Default for FrameHandler {
    /// A frame handler without clients.
    fn default() -> FrameHandler {
        let buffer = || vec![0; FRAME_MAX_BYTES].into_boxed_slice();
        FrameHandler { known: Known::default(), frame: buffer(), items: buffer(), forwarder: None }
    }
}

impl FrameHandler {
    /// Serves all frames that have arrived.
    pub fn serve<'a, T: Outlet>(
        &mut self,
        service: &mut Service<'_>,
        mut arrivals: impl Iterator<Item = (Sender, &'a [u8])>,
        outlet: &mut T,
    ) {
        loop {
            let mut seen: ArrayVec<Seen<'a>, LOOK_AHEAD_FRAMES> = ArrayVec::new();
            let mut is_more = true;
            while !seen.is_full() && is_more {
                match arrivals.next() {
                    Some(arrival) => seen.extend(self.look(service, arrival, outlet)),
                    None => is_more = false,
                }
            }
            self.execute(service, &seen, outlet);
            if !is_more {
                return;
            }
        }
    }

    /// Answers all frames of requests busy, and handles the others as usual (K18).
    pub fn shed<'a, T: Outlet>(
        &mut self,
        service: &Service<'_>,
        arrivals: impl Iterator<Item = (Sender, &'a [u8])>,
        outlet: &mut T,
    ) {
        let counters = service.core.counters();
        let native = &counters.native;
        for arrival in arrivals {
            if let Some(frame) = admit_frame(service, arrival, outlet) {
                let busy_before = native.busy.get();
                let caller = Caller { sender: arrival.0, frame: &frame };
                self.look_closer(service, caller, counters, outlet);
                native.shed.add(native.busy.get() - busy_before);
            }
        }
    }

    /// Examines one frame: its session and its contents.
    #[inline]
    fn look<'a, T: Outlet>(
        &mut self,
        service: &Service<'_>,
        arrival: (Sender, &'a [u8]),
        outlet: &mut T,
    ) -> Option<Seen<'a>> {
        let counters = service.core.counters();
        let frame = admit_frame(service, arrival, outlet)?;
        let sender = arrival.0;
        if frame.header.kind == Kind::Requests
            && !service.core.pauses.is_for_all()
            && let Some(place) =
                self.known.find(&service.state.sessions, frame.header.session, sender)
        {
            return Some(Seen { place, frame });
        }
        self.look_closer(service, Caller { sender, frame: &frame }, counters, outlet);
        None
    }

    #[cold]
    fn look_closer<T: Outlet>(
        &mut self,
        service: &Service<'_>,
        caller: Caller<'_>,
        counters: &WorkerCounters,
        outlet: &mut T,
    ) {
        let (state, clock) = (service.state, service.clock);
        let header = &caller.frame.header;
        let is_known = self.known.find(&state.sessions, header.session, caller.sender).is_some();
        match header.kind {
            Kind::Hello => {
                let of_address_max = service.core.shared.live().clients_max().per_address;
                state.greet(caller, (clock, of_address_max), counters, outlet);
            }
            Kind::Bye if is_known => state.bye(header),
            Kind::Requests if is_known => {
                counters.native.busy.add(1);
                state.refuse(caller, Reason::Busy, counters, outlet);
            }
            Kind::Requests => {
                counters.native.drop_frame(DropReason::UnknownSession);
                state.refuse(caller, Reason::UnknownSession, counters, outlet);
            }
            Kind::Bye => counters.native.drop_frame(DropReason::UnknownSession),
            Kind::Challenge | Kind::Welcome | Kind::Replies | Kind::Refusal => {
                counters.native.drop_frame(DropReason::Malformed);
            }
        }
    }

    fn execute<'a, T: Outlet>(
        &mut self,
        service: &mut Service<'_>,
        seen: &[Seen<'a>],
        outlet: &mut T,
    ) {
        if seen.is_empty() {
            return;
        }
        let (state, clock, core) = (service.state, service.clock, service.core);
        let FrameHandler { known, frame, items, forwarder } = self;
        let known = &*known;
        let out = Outgoing::new(frame, outlet, state.key.as_ref(), core.counters());
        let requests_go = match forwarder {
            Some(forwarder) if service.engine.can_pick() => RequestsGo::Elsewhere(forwarder),
            _ => RequestsGo::Nowhere,
        };
        let rest = (&mut items[..], requests_go);
        let mut batch: Batch<'_, 'a, '_, T> =
            Batch::new(&mut *service.engine, core, (state, clock), out, rest);
        for Seen { place, frame } in seen {
            let session = known.at(*place);
            session.set_active(clock.uptime_ms());
            let header = &frame.header;
            session.hear_low_water(header.answered);
            let origin = Origin { session, steering: header.steering, number: header.number };
            batch.frame(origin, frame.body);
        }
        batch.finish();
    }
}

impl FrameHandler {
    /// Executes what another worker has forwarded here.
    pub fn execute_forwarded(&mut self, service: &mut Service<'_>, forwarded: &mut ForwardedBatch) {
        let (state, clock, core) = (service.state, service.clock, service.core);
        let forwardings = &core.counters().forwardings;
        forwardings.batches.add(1);
        forwardings.served.add(forwarded.request_count() as u64);
        let (pieces, replies) = forwarded.begin();
        let FrameHandler { frame, items, .. } = self;
        let out = Outgoing::new(frame, replies, state.key.as_ref(), core.counters());
        let rest = (&mut items[..], RequestsGo::FromElsewhere);
        let mut batch = Batch::new(&mut *service.engine, core, (state, clock), out, rest);
        for (piece, messages) in pieces {
            batch.piece(piece, messages);
        }
        batch.finish();
    }
}

/// Counts a frame that has arrived, and drops it if it is invalid.
#[inline]
fn admit_frame<'a, T: Outlet>(
    service: &Service<'_>,
    (sender, bytes): (Sender, &'a [u8]),
    outlet: &mut T,
) -> Option<Frame<'a>> {
    let (counters, key) = (service.core.counters(), service.state.key.as_ref());
    counters.native.frames_in.add(1);
    counters.input_bytes.add(bytes.len() as u64);
    let parsed = Frame::parse(bytes, key);
    let error = match parsed {
        Ok(frame) => return Some(frame),
        Err(error) => error,
    };
    counters.native.drop_frame(drop_reason(&error));
    // A client of another version gets an answer, if this frame is its hello.
    if let Some(frame) = Frame::parse_foreign_hello(bytes, key) {
        service.state.refuse(Caller { sender, frame: &frame }, Reason::Version, counters, outlet);
    }
    None
}

fn drop_reason(error: &FrameError) -> DropReason {
    match error {
        FrameError::NotOurs => DropReason::NotOurs,
        FrameError::Version { .. } => DropReason::Version,
        FrameError::Tag => DropReason::Tag,
        FrameError::Truncated { .. } => DropReason::Truncated,
        _ => DropReason::Malformed,
    }
}

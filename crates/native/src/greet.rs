//! How a session begins and ends: hellos, cookies, byes, and the frames that are refused.
//!
//! ```text
//!  hello ──▶ no cookie, or a stale one ──▶ challenge     nothing is kept (no flood of hellos fills
//!        └─▶ good cookie ──▶ session   ──▶ welcome       anything)
//! ```
//!
//! # Invariants
//! I1: the server keeps nothing for an address that has not been verified, and no answer to it is
//!     longer than the frame that it answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use counters::NativeTotals;
use counters::{DropReason, WorkerCounters};
use landing::Sender;
use runtime::shared::NativeClients;
use sessions::doors::{Access, Answers, Door};
use sessions::end::is_loopback;
use wire::native::{
    Challenge, Cookies, Frame, HELLO_LEN_BYTES, Header, Hello, Kind, Reason, Refusal, SessionId,
    Steering, TagKey, Versions, Welcome,
};

use super::Clock;
use super::forward::Inboxes;
use super::outgoing::Outlet;
use super::sessions::{Guest, IDLE_MS, ONCE_WINDOW, Sessions, SessionsFull};
use super::shm_places::ShmPlaces;
use super::transfers::{PART_WINDOW_BYTES, Transfers};

/// A cookie is valid in its time slot and in the next.
const COOKIE_SLOT_MS: u64 = 10_000;

/// With shorter frames, a client could not receive the largest head of a reply.
const FRAME_MIN_BYTES: usize = 256;

/// How long a client is asked to wait for a session to become free.
const RETRY_AFTER_US: u32 = 1_000;

/// The state that all workers share for native clients.
#[derive(Debug)]
pub struct NativeState {
    /// The sessions of the clients.
    pub sessions: Sessions,
    /// Values that arrive in parts.
    pub transfers: Transfers,
    /// The key of the tags; `None`: there are none.
    pub key: Option<TagKey>,
    /// Proofs of address.
    pub cookies: Cookies,
    /// The terms that each welcome states.
    pub terms: Terms,
    /// The number of threads that receive datagrams.
    pub dispatcher_count: AtomicUsize,
    /// Clients in shared memory now.
    pub shm_count: AtomicUsize,
    /// Their places.
    pub shm_places: ShmPlaces,
    /// Where workers leave requests for one another.
    pub inboxes: Inboxes,
    /// The answers of its doors: open or closed.
    pub doors: Mutex<Answers>,
}

/// The server's terms, which a client has to know.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bits of the partitions by which datagrams find their worker.
    pub steering_bits: u8,
    /// Seed of the hash that steers; the index has a seed of its own, which is never sent (K26).
    pub steering_seed: u64,
    /// The largest value.
    pub value_max_bytes: u32,
    /// [`Welcome::RANGES`].
    pub features: u64,
}

/// A client's frame and its sender.
#[derive(Clone, Copy)]
pub struct Caller<'f> {
    /// Its address or lane.
    pub sender: Sender,
    /// The frame.
    pub frame: &'f Frame<'f>,
}

impl NativeState {
    /// Sets the number of threads that receive datagrams.
    pub fn set_dispatcher_count(&self, dispatcher_count: usize) {
        self.dispatcher_count.store(dispatcher_count, Ordering::Relaxed);
    }

    /// Answers a hello. An address may have `of_address_max` connections and sessions.
    pub fn greet<T: Outlet>(
        &self,
        caller: Caller<'_>,
        (clock, of_address_max): (Clock, usize),
        counters: &WorkerCounters,
        outlet: &mut T,
    ) {
        let Ok(hello) = Hello::parse(caller.frame) else {
            return counters.native.drop_frame(DropReason::Malformed);
        };
        let Some(version) = hello.versions.common(Versions::OURS) else {
            return self.refuse(caller, Reason::Version, counters, outlet);
        };
        if let Some(access) = self.refuses(caller.sender) {
            counters.doors.turn_away(access.is_closed());
            return self.refuse(caller, Reason::Closed, counters, outlet);
        }
        if !self.is_address_true(caller.sender, &hello, clock) {
            return self.challenge(caller, &hello, clock, counters, outlet);
        }
        if let Some(replaced) = hello.replaces {
            self.end(replaced);
        }
        let frame_max_bytes =
            (hello.frame_max_bytes as usize).clamp(FRAME_MIN_BYTES, outlet.frame_max_bytes());
        let (peer, nonce) = (caller.sender, hello.nonce);
        let guest = Guest { peer, nonce, frame_max_bytes, of_address_max };
        // No client's address has port 0, so no other sender yields the same id.
        let address = caller.sender.as_address().unwrap_or(([0, 0, 0, 0], 0).into());
        let id_of = |serial| self.cookies.session(address, serial);
        let id = match self.sessions.grant(guest, clock.uptime_ms(), id_of) {
            Ok(id) => id,
            Err(full) => {
                if full == SessionsFull::OfAddress {
                    counters.rejected_of_address.add(1);
                }
                return self.refuse(caller, Reason::SessionsFull, counters, outlet);
            }
        };
        // The door was closed meanwhile, after its sessions had been ended and before this one was
        // granted.
        if self.refuses(caller.sender).is_some() {
            self.end(id);
            return self.refuse(caller, Reason::Closed, counters, outlet);
        }
        self.welcome(caller, (&hello, version, id), counters, outlet);
    }

    /// Whether a client receives at its stated address. A client with a lane does.
    fn is_address_true(&self, sender: Sender, hello: &Hello, clock: Clock) -> bool {
        let Some(address) = sender.as_address() else { return true };
        hello.cookie.is_some_and(|cookie| {
            self.cookies.is_good(cookie, address, hello.nonce, cookie_slot(clock))
        })
    }

    fn challenge<T: Outlet>(
        &self,
        caller: Caller<'_>,
        hello: &Hello,
        clock: Clock,
        counters: &WorkerCounters,
        outlet: &mut T,
    ) {
        let Some(address) = caller.sender.as_address() else { return };
        let cookie = self.cookies.cookie(address, hello.nonce, cookie_slot(clock));
        let challenge = Challenge { cookie, nonce: hello.nonce, versions: Versions::OURS };
        let mut out = [0; HELLO_LEN_BYTES];
        if let Ok(len_bytes) = challenge.encode(&caller.frame.header, self.key.as_ref(), &mut out) {
            counters.native.challenges.add(1);
            outlet.send(caller.sender, &out[..len_bytes], counters);
        }
    }

    fn welcome<T: Outlet>(
        &self,
        caller: Caller<'_>,
        (hello, version, id): (&Hello, u8, SessionId),
        counters: &WorkerCounters,
        outlet: &mut T,
    ) {
        // One worker polls a lane, whatever its frames say.
        let worker_count = match caller.sender.as_lane() {
            Some(_) => 1,
            None => {
                let dispatcher_count = self.dispatcher_count.load(Ordering::Relaxed);
                u16::try_from(dispatcher_count).unwrap_or(u16::MAX)
            }
        };
        let welcome = Welcome {
            version,
            steering: Steering::new(self.terms.steering_bits, worker_count),
            frame_max_bytes: outlet.frame_max_bytes() as u32,
            nonce: hello.nonce,
            steering_seed: self.terms.steering_seed,
            once_window: ONCE_WINDOW,
            idle_ms: IDLE_MS,
            part_window_bytes: PART_WINDOW_BYTES,
            value_max_bytes: self.terms.value_max_bytes,
            features: self.terms.features,
        };
        let mut out = [0; HELLO_LEN_BYTES];
        let key = self.key.as_ref();
        if let Ok(len_bytes) = welcome.encode(&caller.frame.header, id, key, &mut out) {
            outlet.send(caller.sender, &out[..len_bytes], counters);
        }
    }

    /// Refuses a whole frame, unless the answer would be longer than the frame (I1).
    #[cold]
    pub fn refuse<T: Outlet>(
        &self,
        caller: Caller<'_>,
        reason: Reason,
        counters: &WorkerCounters,
        outlet: &mut T,
    ) {
        let retry_after_us = match reason {
            Reason::SessionsFull => RETRY_AFTER_US,
            // Telling all of them the same time would bring them all back at once.
            Reason::Busy | Reason::UnknownSession | Reason::Version | Reason::Closed => 0,
        };
        let refusal = Refusal { reason, versions: Versions::OURS, retry_after_us };
        let mut out = [0; HELLO_LEN_BYTES];
        let Ok(len_bytes) = refusal.encode(&caller.frame.header, self.key.as_ref(), &mut out)
        else {
            return;
        };
        if len_bytes <= caller.frame.len_bytes {
            outlet.send(caller.sender, &out[..len_bytes], counters);
        }
    }

    /// Why a client is refused, if it is.
    fn refuses(&self, sender: Sender) -> Option<Access> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        refuses(&doors, sender)
    }

    /// Ends the session that a client's bye names.
    pub fn bye(&self, header: &Header) {
        debug_assert!(header.kind == Kind::Bye);
        self.end(header.session);
    }

    /// Ends a session on request of a client that knows its id.
    pub fn end(&self, id: SessionId) {
        if self.sessions.end(id) {
            self.transfers.end_session(id);
        }
    }

    /// Ends the sessions of a lane whose client has left.
    pub fn end_peer(&self, peer: Sender) {
        for id in self.sessions.end_peer(peer) {
            self.transfers.end_session(id);
        }
    }

    /// Forgets idle sessions.
    pub fn sweep(&self, clock: Clock) {
        for id in self.sessions.sweep(clock.uptime_ms()) {
            self.transfers.end_session(id);
        }
        self.transfers.expire(clock.monotonic);
    }
}

/// Why a client is refused: a datagram's by its address; a lane's client is on this host.
fn refuses(doors: &Answers, sender: Sender) -> Option<Access> {
    let (access, is_near) = match sender.as_address() {
        Some(address) => (doors.of(Door::Native), is_loopback(address.ip())),
        None => (doors.of(Door::Shm), true),
    };
    (!access.admits(is_near)).then_some(access)
}

fn cookie_slot(clock: Clock) -> u64 {
    clock.uptime_ms() / COOKIE_SLOT_MS
}

impl NativeClients for NativeState {
    fn connected(&self, counted: NativeTotals) -> NativeTotals {
        NativeTotals {
            sessions: self.sessions.count() as u64,
            transfer_bytes: self.transfers.held_bytes(),
            shm_clients: self.shm_count.load(Ordering::Relaxed) as u64,
            ..counted
        }
    }

    /// Takes up a change of the doors: ends the sessions that arrived by a door that is now closed
    /// to them.
    fn obey(&self, doors: &dyn Fn() -> Answers) {
        // First: `greet` checks a session once more that is granted after this. Under the lock, so
        // that the views of two threads are stored in order.
        let doors = {
            let mut kept = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = doors();
            *kept
        };
        let admits_all = |door| doors.of(door).admits(false);
        if admits_all(Door::Native) && admits_all(Door::Shm) {
            return;
        }
        for id in self.sessions.end_where(|peer| refuses(&doors, peer).is_some()) {
            self.transfers.end_session(id);
        }
    }
}

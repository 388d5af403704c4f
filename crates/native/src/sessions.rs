//! The sessions of native clients: granted by a hello, known to all workers, bounded.
//!
//! ```text
//!  hello ──▶ Sessions (one lock, rare) ──Arc<Session>──▶ Known (each worker's own map)
//!  frame ────────────────────────────────────────────────▶ one look-up, no lock
//!  bye, silence ──▶ Session::is_ended ──▶ refused at once; every worker forgets it at its sweep
//! ```
//!
//! # Invariants
//! I1: at most `session_count_max` sessions, and as many per address as it may have connections.
//! I2: the memory in which a session remembers its writes is reserved from the client buffers
//!     before its first write is admitted, and returned when the session ends.
//! I3: an id is granted once: it is made of a serial number. A delayed hello can create a session
//!     that is never used, but it cannot bring back an old one whose memory is lost.
//! I4: sessions that never sent a request take at most a quarter of the memory of sessions, and the
//!     oldest of them ends when there is no room for another: hellos of strangers end no session
//!     that works.
//!
//! # Concurrency
//! The table is locked by hellos, byes, the sweep and the first frame that a worker sees of a
//! session; [`Session::once`] by at-most-once requests alone.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use budget::{BufferBudget, Kind, Reservation};
use landing::{Lane, Sender};
use sessions::clients::Addresses;
use wire::native::{Admission, Once, SessionId};

/// How far at-most-once numbers may run ahead of a session's low-water mark.
pub const ONCE_WINDOW: u32 = 1024;

/// Memory for the outcomes of a whole window.
const ONCE_BYTES: u64 = ONCE_WINDOW as u64 * 16;

/// A session that sends nothing for this long is forgotten.
pub const IDLE_MS: u32 = 60_000;

/// Memory of a session before its first write: the session and its places in the maps.
const SESSION_BYTES: u64 = size_of::<Session>() as u64 + 256;

/// The part of the memory of sessions that sessions may take that never sent a request (I4): one in
/// this many.
const UNTRIED_PART: u64 = 4;

/// Sessions that one hello may end to have room.
const ENDED_MAX: usize = 4;

/// One client's session.
#[derive(Debug)]
pub struct Session {
    /// Its id, which cannot be guessed.
    pub id: SessionId,
    /// The source of its frames and the destination of its replies.
    pub peer: Sender,
    /// The longest frame that its client accepts.
    pub frame_max_bytes: usize,
    /// The nonce of the hello that created it.
    nonce: u64,
    /// The number of the next frame of replies.
    next_number: AtomicU32,
    /// Milliseconds since the server's start.
    granted_ms: u64,
    /// The same, of its last request; 0: it never sent one.
    last_active_ms: AtomicU64,
    is_ended: AtomicBool,
    /// The highest low-water mark in any of its frames, which [`Once`] knows too.
    low_water: AtomicU32,
    once: Mutex<Remembering>,
    _booked: Reservation,
}

/// A session's memory of its writes.
#[derive(Debug)]
pub struct Remembering {
    /// The outcomes.
    pub once: Once,
    /// I2; `None` until the first write.
    booked: Option<Reservation>,
}

/// There is no room for the session's memory: answer `Busy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl Session {
    /// The number of a frame of replies that is about to leave.
    #[inline]
    pub fn take_number(&self) -> u32 {
        // Relaxed: the numbers tell a client what was lost, and order nothing.
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether its frames are refused.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Notes that a frame of it has arrived.
    #[inline]
    pub fn set_active(&self, uptime_ms: u64) {
        let uptime_ms = uptime_ms.max(1);
        // The line is shared among workers: written once a millisecond at most.
        if self.last_active_ms.load(Ordering::Relaxed) < uptime_ms {
            self.last_active_ms.store(uptime_ms, Ordering::Relaxed);
        }
    }

    /// Whether it never sent a request (I4).
    fn is_untried(&self) -> bool {
        self.last_active_ms.load(Ordering::Relaxed) == 0
    }

    /// Takes up the low-water mark of a frame, whatever else the frame holds: a client that gave a
    /// write up and continues with reads relies on the write never being executed from then on.
    #[inline]
    pub fn hear_low_water(&self, low_water: u32) {
        // Relaxed: the lock orders the remembered outcomes; this only avoids taking it. The
        // low-water mark of a client that only reads stays 0.
        if self.low_water.load(Ordering::Relaxed) < low_water {
            self.raise_low_water(low_water);
        }
    }

    #[cold]
    fn raise_low_water(&self, low_water: u32) {
        self.once().once.raise_low_water(low_water);
        self.low_water.fetch_max(low_water, Ordering::Relaxed);
    }

    /// Its memory of its writes.
    pub fn once(&self) -> MutexGuard<'_, Remembering> {
        // A panic in between would have left an outcome out, which only a new session would repair;
        // but panics end the process (decision 0004).
        self.once.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembering {
    /// Decides whether to execute a write. Its frame's low-water mark was taken up before.
    pub fn admit(
        &mut self,
        sequence: u32,
        budget: &Arc<BufferBudget>,
    ) -> Result<Admission, NoMemory> {
        Ok(self.booked(budget)?.admit(sequence))
    }

    /// The same without admitting it: for a part of a value, which executes nothing yet.
    pub fn look(
        &mut self,
        sequence: u32,
        budget: &Arc<BufferBudget>,
    ) -> Result<Admission, NoMemory> {
        Ok(self.booked(budget)?.look(sequence))
    }

    /// The outcomes, with their memory booked (I2).
    fn booked(&mut self, budget: &Arc<BufferBudget>) -> Result<&mut Once, NoMemory> {
        if self.booked.is_none() {
            self.booked =
                Some(Reservation::try_new(budget, Kind::Sessions, ONCE_BYTES).ok_or(NoMemory)?);
        }
        Ok(&mut self.once)
    }
}

/// A hello that asks for a session, from a verified address.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Its sender.
    pub peer: Sender,
    /// The hello's nonce.
    pub nonce: u64,
    /// The longest frame that both sides accept.
    pub frame_max_bytes: usize,
    /// Connections and sessions that its address may have; 0: no limit per address.
    pub of_address_max: usize,
}

/// Why a session is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionsFull {
    /// No more sessions, or no more memory for them.
    All,
    /// Its address has as many connections and sessions as it may have.
    OfAddress,
}

/// All sessions.
#[derive(Debug)]
pub struct Sessions {
    table: Mutex<Table>,
    session_count_max: usize,
    budget: Arc<BufferBudget>,
    addresses: Arc<Addresses>,
}

#[derive(Debug, Default)]
struct Table {
    /// Sessions that had sent no request when they came here, oldest first (I4).
    untried: VecDeque<SessionId>,
    by_id: HashMap<SessionId, Arc<Session>>,
    /// A hello that comes again gets the session that it got before.
    by_hello: HashMap<(Sender, u64), SessionId>,
    /// The number of sessions ever granted (I3).
    serial: u64,
}

impl Sessions {
    /// Without sessions.
    pub fn new(
        session_count_max: usize,
        budget: Arc<BufferBudget>,
        addresses: Arc<Addresses>,
    ) -> Sessions {
        Sessions { table: Mutex::default(), session_count_max, budget, addresses }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget in which sessions are booked.
    pub fn budget(&self) -> &Arc<BufferBudget> {
        &self.budget
    }

    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.table().by_id.len()
    }

    /// A session, unless it is unknown or has ended.
    pub fn find(&self, id: SessionId) -> Option<Arc<Session>> {
        self.table().by_id.get(&id).cloned()
    }

    /// Creates a session, or finds the one that the same hello created before. `id_of` makes an id
    /// of a serial number.
    pub fn grant(
        &self,
        guest: Guest,
        uptime_ms: u64,
        id_of: impl FnOnce(u64) -> SessionId,
    ) -> Result<SessionId, SessionsFull> {
        let mut table = self.table();
        let hello = (guest.peer, guest.nonce);
        if let Some(id) = table.by_hello.get(&hello) {
            return Ok(*id);
        }
        let address = guest.peer.as_address().map(|address| address.ip());
        if let Some(address) = address
            && !self.addresses.try_enter(address, guest.of_address_max)
        {
            return Err(SessionsFull::OfAddress);
        }
        let Some(booked) = self.make_room(&mut table) else {
            address.inspect(|address| self.addresses.leave(*address));
            return Err(SessionsFull::All);
        };
        let id = id_of(table.serial);
        table.serial += 1;
        let session = Session {
            id,
            peer: guest.peer,
            frame_max_bytes: guest.frame_max_bytes,
            nonce: guest.nonce,
            next_number: AtomicU32::new(0),
            granted_ms: uptime_ms,
            last_active_ms: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            low_water: AtomicU32::new(0),
            once: Mutex::new(Remembering { once: Once::new(ONCE_WINDOW), booked: None }),
            _booked: booked,
        };
        table.by_hello.insert(hello, id);
        table.by_id.insert(id, Arc::new(session));
        table.untried.push_back(id);
        Ok(id)
    }

    /// Books a session, ending the oldest untried ones if necessary (I4).
    fn make_room(&self, table: &mut Table) -> Option<Reservation> {
        let untried_max =
            self.budget.kind_limit_bytes(Kind::Sessions) / UNTRIED_PART / SESSION_BYTES;
        while table.untried.len() as u64 >= untried_max.max(1) {
            table.end_oldest_untried(&self.addresses);
        }
        for _ in 0..ENDED_MAX {
            if table.by_id.len() < self.session_count_max
                && let Some(booked) =
                    Reservation::try_new(&self.budget, Kind::Sessions, SESSION_BYTES)
            {
                return Some(booked);
            }
            table.end_oldest_untried(&self.addresses);
        }
        None
    }

    /// The lanes whose clients have a session that has sent a request (I4).
    pub fn working_lanes(&self) -> Vec<Lane> {
        let table = self.table();
        let working = table.by_id.values().filter(|session| !session.is_untried());
        working.filter_map(|session| session.peer.as_lane()).collect()
    }

    /// Ends a session. Returns whether there was one.
    pub fn end(&self, id: SessionId) -> bool {
        self.table().end(id, &self.addresses)
    }

    /// Ends the sessions of a peer that has left. Returns their ids.
    pub fn end_peer(&self, peer: Sender) -> Vec<SessionId> {
        self.end_where(|other| other == peer)
    }

    /// Ends the sessions of such peers. Returns their ids.
    pub fn end_where(&self, is_over: impl Fn(Sender) -> bool) -> Vec<SessionId> {
        let mut table = self.table();
        let over = table.by_id.values().filter(|session| is_over(session.peer));
        let gone: Vec<SessionId> = over.map(|session| session.id).collect();
        for id in &gone {
            table.end(*id, &self.addresses);
        }
        gone
    }

    /// Forgets idle sessions. Returns the ids of those that are gone.
    pub fn sweep(&self, uptime_ms: u64) -> Vec<SessionId> {
        let mut table = self.table();
        let is_idle = |session: &Session| {
            let last_ms = session.last_active_ms.load(Ordering::Relaxed);
            let active_ms = last_ms.max(session.granted_ms);
            uptime_ms.saturating_sub(active_ms) > u64::from(IDLE_MS)
        };
        let idle = table.by_id.values().filter(|session| is_idle(session));
        let gone: Vec<SessionId> = idle.map(|session| session.id).collect();
        for id in &gone {
            table.end(*id, &self.addresses);
        }
        gone
    }
}

impl Table {
    fn end(&mut self, id: SessionId, addresses: &Addresses) -> bool {
        let Some(session) = self.by_id.remove(&id) else { return false };
        self.by_hello.remove(&(session.peer, session.nonce));
        if let Some(address) = session.peer.as_address() {
            addresses.leave(address.ip());
        }
        session.is_ended.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the oldest session that never sent a request. Sessions that have sent one meanwhile
    /// leave the list: each is listed once.
    fn end_oldest_untried(&mut self, addresses: &Addresses) {
        while let Some(id) = self.untried.pop_front() {
            if self.by_id.get(&id).is_some_and(|session| session.is_untried()) {
                self.end(id, addresses);
                return;
            }
        }
    }
}

/// Session ids come from a keyed hash: any of their bits are as good as a hash of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityState;

/// Uses a 64-bit number as its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityHasher(u64);

impl BuildHasher for IdentityState {
    type Hasher = IdentityHasher;

    fn build_hasher(&self) -> IdentityHasher {
        IdentityHasher(0)
    }
}

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The sessions that one worker knows.
#[derive(Debug, Default)]
pub struct Known {
    places: HashMap<SessionId, u32, IdentityState>,
    sessions: Vec<Option<Arc<Session>>>,
    free: Vec<u32>,
}

impl Known {
    /// The place of the session of a frame, if it may send from there.
    #[inline]
    pub fn find(&mut self, sessions: &Sessions, id: SessionId, peer: Sender) -> Option<u32> {
        let place = match self.places.get(&id) {
            Some(place) => *place,
            None => self.meet(sessions, id)?,
        };
        // An ended session keeps its place until the sweep, because this round's frames may name
        // it.
        let session = self.sessions[place as usize].as_ref()?;
        (session.peer == peer && !session.is_ended()).then_some(place)
    }

    #[cold]
    fn meet(&mut self, sessions: &Sessions, id: SessionId) -> Option<u32> {
        let session = sessions.find(id)?;
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.sessions.push(None);
                self.sessions.len() as u32 - 1
            }
        };
        self.sessions[place as usize] = Some(session);
        self.places.insert(id, place);
        Some(place)
    }

    /// The session at a place that [`Known::find`] gave since the last sweep.
    #[inline]
    pub fn at(&self, place: u32) -> &Arc<Session> {
        self.sessions[place as usize].as_ref().expect("places are kept until the sweep")
    }

    /// Forgets ended sessions; called between two rounds.
    pub fn sweep(&mut self) {
        let Known { places, sessions, free } = self;
        places.retain(|_, place| {
            let session = &mut sessions[*place as usize];
            let stays = session.as_ref().is_some_and(|session| !session.is_ended());
            if !stays {
                *session = None;
                free.push(*place);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn sessions(count_max: usize) -> Sessions {
        Sessions::new(count_max, Arc::new(BufferBudget::new(1 << 20)), Arc::default())
    }

    fn peer(port: u16) -> Sender {
        Sender::address(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// A session for a hello of this nonce; its id is ten times its serial number, plus one.
    fn grant(sessions: &Sessions, nonce: u64) -> Result<SessionId, SessionsFull> {
        grant_of(sessions, nonce, 0)
    }

    fn grant_of(
        sessions: &Sessions,
        nonce: u64,
        of_address_max: usize,
    ) -> Result<SessionId, SessionsFull> {
        let guest = Guest { peer: peer(1), nonce, frame_max_bytes: 1400, of_address_max };
        sessions.grant(guest, 0, |serial| SessionId(serial * 10 + 1))
    }

    #[test]
    fn a_repeated_hello_finds_its_session_again() {
        let sessions = sessions(1);
        assert_eq!(grant(&sessions, 7), Ok(SessionId(1)));
        assert_eq!(grant(&sessions, 7), Ok(SessionId(1)));
        assert_eq!(sessions.count(), 1);
    }

    #[test]
    fn hellos_end_the_oldest_session_that_did_nothing_and_none_that_works() {
        let sessions = sessions(2);
        let works = grant(&sessions, 1).unwrap();
        sessions.find(works).unwrap().set_active(0);
        let idle = grant(&sessions, 2).unwrap();
        let next = grant(&sessions, 3).unwrap();
        assert!(sessions.find(idle).is_none() && sessions.find(works).is_some());
        sessions.find(next).unwrap().set_active(5);
        assert_eq!(grant(&sessions, 4), Err(SessionsFull::All));
        assert_eq!(sessions.count(), 2);
    }

    #[test]
    fn sessions_that_did_nothing_leave_the_memory_to_those_that_write() {
        let budget = Arc::new(BufferBudget::new(1 << 20));
        let sessions = Sessions::new(1_000_000, Arc::clone(&budget), Arc::default());
        let works = grant(&sessions, 0).unwrap();
        sessions.find(works).unwrap().set_active(1);
        for nonce in 1..10_000 {
            grant(&sessions, nonce).unwrap();
        }
        let limit_bytes = budget.kind_limit_bytes(Kind::Sessions);
        assert!(budget.kind_bytes(Kind::Sessions) <= limit_bytes / UNTRIED_PART + SESSION_BYTES);
        let session = sessions.find(works).expect("it works");
        assert_eq!(session.once().admit(0, &budget), Ok(Admission::Execute));
    }

    #[test]
    fn an_address_has_as_many_sessions_as_connections() {
        let sessions = sessions(9);
        let first = grant_of(&sessions, 1, 2).unwrap();
        grant_of(&sessions, 2, 2).unwrap();
        assert_eq!(grant_of(&sessions, 3, 2), Err(SessionsFull::OfAddress));
        assert_eq!(grant_of(&sessions, 1, 2), Ok(first), "a hello that comes again");
        sessions.end(first);
        assert!(grant_of(&sessions, 3, 2).is_ok());
        let address = [127, 0, 0, 1].into();
        assert!(!sessions.addresses.try_enter(address, 2), "connections count with them");
    }

    #[test]
    fn a_session_is_known_only_to_its_address_and_until_it_ends() {
        let sessions = sessions(9);
        let (mut known, id) = (Known::default(), SessionId(1));
        assert_eq!(known.find(&sessions, id, peer(1)), None);
        grant(&sessions, 7).unwrap();
        let place = known.find(&sessions, id, peer(1)).unwrap();
        assert_eq!((known.at(place).id, known.find(&sessions, id, peer(2))), (id, None));
        assert!(sessions.end(id) && !sessions.end(id));
        assert_eq!(known.find(&sessions, id, peer(1)), None);
        assert_eq!(grant(&sessions, 7), Ok(SessionId(11)), "I3: another id for a late hello");
    }

    #[test]
    fn a_silent_session_is_forgotten_and_gives_its_memory_back() {
        let sessions = sessions(9);
        let mut known = Known::default();
        let id = grant(&sessions, 7).unwrap();
        let place = known.find(&sessions, id, peer(1)).unwrap();
        let admitted = known.at(place).once().admit(0, sessions.budget());
        assert_eq!(admitted, Ok(Admission::Execute));
        known.at(place).set_active(10);
        assert_eq!(sessions.sweep(10 + u64::from(IDLE_MS)), []);
        assert_eq!(sessions.sweep(11 + u64::from(IDLE_MS)), [id]);
        assert!(sessions.budget().granted_bytes() > 0, "a worker still knows it");
        known.sweep();
        assert_eq!(sessions.budget().granted_bytes(), 0);
    }

    #[test]
    fn a_session_without_room_for_its_memory_is_busy() {
        let budget = Arc::new(BufferBudget::new(4 * ONCE_BYTES));
        let sessions = Sessions::new(9, budget, Arc::default());
        let session = sessions.find(grant(&sessions, 7).unwrap()).unwrap();
        assert_eq!(session.once().admit(0, sessions.budget()), Err(NoMemory));
    }
}

//! The client registry: all connections, for CLIENT LIST, CLIENT KILL and the admin port.
//!
//! # Concurrency
//! The map is locked when a connection opens or closes, and while it is listed; a request never
//! locks it. A worker stores the time of a client's last activity at most once per round.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{UnixMillis, WorkerId};
use budget::{BufferBudget, Kind, Reservation};
use counters::Dialect;

use crate::end::End;

/// One connected client.
#[derive(Debug)]
pub struct Client {
    /// Never reused; starts at 1. 0: no client in particular.
    pub id: u64,
    /// Which protocol its port speaks.
    pub protocol: Dialect,
    /// The client's end.
    pub peer: End,
    /// The server's end.
    pub local: End,
    /// The server's descriptor.
    pub descriptor: RawFd,
    /// When it connected.
    pub connected_at: UnixMillis,
    /// The worker that serves it.
    worker: AtomicU16,
    /// Its slot in that worker.
    slot: AtomicU32,
    is_killed: AtomicBool,
    last_active_at: AtomicU64,
    /// For CLIENT LIST of other workers: 1 plus the number of commands that MULTI has queued; 0
    /// without MULTI.
    queued_and_one: AtomicU64,
    is_resp3: AtomicBool,
    /// Whether it is subscribed to the channel of invalidations.
    is_subscribed: AtomicBool,
    /// The number of all clients that are.
    subscribed_count: Arc<AtomicU64>,
    /// It tracks, and must be told that everything has changed ([`Client::sum_up`]).
    is_summed_up: AtomicBool,
    /// Lines of its event stream that found no room on their way to it.
    lost_lines: AtomicU64,
    /// Names that it gave itself.
    names: Mutex<ClientNames>,
    /// The memory of its names; `None`: it is in no list.
    names_booked: Mutex<Option<Reservation>>,
    /// The memory of the connection itself, whatever it sends.
    _record_booked: Option<Reservation>,
}

/// What a client says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: String,
    /// The user that it logged in as; empty: the default user.
    pub user: String,
}

/// Names that a client's record has room for: a client can log in and name itself wherever it
/// could connect, whatever requests and replies of others hold.
pub const NAMES_IN_RECORD_BYTES: u64 = 128;

impl ClientNames {
    /// The bytes that are booked apart from the record.
    fn booked_bytes(&self) -> u64 {
        let names = [&self.name, &self.library, &self.library_version, &self.user];
        let len_bytes: u64 = names.iter().map(|name| name.len() as u64).sum();
        len_bytes.saturating_sub(NAMES_IN_RECORD_BYTES)
    }

    /// The user name in CLIENT LIST.
    pub fn user(&self) -> &str {
        if self.user.is_empty() { "default" } else { &self.user }
    }
}

impl Client {
    /// Stands for all senders of datagrams to an address: no particular client, and in no list.
    pub fn of_datagrams(local: SocketAddr) -> Client {
        Client {
            id: 0,
            protocol: Dialect::Memcached,
            worker: AtomicU16::new(0),
            slot: AtomicU32::new(0),
            is_killed: AtomicBool::new(false),
            peer: End::Ip(local),
            local: End::Ip(local),
            descriptor: -1,
            connected_at: UnixMillis(0),
            last_active_at: AtomicU64::new(0),
            queued_and_one: AtomicU64::new(0),
            is_resp3: AtomicBool::new(false),
            is_subscribed: AtomicBool::new(false),
            subscribed_count: Arc::default(),
            is_summed_up: AtomicBool::new(false),
            lost_lines: AtomicU64::new(0),
            names: Mutex::default(),
            names_booked: Mutex::default(),
            _record_booked: None,
        }
    }

    /// When it last sent something.
    pub fn last_active_at(&self) -> UnixMillis {
        UnixMillis(self.last_active_at.load(Ordering::Relaxed))
    }

    /// Its client has sent something.
    pub fn set_active(&self, now: UnixMillis) {
        // Relaxed: a statistic with one writer.
        self.last_active_at.store(now.0, Ordering::Relaxed);
    }

    /// The worker that serves it, or served it until a moment ago.
    pub fn worker(&self) -> WorkerId {
        WorkerId(self.worker.load(Ordering::Relaxed))
    }

    /// Its slot in that worker, or the one until a moment ago.
    pub fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed) as usize
    }

    /// It is in this slot of its worker.
    pub fn set_slot(&self, slot: usize) {
        // Relaxed: only its own worker uses and writes it.
        self.slot.store(slot as u32, Ordering::Relaxed);
    }

    /// How many commands its MULTI has queued; `None`: there is no MULTI.
    pub fn queued_count(&self) -> Option<u64> {
        self.queued_and_one.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Its MULTI has queued so many commands; `None`: there is no MULTI.
    pub fn set_queued(&self, count: Option<usize>) {
        // Relaxed, here and below: a list only displays them.
        self.queued_and_one.store(count.map_or(0, |count| count as u64 + 1), Ordering::Relaxed);
    }

    /// Whether HELLO 3 holds.
    pub fn is_resp3(&self) -> bool {
        self.is_resp3.load(Ordering::Relaxed)
    }

    /// Whether HELLO 3 holds from now on.
    pub fn set_resp3(&self, is_resp3: bool) {
        self.is_resp3.store(is_resp3, Ordering::Relaxed);
    }

    /// Whether it is subscribed to the channel of invalidations.
    pub fn is_subscribed(&self) -> bool {
        self.is_subscribed.load(Ordering::Relaxed)
    }

    /// Whether it is subscribed to the channel of invalidations from now on.
    pub fn set_subscribed(&self, is_subscribed: bool) {
        match (self.is_subscribed.swap(is_subscribed, Ordering::Relaxed), is_subscribed) {
            (false, true) => self.subscribed_count.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.subscribed_count.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Replaces messages without room: it will be told that everything has changed. False: that is
    /// already on its way.
    pub fn sum_up(&self) -> bool {
        // AcqRel, with `end_sum`: a writer that finds the sum on its way has changed its keys
        // before it is told.
        !self.is_summed_up.swap(true, Ordering::AcqRel)
    }

    /// The client is told now.
    pub fn end_sum(&self) {
        self.is_summed_up.swap(false, Ordering::AcqRel);
    }

    /// So many lines for it were lost.
    pub fn lose_lines(&self, count: u64) {
        self.lost_lines.fetch_add(count, Ordering::Relaxed);
    }

    /// How many lines for it were lost since the last call.
    pub fn take_lost_lines(&self) -> u64 {
        self.lost_lines.swap(0, Ordering::Relaxed)
    }

    /// Whether it is being closed: for every reader of the list it no longer exists.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }

    /// Marks it as to be closed; returns the worker to notify.
    ///
    /// Between this fence and that of [`Client::move_to`], either this names the new worker, or
    /// that one sees the mark: no connection escapes while it moves.
    pub fn kill(&self) -> WorkerId {
        self.is_killed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.worker()
    }

    /// Moves it to `worker`; returns whether it is to be closed instead.
    pub fn move_to(&self, worker: WorkerId) -> bool {
        self.worker.store(worker.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_killed.load(Ordering::Relaxed)
    }

    /// A copy of its names.
    pub fn names(&self) -> ClientNames {
        unpoisoned(self.names.lock()).clone()
    }

    /// Changes its names if there is room for them; returns whether there was.
    pub fn change_names(&self, change: impl FnOnce(&mut ClientNames)) -> bool {
        let mut names = unpoisoned(self.names.lock());
        let mut changed = names.clone();
        change(&mut changed);
        let mut booked = unpoisoned(self.names_booked.lock());
        let has_room =
            booked.as_mut().is_none_or(|booked| booked.try_resize(changed.booked_bytes()));
        if has_room {
            *names = changed;
        }
        has_room
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.set_subscribed(false);
    }
}

/// A panic while a name was copied leaves the name as it was.
fn unpoisoned<'a, T>(
    lock: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    lock.unwrap_or_else(PoisonError::into_inner)
}

/// The facts about a connection when it is accepted.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// What its port speaks.
    pub protocol: Dialect,
    /// The worker that accepted it.
    pub worker: WorkerId,
    /// Its client's end.
    pub peer: End,
    /// The server's end.
    pub local: End,
    /// Its socket.
    pub descriptor: RawFd,
    /// When it was accepted.
    pub now: UnixMillis,
}

/// How many clients there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientsMax {
    /// In all.
    pub all: usize,
    /// Of one address; 0: no further limit.
    pub per_address: usize,
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMany {
    /// The maximum of all is reached.
    All,
    /// The maximum of its address is reached.
    OfAddress,
    /// The records of the present clients fill their part of the client buffers.
    NoRoom,
    /// Other kinds leave no room in the client buffers.
    Full,
}

/// How many connections and native sessions each address has.
#[derive(Debug, Default)]
pub struct Addresses(Mutex<BTreeMap<IpAddr, usize>>);

impl Addresses {
    /// Counts one more of `address`, unless it already has `max`; 0: no limit.
    pub fn try_enter(&self, address: IpAddr, max: usize) -> bool {
        let mut counts = unpoisoned(self.0.lock());
        let count = counts.entry(address.to_canonical()).or_default();
        let has_room = max == 0 || *count < max; // Without room the entry is not new.
        *count += usize::from(has_room);
        has_room
    }

    /// A connection or session of the address has ended.
    pub fn leave(&self, address: IpAddr) {
        let (mut counts, address) = (unpoisoned(self.0.lock()), address.to_canonical());
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

/// All connected clients.
#[derive(Debug)]
pub struct Clients {
    last_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    addresses: Arc<Addresses>,
    /// Clients that are subscribed.
    subscribed_count: Arc<AtomicU64>,
    budget: Arc<BufferBudget>,
    /// The memory of a connection itself, whatever it sends.
    record_bytes: u64,
}

impl Clients {
    /// An empty registry; each client takes `record_bytes` of the budget.
    pub fn new(budget: &Arc<BufferBudget>, record_bytes: u64) -> Clients {
        Clients {
            last_id: AtomicU64::new(0),
            by_id: Mutex::default(),
            addresses: Arc::default(),
            subscribed_count: Arc::default(),
            budget: Arc::clone(budget),
            record_bytes,
        }
    }

    /// The counts by address.
    pub fn addresses(&self) -> &Arc<Addresses> {
        &self.addresses
    }

    fn short_of_room(&self) -> TooMany {
        let part_bytes = self.budget.kind_limit_bytes(Kind::Connections);
        let is_own = self.budget.kind_bytes(Kind::Connections) + self.record_bytes > part_bytes;
        if is_own {
            return TooMany::NoRoom;
        }
        self.budget.note_refused_arrival();
        TooMany::Full
    }

    /// Adds a client unless there are too many already.
    pub fn admit(&self, arrival: Arrival, max: ClientsMax) -> Result<Arc<Client>, TooMany> {
        let mut by_id = unpoisoned(self.by_id.lock());
        if by_id.len() >= max.all {
            return Err(TooMany::All);
        }
        let booked = Reservation::try_new(&self.budget, Kind::Connections, self.record_bytes);
        let booked = Some(booked.ok_or_else(|| self.short_of_room())?);
        if let Some(address) = arrival.peer.address()
            && !self.addresses.try_enter(address, max.per_address)
        {
            return Err(TooMany::OfAddress);
        }
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            protocol: arrival.protocol,
            worker: AtomicU16::new(arrival.worker.0),
            slot: AtomicU32::new(0),
            is_killed: AtomicBool::new(false),
            peer: arrival.peer,
            local: arrival.local,
            descriptor: arrival.descriptor,
            connected_at: arrival.now,
            last_active_at: AtomicU64::new(arrival.now.0),
            queued_and_one: AtomicU64::new(0),
            is_resp3: AtomicBool::new(false),
            is_subscribed: AtomicBool::new(false),
            subscribed_count: Arc::clone(&self.subscribed_count),
            is_summed_up: AtomicBool::new(false),
            lost_lines: AtomicU64::new(0),
            names: Mutex::default(),
            names_booked: Mutex::new(Some(Reservation::empty(&self.budget, Kind::Names))),
            _record_booked: booked,
        });
        by_id.insert(client.id, Arc::clone(&client));
        Ok(client)
    }

    /// A connection has closed.
    pub fn remove(&self, id: u64) {
        let removed = unpoisoned(self.by_id.lock()).remove(&id);
        if let Some(address) = removed.and_then(|client| client.peer.address()) {
            self.addresses.leave(address);
        }
    }

    /// The client with that id.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        unpoisoned(self.by_id.lock()).get(&id).cloned()
    }

    /// A copy of the list, by id.
    pub fn list(&self) -> Vec<Arc<Client>> {
        unpoisoned(self.by_id.lock()).values().cloned().collect()
    }

    /// The newest id.
    pub fn last_id(&self) -> u64 {
        self.last_id.load(Ordering::Relaxed)
    }

    /// At most `count_max` clients with ids after `first` up to `last`, by id.
    pub fn between(&self, first: u64, last: u64, count_max: usize) -> Vec<Arc<Client>> {
        if first >= last {
            return Vec::new();
        }
        let by_id = unpoisoned(self.by_id.lock());
        let behind = (Bound::Excluded(first), Bound::Included(last));
        by_id.range(behind).take(count_max).map(|(_, client)| Arc::clone(client)).collect()
    }

    /// How many are subscribed to the channel of invalidations.
    pub fn subscribed_count(&self) -> u64 {
        self.subscribed_count.load(Ordering::Relaxed)
    }

    /// How many there are, of all protocols.
    pub fn total(&self) -> usize {
        unpoisoned(self.by_id.lock()).len()
    }

    /// How many there are of one protocol.
    pub fn count(&self, protocol: Dialect) -> usize {
        let by_id = unpoisoned(self.by_id.lock());
        by_id.values().filter(|client| client.protocol == protocol).count()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const ONE: ClientsMax = ClientsMax { all: 1, per_address: 0 };

    const RECORD_BYTES: u64 = 1000;

    fn clients() -> Clients {
        Clients::new(&Arc::new(BufferBudget::new(1 << 20)), RECORD_BYTES)
    }

    fn arrival() -> Arrival {
        arrival_from([127, 0, 0, 1].into())
    }

    fn arrival_from(address: IpAddr) -> Arrival {
        let any = End::Ip(SocketAddr::from((address, 1)));
        Arrival {
            protocol: Dialect::Resp,
            worker: WorkerId(0),
            peer: any.clone(),
            local: any,
            descriptor: 3,
            now: UnixMillis(1),
        }
    }

    #[test]
    fn a_client_that_is_killed_on_its_way_is_found_by_one_side() {
        let clients = clients();
        let client = clients.admit(arrival(), ONE).unwrap();
        assert!(!client.move_to(WorkerId(3)));
        assert!(!client.is_killed());
        assert_eq!(client.kill(), WorkerId(3));
        assert!(client.is_killed());
        assert!(client.move_to(WorkerId(1)), "told at the next worker");
    }

    #[test]
    fn no_more_than_max_are_admitted_and_ids_are_not_reused() {
        let clients = clients();
        let first = clients.admit(arrival(), ONE).unwrap();
        assert_eq!(clients.admit(arrival(), ONE).unwrap_err(), TooMany::All);
        clients.remove(first.id);
        let second = clients.admit(arrival(), ONE).unwrap();
        assert_ne!(first.id, second.id);
        assert_eq!(clients.count(Dialect::Resp), 1);
        assert_eq!(clients.count(Dialect::Memcached), 0);
        assert_eq!(clients.list().len(), 1);
    }

    #[test]
    fn an_address_has_its_own_limit_however_it_is_written() {
        let clients = clients();
        let max = ClientsMax { all: 10, per_address: 2 };
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mapped = match here {
            IpAddr::V4(address) => IpAddr::V6(address.to_ipv6_mapped()),
            IpAddr::V6(_) => here,
        };
        let first = clients.admit(arrival_from(here), max).unwrap();
        clients.admit(arrival_from(mapped), max).unwrap();
        for _ in 0..2 {
            let refused = clients.admit(arrival_from(here), max).unwrap_err();
            assert_eq!(refused, TooMany::OfAddress);
        }
        clients.admit(arrival_from(there), max).unwrap();
        clients.remove(first.id);
        clients.remove(first.id);
        let again = clients.admit(arrival_from(mapped), max).unwrap();
        assert!(clients.admit(arrival_from(here), max).is_err());
        for client in clients.list() {
            clients.remove(client.id);
        }
        assert_eq!(again.peer, End::Ip(SocketAddr::from((mapped, 1))));
        assert!(unpoisoned(clients.addresses.0.lock()).is_empty(), "none is left");
    }

    #[test]
    fn records_and_names_of_clients_are_booked_and_refused_beyond_their_part() {
        let clients = clients();
        let budget = Arc::clone(&clients.budget);
        let fit_count = budget.kind_limit_bytes(Kind::Connections) / RECORD_BYTES;
        let max = ClientsMax { all: usize::MAX, per_address: 0 };
        let mut admitted = Vec::new();
        let refused = loop {
            match clients.admit(arrival(), max) {
                Ok(client) => admitted.push(client),
                Err(too_many) => break too_many,
            }
        };
        assert_eq!((refused, admitted.len() as u64), (TooMany::NoRoom, fit_count));
        // All of them together would leave names less than their part.
        admitted.drain(2..).for_each(|client| clients.remove(client.id));
        let first = &admitted[0];
        let names_bytes = budget.kind_limit_bytes(Kind::Names) as usize;
        let in_record = NAMES_IN_RECORD_BYTES as usize;
        assert!(first.change_names(|names| names.name = "n".repeat(in_record + names_bytes)));
        assert!(!admitted[1].change_names(|names| names.library = "l".repeat(in_record + 1)));
        assert_eq!(admitted[1].names(), ClientNames::default());
        // The record has room for short names, whatever others hold.
        assert!(admitted[1].change_names(|names| names.user = "u".repeat(in_record)));
        assert_eq!(budget.kind_bytes(Kind::Names), names_bytes as u64);
        assert!(first.change_names(|names| names.name.clear()));
        assert_eq!(budget.kind_bytes(Kind::Names), 0);
        assert_eq!(budget.kind_bytes(Kind::Connections), 2 * RECORD_BYTES);
    }

    #[test]
    fn a_unix_socket_has_no_address_to_have_a_limit() {
        let clients = clients();
        let max = ClientsMax { all: 3, per_address: 1 };
        let end = End::Unix(Path::new("/run/d.sock").into());
        let arrival = || Arrival { peer: end.clone(), local: end.clone(), ..arrival() };
        let first = clients.admit(arrival(), max).unwrap();
        clients.admit(arrival(), max).unwrap();
        clients.admit(self::arrival(), max).unwrap();
        assert_eq!(clients.admit(arrival(), max).unwrap_err(), TooMany::All);
        assert_eq!(first.peer.to_string(), "/run/d.sock:0");
        assert!(first.peer.is_local());
        clients.remove(first.id);
        assert_eq!(clients.list().len(), 2);
    }
}

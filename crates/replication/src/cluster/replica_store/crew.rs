//! The crew of digest threads, as the control thread sees it: each installs landed entries for its
//! shards.
//!
//! ```text
//!                      ┌─ loads ─▶ digest-0: shards 0, 2, 4 ... that were lent ─┐
//!  take_in: checked ───┤                                                        ├─▶ store
//!                      └─ loads ─▶ digest-1: shards 1, 3, 5 ...  ───────────────┘
//!           ◀───────────────────── the same loads, with results and returned shards
//! ```
//!
//! Shard S is lent to thread S mod N with its first entry, and called back when it is needed for
//! anything else: a promotion gathers, a part is copied, it is flushed, or this node is its
//! primary.
//!
//! # Invariants
//! D1: one thread holds what is remembered of a shard: the control thread, or the thread to which
//!     the shard is lent. It moves there before the shard's first entry, and returns behind its
//!     last.
//! D2: a shard's jobs are done in the order in which they were given, because one thread does them:
//!     entries, CommitVer, what may be forgotten (K2).
//! D3: unacknowledged work is bounded by the number of loads per thread. When none is left, the
//!     control thread waits for one, with its session parked.
//!
//! # Concurrency
//! Loads move through channels, there and back; the threads share only the store.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use base::UnixMillis;
use base::ring::Bell;
use cluster::record::Entry;
use cluster::{Done, Installed, Landed, Plain, ShardId, Version};
use crossbeam_channel::{Receiver, Sender, bounded};
use store::{Session, Store};

use super::digester::{Call, Digester};
use super::load::{Job, Load};
use super::remembered::Remembered;
use super::{ServerReplicaStore, State};

/// Loads of one thread (D3).
const LOADS_MAX: usize = 8;
/// A load leaves with this many jobs, ...
const LOAD_JOBS: usize = 64;
/// ... or with this many bytes of entries.
const LOAD_BYTES: usize = 64 << 10;

/// See the module's page.
pub(super) struct Crew {
    hands: Vec<Hand>,
    /// By shard: whether its thread has it (D1).
    lent: Vec<bool>,
    /// Results that the control thread has not taken yet.
    done: Vec<Done>,
    back: Vec<(ShardId, Box<Remembered>)>,
    now: UnixMillis,
}

/// One digest thread.
struct Hand {
    /// The load in the making.
    making: Load,
    spare: Vec<Load>,
    /// Loads that have not come back.
    out_count: usize,
    /// None: the thread is to end.
    loads: Option<Sender<Load>>,
    returned: Receiver<Load>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    figures: DigestFigures,
}

/// A digest thread's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestFigures {
    /// Entries that it installed, or that were older than the present ones.
    pub entries: u64,
    /// Entries for which there was no room.
    pub refused: u64,
    /// Entries that it was given and has not finished.
    pub queued: u64,
}

impl Crew {
    fn start(count: usize, store: &Arc<Store>, call: &Call) -> io::Result<Crew> {
        let hands = (0..count).map(|index| Hand::start(index, store, call));
        let hands = hands.collect::<io::Result<Vec<Hand>>>()?;
        let (lent, done, back) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Crew { hands, lent, done, back, now: UnixMillis(0) })
    }

    fn index_of(&self, shard: ShardId) -> usize {
        shard.index() % self.hands.len()
    }

    fn making(&mut self, shard: ShardId) -> &mut Load {
        let index = self.index_of(shard);
        &mut self.hands[index].making
    }

    fn is_lent(&self, shard: ShardId) -> bool {
        self.lent.get(shard.index()).is_some_and(|is_lent| *is_lent)
    }

    fn lend(&mut self, shard: ShardId, remembered: Remembered) {
        if self.lent.len() <= shard.index() {
            self.lent.resize(shard.index() + 1, false);
        }
        self.lent[shard.index()] = true;
        self.making(shard).jobs.push(Job::Lend(shard, Box::new(remembered)));
    }

    /// Waits until the shard has come back, and all its jobs are done.
    fn call_back(&mut self, shard: ShardId, session: &mut Session) {
        let index = self.index_of(shard);
        self.making(shard).jobs.push(Job::GiveBack(shard));
        self.send(index, session);
        while self.is_lent(shard) {
            self.wait(index, session);
        }
    }

    /// Sends a thread its load in the making.
    fn send(&mut self, index: usize, session: &mut Session) {
        if self.hands[index].making.jobs.is_empty() {
            return;
        }
        while self.hands[index].spare.is_empty() {
            self.wait(index, session); // D3
        }
        let hand = &mut self.hands[index];
        let Some(spare) = hand.spare.pop() else { return };
        let mut load = std::mem::replace(&mut hand.making, spare);
        load.now = self.now;
        hand.figures.queued += load.entry_count;
        hand.out_count += 1;
        // The channel has room for all loads that exist.
        let is_gone = hand.loads.as_ref().is_none_or(|loads| loads.try_send(load).is_err());
        if is_gone {
            hand.give_up();
        }
        hand.wake_if_asleep();
    }

    fn send_if_full(&mut self, shard: ShardId, session: &mut Session) {
        let load = self.making(shard);
        if load.jobs.len() >= LOAD_JOBS || load.entry_bytes >= LOAD_BYTES {
            self.send(self.index_of(shard), session);
        }
    }

    fn send_all(&mut self, session: &mut Session) {
        (0..self.hands.len()).for_each(|index| self.send(index, session));
    }

    /// Waits until all jobs are done.
    fn finish(&mut self, session: &mut Session) {
        self.send_all(session);
        for index in 0..self.hands.len() {
            while self.hands[index].out_count > 0 {
                self.wait(index, session);
            }
        }
    }

    /// Waits for a load of a thread that has some.
    fn wait(&mut self, index: usize, session: &mut Session) {
        let load = self.hands[index].next_back(session);
        self.unload(index, load);
    }

    /// Takes the loads that have come back.
    fn collect(&mut self) {
        for index in 0..self.hands.len() {
            while let Ok(load) = self.hands[index].returned.try_recv() {
                self.unload(index, load);
            }
        }
    }

    fn unload(&mut self, index: usize, mut load: Load) {
        let hand = &mut self.hands[index];
        let refused = load.done.iter().filter(|one| !one.is_there).count() as u64;
        hand.figures.refused += refused;
        hand.figures.entries += load.done.len() as u64 - refused;
        hand.figures.queued -= load.entry_count;
        hand.out_count -= 1;
        self.done.append(&mut load.done);
        for (shard, remembered) in load.back.drain(..) {
            self.lent[shard.index()] = false;
            self.back.push((shard, remembered));
        }
        load.clear();
        self.hands[index].spare.push(load);
    }

    fn has_any(&self) -> bool {
        !self.done.is_empty() || self.hands.iter().any(|hand| !hand.returned.is_empty())
    }
}

impl Hand {
    fn start(index: usize, store: &Arc<Store>, call: &Call) -> io::Result<Hand> {
        let session = store.session().map_err(io::Error::other)?;
        let (loads, given) = bounded(LOADS_MAX);
        let (done, returned) = bounded(LOADS_MAX);
        let bell = Arc::new(Bell::new());
        let digester = Digester {
            store: Arc::clone(store),
            session,
            shards: BTreeMap::new(),
            now: UnixMillis(0),
            is_full: false,
            loads: given,
            returned: done,
            bell: Arc::clone(&bell),
            call: Arc::clone(call),
        };
        let thread = std::thread::Builder::new()
            .name(format!("digest-{index}"))
            .spawn(move || digester.run())?;
        Ok(Hand {
            making: Load::default(),
            // One is in the making.
            spare: (1..LOADS_MAX).map(|_| Load::default()).collect(),
            out_count: 0,
            loads: Some(loads),
            returned,
            bell,
            thread: Some(thread),
            figures: DigestFigures::default(),
        })
    }

    /// The next load that comes back.
    fn next_back(&mut self, session: &mut Session) -> Load {
        if let Ok(load) = self.returned.try_recv() {
            return load;
        }
        session.park(); // No thread waits for this session meanwhile.
        let load = self.returned.recv();
        session.unpark();
        load.unwrap_or_else(|_| self.give_up())
    }

    fn wake_if_asleep(&self) {
        if self.bell.must_ring()
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }

    /// The thread has panicked, and the state lent to it is lost: this copy does not know what it
    /// has.
    fn give_up(&mut self) -> ! {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            _ => panic!("a digest thread has ended"),
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.loads = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a digest thread panicked");
            }
        }
    }
}

impl State {
    /// Calls back what is remembered of a shard (D1).
    #[inline]
    pub(super) fn recall(&mut self, shard: ShardId) {
        if self.crew.as_ref().is_some_and(|crew| crew.is_lent(shard)) {
            self.call_back(shard);
        }
    }

    #[cold]
    fn call_back(&mut self, shard: ShardId) {
        let State { crew, session, shards, .. } = self;
        let Some(crew) = crew else { return };
        crew.call_back(shard, session);
        shards.extend(crew.back.drain(..).map(|(shard, remembered)| (shard, *remembered)));
    }

    pub(super) fn take_in(&mut self, landed: Landed, plain: &Plain<'_>) -> Installed {
        let number = self.numbers.of(plain.shard);
        let Some((crew, session)) = self.crew_for(plain.shard) else {
            return self.install(plain, None);
        };
        crew.making(plain.shard).install(landed, plain, number);
        crew.send_if_full(plain.shard, session);
        Installed::Later
    }

    pub(super) fn take_in_entry(
        &mut self,
        landed: Landed,
        entry: &Arc<Entry>,
    ) -> Option<Installed> {
        if entry.is_flush {
            return None;
        }
        let number = self.numbers.of(entry.shard);
        let (crew, session) = self.crew_for(entry.shard)?;
        crew.making(entry.shard).install_entry(landed, Arc::clone(entry), number);
        crew.send_if_full(entry.shard, session);
        Some(Installed::Later)
    }

    /// The digest threads for a shard's landed entries; none: this thread installs them now.
    fn crew_for(&mut self, shard: ShardId) -> Option<(&mut Crew, &mut Session)> {
        if self.takes_nothing() || self.clearing.has(shard) {
            return None;
        }
        let crew = self.crew.as_mut()?;
        if !crew.is_lent(shard) {
            crew.lend(shard, self.shards.remove(&shard).unwrap_or_default());
            if self.keeping.is_some() {
                self.used.insert(shard);
            }
        }
        Some((crew, &mut self.session))
    }

    /// Notes that all of a shard up to this version is on all copies.
    pub(super) fn commit(&mut self, shard: ShardId, version: Version) {
        match self.crew.as_mut().filter(|crew| crew.is_lent(shard)) {
            Some(crew) => crew.making(shard).jobs.push(Job::Commit(shard, version)),
            None => self.shards.entry(shard).or_default().commit(version),
        }
        // Entries on all copies are on this one: it acknowledged them (E1 of cluster::node::later).
        if self.keeping.is_some() && version > self.kept.commit_of(shard) {
            self.kept.set_commit(shard, version);
        }
    }

    pub(super) fn forget(&mut self, shard: ShardId, through: Version) {
        match self.crew.as_mut().filter(|crew| crew.is_lent(shard)) {
            Some(crew) => crew.making(shard).jobs.push(Job::Forget(shard, through)),
            None => self.shards.entry(shard).or_default().forget(through),
        }
    }
}

impl ServerReplicaStore {
    /// Starts this number of threads, which install landed entries; they invoke `call` when some
    /// are done.
    ///
    /// # Errors
    /// The system gives no thread, or the store has no place for its session.
    pub fn employ(&mut self, count: usize, call: &Call) -> io::Result<()> {
        let state = self.state.get_mut();
        state.crew = match count {
            0 => None,
            _ => Some(Crew::start(count, &state.store, call)?),
        };
        Ok(())
    }

    /// Sends the received entries to the threads that install them.
    pub fn hand_on(&self) {
        let State { crew, session, now, .. } = &mut *self.state.borrow_mut();
        if let Some(crew) = crew {
            crew.now = *now;
            crew.send_all(session);
        }
    }

    /// Whether there are results of entries that were to be installed later.
    pub fn has_digested(&self) -> bool {
        self.state.borrow().crew.as_ref().is_some_and(Crew::has_any)
    }

    /// The figures of each digest thread.
    pub fn digest_figures(&self) -> Vec<DigestFigures> {
        let state = self.state.borrow();
        let hands = state.crew.iter().flat_map(|crew| &crew.hands);
        hands.map(|hand| hand.figures).collect()
    }

    pub(super) fn finish_digest(&mut self) {
        let State { crew, session, .. } = self.state.get_mut();
        if let Some(crew) = crew {
            crew.finish(session);
        }
    }

    pub(super) fn collect_done(&mut self, done: &mut Vec<Done>) {
        let state = self.state.get_mut();
        if let Some(crew) = &mut state.crew {
            crew.collect();
            done.append(&mut crew.done);
        }
    }
}

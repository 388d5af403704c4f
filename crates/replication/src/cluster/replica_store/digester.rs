//! A digest thread: it alone installs landed entries for the shards that are lent to it.
//!
//! ```text
//!  crew.rs ─ loads ─▶ jobs in order ─ Session::install ─▶ index ◀─ GET ─ workers
//!          ◀─ the same loads, with their results ─────┘
//!  nothing to do: housekeeping of its session, then asleep
//! ```

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use base::ring::Bell;
use base::{KeyHash, UnixMillis};
use cluster::{Done, Installed, Landed, Plain, ShardId};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use store::{Session, Store};

use super::FORESEEN_MAX;
use super::installing::install_in;
use super::load::{Job, Load, Opened};
use super::remembered::Remembered;

/// Pause while its session has housekeeping that has to wait for other threads.
const TIDY_REST: Duration = Duration::from_millis(1);

/// Wakes the control thread, which may be asleep.
pub type Call = Arc<dyn Fn() + Send + Sync>;

/// A digest thread's state.
pub(super) struct Digester {
    pub store: Arc<Store>,
    pub session: Session,
    /// The shards that are lent to it.
    pub shards: BTreeMap<ShardId, Box<Remembered>>,
    pub now: UnixMillis,
    /// Whether there was no room for the last entry.
    pub is_full: bool,
    pub loads: Receiver<Load>,
    pub returned: Sender<Load>,
    pub bell: Arc<Bell>,
    pub call: Call,
}

impl Digester {
    /// Runs until the channel of loads is closed.
    pub fn run(mut self) {
        while let Some(mut load) = self.next() {
            self.now = load.now;
            self.digest(load.open());
            // The channel has room for all loads that exist.
            if self.returned.send(load).is_err() {
                return;
            }
            (self.call)();
            self.session.maintain(self.now);
        }
    }

    /// The next load; none: there will be no more.
    fn next(&mut self) -> Option<Load> {
        let mut is_tidy = false;
        loop {
            match self.loads.try_recv() {
                Ok(load) => return Some(load),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            is_tidy = is_tidy || !self.session.maintain(self.now);
            self.bell.raise();
            if self.loads.is_empty() {
                self.session.park();
                // The control thread unparks this one when it sends a load or ends: before this or
                // during it.
                match is_tidy {
                    true => std::thread::park(),
                    false => std::thread::park_timeout(TIDY_REST),
                }
                self.session.unpark();
            }
            self.bell.lower();
        }
    }

    fn digest(&mut self, load: Opened<'_>) {
        let Opened { bytes, jobs, done, back } = load;
        let mut left = jobs.drain(..);
        while !left.as_slice().is_empty() {
            self.foresee(bytes, left.as_slice());
            for job in left.by_ref().take(FORESEEN_MAX) {
                match job {
                    Job::Lend(shard, remembered) => drop(self.shards.insert(shard, remembered)),
                    Job::GiveBack(shard) => {
                        back.extend(
                            self.shards.remove(&shard).map(|remembered| (shard, remembered)),
                        );
                    }
                    Job::Install(piece) => {
                        let plain = piece.plain(bytes);
                        done.push(self.install(piece.landed, (&plain, piece.number), None));
                    }
                    Job::InstallEntry { landed, number, entry } => {
                        let plain = entry.as_plain();
                        let one = self.install(landed, (&plain, number), Some(&entry.key));
                        done.push(Done { entry: Some(entry), ..one });
                    }
                    Job::Commit(shard, version) => {
                        if let Some(remembered) = self.shards.get_mut(&shard) {
                            remembered.commit(version);
                        }
                    }
                    Job::Forget(shard, through) => {
                        if let Some(remembered) = self.shards.get_mut(&shard) {
                            remembered.forget(through);
                        }
                    }
                }
            }
        }
    }

    fn install(
        &mut self,
        landed: Landed,
        (plain, number): (&Plain<'_>, NonZeroU16),
        own_key: Option<&Arc<[u8]>>,
    ) -> Done {
        let Digester { store, session, shards, now, is_full, .. } = self;
        if landed.follows && *is_full {
            return Done { landed, entry: None, is_there: false }; // S5 of cluster::replica store
        }
        let hash = || store.key_hasher().hash(plain.key);
        // It has no room for shards that are not lent to it (D1 of crew.rs).
        let installed = shards.get_mut(&plain.shard).map_or(Installed::NoRoom, |remembered| {
            install_in(session, *now, remembered, (plain, number), own_key, hash)
        });
        *is_full = installed == Installed::NoRoom;
        Done { landed, entry: None, is_there: !*is_full }
    }

    /// Prefetches the state of the next entries' keys, so that it arrives for one while another is
    /// installed.
    fn foresee(&self, bytes: &[u8], jobs: &[Job]) {
        let hasher = self.store.key_hasher();
        let mut keys = [(KeyHash(0), &[][..]); FORESEEN_MAX];
        let mut count = 0;
        for job in jobs.iter().take(FORESEEN_MAX) {
            let key = match job {
                Job::Install(piece) => piece.plain(bytes).key,
                _ => continue,
            };
            keys[count] = (hasher.hash(key), key);
            count += 1;
        }
        self.session.foresee(&keys[..count]);
    }
}

//! Loads: many entries at once that go to a digest thread and come back, in memory that is reused.
//!
//! ```text
//!  bytes  | key value | key value | key ...      of frames, copied once
//!  jobs   lend 3 | install | install | commit 3 | install ... | give back 3
//!  done            the result of each install         back      `Remembered` of shard 3
//! ```

use std::num::NonZeroU16;
use std::sync::Arc;

use base::UnixMillis;
use cluster::record::Entry;
use cluster::{Done, Landed, Plain, ShardId, Version};

use super::remembered::Remembered;

/// See the module's page.
#[derive(Default)]
pub(super) struct Load {
    bytes: Vec<u8>,
    pub jobs: Vec<Job>,
    pub done: Vec<Done>,
    pub back: Vec<(ShardId, Box<Remembered>)>,
    pub now: UnixMillis,
    /// Entries among the jobs.
    pub entry_count: u64,
    /// Their bytes, including those outside the load.
    pub entry_bytes: usize,
}

/// A job of a digest thread; jobs are done in order.
pub(super) enum Job {
    /// The shard is lent to the thread from here on.
    Lend(ShardId, Box<Remembered>),
    /// An entry in the bytes of the load.
    Install(Piece),
    /// An entry with bytes of its own.
    InstallEntry { landed: Landed, number: NonZeroU16, entry: Arc<Entry> },
    /// All versions up to this one are on all copies.
    Commit(ShardId, Version),
    /// No entry older than deletes up to this version will come.
    Forget(ShardId, Version),
    /// The shard belongs to the control thread again.
    GiveBack(ShardId),
}

/// An entry's place in its load, and its attributes.
pub(super) struct Piece {
    pub landed: Landed,
    pub number: NonZeroU16,
    client_flags: u64,
    expires_at: Option<UnixMillis>,
    start: usize,
    key_bytes: usize,
    value_bytes: Option<usize>,
}

impl Piece {
    /// The entry, in the bytes of its load.
    pub fn plain<'b>(&self, bytes: &'b [u8]) -> Plain<'b> {
        let (key, rest) = bytes[self.start..].split_at(self.key_bytes);
        Plain {
            shard: self.landed.block.shard,
            version: self.landed.block.version,
            key,
            value: self.value_bytes.map(|value_bytes| &rest[..value_bytes]),
            client_flags: self.client_flags,
            expires_at: self.expires_at,
        }
    }
}

impl Load {
    /// Adds a copy of an entry.
    pub fn install(&mut self, landed: Landed, plain: &Plain<'_>, number: NonZeroU16) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(plain.key);
        self.bytes.extend_from_slice(plain.value.unwrap_or_default());
        self.count(self.bytes.len() - start);
        self.jobs.push(Job::Install(Piece {
            landed,
            number,
            client_flags: plain.client_flags,
            expires_at: plain.expires_at,
            start,
            key_bytes: plain.key.len(),
            value_bytes: plain.value.map(<[u8]>::len),
        }));
    }

    /// Adds an entry that has bytes of its own.
    pub fn install_entry(&mut self, landed: Landed, entry: Arc<Entry>, number: NonZeroU16) {
        self.count(entry.key.len() + entry.value.as_ref().map_or(0, |value| value.len()));
        self.jobs.push(Job::InstallEntry { landed, number, entry });
    }

    fn count(&mut self, len_bytes: usize) {
        self.entry_count += 1;
        self.entry_bytes += len_bytes;
    }

    /// Its jobs and its bytes, to write down the results.
    pub fn open(&mut self) -> Opened<'_> {
        let Load { bytes, jobs, done, back, .. } = self;
        Opened { bytes, jobs, done, back }
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.jobs.clear();
        self.done.clear();
        self.back.clear();
        (self.entry_count, self.entry_bytes) = (0, 0);
    }
}

/// A load while it is worked on.
pub(super) struct Opened<'l> {
    pub bytes: &'l [u8],
    pub jobs: &'l mut Vec<Job>,
    pub done: &'l mut Vec<Done>,
    pub back: &'l mut Vec<(ShardId, Box<Remembered>)>,
}

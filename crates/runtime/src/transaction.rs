//! A connection's MULTI and WATCH, as plain data.

use std::collections::BTreeMap;

/// A connection's MULTI and WATCH.
#[derive(Default)]
pub struct Transaction {
    /// Between MULTI and EXEC.
    pub is_queueing: bool,
    /// A command could not be queued: EXEC will be refused.
    pub is_spoilt: bool,
    /// The commands' bytes, one after another.
    pub queued: Vec<u8>,
    /// The number of these commands.
    pub command_count: usize,
    /// One of them may be long.
    pub has_long: bool,
    /// One of them writes.
    pub has_writes: bool,
    /// The versions when the keys were watched; 0: the key did not exist.
    pub watched: BTreeMap<Box<[u8]>, u64>,
    /// The memory of those.
    pub watched_bytes: usize,
}

impl Transaction {
    /// Between MULTI and EXEC.
    pub fn is_queueing(&self) -> bool {
        self.is_queueing
    }

    /// Marks that a command could not be queued: EXEC will be refused.
    pub fn spoil(&mut self) {
        self.is_spoilt |= self.is_queueing;
    }

    /// The number of queued commands, if there was a MULTI; for CLIENT LIST.
    pub fn queued_count(&self) -> Option<usize> {
        self.is_queueing.then_some(self.command_count)
    }

    /// The bytes of the queued commands.
    pub fn queued_bytes(&self) -> usize {
        self.queued.len()
    }

    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        self.queued.capacity() + self.watched_bytes
    }

    /// What it lacks for a copy of so many bytes more.
    pub fn lacks_bytes(&self, more_bytes: usize) -> usize {
        more_bytes.saturating_sub(self.queued.capacity() - self.queued.len())
    }

    /// What it lacks for the copy of a command that is on its way; 0: it will not keep one, for it
    /// may take at most so many bytes.
    pub fn lacks_for_next(&self, command_bytes: usize, held_bytes_max: u64) -> usize {
        let more_bytes = self.lacks_bytes(command_bytes);
        let fits = (self.held_bytes() + more_bytes) as u64 <= held_bytes_max;
        if self.is_queueing && !self.is_spoilt && fits { more_bytes } else { 0 }
    }
}

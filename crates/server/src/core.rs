//! What a worker's commands work on, apart from the store's session.

use std::sync::Arc;

use base::{KeyHash, KeyHasher, UnixMillis, WorkerId};

use crate::budget::Ledger;
use crate::connection::Connection;
use crate::counters::WorkerCounters;
use crate::shared::Shared;
use crate::slab::Slab;

/// Buffers kept for reuse per worker, and the largest that is worth keeping.
const POOL_BUFFERS_MAX: usize = 64;
const POOL_BUFFER_BYTES_MIN: usize = 4 << 10;
const POOL_BUFFER_BYTES_MAX: usize = 64 << 10;

/// One worker's connections, buffers and counters.
pub struct Core {
    /// What all threads see.
    pub shared: Arc<Shared>,
    /// This worker.
    pub worker: WorkerId,
    /// The store's.
    pub hasher: KeyHasher,
    /// The largest value.
    pub value_max_bytes: u64,
    /// A client with more unsent bytes is not read.
    pub output_limit_bytes: usize,
    /// Its connections.
    pub connections: Slab<Connection>,
    /// Connections that the round has to finish: send, give buffers back, close.
    pub touched: Vec<usize>,
    /// Empty output buffers.
    pub pool: Vec<Vec<u8>>,
    /// Its part of the buffer budget.
    pub ledger: Ledger,
    /// The round's wall-clock time.
    pub now: UnixMillis,
    /// Some commands have to wait (CLIENT PAUSE).
    pub is_paused: bool,
    /// Number of the batch that is being gathered; 0 is never one.
    pub batch_id: u64,
    /// What several requests of one command add up to.
    pub tally: Tally,
}

/// The common reply of one command's several requests, in the making.
///
/// It lives here and not in the sink because a batch may fill up in mid-command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Keys that counted.
    pub count: i64,
    /// A write did not find space.
    pub out_of_memory: bool,
    /// A value was too long.
    pub too_large: bool,
}

impl Core {
    /// A worker without connections.
    pub fn new(shared: Arc<Shared>, worker: WorkerId) -> Core {
        let config = shared.config();
        Core {
            worker,
            hasher: shared.store().key_hasher().clone(),
            value_max_bytes: config.max_item_size_bytes,
            output_limit_bytes: usize::try_from(config.output_limit_bytes).unwrap_or(usize::MAX),
            connections: Slab::new(),
            touched: Vec::new(),
            pool: Vec::new(),
            ledger: Ledger::new(Arc::clone(shared.buffer_budget())),
            now: UnixMillis(0),
            is_paused: false,
            batch_id: 1,
            tally: Tally::default(),
            shared,
        }
    }

    /// This worker's counters.
    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        self.shared.counters(self.worker.index())
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// Puts a connection on the list of those that the round finishes.
    #[inline]
    pub fn touch(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        if !connection.is_touched {
            connection.is_touched = true;
            self.touched.push(slot);
        }
    }

    /// Gives a connection a buffer for its replies.
    #[inline]
    pub fn lend_buffer(&mut self, slot: usize) {
        let output = &mut self.connections[slot].output;
        if !output.has_buffer() {
            let fresh = || Vec::with_capacity(POOL_BUFFER_BYTES_MIN);
            output.lend_buffer(self.pool.pop().unwrap_or_else(fresh));
        }
    }

    /// Takes an empty buffer back.
    #[inline]
    pub fn return_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= POOL_BUFFER_BYTES_MAX && self.pool.len() < POOL_BUFFERS_MAX {
            self.pool.push(buffer);
        }
    }

    /// Whether a connection may go on parsing: it is open and its client takes its replies.
    #[inline]
    pub fn may_parse(&self, slot: usize) -> bool {
        let connection = &self.connections[slot];
        connection.ending == crate::connection::Ending::Open
            && connection.output.unsent_bytes() <= self.output_limit_bytes
    }
}

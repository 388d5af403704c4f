//! The configuration of a connection.

use wire::native::{FRAME_MAX_BYTES, TagKey};

/// The reliability of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Datagrams: frames may be lost, duplicated and reordered.
    Lossy,
    /// Shared memory: everything arrives once, in order, or the connection ends.
    Reliable,
}

/// The order in which the requests of one connection take effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// A request waits until earlier writes of its key are answered, so that it sees their effect
    /// (K10).
    #[default]
    Kept,
    /// Outstanding requests take effect in any order: for callers whose requests belong to
    /// independent clients.
    Free,
}

/// The worker for reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadSteering {
    /// Any worker: frames fill up without regard to keys, each for a worker drawn at random.
    #[default]
    Any,
    /// The key's own worker, as writes.
    Owner,
}

/// The configuration of a connection. The default suits a data centre.
#[derive(Clone, Debug)]
pub struct Config {
    /// The shared secret; see `--native-key-file` of the server.
    pub tag_key: Option<TagKey>,
    /// The longest frame, to send and to receive; `None`: what fits a datagram on the way to the
    /// server (8192 bytes on one host, 1448 elsewhere) or its shared memory.
    pub frame_max_bytes: Option<usize>,
    /// How many requests may be outstanding; further ones are refused
    /// ([`crate::SubmitError::Full`]).
    pub outstanding_max: usize,
    /// How many frames may be unanswered, whatever the round trips say.
    pub window_max_frames: u32,
    /// A request ends after this time without an answer, a large value after this time without a
    /// part; `u64::MAX`: never. A blocking client gives up connecting after this time, at most 5 s.
    pub timeout_ns: u64,
    /// The shortest time after which a frame counts as lost. If it is below the server's time for
    /// its slowest requests, those are executed twice (reads) or sent twice (writes).
    pub retransmit_min_ns: u64,
    /// The same time before the first round trip is measured.
    pub retransmit_first_ns: u64,
    /// The longest such time, after doubling.
    pub retransmit_max_ns: u64,
    /// The largest value that the client accepts from a server.
    pub value_max_bytes: u32,
    /// Memory for all large values in flight together.
    pub transfers_max_bytes: u64,
    /// Order of requests on one key.
    pub key_order: KeyOrder,
    /// The worker for reads.
    pub read_steering: ReadSteering,
    /// The number of writes after which a session is renewed.
    pub writes_per_session_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            tag_key: None,
            frame_max_bytes: None,
            outstanding_max: 1024,
            window_max_frames: 256,
            timeout_ns: 2_000_000_000,
            retransmit_min_ns: 5_000_000,
            retransmit_first_ns: 100_000_000,
            retransmit_max_ns: 500_000_000,
            value_max_bytes: 512 << 20,
            transfers_max_bytes: 1 << 30,
            key_order: KeyOrder::Kept,
            read_steering: ReadSteering::Any,
            writes_per_session_max: u32::MAX - (1 << 20),
        }
    }
}

/// The most requests that may be outstanding.
pub const OUTSTANDING_MAX: usize = 1 << 16;

impl Config {
    pub(crate) fn outstanding_count(&self) -> usize {
        self.outstanding_max.clamp(1, OUTSTANDING_MAX)
    }

    pub(crate) fn frame_bytes(&self, fitting_bytes: usize) -> usize {
        self.frame_max_bytes.unwrap_or(fitting_bytes).min(fitting_bytes).min(FRAME_MAX_BYTES)
    }
}

//! How far an MGET has come.

use wire::resp::ArgPlace;

/// An MGET of so many keys costs no more than a pipeline of GETs.
pub const SHORT_SNAPSHOT_KEYS: usize = 256;

/// The position of an MGET: its keys, each `step` arguments after the previous one.
pub struct ValueWalk {
    /// The keys that are left.
    pub keys: ArgPlace,
    /// From one key to the next.
    pub step: u32,
}

impl ValueWalk {
    /// Whether so many keys are left that other connections go first.
    pub fn is_long(&self) -> bool {
        self.keys.remaining() / self.step.max(1) as usize > SHORT_SNAPSHOT_KEYS
    }
}

//! How far a memcached get of several keys in a cluster has come.

use base::UnixMillis;
use counters::CommandIndex;

/// A command that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The command, for the counters.
    pub index: CommandIndex,
    /// Each value with its token.
    pub with_cas: bool,
    /// gat: the new expiry of the keys.
    pub touch: Option<Option<UnixMillis>>,
    /// Bytes of the line that are not done.
    pub left_bytes: usize,
}

//! The operations of a window, reduced to the facts that a window needs.

use base::KeyHash;

/// The connection of an operation: answers leave in each connection's order (K10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

/// An operation's effect on its key's value, and what its reply depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing; the reply is the value.
    Read,
    /// Sets a value, whatever was there; the reply does not depend on the old value. (A SET that
    /// expires in the past leaves none: use `Modify`.)
    Set,
    /// Removes the value, whatever it was; the reply says whether there was one.
    Delete,
    /// Reads the value first: INCR, APPEND, CAS, and SETs with NX, XX, GET or KEEPTTL.
    Modify,
}

impl Effect {
    /// Everything except a read.
    pub fn is_write(self) -> bool {
        self != Effect::Read
    }
}

/// An operation on one key that may be executed in a window.
///
/// A read that returns the value's version (memcached's `gets`) is not one: the version is not
/// known before the window closes. The driver closes the window first
/// ([`super::Windows::close_where`]).
pub trait Compactable {
    /// The key's hash, compared first because that is cheap. Equal hashes do not imply equal keys
    /// (K8).
    fn key_hash(&self) -> KeyHash;
    /// The full key.
    fn key(&self) -> &[u8];
    /// The operation's effect.
    fn effect(&self) -> Effect;
    /// The connection that sent it.
    fn connection(&self) -> ConnectionId;
}

impl<T: Compactable + ?Sized> Compactable for &T {
    fn key_hash(&self) -> KeyHash {
        (**self).key_hash()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn effect(&self) -> Effect {
        (**self).effect()
    }

    fn connection(&self) -> ConnectionId {
        (**self).connection()
    }
}

/// Whether two operations are on the same key: hash first, then every byte (K8).
#[inline]
pub fn has_same_key(one: &impl Compactable, other: &impl Compactable) -> bool {
    one.key_hash() == other.key_hash() && one.key() == other.key()
}

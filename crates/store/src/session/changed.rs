//! Notes of changed keys, so that clients that keep copies can be told.
//!
//! ```text
//!  a change under its chain's lock ─▶ key noted ─▶ take_changes ─▶ clients are told
//!  bytes:  [ k e y 1 ][ k 2 ][ k e y 3 ] ...       ends: [(5, Request), (7, Store), ...]
//! ```
//!
//! # Invariants
//! I1: while no client tracks keys, a change costs one look at the session's own option, and a read
//!     nothing.
//! I2: a key is noted after its slot or value has changed, not before. So a thread that takes the
//!     notes and then looks up which clients have read the key finds all clients that read the old
//!     value.
//! I3: [`Changes::has_all`] covers the keys for which there is no room ([`NOTED_BYTES_MAX`]).

/// The most bytes of keys noted between two collections.
const NOTED_BYTES_MAX: usize = 256 << 10;

/// The most memory kept between two collections.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// The cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A request that this session has executed.
    Request,
    /// The store itself: the key expired or was evicted.
    Store,
}

/// Changed keys, in the order of their changes; a key occurs once for each change.
#[derive(Debug, Default)]
pub struct Changes {
    bytes: Vec<u8>,
    ends: Vec<(usize, Origin)>,
    has_all: bool,
}

impl Changes {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && !self.has_all
    }

    /// Whether any key may have changed, beyond the listed ones.
    pub fn has_all(&self) -> bool {
        self.has_all
    }

    /// The listed keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Origin)> {
        let mut start = 0;
        self.ends.iter().map(move |(end, origin)| {
            let key = &self.bytes[start..*end];
            start = *end;
            (key, *origin)
        })
    }

    /// Notes a key.
    pub fn add(&mut self, key: &[u8], origin: Origin) {
        if self.bytes.len() + key.len() > NOTED_BYTES_MAX {
            self.has_all = true; // I3.
            return;
        }
        self.bytes.extend_from_slice(key);
        self.ends.push((self.bytes.len(), origin));
    }

    /// Notes that any key may have changed.
    pub fn add_all(&mut self) {
        self.has_all = true;
    }

    /// Clears the notes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.ends.clear();
        self.ends.shrink_to(KEPT_BYTES_MAX / size_of::<(usize, Origin)>());
        self.has_all = false;
    }
}

/// A session's changes, while a caller watches them.
#[derive(Default)]
pub(super) struct ChangeNotes(Option<Box<Changes>>);

impl ChangeNotes {
    /// Whether changes are noted.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins or ends the noting of changes.
    pub(super) fn set(&mut self, is_watched: bool) {
        if is_watched != self.is_on() {
            self.0 = is_watched.then(Box::default);
        }
    }

    /// Takes the changes in exchange for empty notes.
    pub(super) fn take(&mut self, empty: &mut Changes) {
        if let Some(changes) = &mut self.0 {
            std::mem::swap(&mut **changes, empty);
        }
    }

    /// Notes a change by a request.
    #[inline]
    pub(super) fn changed(&mut self, key: &[u8]) {
        if let Some(changes) = &mut self.0 {
            note(changes, key, Origin::Request);
        }
    }

    /// Notes a key that the store removes by itself.
    #[inline]
    pub(super) fn gone(&mut self, key: &[u8]) {
        if let Some(changes) = &mut self.0 {
            note(changes, key, Origin::Store);
        }
    }

    /// Notes that all keys are removed.
    pub(super) fn flushed(&mut self) {
        if let Some(changes) = &mut self.0 {
            changes.add_all();
        }
    }
}

#[cold]
fn note(changes: &mut Changes, key: &[u8], origin: Origin) {
    changes.add(key, origin);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_in_their_order() {
        let mut changes = Changes::default();
        changes.add(b"one", Origin::Request);
        changes.add(b"", Origin::Store);
        changes.add(b"one", Origin::Request);
        let noted: Vec<_> = changes.iter().collect();
        let want: [(&[u8], _); 3] =
            [(b"one", Origin::Request), (b"", Origin::Store), (b"one", Origin::Request)];
        assert_eq!(noted, want);
        assert!(!changes.has_all());
        changes.clear();
        assert!(changes.is_empty());
    }

    #[test]
    fn what_has_no_room_counts_as_everything() {
        let mut changes = Changes::default();
        let key = vec![b'k'; NOTED_BYTES_MAX / 2];
        changes.add(&key, Origin::Request);
        changes.add(&key, Origin::Request);
        assert!(!changes.has_all());
        changes.add(b"k", Origin::Request);
        assert!(changes.has_all(), "I3");
        assert_eq!(changes.iter().count(), 2);
    }
}

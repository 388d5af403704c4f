//! Cursors of walks over the ordered index: the client sees a number, the store keeps a key for it.
//!
//! A cursor of the hash index is a position in the order of hashes and needs no memory. A position
//! in the order of keys is a key of up to 65,535 bytes, so the store keeps the key under a number.
//!
//! # Limits
//! The store keeps 4096 cursors and 16 MiB of their keys. Beyond that it drops the least recently
//! used cursor; a client that presents a dropped cursor gets an error.

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

/// The most cursors remembered.
const CURSORS_MAX: usize = 4096;
/// The most bytes of their keys.
const KEY_BYTES_MAX: usize = 16 << 20;

/// The cursor is unknown, or was dropped.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("cursor {cursor} is not known any more; begin again with 0")]
pub struct UnknownCursor {
    /// The caller's cursor.
    pub cursor: u64,
}

/// Keys by cursor.
#[derive(Default)]
pub(crate) struct CursorTable {
    cursors: HashMap<u64, Remembered>,
    /// Cursors in order of their last use.
    uses: BTreeMap<u64, u64>,
    key_bytes: usize,
    last_cursor: u64,
    last_use: u64,
}

struct Remembered {
    key: Vec<u8>,
    used_at: u64,
}

impl CursorTable {
    /// Makes a cursor for the place behind `key`; never 0.
    pub(crate) fn remember(&mut self, key: Vec<u8>) -> u64 {
        self.last_cursor += 1;
        self.last_use += 1;
        self.key_bytes += key.len();
        let (cursor, used_at) = (self.last_cursor, self.last_use);
        self.cursors.insert(cursor, Remembered { key, used_at });
        self.uses.insert(used_at, cursor);
        while self.cursors.len() > CURSORS_MAX || self.key_bytes > KEY_BYTES_MAX {
            self.forget_oldest();
        }
        cursor
    }

    fn forget_oldest(&mut self) {
        let Some((_, cursor)) = self.uses.pop_first() else { return };
        if let Some(forgotten) = self.cursors.remove(&cursor) {
            self.key_bytes -= forgotten.key.len();
        }
    }

    /// The key behind which the walk continues. It stays known: a client may ask again.
    pub(crate) fn key_of(&mut self, cursor: u64) -> Result<Vec<u8>, UnknownCursor> {
        let remembered = self.cursors.get_mut(&cursor).ok_or(UnknownCursor { cursor })?;
        self.last_use += 1;
        self.uses.remove(&remembered.used_at);
        remembered.used_at = self.last_use;
        self.uses.insert(self.last_use, cursor);
        Ok(remembered.key.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn a_cursor_is_known_until_so_many_others_were_used_since() {
        let mut table = CursorTable::default();
        let kept = table.remember(b"kept".to_vec());
        let left = table.remember(b"left".to_vec());
        for id in 0..CURSORS_MAX - 2 {
            table.remember(id.to_string().into_bytes());
        }
        assert_eq!(table.key_of(kept), Ok(b"kept".to_vec()));
        table.remember(b"one more".to_vec());
        assert_eq!(table.key_of(left), Err(UnknownCursor { cursor: left }));
        assert_eq!(table.key_of(kept), Ok(b"kept".to_vec()));
        assert_eq!(table.key_of(0), Err(UnknownCursor { cursor: 0 }));
    }

    #[test]
    fn long_keys_count_by_their_bytes() {
        let mut table = CursorTable::default();
        let first = table.remember(vec![1; 65_535]);
        for _ in 0..KEY_BYTES_MAX / 65_535 {
            table.remember(vec![2; 65_535]);
        }
        assert!(table.key_of(first).is_err());
        assert!(table.key_bytes <= KEY_BYTES_MAX);
        let counted: usize = table.cursors.values().map(|remembered| remembered.key.len()).sum();
        assert_eq!((counted, table.uses.len()), (table.key_bytes, table.cursors.len()));
    }
}

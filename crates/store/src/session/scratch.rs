//! The buffer in which read-modify-writes build their values: a short one is kept for the next
//! update, a long one is booked and freed.
//!
//! ```text
//!  an update of a long value ─▶ room? ─ no ─▶ out of memory, and nothing has changed
//!                                │ yes
//!                                └▶ a buffer of that length ─▶ the log ─▶ freed, and given back
//! ```
//!
//! # Invariants
//! S1: a buffer above [`KEPT_BYTES`] is booked before it is allocated, and is freed with the update
//!     that needed it, or with the transaction that keeps it.

use std::sync::OnceLock;

use crate::scratch_room::ScratchBooks;

/// The bytes that a session keeps from one update to the next, without booking them.
const KEPT_BYTES: usize = 64 << 10;

/// The buffer of one session.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The buffer; taken while an update is decided.
    pub buffer: Vec<u8>,
    booked_bytes: usize,
    /// It stays after an update.
    is_kept: bool,
}

impl Scratch {
    /// Makes room for values of that length, and keeps it until [`Scratch::end_keep`]; false: there
    /// is none.
    pub fn keep(&mut self, books: &OnceLock<ScratchBooks>, len_bytes: usize) -> bool {
        self.is_kept = self.make_room(books, len_bytes);
        self.is_kept
    }

    /// Frees what was kept.
    pub fn end_keep(&mut self, books: &OnceLock<ScratchBooks>) {
        self.is_kept = false;
        self.settle(books);
    }

    /// Makes room for a value of that length; false: there is none.
    #[inline]
    pub fn make_room(&mut self, books: &OnceLock<ScratchBooks>, len_bytes: usize) -> bool {
        if len_bytes > KEPT_BYTES {
            return self.make_long_room(books, len_bytes);
        }
        // Exact, not doubled: doubling could exceed the kept size.
        self.buffer.reserve_exact(len_bytes);
        true
    }

    #[cold]
    fn make_long_room(&mut self, books: &OnceLock<ScratchBooks>, len_bytes: usize) -> bool {
        if len_bytes <= self.buffer.capacity() {
            return true;
        }
        // Another attempt with a longer value, or a kept buffer.
        self.drop_long(books);
        self.buffer = Vec::new();
        if let Some(books) = books.get() {
            if !books.0.try_take(len_bytes) {
                return false;
            }
            self.booked_bytes = len_bytes;
        }
        self.buffer.reserve_exact(len_bytes);
        true
    }

    /// Called after an update: frees a long buffer.
    #[inline]
    pub fn settle(&mut self, books: &OnceLock<ScratchBooks>) {
        if self.buffer.capacity() > KEPT_BYTES && !self.is_kept {
            self.drop_long(books);
        }
    }

    #[cold]
    fn drop_long(&mut self, books: &OnceLock<ScratchBooks>) {
        if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
        let booked_bytes = std::mem::take(&mut self.booked_bytes);
        if let Some(books) = books.get().filter(|_| booked_bytes > 0) {
            books.0.give_back(booked_bytes);
        }
    }
}

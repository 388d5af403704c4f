//! A region of words that two processes share: a sealed memfd and its mapping.
//!
//! The server creates the region and seals its size before any other process has it: access to a
//! mapping of a file that has shrunk ends in SIGBUS, and no client may do that to the server.
//! Memory that a client gives back (it may punch holes) reads as zeros afterwards, which is only
//! one more wrong content. Huge pages are never used: if no huge page is free to fill a hole, that
//! is a SIGBUS again.

#[cfg(not(loom))]
mod mapped;

use std::ptr::NonNull;

use base::sync::AtomicU64;

#[cfg(not(loom))]
pub use self::mapped::NotARegion;
#[cfg(not(loom))]
pub(crate) use self::mapped::create;

/// Words that both ends see; they are only ever accessed atomically (S1).
pub(crate) struct Region {
    first: NonNull<AtomicU64>,
    word_count: usize,
    home: Home,
    /// One for each word, with which a model check detects racing reads and writes.
    #[cfg(loom)]
    shadows: Box<[loom::cell::UnsafeCell<()>]>,
}

/// The kind of memory, and how it is freed.
enum Home {
    /// A mapping of a memfd.
    #[cfg(not(loom))]
    Mapping,
    /// Plain memory, for tests: the pointer is a leaked box.
    #[cfg(any(test, loom))]
    Heap,
}

// SAFETY: the words are atomics, which any thread may use through a shared reference; the pointer
// stays valid until the one owner of the region drops it.
unsafe impl Send for Region {}
// SAFETY: as above; nothing in a region is mutable but through its atomics.
unsafe impl Sync for Region {}

impl Region {
    /// All words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `first` points to `word_count` initialised words (zero pages of a file that
        // cannot
        // shrink, or a box), which live until `drop`; every access to them is atomic (S1).
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.word_count) }
    }

    /// A region of this process alone, for tests.
    #[cfg(any(test, loom))]
    pub fn on_heap(word_count: usize) -> Region {
        let words: Box<[AtomicU64]> = (0..word_count).map(|_| AtomicU64::new(0)).collect();
        let first = NonNull::from(Box::leak(words)).cast();
        Region {
            first,
            word_count,
            home: Home::Heap,
            #[cfg(loom)]
            shadows: (0..word_count).map(|_| loom::cell::UnsafeCell::new(())).collect(),
        }
    }

    /// A word's shadow.
    #[cfg(loom)]
    pub fn shadow(&self, word: usize) -> &loom::cell::UnsafeCell<()> {
        &self.shadows[word]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.home {
            #[cfg(not(loom))]
            // SAFETY: the region owns the mapping, and with it goes the last reference into it.
            Home::Mapping => unsafe { mapped::unmap(self.first, self.word_count) },
            #[cfg(any(test, loom))]
            Home::Heap => {
                let words =
                    std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.word_count);
                // SAFETY: the words were leaked by `on_heap`, and nothing refers to them any more.
                drop(unsafe { Box::from_raw(words) });
            }
        }
    }
}

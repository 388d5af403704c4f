//! When the records beside the log are written, and which changes wait for that. The calling thread
//! never waits.
//!
//! ```text
//!  void, flush ── changed ──┐
//!  a second is over, asked ─┴─▶ give ─▶ another thread writes ─▶ done ─▶ waiting changes continue
//!                               one at a time: later changes are in the next one
//! ```
//!
//! # Invariants
//! Y1: a change is on the disk once a write that was given after it is done.
//! Y2: a failed write is tried again when that is asked for, not at once. Meanwhile the
//!     replica store takes no entries.

use std::io;

/// The destination of the bytes of [`Kept`](super::Kept), where they survive.
pub trait Keep: Send {
    /// Takes bytes, once the previous ones are done; they are written while the caller continues.
    fn give(&mut self, bytes: Vec<u8>);

    /// The result of their write; none: it is under way, or was reported before.
    fn done(&mut self) -> Option<io::Result<()>>;
}

/// See the module's page.
pub(super) struct Keeping {
    keep: Box<dyn Keep>,
    /// Number of changes so far for whose write something waits.
    changes: u64,
    /// How many of them the present write includes.
    giving: Option<u64>,
    /// How many are on the disk.
    kept: u64,
    is_asked: bool,
    has_failed: bool,
}

impl Keeping {
    pub(super) fn new(keep: Box<dyn Keep>) -> Keeping {
        Keeping { keep, changes: 0, giving: None, kept: 0, is_asked: false, has_failed: false }
    }

    /// Notes a change that has to be written down; returns its number.
    pub(super) fn change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Whether a change is on the disk (Y1).
    pub(super) fn has(&self, change: u64) -> bool {
        change <= self.kept
    }

    /// Whether the write of a change failed, and has not succeeded since.
    pub(super) fn is_stuck(&self) -> bool {
        self.has_failed && self.kept < self.changes
    }

    /// Has everything written, whether something waits for it or not, including changes whose write
    /// failed (Y2).
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Takes the result of a write, and starts the next one. An error is that of a write.
    pub(super) fn step(&mut self, bytes: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        let done = self.giving.and_then(|changes| Some((changes, self.keep.done()?)));
        let mut result = Ok(());
        if let Some((changes, done)) = done {
            self.giving = None;
            self.has_failed = done.is_err();
            match done {
                Ok(()) => self.kept = changes,
                Err(error) => result = Err(error),
            }
        }
        let is_behind = self.kept < self.changes && !self.has_failed;
        if self.giving.is_none() && (is_behind || self.is_asked) {
            self.is_asked = false;
            self.giving = Some(self.changes);
            self.keep.give(bytes());
        }
        result
    }
}

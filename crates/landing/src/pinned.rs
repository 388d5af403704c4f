//! Bytes that are sent without a copy, and how long they have to stay unchanged.
//!
//! ```text
//!   queue_pinned ──▶ taken by the kernel ──▶ sent ──▶ acknowledged, or read ──▶ notification
//!                    └────────── the pin is held: the bytes may not change ─────────────┘
//! ```
//!
//! A send without a copy (SEND_ZC) completes twice: once when the kernel has taken the bytes, and
//! once, much later, when it will not read them again. In between they must not change (K12), or a
//! retransmitted TCP segment carries other bytes.
//!
//! It pays for long messages to a real device. Where the kernel has to copy all the same, as to a
//! receiver on this host, it is slower than a plain send. The kernel reports such a copy in the
//! notification; a lane with `COPIED_MAX` such reports in a row goes back to plain sends.

use std::sync::Arc;

/// After so many notifications of a copy in a row, a lane stops trying.
pub(crate) const COPIED_MAX: u8 = 4;

/// Bytes that stay as and where they are until this value is dropped, such as a value in a log's
/// segment that cannot be used again meanwhile (K12).
///
/// # Safety
/// `bytes` names the same memory each time it is called, also after the value was moved, and that
/// memory does not change before the value is dropped.
pub unsafe trait Pinned: Send {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

// SAFETY: a shared slice stays where it is, and what is shared is not changed.
unsafe impl Pinned for Arc<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: it lives for ever, and what is shared is not changed.
unsafe impl Pinned for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The messages that are sent without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroCopy {
    /// None.
    Never,
    /// Those of at least this length, to peers for which the kernel does not copy all the same.
    From {
        /// The minimum length.
        bytes: usize,
    },
    /// Those of at least this length, whatever the kernel reports: to measure the cost.
    AlwaysFrom {
        /// The minimum length.
        bytes: usize,
    },
}

impl Default for ZeroCopy {
    /// Below some ten thousand bytes, pinning pages costs more than a copy, on any device.
    fn default() -> ZeroCopy {
        ZeroCopy::From { bytes: 32 << 10 }
    }
}

impl ZeroCopy {
    /// Whether a message is sent without a copy, to a peer for which the kernel has copied so often
    /// in a row.
    pub(crate) fn is_for(self, len_bytes: usize, copied_streak: u8) -> bool {
        match self {
            ZeroCopy::Never => false,
            ZeroCopy::From { bytes } => len_bytes >= bytes && copied_streak < COPIED_MAX,
            ZeroCopy::AlwaysFrom { bytes } => len_bytes >= bytes,
        }
    }
}

/// The counts of sends without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroCopyCounters {
    /// Messages that the kernel took without a copy.
    pub taken: u64,
    /// Of these, messages whose bytes the kernel has released.
    pub let_go: u64,
    /// Of those, messages that the kernel had to copy after all.
    pub copied: u64,
}

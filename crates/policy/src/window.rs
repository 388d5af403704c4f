//! Write compaction: dependent writes are gathered in a window and reach the store as one (C-4 §4.3).
//!
//! ```text
//!              another request with this key is queued          the rules say "close"
//!  a write ──▶ no window ───────────── Open ─────────▶ window open ───────────▶ one write, replies
//!                  │                                      ▲    │
//!                  └─ nothing queued: RunNow              └────┘ Join: each further write of the key
//! ```
//!
//! What decides ([`rules`]) is kept apart from what is buffered, so that a simulated server that
//! has no buffers is driven by the same decisions.

pub mod rules;

pub use rules::{
    CloseReason, CloseWhen, Dependent, InSight, OpenWindow, WindowRules, WindowTimer, WriteStep,
};

//! Write compaction: gathers dependent writes in a window and stores them as one (C-4 §4.3).
//!
//! ```text
//!              another write of this key is in sight         the rules say "close"
//!  a write ──▶ no window ────────── Open ──────▶ window open ────────▶ Plan ─▶ one write, replies
//!                  │                                ▲    │
//!                  └─ nothing in sight: RunNow      └────┘ Join: each further write of the key
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `rules` | when a window opens and closes: numbers only, for a server and for a simulated one |
//! | `operation` | what a window has to know of an operation |
//! | `worth` | which writes are worth a window |
//! | `pace` | how often batches are searched for them |
//! | `ahead` | the bounded search for a dependent request |
//! | `windows` | a worker's open windows |
//! | `plan`, `execute` | what a closed window does to the store, and each operation's reply |
//!
//! The simulator runs the `rules` alone, on numbers. The server finds its windows complete, in a
//! batch and the queue behind it (decisions 0029, 0038), and runs `operation`, `plan` and
//! `execute`. Only tests run windows that stay open from batch to batch, `windows` and `ahead`.

pub mod ahead;
pub mod execute;
pub mod operation;
pub mod pace;
pub mod plan;
pub mod rules;
#[cfg(test)]
mod sample;
pub mod windows;
pub mod worth;

pub use ahead::Ahead;
pub use execute::{Change, Executor, FinalWrite};
pub use operation::{Compactable, ConnectionId, Effect};
pub use pace::SearchPace;
pub use plan::{Plan, ReplyKind};
pub use rules::{
    CloseReason, CloseWhen, Dependent, InSight, OpenWindow, WindowRules, WindowTimer, WriteStep,
};
pub use windows::{Action, WindowCounters, WindowId, Windows};
pub use worth::Compacts;

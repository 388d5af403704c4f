//! The data directory: opens, commits, checks and restores a log that outlives its process.
//! `durable_log` has the state that sessions and the committer share, and its rules (D1 to D8).
//!
//! ```text
//!  start: restore ─▶ segments ─▶ restoring ─▶ index        run: committer ─▶ medium
//!                     checkpoint ─┘                              └▶ checkpoint
//! ```

pub mod backup;
pub mod check;
mod check_index;
pub mod checkpoint;
mod committer;
mod last_commit;
mod open;
pub(crate) mod restore;
mod restoring;

pub use crate::durable_log::layout::{FORMAT, Superblock};
pub use crate::durable_log::{COMMIT_BOUND_FIRST_NS, COMMIT_BOUNDS, Durable, DurableStats, Health};
pub use committer::{Committed, Committer};
pub use open::{Beside, DataError, NewData, Opened, open, open_replicas, open_with};
pub use restore::{Damage, Recovery, UsedCheckpoint};
pub(crate) use restoring::{Way, share_out};

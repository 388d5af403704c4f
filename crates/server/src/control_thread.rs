//! The control thread of a cluster's node: runs the node's state machine, and everything between it
//! and the workers.

mod control;
mod departure;
mod facts;
mod flushes;
mod forwards;
mod groups;
mod inbound;
mod outstanding;
mod start;

pub use start::{ControlThread, join, prepare};

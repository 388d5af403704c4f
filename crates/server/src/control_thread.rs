//! The control thread of a cluster's node: runs the node's state machine (`cluster::Node`), and
//! everything between it and the workers.
//!
//! | module | owns |
//! |---|---|
//! | `start` | what is opened and joined before the thread runs |
//! | `keeping` | the config store and the manager of a server that keeps them itself |
//! | `control` | its loop: input for the node, and what the node wants done |
//! | `outstanding`, `groups` | requests that wait: each alone, several together |
//! | `flushes`, `forwards` | flushes of all nodes, requests that other nodes execute |
//! | `peers`, `published` | the manager and the other nodes; the view of the workers |
//! | `facts` | what it reports about its shards |
//! | `inbound` | its part of the logs that receive other nodes' entries |
//! | `departure` | giving its shards away before it ends |

mod control;
mod departure;
mod facts;
mod flushes;
mod forwards;
mod groups;
mod inbound;
mod keeping;
mod outstanding;
mod peers;
mod published;
mod start;

pub use start::{ControlThread, join, prepare};

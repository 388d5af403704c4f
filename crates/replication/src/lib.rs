//! What outlives a process: the data directory, and entries at other nodes.
//!
//! ```text
//!  durable     the data directory of one node: log, checkpoints, lock
//!  cluster     what workers know of the cluster; replicas in the store
//!  replicate   writes through the control thread, and how a node applies them
//! ```

pub mod cluster;
pub mod durable;
pub mod replicate;

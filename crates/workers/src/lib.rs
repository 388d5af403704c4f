//! The rounds of a worker, and requests that go to another.
//!
//! ```text
//!  worker      read, feed, execute, send; what a full buffer makes of each of them
//!  forwarding  the engine that sends requests to other workers, and executes theirs
//!  listen      the sockets that clients connect to, one set for each worker
//! ```
//!
//! Which worker executes says a router of `dispatch`, asked in `forwarding::dispatcher::direct`.
//! What commands do is in `handlers` and `native`: nothing here encodes a reply of the store.

pub mod forwarding;
pub mod listen;
pub mod worker;

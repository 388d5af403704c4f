//! The rounds of a worker, and requests that go to another.
//!
//! ```text
//!  worker      read, feed, execute, send; what waits, is refused or is closed when the client
//!              buffers are full (`starve`, `evict`)
//!  forwarding  the engine that sends requests to other workers, and executes theirs
//!  listen      the sockets that clients connect to, one set for each worker
//! ```
//!
//! Which worker executes says a router of `dispatch`, asked in `forwarding::dispatcher::direct`.
//! What commands do is in `handlers` and `native`. Replies are encoded by `commands::reply`; for a
//! forwarded request `forwarding::executor` calls it, into the request slot.

pub mod forwarding;
pub mod listen;
pub mod worker;

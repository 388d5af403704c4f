//! The rounds of a worker, and requests that go to another.
//!
//! ```text
//!  worker      read, feed, execute, send; what a full buffer makes of each of them
//!  forwarding  the engine that sends requests to other workers, and executes theirs
//! ```

pub mod forwarding;
pub mod listen;
pub mod worker;

//! Per-key linearizability of recorded concurrent histories, over real sockets and embedded.
//!
//! ```text
//!  threads ── rounds: a few operations each on the same fresh, hot keys
//!     │ every operation: tick, do, tick            (ticks of one global counter)
//!     ▼
//!  history per key ──▶ a library's checker: is there one order that explains all answers?
//! ```
//!
//! A round's history is short (a dozen operations a key), because the checker's worst case grows
//! exponentially; contention comes from starting every round at a barrier.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

mod embedded;
mod model;
mod sockets;

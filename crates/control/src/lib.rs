//! Slow decisions, on threads of their own.
//!
//! ```text
//!  counters ─▶ manager ─▶ controllers: decide, publish, write down why
//!  populate: log memory ahead of the writers, and back to the kernel
//! ```

#![forbid(unsafe_code)]

pub mod manager;
pub mod populate;

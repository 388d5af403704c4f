//! Discrete-event simulation of what our machines do not have: many cores, failing clusters.
//!
//! ```text
//!  workload (arrivals, keys, sizes) ─▶ model ─▶ plan, miss ratios, or a verdict
//!                                      │    ▲
//!                                      ▼    │ the crates `policy` and `cluster`, which the
//!                                    engine │ server runs too
//! ```
//!
//! | model | of |
//! |---|---|
//! | `plan` | one server, any workload, every preset of one machine |
//! | `cache` | a cache by trace: exact policies and the real store |
//! | `cluster` | whole clusters under simulated faults |
//!
//! The papers' figures are drawn by `lab`, from the same engine.
//!
//! # Invariants
//! I1: one seed gives one result, on any number of threads.
//! I2: every request is counted, so an overloaded run shows as overloaded.
#![forbid(unsafe_code)]

pub mod cache;
pub mod chart;
pub mod cluster;
pub mod engine;
pub mod error;
pub mod latency;
pub mod measure;
pub mod parallel;
pub mod plan;

pub use error::SimError;

//! The papers' figures: the policies on 64 or 240 cores, which our machines do not have; and
//! comparisons with peers on this machine (`comparisons`).
//!
//! ```text
//!  workload (arrivals, keys, sizes) ─▶ model ─▶ latencies ─▶ figure (CSV, SVG, text)
//!                                      │    ▲
//!                                      ▼    │ the crate `policy`, which the server runs too
//!                                    `sim::engine`: the next event in time order
//! ```
//!
//! | model | of |
//! |---|---|
//! | `c4`, `c4_hot` | C-4: 64 cores behind a balancer; the thread that owns the hottest key |
//! | `minos` | Minos: large requests in queues and in a server |
//! | `mica` | MICA: 24 to 240 cores |
//! | `rowan` | Rowan-KV: persistent memory and five schemes of replication |
//! | `joint` | every preset of one machine, on the papers' workloads, by `sim::plan` |
//!
//! No shipped binary needs this crate. Its program draws: `cargo run -p lab --release -- list`.
//!
//! # Invariants
//! I1: one seed gives one result, on any number of threads.
//! I2: every request is counted, so an overloaded run shows as overloaded.
#![forbid(unsafe_code)]

pub mod c4;
pub mod c4_hot;
pub mod comparisons;
pub mod figure;
pub mod figures;
pub mod joint;
pub mod mica;
pub mod minos;
pub mod rowan;

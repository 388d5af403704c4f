//! The thread that owns the hottest key, with and without compaction: C-4's Figs 11, 12, 13 and
//! Table 2.
//!
//! ```text
//!  sweep: machine x windows x load ─▶ model: 64 cores, CREW, lines of hot items ─▶ figure, table
//!                    │                        │
//!   measure: LineTransfer, CostTable   policy: Depths, WindowRules
//! ```
//!
//! The queueing model of [`crate::c4`] has no cache lines, and C-4 says that it underestimates
//! compaction for that reason (§3.2). In this model each write of a hot item takes its lines from
//! the readers' caches, and each reader fetches them again; with compaction that happens once a
//! window.
//!
//! # Limits
//! RLU and MV-RLU (C-4 §6) are not modelled: the costs that C-4 reports for them (commits of 10 to
//! 20 us, collections of 70 us) are those of the two libraries, and none of our policies
//! corresponds to them.

mod fig11;
mod fig12;
mod fig13;
mod machine;
mod model;
mod sweep;
mod table2;

use crate::figure::Figure;

/// What can be asked for.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "c4-fig11",
        about: "the hot thread by load, gamma 1.25, 5 % writes, with and without compaction",
        run: fig11::run,
    },
    Figure {
        name: "c4-fig12",
        about: "throughput and load of each thread, with and without compaction",
        run: fig12::run,
    },
    Figure {
        name: "c4-fig13",
        about: "latency by load, gamma 0.99, 50 % writes, with and without compaction",
        run: fig13::run,
    },
    Figure {
        name: "c4-table2",
        about: "what compaction gains by item size: throughput, the hot thread, the others",
        run: table2::run,
    },
];

//! Persistent memory under replication: Rowan-KV's device Figs 2, 8 and 10, and whole stores on it,
//! Figs 9, 11, 13 and Table 2 (`store`).
//!
//! ```text
//!  writers: remote threads, local cores ─▶ streams ─▶ NIC, in order ─▶ DIMM 0 ┐  lines of 256 B,
//!  each waits for its acknowledgement      addresses   (PCIe)       ─▶ DIMM 1 ├─ least recently
//!      ▲                                   of one or                ─▶ DIMM 2 ┘  used leaves
//!      └──────────── network ───────────── many logs                    │
//!                                                                 media writes
//! ```
//!
//! Device write amplification is the media's writes, in lines of 256 bytes, over the requested
//! writes, in pieces of 64 (Rowan-KV §2.4). Two things cause it: how many lines the combining
//! buffer holds, and the order in which pieces of different logs arrive. The model has both, and
//! the closed loop between writers and devices: a DIMM that falls behind delays its next writer.
//!
//! # What is known and what is fitted
//! Known: three DIMMs interleaved by 4 KiB, a buffer of 16 KB each, 2 GB/s of media writes and 6 of
//! reads each (§2.1), a round trip of 2 us, 18 ns a message of the NIC (54.5 M/s, §6.2). Fitted to
//! Fig. 2's four numbers: a buffer begins to drain at three quarters, and once four pieces wait for
//! a DIMM, all later pieces wait too.

mod costs;
mod dimm;
mod fig10;
mod fig11;
mod fig13;
mod fig2;
mod fig8;
mod fig9;
mod peaks;
mod store;
mod streams;
mod sweep;

use crate::figure::Figure;

/// What can be asked for.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "rowan-fig2",
        about: "device write amplification by remote write streams, one log for each",
        run: fig2::run,
    },
    Figure {
        name: "rowan-fig8",
        about: "device write amplification by remote write streams, one log for all",
        run: fig8::run,
    },
    Figure {
        name: "rowan-fig9",
        about: "latency against throughput of the store, by replication scheme and mix",
        run: fig9::run,
    },
    Figure {
        name: "rowan-fig10",
        about: "device write amplification of the store, by replication scheme",
        run: fig10::run,
    },
    Figure {
        name: "rowan-fig11",
        about: "how long remote writes take to be persisted",
        run: fig11::run,
    },
    Figure {
        name: "rowan-table2",
        about: "throughput of the store by objects and replication scheme",
        run: fig11::run_table2,
    },
    Figure {
        name: "rowan-fig13",
        about: "throughput of the store by entries, copies, workers and DIMMs",
        run: fig13::run,
    },
];

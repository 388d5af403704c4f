//! Key popularity, item sizes, operation mixes and arrivals: seeded, pure, shared by bench and simulator.
#![forbid(unsafe_code)]

//! RDMA from outside: the guarantees of every transport, and those of this one alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[macro_use]
#[path = "../../landing/tests/conformance/suite.rs"]
mod suite;

mod conformance;
#[path = "../../landing/tests/conformance/rig.rs"]
mod rig;
#[path = "conformance/rigs.rs"]
mod rigs;
mod roce;
#[path = "../../landing/tests/conformance/scenarios.rs"]
mod scenarios;

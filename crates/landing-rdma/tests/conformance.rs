//! What every transport promises, run against RDMA: the scenarios are those of `landing`.
//!
//! Both ends are on one device, as `cargo xtask test-rdma` runs them over soft-RoCE.
//! DOVETAIL_RDMA_DEVICE names it; unless it does, each test says so in one line and passes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../landing/tests/conformance/rig.rs"]
mod rig;
#[path = "conformance/rigs.rs"]
mod rigs;
#[path = "../../landing/tests/conformance/scenarios.rs"]
mod scenarios;
#[macro_use]
#[path = "../../landing/tests/conformance/suite.rs"]
mod suite;

conforms! {
    rdma: rigs::Connected,
}

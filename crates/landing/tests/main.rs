//! Zones, transports and shared memory from outside: one module for each topic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[macro_use]
#[path = "conformance/suite.rs"]
mod suite;

mod conformance;
#[path = "shm_processes/hostile.rs"]
mod hostile;
#[cfg(feature = "xdp")]
#[path = "xdp/namespaces.rs"]
mod namespaces;
#[path = "conformance/rig.rs"]
mod rig;
#[path = "conformance/rigs.rs"]
mod rigs;
#[path = "conformance/scenarios.rs"]
mod scenarios;
mod shm;
mod shm_processes;
#[path = "conformance/shm_rig.rs"]
mod shm_rig;
mod shm_transport;
mod shm_unmapped;
#[cfg(feature = "xdp")]
mod xdp;
#[cfg(feature = "xdp")]
#[path = "conformance/xdp_rig.rs"]
mod xdp_rig;

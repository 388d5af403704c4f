//! What every transport promises, run against each: whoever adds one adds a rig and a line below.
//!
//! One thread sends, receives and acknowledges in turns. Loopback delivers inside the send call, so
//! nothing is waited for, and a run is the same each time.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "shm_processes/hostile.rs"]
#[allow(dead_code, reason = "shared with tests/shm_processes.rs, which uses the rest")]
mod hostile;
#[cfg(feature = "xdp")]
#[path = "xdp/namespaces.rs"]
#[allow(dead_code, reason = "shared with tests/xdp.rs, which uses the rest")]
mod namespaces;
#[path = "conformance/rig.rs"]
mod rig;
#[path = "conformance/rigs.rs"]
mod rigs;
#[path = "conformance/scenarios.rs"]
mod scenarios;
#[path = "conformance/shm_rig.rs"]
mod shm_rig;
#[macro_use]
#[path = "conformance/suite.rs"]
mod suite;
#[cfg(feature = "xdp")]
#[path = "conformance/xdp_rig.rs"]
mod xdp_rig;

conforms! {
    udp: rigs::Single,
    udp_joined: rigs::Joined,
    uring: rigs::Shared,
    uring_unconnected: rigs::Named,
    lanes: rigs::Lanes,
    lanes_joined: rigs::LanesJoined,
    shm: rigs::Mapped,
}

#[cfg(feature = "xdp")]
conforms! {
    xdp: rigs::Bypassed,
}

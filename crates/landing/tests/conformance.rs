//! The guarantees of every transport, tested on each: a new one gets a rig and a line below.
//!
//! One thread sends, receives and acknowledges in turns. Loopback delivers inside the send call, so
//! no step waits, and a run is the same each time.

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

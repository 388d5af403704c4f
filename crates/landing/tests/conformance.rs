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
#[path = "conformance/rigs.rs"]
mod rigs;
#[path = "conformance/scenarios.rs"]
mod scenarios;
#[path = "conformance/shm_rig.rs"]
mod shm_rig;
#[cfg(feature = "xdp")]
#[path = "conformance/xdp_rig.rs"]
mod xdp_rig;

macro_rules! conforms {
    ($($transport:ident: $rig:ty),+ $(,)?) => {$(
        mod $transport {
            use crate::{rigs, scenarios};

            #[test]
            fn messages_of_a_sender_land_in_order() {
                scenarios::order_within_a_sender::<$rig>();
            }

            #[test]
            fn every_message_lands_once_it_is_sent_often_enough() {
                scenarios::no_loss_after_retry::<$rig>();
            }

            #[test]
            fn completions_do_not_overlap_and_do_not_change() {
                scenarios::no_overlap::<$rig>();
            }

            #[test]
            fn a_message_at_a_buffers_end_lands_whole_in_the_next() {
                scenarios::truncation_is_found_and_retried::<$rig>();
            }

            #[test]
            fn readers_change_under_load() {
                scenarios::readers_change_under_load::<$rig>();
            }

            #[test]
            fn a_sender_that_crashes_holds_up_nobody() {
                scenarios::sender_crash::<$rig>();
            }

            #[test]
            fn a_receiver_that_restarts_misses_nothing() {
                scenarios::receiver_restart::<$rig>();
            }

            #[test]
            fn a_full_zone_pushes_back() {
                scenarios::overflow_is_back_pressure::<$rig>();
            }

            #[test]
            fn hostile_lengths_harm_nobody() {
                scenarios::hostile_lengths::<$rig>();
            }
        }
    )+};
}

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

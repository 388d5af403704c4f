//! One test per scenario and rig; crates with a transport of their own include this file.

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
            fn a_sender_that_crashes_holds_up_no_other() {
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
            fn hostile_lengths_do_no_harm() {
                scenarios::hostile_lengths::<$rig>();
            }
        }
    )+};
}

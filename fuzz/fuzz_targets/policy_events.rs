//! cargo-fuzz's way into `fuzz::policy_events`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::policy_events(data));

//! cargo-fuzz's way into `fuzz::routed_commands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::routed_commands(data));

//! cargo-fuzz's way into `fuzz::resp_commands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::resp_commands(data));

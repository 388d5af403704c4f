//! cargo-fuzz's way into `fuzz::windows`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::windows(data));

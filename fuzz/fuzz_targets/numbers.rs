//! cargo-fuzz's way into `fuzz::numbers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::numbers(data));

//! cargo-fuzz's way into `fuzz::dumps`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::dumps(data));

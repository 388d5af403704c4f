//! cargo-fuzz's way into `fuzz::globs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::globs(data));

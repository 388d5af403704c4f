//! cargo-fuzz's way into `fuzz::foreign_data`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::foreign_data(data));

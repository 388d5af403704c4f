//! cargo-fuzz's way into `fuzz::data_files`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::data_files(data));

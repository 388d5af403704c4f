//! cargo-fuzz's way into `fuzz::foreign_configs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::foreign_configs(data));

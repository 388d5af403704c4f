//! cargo-fuzz's way into `fuzz::checkpoints`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::checkpoints(data));

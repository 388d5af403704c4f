//! cargo-fuzz's way into `fuzz::store_requests`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::store_requests(data));

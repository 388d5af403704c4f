//! cargo-fuzz's way into `fuzz::native_client`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::native_client(data));

//! cargo-fuzz's way into `fuzz::cluster_texts`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cluster_texts(data));

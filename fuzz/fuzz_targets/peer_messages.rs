//! cargo-fuzz's way into `fuzz::peer_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::peer_messages(data));

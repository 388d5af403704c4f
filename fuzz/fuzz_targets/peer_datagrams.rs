//! cargo-fuzz's way into `fuzz::peer_datagrams`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::peer_datagrams(data));

//! cargo-fuzz's way into `fuzz::memcached_datagrams`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::memcached_datagrams(data));

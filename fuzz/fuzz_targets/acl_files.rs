//! cargo-fuzz's way into `fuzz::acl_files`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::acl_files(data));

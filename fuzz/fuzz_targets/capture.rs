//! Bytes of a capture file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| karoo::net::exercise::capture(bytes));

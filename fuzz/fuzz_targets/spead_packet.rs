//! Bytes of a UDP payload.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| karoo::spead::exercise::packet(bytes));

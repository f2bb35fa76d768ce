//! Lines from a KATCP client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| karoo::control::exercise::lines(bytes));

//! Frames and messages from queriers and other hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| karoo::net::exercise::igmp(bytes));

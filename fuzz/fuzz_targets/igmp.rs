//! Frames and messages from queriers and other hosts.
#![no_main]

#[path = "../bodies/igmp.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::igmp(bytes));

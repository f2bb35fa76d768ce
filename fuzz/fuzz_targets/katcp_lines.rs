//! Lines from a KATCP client.
#![no_main]

#[path = "../bodies/katcp_lines.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::lines(bytes));

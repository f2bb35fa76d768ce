//! Packets of samples from anybody.
#![no_main]

#[path = "../bodies/vita.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::vita(bytes));

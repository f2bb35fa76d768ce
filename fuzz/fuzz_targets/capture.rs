//! Bytes of a capture file.
#![no_main]

#[path = "../bodies/capture.rs"]
mod body;
#[path = "../../crates/spead/tests/hostile/packet.rs"]
mod spead_packet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::capture(bytes, spead_packet::read));

//! Bytes of a UDP payload.
#![no_main]

#[path = "../../crates/spead/tests/hostile/packet.rs"]
mod spead_packet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spead_packet::read(bytes));

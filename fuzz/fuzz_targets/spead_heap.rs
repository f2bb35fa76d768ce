//! Packets of SPEAD heaps, each behind its length.
#![no_main]

#[path = "../../crates/spead/tests/hostile/heap.rs"]
mod spead_heap;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spead_heap::read(bytes));

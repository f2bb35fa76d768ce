//! What needs neither DPDK nor the program: the CPU backend against the golden model, KATCP,
//! readers of captures and streams.

#[path = "../support/mod.rs"]
mod support;

mod complaints;
mod cpu;
mod filters;
mod fuzz_corpus;
mod katcp;
mod monitoring;
mod narrowband;
mod oversampled;
mod qualification;
mod rooms;
mod signals;
mod sink;
mod statistics;
mod synthesis;

//! Karoo, an F-engine appliance: it receives digitised voltages, channelises them, corrects
//! delay, phase and gain, quantises, and multicasts the spectra to the X-engines.
//!
//! # The way of a sample
//!
//! ```text
//! port queue ─► recv (rx lcore) ─► memory (chunk) ─► engine ─► cpu | gpu ─► send (tx lcore) ─► port queue
//! ```
//!
//! # Rooms, and who may call whom
//!
//! Commands ([`cli`]) put rooms together; [`live`], [`replay`] and [`mod@bench`] assemble engines. [`engine`] takes chunks
//! from [`recv`], and knows what computes and sends by traits ([`engine::Intake`], [`engine::Pipeline`]) and queues alone:
//! [`cpu`], [`gpu`] and [`send`] depend on it, not it on them. [`control`] steers it by messages. [`dsp`] needs [`units`]
//! and the value types of [`config`] alone.
//!
//! | room | what lives there |
//! |---|---|
//! | [`units`] | newtypes: time is a sample count |
//! | [`spead`] | wire format: checked packet views, packet, descriptor and stop-heap builders |
//! | [`net`] | endpoints, Ethernet/IPv4/UDP frames, steering rules, capture files |
//! | [`dsp`] | the mathematics in `f64`: windows, PFB, delay models, quantiser, dither; the golden model |
//! | [`dpdk`] | safe layer over DPDK: EAL, lcores, mempools, mbufs, external buffers, ports |
//! | [`memory`] | chunk buffers by kind |
//! | [`recv`] | rx lcore loop, chunk window, presence, loss accounting |
//! | [`cpu`] | CPU backend: vectorised unpack, FIR, FFT, post-processing on worker threads |
//! | [`gpu`] | CUDA backend: context, kernels compiled at run time, the same pipeline on a GPU |
//! | [`engine`] | input and output pipelines: cadence, delays applied to blocks, presence to batches |
//! | [`send`] | packetiser, heap counts, descriptors, stop heaps, tx lcore |
//! | [`live`] | the lcores of an engine, put together on ports |
//! | [`plan`] | the host's topology, and which thread and buffer goes where on it |
//! | [`tuning`] | what a host should be like for engines, and the changes that make it so |
//! | [`replay`] | a capture through the same data path, to a capture and a report |
//! | [`sim`] | digitiser simulator and fault injection |
//! | [`sink`] | takes output streams in, from captures or interfaces, and checks them |
//! | [`mod@bench`] | measurements of this machine |
//! | [`config`] | options to validated, typed configuration |
//! | [`control`] | KATCP server, requests, sensors |
//! | [`monitor`] | counters, time per lcore, metrics for Prometheus, run reports with pictures |
//! | [`cli`] | one file per command |
//!
//! `unsafe` lives in `dpdk-sys`, [`dpdk`], [`memory`], [`gpu`] and [`cpu::simd`], nowhere else.
#![deny(unsafe_code)]

pub mod bench;
pub mod cli;
pub mod config;
pub mod control;
pub mod cpu;
pub mod dpdk;
pub mod dsp;
pub mod engine;
pub mod gpu;
pub mod live;
pub mod memory;
pub mod monitor;
pub mod net;
pub mod plan;
pub mod recv;
pub mod replay;
pub mod send;
pub mod sim;
pub mod sink;
pub mod spead;
pub mod tuning;
pub mod units;

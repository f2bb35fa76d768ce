//! Karoo, an F-engine appliance: it receives digitised voltages, channelises them, corrects
//! delay, phase and gain, quantises, and multicasts the spectra to the X-engines.
//!
//! # The way of a sample
//!
//! ```text
//! rx queue ─► recv ─► memory (chunk) ─► engine ─► cpu | gpu ─► send ─► tx queue
//! ```
//!
//! # Rooms
//!
//! A room imports from rooms on lower floors alone, and from the crates below them;
//! `tests/library/rooms.rs` reads this table and holds it. The engine knows what computes and sends
//! by traits ([`engine::Intake`], [`engine::Pipeline`]) and queues alone, so that [`cpu`], [`gpu`]
//! and [`send`] depend on it, not it on them.
//!
//! | floor | room | what lives there |
//! |---|---|---|
//! | 14 | [`cli`] | one file per command |
//! | 13 | [`mod@bench`] | measurements of this machine |
//! | 12 | [`replay`] | a capture through the same data path, to a capture and a report |
//! | 12 | [`mod@flow`] | running dataflow graphs: their live page, DPDK ports as their outside |
//! | 12 | [`shadow`] | what a running engine sends, held against the same computed here |
//! | 12 | [`qualify`] | what SARAO requires of an F-engine, measured from outside |
//! | 12 | [`modem`] | the modem's samples as packets: through sockets, ports and captures |
//! | 12 | [`page`] | what the pages of a live engine and of a sink show |
//! | 11 | [`doctor`] | why nothing comes, or why nothing of what comes is placed |
//! | 11 | [`sink`] | takes output streams in, from captures or interfaces, and checks them |
//! | 11 | [`control`] | the devices that clients see: requests and sensors of `fgpu` and `dsim` |
//! | 11 | [`metrics`] | metrics for Prometheus |
//! | 10 | [`sim`] | digitiser simulator and fault injection |
//! | 10 | [`losses`] | lines in the log when a loss begins, goes on and ends |
//! | 9 | [`fgpu`] | the live engine |
//! | 8 | [`assembly`] | the lcores of an engine, put together for live ports, replays and benches |
//! | 7 | [`report`] | run reports with pictures |
//! | 7 | [`ports`] | interfaces of this host as DPDK ports |
//! | 6 | [`cpu`] | CPU backend: vectorised unpack, FIR, FFT, post-processing on worker threads |
//! | 6 | [`gpu`] | CUDA backend: kernels compiled at run time, the same pipeline on a GPU |
//! | 6 | [`send`] | packetiser, heap counts, descriptors, stop heaps, tx lcore |
//! | 5 | [`engine`] | cadence, delays applied to blocks of spectra, presence to batches |
//! | 4 | [`recv`] | rx lcore loop, chunk window, presence, loss accounting |
//! | 3 | [`memory`] | chunk buffers by kind |
//! | 3 | [`model`] | the golden model: a channeliser in double precision |
//! | 2 | [`config`] | options to validated, typed configuration |
//! | 1 | [`net`] | endpoints, Ethernet/IPv4/UDP frames, flow tables, capture files |
//!
//! Below the rooms are crates of their own, which name nothing of an F-engine:
//!
//! | crate | what lives there |
//! |---|---|
//! | [`dpdk`] | safe layer over DPDK: EAL, lcores, mbufs, external buffers, ports, flow rules |
//! | [`spead`] | SPEAD heaps: checked packet views, builders, descriptors, stop heaps |
//! | [`katcp`] | KATCP: messages, sensors, a server and a client |
//! | [`live`] | a live page of a running program, beside its metrics |
//! | [`dsp`] | the mathematics in `f64`: windows, PFB, delay models, quantiser, dither |
//! | [`host`] | a host's topology, which thread and buffer goes where on it, and its tuning |
//! | [`ground`] | time as a sample count, statistics of threads, system calls, stop flags |
//! | `karoo_flow` | flow: dataflow graphs, their analysis, placement and executors |
//! | `karoo_modem` | the modem: a packet waveform, transmitter, receiver, channel simulator |
//! | `karoo_fft` | plans of rustfft, compiled once |
//! | `dpdk-sys` | raw bindings to DPDK |
//!
//! Beside `dpdk-sys`, `unsafe` lives in [`cpu::simd`], [`gpu`], [`memory`], `dpdk`, `ground::os`,
//! `ground::tsc`, `karoo_flow::adapters::pipe`, `karoo_flow::adapters::shared`,
//! `karoo_flow::kernels::chain`, `karoo_flow::kernels::columns`, `karoo_flow::kernels::formula`,
//! `karoo_flow::kernels::gathers`, `karoo_flow::kernels::jit`, `karoo_flow::kernels::lane`,
//! `karoo_flow::kernels::simd`, `karoo_flow::kernels::vector`, `karoo_flow::queue`,
//! `karoo_flow::run::block`, `karoo_flow::run::link`, `karoo_modem::rx::simd` and
//! `karoo_modem::tx::filter`, nowhere else. `tests/library/rooms.rs` holds this list too.
#![deny(unsafe_code)]

pub mod assembly;
pub mod bench;
pub mod cli;
pub mod config;
pub mod control;
pub mod cpu;
pub mod doctor;
pub mod engine;
pub mod fgpu;
pub mod flow;
pub mod gpu;
pub mod losses;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod modem;
pub mod net;
pub mod page;
pub mod ports;
pub mod qualify;
pub mod recv;
pub mod replay;
pub mod report;
pub mod send;
pub mod shadow;
pub mod sim;
pub mod sink;

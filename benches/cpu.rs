//! Stages of the CPU backend and the whole of it: 10-bit samples, 16 taps, both polarisations.
//!
//! Elements are samples per polarisation, so every figure is in samples per second of an antenna.

use std::hint::black_box;
use std::net::SocketAddrV4;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dsp::{Dither, OutputBits, SampleBits, WindowFunction};
use ground::Timestamp;
use karoo::config::{OutputConfig, PipelineConfig};
use karoo::cpu::simd::{self, Bins, DitherKey, FirTile, Supported, TILE, Unpacker};
use karoo::cpu::{CpuChanneliser, Level, Workers};
use karoo::engine::{Block, FineDelay, OutputChunk, Pipeline};
use karoo::memory::{HostAllocator, OutputMemory, SampleView};
use karoo_fft::forward_f32;
use num_complex::Complex32;

const CHANNELS: [usize; 4] = [1024, 4096, 8192, 32768];
const TAPS: usize = 16;
const SPECTRA: usize = 32;

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn ten_bits() -> SampleBits {
    SampleBits::new(10).expect("10 is a sample width")
}

fn stages(c: &mut Criterion) {
    let at = Supported::new(Level::detect());

    let mut group = c.benchmark_group("unpack");
    let packed = noise(64 * 1024);
    let unpacker = Unpacker::new(ten_bits(), Level::detect());
    let mut samples = vec![0.0; 4096];
    group.throughput(Throughput::Elements(samples.len() as u64 / 2));
    group.bench_function("both polarisations", |b| {
        b.iter(|| unpacker.unpack_power(black_box(&packed), 5, &mut samples));
    });
    group.finish();

    for stage in ["fir", "fft", "postprocess", "postprocess-dither"] {
        let mut group = c.benchmark_group(stage);
        for channels in CHANNELS {
            let step = 2 * channels;
            let id = BenchmarkId::from_parameter(channels);
            let mut z = vec![Complex32::new(1.0, -1.0); step + 1];
            match stage {
                "fir" => {
                    // One tile, as a worker repeats it over the columns.
                    let weights = vec![0.01; TAPS * step];
                    let samples = vec![1.0; (SPECTRA + TAPS - 1) * TILE];
                    let mut partial = vec![0.0; SPECTRA * 2 * TILE];
                    let pitch = step + 8;
                    let mut out = vec![Complex32::default(); SPECTRA * pitch];
                    let mut column = 0;
                    group.throughput(Throughput::Elements((SPECTRA * TILE) as u64));
                    group.bench_function(id, |b| {
                        b.iter(|| {
                            let mut tile = FirTile {
                                weights: &weights,
                                step,
                                column,
                                samples: [&samples; 2],
                                pitch: TILE,
                                partial: &mut partial,
                            };
                            simd::fir(at, &mut tile, SPECTRA, &mut out, pitch);
                            column = (column + TILE) % step;
                        });
                    });
                }
                "fft" => {
                    let fft = forward_f32(step);
                    let mut scratch = vec![Complex32::default(); fft.get_inplace_scratch_len()];
                    let source = z.clone();
                    group.throughput(Throughput::Elements(step as u64));
                    group.bench_function(id, |b| {
                        b.iter(|| {
                            // The copy keeps values finite; it is a small part of the time.
                            z.copy_from_slice(&source);
                            fft.process_with_scratch(&mut z[..step], &mut scratch);
                        });
                    });
                }
                _ => {
                    let dither = stage.ends_with("dither").then_some(DitherKey {
                        seed: 1,
                        timestamp: 2,
                        feng_id: 3,
                    });
                    let coefs = vec![Complex32::new(0.3, 0.4); channels];
                    let mut out = vec![0; channels];
                    group.throughput(Throughput::Elements(step as u64));
                    group.bench_function(id, |b| {
                        let bins = Bins::Joint(&z);
                        b.iter(|| {
                            simd::quantise(at, bins, [&coefs; 2], dither, 127.0, &mut out, None)
                        });
                    });
                }
            }
        }
        group.finish();
    }
}

fn backend(c: &mut Criterion) {
    let mut group = c.benchmark_group("backend");
    let available = ground::os::allowed_cpus();
    for channels in CHANNELS {
        for workers in [1, 2] {
            // With and without sums for statistics, where delays move.
            for (steady, statistics) in [(true, false), (false, false), (false, true)] {
                let Some(cores) = available.get(..workers) else {
                    continue;
                };
                let Ok(workers) = Workers::pinned(cores) else {
                    continue;
                };
                let name = format!(
                    "{} workers, delay {}{}",
                    cores.len(),
                    if steady { "fixed" } else { "moving" },
                    if statistics { ", statistics" } else { "" }
                );
                let id = BenchmarkId::new(name, channels);
                let config = OutputConfig {
                    name: "wideband".into(),
                    channels,
                    dst: vec![SocketAddrV4::new([239, 1, 1, 1].into(), 7148)],
                    jones_per_batch: channels * 64,
                    taps: TAPS,
                    w_cutoff: 1.0,
                    window_function: WindowFunction::Hann,
                    oversampling: dsp::Oversampling::NONE,
                    dither: Dither::Uniform,
                    dither_seed: 1,
                    sample_bits: OutputBits::Eight,
                    narrowband: None,
                };
                let samples = (128 + TAPS - 1) * config.spectrum_samples();
                let packed = noise(ten_bits().bytes(samples) + SampleView::PADDING);
                let input = SampleView {
                    start: Timestamp(0),
                    samples,
                    pol: [&packed; 2],
                    device: None,
                };
                let fine: Vec<FineDelay> = (0..128)
                    .map(|s| FineDelay {
                        delay: [if steady { 0.1 } else { 1e-3 * s as f32 }; 2],
                        phase: [0.5; 2],
                    })
                    .collect();
                let memory = OutputMemory::new(2, config.batch_bytes(), &HostAllocator::default());
                let mut chunk = Some(OutputChunk::lone(memory.expect("memory")));
                let mut pipeline = CpuChanneliser::new(
                    &PipelineConfig {
                        output: &config,
                        sample_bits: ten_bits(),
                        feng_id: 0,
                        gain: 0.01,
                        statistics,
                    },
                    Arc::new(workers),
                );
                group.throughput(Throughput::Elements(
                    (128 * config.spectrum_samples()) as u64,
                ));
                group.bench_function(id, |b| {
                    b.iter(|| {
                        let mut filled = chunk.take().expect("the last one came back");
                        let block = Block {
                            first: 0,
                            offset: [0, 0],
                            fine: &fine,
                            absent: &[],
                        };
                        let issued =
                            pipeline.run_frontend(&input, &block, &mut filled.writer().span());
                        let issued = issued.and_then(|()| pipeline.finish_chunk(2, filled));
                        issued.expect("the CPU does not fail");
                        chunk = pipeline.poll_finished().expect("the CPU does not fail");
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group! {
    name = cpu;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(400));
    targets = stages, backend
}
criterion_main!(cpu);

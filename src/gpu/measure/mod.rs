//! Kernels on buffers of their own, timed in a CUDA graph: what the benchmark and the tuner share.

mod trial;

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaSlice, CudaStream, DriverError, PinnedHostSlice};
use num_complex::Complex32;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use trial::{KernelTrial, TimedStage, time_together};

use dsp::SampleBits;
use ground::stats::median;
use ground::{N_POL, Timestamp};

use super::launch::TableCopy;
use super::parameters::{COUNTERS, Float4};
use super::{Gpu, GpuError};
use crate::config::OutputConfig;
use crate::engine::FineDelay;
use crate::memory::SampleView;

/// Replays before those that count.
const WARM_UP: usize = 4;

/// What is computed: passes of as many spectra as there are delays, over several sets of samples.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Channels, taps, dither and spectra per heap; passes are whole batches.
    pub output: &'a OutputConfig,
    /// Sample width.
    pub bits: SampleBits,
    /// The dither's engine.
    pub feng_id: u64,
    /// Timestamp of the first spectrum.
    pub start: Timestamp,
    /// Packed samples of each set, with [`SampleView::PADDING`](crate::memory::SampleView::PADDING)
    /// behind them.
    pub packed: &'a [[Vec<u8>; N_POL]],
    /// Timestamp of the first sample of each.
    pub begin: Timestamp,
    /// Per polarisation, index of the first sample of the first spectrum's window.
    pub offset: [usize; N_POL],
    /// One per spectrum.
    pub fine: &'a [FineDelay],
    /// One per channel and polarisation.
    pub gains: &'a [Vec<Complex32>; N_POL],
}

/// Full-scale noise: `sets` times `samples` packed samples per polarisation and the padding behind
/// them.
pub fn noise(bits: SampleBits, samples: usize, sets: usize) -> Vec<[Vec<u8>; N_POL]> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut packed = || {
        let mut packed = vec![0; bits.bytes(samples) + SampleView::PADDING];
        rng.fill_bytes(&mut packed);
        packed
    };
    (0..sets).map(|_| [packed(), packed()]).collect()
}

/// The gain with which [`noise`] comes out with an rms of `rms` per component.
pub fn gain(bits: SampleBits, rms: f32) -> Complex32 {
    // The filter keeps the variance, of a uniform distribution here, and each component has half of
    // it.
    let scale = (1u32 << (bits.get() - 1)) as f32;
    Complex32::new(rms / (scale / 6f32.sqrt()), 0.0)
}

/// The GPU's memory for a [`Pass`], but for what depends on the kernels.
#[derive(Debug)]
pub struct Buffers {
    gpu: Arc<Gpu>,
    stream: Arc<CudaStream>,
    output: OutputConfig,
    bits: SampleBits,
    spectra: usize,
    begin: Timestamp,
    offset: [usize; N_POL],
    feng_id: u32,
    start: Timestamp,
    gains: CudaSlice<Float4>,
    /// The given delays and others, one behind the other. Each pass brings some to the GPU, as
    /// engines do with each block of spectra.
    fine: PinnedHostSlice<Float4>,
    table_copy: TableCopy,
    sets: Vec<Set>,
}

#[derive(Debug)]
struct Set {
    samples: [CudaSlice<u32>; N_POL],
    fine: CudaSlice<Float4>,
    out: CudaSlice<u8>,
    counters: CudaSlice<u64>,
}

impl Buffers {
    /// Copies `pass` to the GPU.
    ///
    /// # Panics
    /// If its spectra are not whole batches, or a set has not all samples of their windows and the
    /// padding.
    pub fn new(gpu: &Arc<Gpu>, pass: &Pass<'_>) -> Result<Self, GpuError> {
        let spectra = pass.fine.len();
        assert!(spectra > 0 && spectra.is_multiple_of(pass.output.spectra_per_heap()));
        let span = (spectra - 1) * pass.output.spectrum_samples() + pass.output.window_samples();
        for (packed, offset) in pass
            .packed
            .iter()
            .flat_map(|set| set.iter().zip(pass.offset))
        {
            assert!(packed.len() >= pass.bits.bytes(offset + span) + SampleView::PADDING);
        }
        let batches = spectra / pass.output.spectra_per_heap();
        let mut gains = vec![Float4::default(); pass.output.channels];
        for (pol, of_pol) in pass.gains.iter().enumerate() {
            for (entry, &gain) in gains.iter_mut().zip(of_pol) {
                entry.set_gain(pol, gain, pass.output.narrowband.is_none());
            }
        }
        let mut fine = gpu.pinned("delays", 2 * spectra)?;
        let tables = fine.as_mut_slice().map_err(failed)?;
        let delays = pass.fine.iter().copied();
        for (entry, fine) in tables
            .iter_mut()
            .zip(delays.clone().chain(delays.map(other)))
        {
            *entry = (&fine).into();
        }
        let samples = |packed: &Vec<u8>| {
            let word = |bytes: &[u8]| {
                let mut word = [0; 4];
                word[..bytes.len()].copy_from_slice(bytes);
                u32::from_ne_bytes(word)
            };
            let words: Vec<u32> = packed.chunks(4).map(word).collect();
            gpu.table("samples", &words)
        };
        let set = |[pol0, pol1]: &[Vec<u8>; N_POL]| -> Result<Set, GpuError> {
            Ok(Set {
                samples: [samples(pol0)?, samples(pol1)?],
                fine: gpu.zeros("delays", spectra)?,
                out: gpu.zeros("output", batches * pass.output.batch_bytes())?,
                counters: gpu.zeros("counters", batches * COUNTERS)?,
            })
        };
        Ok(Self {
            stream: gpu.context.new_stream().map_err(failed)?,
            gains: gpu.table("gains", &gains)?,
            fine,
            table_copy: TableCopy::new(gpu)?,
            sets: pass.packed.iter().map(set).collect::<Result<_, _>>()?,
            gpu: gpu.clone(),
            output: pass.output.clone(),
            bits: pass.bits,
            spectra,
            begin: pass.begin,
            offset: pass.offset,
            feng_id: pass.feng_id as u32,
            start: pass.start,
        })
    }
}

/// Delays that differ from these in every spectrum.
fn other(FineDelay { delay, phase }: FineDelay) -> FineDelay {
    FineDelay {
        delay: delay.map(|delay| -delay),
        phase: phase.map(|phase| phase + 1.0),
    }
}

/// Bytes per second, read and written, of copies within the GPU's memory.
pub fn copy_bandwidth(gpu: &Gpu) -> Result<f64, GpuError> {
    const BYTES: usize = 512 << 20;
    const COPIES: usize = 8;
    let from = gpu.zeros::<u8>("a copy", BYTES)?;
    let mut to = gpu.zeros::<u8>("a copy", BYTES)?;
    let mut seconds = || -> Result<f64, DriverError> {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let begin = gpu.stream.record_event(timed)?;
        for _ in 0..COPIES {
            gpu.stream.memcpy_dtod(&from, &mut to)?;
        }
        let end = gpu.stream.record_event(timed)?;
        Ok(f64::from(begin.elapsed_ms(&end)?) * 1e-3 / COPIES as f64)
    };
    let all = (0..WARM_UP + 9)
        .map(|_| seconds())
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    Ok(2.0 * BYTES as f64 / median(all[WARM_UP..].to_vec()))
}

fn failed(source: DriverError) -> GpuError {
    GpuError::Driver {
        what: "measure kernels",
        source,
    }
}

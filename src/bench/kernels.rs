//! Kernels alone: time per stage, bytes moved, and whether what they made is right.

use std::sync::Arc;

use dsp::delay::{DelayModels, LinearDelay};
use dsp::remez::RemezError;
use dsp::{Dither, OutputBits, SampleBits, WindowFunction, dither, quantise, unpack};
use ground::{N_POL, SampleClock, Timestamp};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::{Narrowband, NarrowbandSpec, OutputConfig};
use crate::engine::FineDelay;
use crate::gpu::measure::{self, Buffers, KernelTrial, Pass};
use crate::gpu::{Gpu, GpuError, Kernels};
use crate::memory::BatchStats;
use crate::model::Model;

/// Samples per polarisation of a pass, as many as katgpucbf's kernels were timed with.
pub const SAMPLES: usize = 1 << 24;
/// Spectra per heap, or all of a pass that has fewer.
const SPECTRA_PER_HEAP: usize = 256;
/// Passes over different samples, so that none is in the L2 cache when it is read again.
const SETS: usize = 3;
/// Timings whose median counts.
const REPLAYS: usize = 21;
/// Spectra that are compared with the model.
const CHECKED: usize = 6;
const FENG_ID: u64 = 3;
const START: Timestamp = Timestamp(1 << 33);
/// Numbers of the filter bank's input before the first one that any window needs.
const LEAD: usize = 64;
/// Of the digitiser, and of narrowband's centre: any will do.
const ADC_SAMPLE_RATE: f64 = 1712e6;
const CENTRE_FREQUENCY: f64 = 408_173_015.594_482_4;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Case {
    /// Channels.
    pub channels: usize,
    /// Sample width.
    pub bits: SampleBits,
    /// Taps.
    pub taps: usize,
    /// By how much the band is narrower than the digitised one: 1 for wideband.
    pub decimation: usize,
    /// Of narrowband: width of the pass band as a fraction of the output band where no channel is
    /// discarded.
    pub pass_fraction: Option<f64>,
    /// Width of the output.
    pub sample_bits: OutputBits,
    /// Samples per polarisation of a pass.
    pub samples: usize,
    /// Which kernels.
    pub kernels: Kernels,
}

/// What it was measured on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Machine {
    /// Name and architecture.
    pub device: String,
    /// NVIDIA's driver.
    pub driver: String,
    /// The compiler.
    pub nvrtc: Option<String>,
    /// Bytes per second, read and written, of copies within the GPU's memory.
    pub copy_bandwidth: f64,
}

/// One stage of a [`Row`].
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StageRow {
    /// Its name.
    pub name: &'static str,
    /// Seconds of a pass.
    pub seconds: f64,
    /// Bytes that it must read and write in a pass.
    pub bytes: usize,
    /// Of the bandwidth of a copy.
    pub copy_fraction: f64,
}

/// What sums for statistics take.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatisticsRow {
    /// The kernels with sums.
    pub kernels: String,
    /// Seconds of a whole pass with sums.
    pub seconds: f64,
    /// Passes of which an engine has one summed.
    pub every: u64,
    /// What so many passes take over what they take without sums, timed before and after.
    pub ratio: f64,
    /// Seconds of the last stage with sums.
    pub back_seconds: f64,
}

/// What was found for a [`Case`].
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Channels.
    pub channels: usize,
    /// Bits per sample.
    pub bits: u32,
    /// Taps.
    pub taps: usize,
    /// 1 for wideband.
    pub decimation: usize,
    /// Taps of narrowband's down-conversion.
    pub ddc_taps: Option<usize>,
    /// Bits of the output.
    pub sample_bits: u32,
    /// The kernels.
    pub kernels: String,
    /// Samples per polarisation of a pass.
    pub samples: usize,
    /// Each stage by itself.
    pub stages: Vec<StageRow>,
    /// Seconds of a whole pass.
    pub seconds: f64,
    /// Samples per second and polarisation.
    pub rate: f64,
    /// Samples per second and polarisation of the down-conversion by itself, which converts the
    /// windows' overlap at the end of a pass as well.
    pub ddc_rate: Option<f64>,
    /// Bytes that all stages together must move over those of samples in and Jones vectors out.
    pub moved_over_ideal: f64,
    /// Bytes that all stages together must move in that time, of the bandwidth of a copy.
    pub copy_fraction: f64,
    /// With sums for statistics.
    pub statistics: StatisticsRow,
    /// Bytes that were compared with the model in double precision.
    pub compared: usize,
    /// How many of them differ, all by one.
    pub differ: usize,
}

/// All outputs of an engine, one behind the other.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Together {
    /// Channels of each.
    pub channels: usize,
    /// Bits per sample.
    pub bits: u32,
    /// Decimations of the outputs.
    pub decimations: Vec<usize>,
    /// Seconds of a pass of all.
    pub seconds: f64,
    /// Input samples per second and polarisation.
    pub rate: f64,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The GPU cannot be used.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// There is no such filter.
    #[error("decimation {decimation}: {source}; try another one")]
    Filter {
        /// What was asked for.
        decimation: usize,
        /// Why there is none.
        source: RemezError,
    },
    /// The kernels are wrong.
    #[error(
        "{channels} channels, {bits} bits, {kernels}: {what}; the kernels are wrong on this device, please report it"
    )]
    Wrong {
        /// Channels.
        channels: usize,
        /// Bits per sample.
        bits: u32,
        /// The kernels.
        kernels: String,
        /// In what way.
        what: String,
    },
}

/// The machine, and how fast it copies.
pub fn machine(gpu: &Gpu) -> Result<Machine, GpuError> {
    Ok(Machine {
        device: gpu.name(),
        driver: gpu.driver(),
        nvrtc: crate::gpu::nvrtc_version(),
        copy_bandwidth: measure::copy_bandwidth(gpu)?,
    })
}

/// Measures `cases`, at least one, which are outputs of one engine, at once.
pub fn run_together(gpu: &Arc<Gpu>, cases: &[Case]) -> Result<Together, KernelError> {
    let scenes = cases
        .iter()
        .map(Scene::new)
        .collect::<Result<Vec<_>, _>>()?;
    let buffers = scenes
        .iter()
        .map(|scene| scene.buffers(gpu))
        .collect::<Result<Vec<_>, _>>()?;
    let trials = buffers
        .iter()
        .zip(cases)
        .map(|(buffers, case)| KernelTrial::new(buffers, &case.kernels, false))
        .collect::<Result<Vec<_>, _>>()?;
    let seconds = measure::time_together(&trials.iter().collect::<Vec<_>>(), REPLAYS)?;
    Ok(Together {
        channels: cases[0].channels,
        bits: cases[0].bits.get(),
        decimations: cases.iter().map(|case| case.decimation).collect(),
        seconds,
        rate: cases[0].samples as f64 / seconds,
    })
}

/// Measures a case, with dither.
pub fn run(gpu: &Arc<Gpu>, machine: &Machine, case: &Case) -> Result<Row, KernelError> {
    let scene = Scene::new(case)?;
    let buffers = scene.buffers(gpu)?;
    let mut trial = KernelTrial::new(&buffers, &case.kernels, false)?;
    let (data, stats) = trial.output()?;
    let kernels = trial.name();
    let wrong = |what| KernelError::Wrong {
        channels: case.channels,
        bits: case.bits.get(),
        kernels: kernels.clone(),
        what,
    };
    let (compared, differ) = scene.compare(&data).map_err(wrong)?;
    if scene.output.narrowband.is_none() {
        scene.compare_power(&stats).map_err(wrong)?;
    }
    if !trial.repeats()? {
        return Err(wrong(
            "passes behind each other differ from one by itself".into(),
        ));
    }

    let samples = scene.spectra * scene.output.spectrum_samples();
    let seconds = trial.time(None, REPLAYS)?;
    let mut stages = Vec::new();
    for (stage, name) in trial.stages() {
        let seconds = trial.time(Some(stage), REPLAYS)?;
        let bytes = trial.bytes(stage);
        stages.push(StageRow {
            name,
            seconds,
            bytes,
            copy_fraction: bytes as f64 / seconds / machine.copy_bandwidth,
        });
    }
    let statistics =
        with_statistics(&buffers, case, &trial, &stats).map_err(|error| match error {
            Failed::Gpu(error) => error.into(),
            Failed::Wrong(what) => wrong(what),
        })?;
    let moved: usize = stages.iter().map(|stage| stage.bytes).sum();
    let ideal = N_POL * case.bits.bytes(samples) + data.len();
    // Those of the windows that begin in the pass.
    let converted =
        (samples + scene.output.window_samples()).saturating_sub(scene.output.spectrum_samples());
    Ok(Row {
        channels: case.channels,
        bits: case.bits.get(),
        taps: case.taps,
        decimation: case.decimation,
        ddc_taps: scene.output.narrowband.as_ref().map(Narrowband::ddc_taps),
        sample_bits: case.sample_bits.get(),
        kernels,
        samples,
        ddc_rate: stages
            .iter()
            .find(|stage| stage.name == "ddc")
            .map(|ddc| converted as f64 / ddc.seconds),
        stages,
        seconds,
        rate: samples as f64 / seconds,
        moved_over_ideal: moved as f64 / ideal as f64,
        copy_fraction: moved as f64 / seconds / machine.copy_bandwidth,
        statistics,
        compared,
        differ,
    })
}

enum Failed {
    Gpu(GpuError),
    Wrong(String),
}

impl From<GpuError> for Failed {
    fn from(error: GpuError) -> Self {
        Self::Gpu(error)
    }
}

/// Times a pass with sums, right between two timings without them. Sums are held against what a
/// pass `without` counts and stores.
fn with_statistics(
    buffers: &Buffers,
    case: &Case,
    without: &KernelTrial<'_>,
    stats: &[BatchStats],
) -> Result<StatisticsRow, Failed> {
    let mut trial = KernelTrial::new(buffers, &case.kernels, true)?;
    let (data, _) = trial.output()?;
    let taken = trial.take_sums()?;
    let (sums, every) = taken.ok_or_else(|| Failed::Wrong("there are no sums".into()))?;
    let bits = case.sample_bits;
    let of_pass = data.len() / bits.jones_bytes() / sums.len();
    for pol in 0..N_POL {
        let saturated: u64 = stats.iter().map(|batch| batch.saturated[pol]).sum();
        let clipped: u64 = sums.iter().map(|sums| sums.clipped[pol]).sum();
        if saturated != clipped {
            let what = format!(
                "polarisation {pol}: {clipped} clipped in all channels, {saturated} in all batches"
            );
            return Err(Failed::Wrong(what));
        }
        let square = |parts: &[u8]| -> f64 {
            let parts = match bits {
                OutputBits::Eight => [parts[2 * pol] as i8, parts[2 * pol + 1] as i8],
                OutputBits::Four => [parts[pol] as i8 >> 4, (parts[pol] << 4) as i8 >> 4],
            };
            parts.iter().map(|&part| f64::from(part).powi(2)).sum()
        };
        // Dither and rounding add a twelfth each to each part.
        let squares: f64 = data.chunks_exact(bits.jones_bytes()).map(square).sum();
        let mean = squares / (data.len() / bits.jones_bytes()) as f64 - 1.0 / 3.0;
        let power: f64 = sums.iter().map(|sums| sums.power[pol]).sum();
        let summed = power / (of_pass * sums.len()) as f64;
        if (summed / mean - 1.0).abs() > 0.02 {
            let what =
                format!("polarisation {pol}: a mean power of {summed} in sums, {mean} in bytes");
            return Err(Failed::Wrong(what));
        }
    }
    let before = without.time(None, REPLAYS)?;
    let seconds = trial.time(None, REPLAYS)?;
    let without = (before + without.time(None, REPLAYS)?) / 2.0;
    let stages = trial.stages();
    let last = stages.last().map(|(stage, _)| *stage);
    Ok(StatisticsRow {
        kernels: trial.name(),
        seconds,
        every,
        ratio: 1.0 + (seconds / without - 1.0) / every as f64,
        back_seconds: trial.time(last, REPLAYS)?,
    })
}

/// Noise, delays that change from spectrum to spectrum, and gains.
struct Scene {
    output: OutputConfig,
    bits: SampleBits,
    spectra: usize,
    packed: Vec<[Vec<u8>; N_POL]>,
    delays: [DelayModels; N_POL],
    gains: [Vec<Complex32>; N_POL],
}

impl Scene {
    fn new(case: &Case) -> Result<Self, KernelError> {
        let clock = SampleClock {
            adc_sample_rate: ADC_SAMPLE_RATE,
            sync_time: 0.0,
        };
        let output_bandwidth = ADC_SAMPLE_RATE / 2.0 / case.decimation as f64;
        let spec = NarrowbandSpec {
            centre_frequency: CENTRE_FREQUENCY,
            decimation: case.decimation,
            ddc_taps: None,
            weight_pass: 0.005,
            pass_bandwidth: case.pass_fraction.map(|pass| pass * output_bandwidth),
        };
        let narrowband = (case.decimation > 1).then(|| Narrowband::new(&spec, clock));
        let narrowband = narrowband
            .transpose()
            .map_err(|source| KernelError::Filter {
                decimation: case.decimation,
                source,
            })?;
        let spectra = (case.samples / (2 * case.channels * case.decimation)).max(1);
        let spectra_per_heap = spectra.min(SPECTRA_PER_HEAP);
        let output = OutputConfig {
            name: "bench".into(),
            channels: case.channels,
            dst: Vec::new(),
            jones_per_batch: case.channels * spectra_per_heap,
            taps: case.taps,
            w_cutoff: 1.0,
            window_function: WindowFunction::Hann,
            dither: Dither::Uniform,
            dither_seed: 0x0123_4567_89AB_CDEF,
            sample_bits: case.sample_bits,
            narrowband,
        };
        let samples = (spectra - 1) * output.spectrum_samples() + output.window_samples();
        let samples = samples + 2 * LEAD * output.subsampling();
        // The coarse delays stay what they are for the whole pass, of 2²⁸ samples at most.
        let delays = [(5.25, 0.7), (-17.3, -2.1)].map(|(delay, phase)| {
            let mut models = DelayModels::with_subsampling(output.subsampling() as u32);
            if let Ok(model) = LinearDelay::new(START.0 as i64, delay, 5e-10, phase, 1e-6) {
                models.add(model);
            }
            models
        });
        let gain = measure::gain(case.bits, case.sample_bits.limit() / 4.2);
        let turned = |k: usize| gain * Complex32::cis(k as f32);
        let gains = (0..case.channels).map(turned).collect::<Vec<_>>();
        Ok(Self {
            packed: measure::noise(case.bits, samples, SETS),
            bits: case.bits,
            gains: [gains.clone(), gains.iter().map(Complex32::conj).collect()],
            spectra,
            output,
            delays,
        })
    }

    fn buffers(&self, gpu: &Arc<Gpu>) -> Result<Buffers, GpuError> {
        let pass = Pass {
            output: &self.output,
            bits: self.bits,
            feng_id: FENG_ID,
            start: START,
            packed: &self.packed,
            begin: self.begin(),
            offset: self.offset(),
            fine: &self.fine(),
            gains: &self.gains,
        };
        Buffers::new(gpu, &pass)
    }

    /// Timestamp of sample 0 of the buffers.
    fn begin(&self) -> Timestamp {
        Timestamp(START.0 - (LEAD * self.output.subsampling()) as u64)
    }

    fn time(&self, spectrum: usize) -> Timestamp {
        START + (spectrum * self.output.spectrum_samples()) as u64
    }

    fn fine(&self) -> Vec<FineDelay> {
        let fine = |spectrum| {
            let points = self.delays.each_ref().map(|d| d.at(self.time(spectrum)));
            let decimation = self.output.decimation() as f64;
            FineDelay {
                delay: points.map(|point| (point.residual / decimation) as f32),
                phase: points.map(|point| match self.output.narrowband {
                    None => point.wideband_phase() as f32,
                    Some(_) => point.phase as f32,
                }),
            }
        };
        (0..self.spectra).map(fine).collect()
    }

    fn offset(&self) -> [usize; N_POL] {
        let begin = self.begin().0 as i64;
        let first = |delays: &DelayModels| (delays.at(START).orig - begin) as usize;
        self.delays.each_ref().map(first)
    }

    fn sample(&self, pol: usize, t: u64) -> i32 {
        let at = t - self.begin().0;
        unpack::sample(&self.packed[0][pol], self.bits, at as usize)
    }

    /// Holds some spectra of the first pass against the model. Returns how many bytes were compared
    /// and how many differ.
    fn compare(&self, data: &[u8]) -> Result<(usize, usize), String> {
        let model = Model::new(&self.output, FENG_ID);
        let source = |pol: usize, t: u64| self.sample(pol, t);
        let per_heap = self.output.spectra_per_heap();
        let (mut compared, mut differ) = (0, 0);
        // The model of narrowband is slow.
        let checked = if self.output.narrowband.is_none() {
            CHECKED
        } else {
            2
        };
        let jones_bytes = self.output.sample_bits.jones_bytes();
        for i in 0..checked {
            let spectrum = i * (self.spectra - 1) / (checked - 1);
            let t = self.time(spectrum);
            let expected = model.spectrum(&source, t, &self.delays, &self.gains);
            let batch = &data[spectrum / per_heap * self.output.batch_bytes()..];
            for k in 0..self.output.channels {
                let dither = dither::dither(
                    self.output.dither_seed,
                    FENG_ID,
                    t.0,
                    k,
                    self.output.channels,
                );
                let got = &batch[(k * per_heap + spectrum % per_heap) * jones_bytes..];
                for (pol, x) in expected.iter().map(|bins| bins[k]).enumerate() {
                    let x = [
                        x.re as f32 + dither[2 * pol],
                        x.im as f32 + dither[2 * pol + 1],
                    ];
                    for (part, x) in x.into_iter().enumerate() {
                        let (want, _) = quantise::quantise(x, self.output.sample_bits.limit());
                        let got = match self.output.sample_bits {
                            OutputBits::Eight => got[2 * pol + part] as i8,
                            // The real part is the upper nibble.
                            OutputBits::Four => (got[pol] << (4 * part)) as i8 >> 4,
                        };
                        if got.abs_diff(want) > 1 {
                            return Err(format!(
                                "spectrum {spectrum} channel {k} polarisation {pol} is {got}, should be {want}"
                            ));
                        }
                        compared += 1;
                        differ += usize::from(got != want);
                    }
                }
            }
        }
        if 1000 * differ > compared {
            return Err(format!(
                "{differ} of {compared} bytes differ from the model"
            ));
        }
        Ok((compared, differ))
    }

    /// Holds the digitiser power of every batch against the samples: successive last taps tile the
    /// time axis.
    fn compare_power(&self, stats: &[BatchStats]) -> Result<(), String> {
        let batch_samples = self.output.batch_samples() as u64;
        let last_tap = (self.output.window_samples() - self.output.spectrum_samples()) as u64;
        for (batch, stats) in stats.iter().enumerate() {
            for pol in 0..N_POL {
                let t = START + batch as u64 * batch_samples;
                let first = self.delays[pol].at(t).orig as u64 + last_tap;
                let squares = (first..first + batch_samples)
                    .map(|t| i64::from(self.sample(pol, t)).pow(2) as u64);
                let (want, got) = (squares.sum::<u64>(), stats.power[pol]);
                if got != want {
                    return Err(format!(
                        "power of batch {batch} polarisation {pol} is {got}, should be {want}"
                    ));
                }
            }
        }
        Ok(())
    }
}

//! Kernels alone: time per stage, bytes moved, and whether what they made is right.

use std::sync::Arc;

use dsp::remez::RemezError;
use dsp::{OutputBits, Oversampling, SampleBits};
use ground::N_POL;
use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Narrowband;
use crate::gpu::measure::{self, Buffers, KernelTrial};
use crate::gpu::{Gpu, GpuEnergy, GpuError, KernelChoice};
use crate::memory::BatchStats;

mod scene;

use scene::Scene;

/// Samples per polarisation of a pass, as many as katgpucbf's kernels were timed with.
pub const SAMPLES: usize = 1 << 24;
/// Timings whose median counts.
const REPLAYS: usize = 21;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Case {
    /// Channels.
    pub channels: usize,
    /// Sample width.
    pub bits: SampleBits,
    /// Taps.
    pub taps: usize,
    /// Spectra for each transform's length of time.
    pub oversampling: Oversampling,
    /// By how much the band is narrower than the digitised one: 1 for wideband.
    pub decimation: usize,
    /// Of narrowband: width of the pass band as a fraction of the output band where no channel is
    /// discarded.
    pub pass_fraction: Option<f64>,
    /// Width of the output.
    pub sample_bits: OutputBits,
    /// Samples per polarisation of a pass.
    pub samples: usize,
    /// The kernels that are measured.
    pub kernels: KernelChoice,
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

/// What the GPU takes while it does nothing but passes.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct EnergyRow {
    /// Mean power of the whole card.
    pub watts: f64,
    /// Joules per 10⁹ samples of both polarisations.
    pub joules_per_gigasample: f64,
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
    /// Spectra for each transform's length of time.
    pub oversampling: Oversampling,
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
    /// What the GPU takes; nothing where it does not tell.
    pub energy: Option<EnergyRow>,
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
            "passes one after the other differ from one by itself".into(),
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
    let energy = energy(gpu, &trial, samples)?;
    let moved: usize = stages.iter().map(|stage| stage.bytes).sum();
    let ideal = N_POL * case.bits.bytes(samples) + data.len();
    // Those of the windows that begin in the pass.
    let converted =
        (samples + scene.output.window_samples()).saturating_sub(scene.output.spectrum_samples());
    Ok(Row {
        channels: case.channels,
        bits: case.bits.get(),
        taps: case.taps,
        oversampling: case.oversampling,
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
        energy,
        compared,
        differ,
    })
}

/// Has passes run for long enough that the counter of the GPU's energy, which moves ten times a
/// second or more, tells it within a few percent.
fn energy(
    gpu: &Gpu,
    trial: &KernelTrial<'_>,
    samples: usize,
) -> Result<Option<EnergyRow>, GpuError> {
    const SETTLE: f64 = 0.3;
    const SECONDS: f64 = 2.0;
    let Ok(counter) = GpuEnergy::open(gpu.address()) else {
        return Ok(None);
    };
    trial.run_for(SETTLE)?;
    let before = counter.joules();
    let (passes, seconds) = trial.run_for(SECONDS)?;
    let taken = before
        .zip(counter.joules())
        .map(|(before, after)| after - before);
    Ok(taken.map(|joules| EnergyRow {
        watts: joules / seconds,
        joules_per_gigasample: joules / (passes * samples) as f64 * 1e9,
    }))
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
        let in_batches: u64 = stats.iter().map(|batch| batch.clipped[pol]).sum();
        let in_channels: u64 = sums.iter().map(|sums| sums.clipped[pol]).sum();
        if in_batches != in_channels {
            let what = format!(
                "polarisation {pol}: {in_channels} clipped in all channels, {in_batches} in all batches"
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

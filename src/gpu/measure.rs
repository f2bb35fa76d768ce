//! Kernels on buffers of their own, timed in a CUDA graph: what the benchmark and the tuner share.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUdeviceptr, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DriverError, PinnedHostSlice};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustfft::num_complex::Complex32;

use super::ddc::{Ddc, Held};
use super::form::{Form, Kernels};
use super::launch::TableCopy;
use super::parameters::{BackArgs, COUNTERS, Float4, FrontArgs, FrontInput, Intermediate};
use super::variant::{Variant, address};
use super::{Gpu, GpuError, tune};
use crate::config::{OutputConfig, SampleBits};
use crate::engine::{BatchStats, FineDelay, InputView};
use crate::units::{N_POL, Timestamp};

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
    /// Packed samples of each set, with [`InputView::PADDING`](crate::engine::InputView::PADDING) behind them.
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

/// Full-scale noise: `sets` times `samples` packed samples per polarisation and the padding behind them.
pub fn noise(bits: SampleBits, samples: usize, sets: usize) -> Vec<[Vec<u8>; N_POL]> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut packed = || {
        let mut packed = vec![0; bits.bytes(samples) + InputView::PADDING];
        rng.fill_bytes(&mut packed);
        packed
    };
    (0..sets).map(|_| [packed(), packed()]).collect()
}

/// The gain with which [`noise`] comes out with an rms of `rms` per component.
pub fn gain(bits: SampleBits, rms: f32) -> Complex32 {
    // The filter keeps the variance, of a uniform distribution here, and each component has half of it.
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
    /// Brought to the GPU in each pass, as engines do with each block of spectra.
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
    pub fn new(gpu: &Arc<Gpu>, pass: &Pass<'_>) -> Result<Self, GpuError> {
        let spectra = pass.fine.len();
        let batches = spectra / pass.output.spectra_per_heap();
        let mut gains = vec![Float4::default(); pass.output.channels];
        for (pol, of_pol) in pass.gains.iter().enumerate() {
            for (entry, &gain) in gains.iter_mut().zip(of_pol) {
                entry.set_gain(pol, gain, pass.output.narrowband.is_none());
            }
        }
        let mut fine = gpu.pinned("delays", spectra)?;
        for (entry, of_spectrum) in fine
            .as_mut_slice()
            .map_err(failed)?
            .iter_mut()
            .zip(pass.fine)
        {
            *entry = of_spectrum.into();
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

/// Batches in wire layout, and counters.
type Contents = (Vec<u8>, Vec<u64>);

/// What can be timed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Down-conversion of narrowband.
    Convert,
    /// Decoding, filter, and the first half of a fused transform.
    Front,
    /// A library's transform.
    Transform,
    /// The second half of a fused transform, and all behind it.
    Post,
}

/// Kernels on [`Buffers`].
#[derive(Debug)]
pub struct Trial<'a> {
    buffers: &'a Buffers,
    form: Form,
    variant: Variant,
    ddc: Option<Ddc>,
    groups: usize,
    sets: Vec<([CUdeviceptr; N_POL], BackArgs)>,
    /// In memory of the host.
    fine: CUdeviceptr,
    _intermediate: CudaSlice<f32>,
}

impl<'a> Trial<'a> {
    /// The kernels that `wanted` comes to.
    pub fn new(buffers: &'a Buffers, wanted: &Kernels) -> Result<Self, GpuError> {
        let form = tune::pick(&buffers.gpu, &buffers.output, buffers.bits, wanted)?;
        Self::of_form(buffers, form)
    }

    pub(super) fn of_form(buffers: &'a Buffers, form: Form) -> Result<Self, GpuError> {
        let gpu = &buffers.gpu;
        let spectra = buffers.spectra;
        let variant = Variant::new(gpu, &buffers.output, buffers.bits, form, spectra)?;
        let ddc = |narrowband| Ddc::new(gpu, &buffers.output, narrowband, buffers.bits, spectra);
        let ddc = buffers.output.narrowband.as_ref().map(ddc).transpose()?;
        let groups = variant.ring(spectra);
        let memory = gpu.zeros("the intermediate", groups * variant.group_bytes() / 4)?;
        let intermediate = Intermediate {
            data: address(&memory),
            groups,
        };
        let args = |set: &Set| {
            let back = BackArgs {
                intermediate,
                gains: address(&buffers.gains),
                fine: address(&set.fine),
                out: address(&set.out),
                counters: address(&set.counters),
                start: buffers.start.0,
                limit: spectra,
                feng_id: buffers.feng_id,
            };
            (set.samples.each_ref().map(address), back)
        };
        let sets = buffers.sets.iter().map(args).collect();
        Ok(Self {
            buffers,
            form,
            variant,
            ddc,
            groups,
            sets,
            fine: buffers.fine.as_ptr().map_err(failed)? as u64,
            _intermediate: memory,
        })
    }

    /// The kernels, as reports name them.
    pub fn name(&self) -> String {
        self.form.to_string()
    }

    /// The stages in order, with their names.
    pub fn stages(&self) -> Vec<(Stage, &'static str)> {
        let convert = self.ddc.iter().map(|_| (Stage::Convert, "ddc"));
        let others: &[_] = match self.form {
            Form::Fused(_) => &[(Stage::Front, "front"), (Stage::Post, "back")],
            Form::Cufft => &[
                (Stage::Front, "fir"),
                (Stage::Transform, "fft"),
                (Stage::Post, "post"),
            ],
        };
        convert.chain(others.iter().copied()).collect()
    }

    /// Bytes that a stage must read and write in a pass; what it reads twice while it is near counts once.
    pub fn bytes(&self, stage: Stage) -> usize {
        let Buffers {
            output, spectra, ..
        } = self.buffers;
        let transforms = if self.ddc.is_some() { N_POL } else { 1 };
        let points = transforms * spectra * output.pfb_step();
        let intermediate = self.variant.number_bytes() * points;
        let window = output.window_samples() - output.spectrum_samples();
        let samples = spectra * output.spectrum_samples() + window;
        let samples = N_POL * self.buffers.bits.bytes(samples);
        let numbers = |ddc: &Ddc| ddc.bytes(spectra + output.taps - 1);
        match stage {
            Stage::Convert => samples + self.ddc.as_ref().map_or(0, numbers),
            Stage::Front => {
                let weights = 4 * output.taps * output.pfb_step();
                self.ddc.as_ref().map_or(samples, numbers) + weights + intermediate
            }
            Stage::Transform => 2 * intermediate,
            Stage::Post => {
                let tables = size_of::<Float4>() * (spectra + output.channels);
                let jones = output.sample_bits.jones_bytes() * spectra * output.channels;
                intermediate + tables + jones
            }
        }
    }

    /// Puts a pass over a set on the stream, or one stage of it.
    fn enqueue(
        &self,
        stream: &CudaStream,
        set: usize,
        stage: Option<Stage>,
    ) -> Result<(), DriverError> {
        let (variant, spectra) = (&self.variant, self.buffers.spectra);
        let step = self.buffers.output.spectrum_samples();
        let most = self.ddc.as_ref().map_or(spectra, Ddc::most_spectra);
        let (samples, back) = &self.sets[set];
        let wanted = |of: Stage| stage.is_none_or(|stage| stage == of);
        let mut held: [Held; N_POL] = Default::default();
        if stage.is_none() {
            // SAFETY: both have an entry for each spectrum, and the set's gets the same as it has had since its first pass.
            unsafe {
                self.buffers
                    .table_copy
                    .launch(stream, self.fine, back.fine, spectra)
            }?;
        }
        let (mut first, mut finished) = (0, 0);
        while first < spectra {
            let end = spectra.min(variant.reach(first, self.groups));
            let end = end.min(first + most);
            let whole = if end == spectra {
                end.div_ceil(variant.group())
            } else {
                end / variant.group()
            };
            let groups = finished..whole;
            let offset = self.buffers.offset.map(|offset| offset + first * step);
            let begin = self.buffers.begin;
            // SAFETY: the buffers are of the sizes that a pass needs, and `self` keeps them; all is on one stream,
            // which is idle before anything is dropped. Stages by themselves find what the last pass left.
            unsafe {
                let input = match &self.ddc {
                    None => FrontInput {
                        pol: *samples,
                        offset: offset.map(|offset| offset as u64),
                        ring: 0,
                    },
                    Some(ddc) if wanted(Stage::Convert) => {
                        ddc.convert(stream, &mut held, *samples, begin, offset, end - first)?
                    }
                    Some(ddc) => ddc.input(begin, offset),
                };
                let front = FrontArgs {
                    input,
                    spectra: (first, end),
                    intermediate: back.intermediate,
                    counters: back.counters,
                };
                if wanted(Stage::Front) {
                    variant.front(stream, &front)?;
                }
                match stage {
                    None => variant.back(stream, groups, back)?,
                    Some(Stage::Transform) => groups.into_iter().try_for_each(|group| {
                        variant.transform(stream, group, back.intermediate)
                    })?,
                    Some(Stage::Post) => variant.post(stream, groups, back)?,
                    Some(Stage::Convert | Stage::Front) => {}
                }
            }
            (first, finished) = (end, whole);
        }
        Ok(())
    }

    /// Seconds of a pass, or of one stage of it: the median of `replays` replays of a CUDA graph over all sets.
    pub fn time(&self, stage: Option<Stage>, replays: usize) -> Result<f64, GpuError> {
        try_time(&[self], stage, replays).map_err(failed)
    }

    /// What a pass over the first set makes: batches in wire layout, and their counts.
    pub fn output(&mut self) -> Result<(Vec<u8>, Vec<BatchStats>), GpuError> {
        self.try_output().map_err(failed)
    }

    /// Whether passes behind each other, as they are timed, make what each makes by itself.
    pub fn repeats(&mut self) -> Result<bool, GpuError> {
        self.try_repeats().map_err(failed)
    }

    fn try_output(&self) -> Result<(Vec<u8>, Vec<BatchStats>), DriverError> {
        let (before, (data, after)) = self.alone(0)?;
        let stats = before.chunks(COUNTERS).zip(after.chunks(COUNTERS));
        let stats = stats.map(|(before, after)| {
            let counted = |i: usize| after[i].wrapping_sub(before[i]);
            BatchStats {
                saturated: [counted(0), counted(1)],
                power: [counted(2), counted(3)],
            }
        });
        Ok((data, stats.collect()))
    }

    fn try_repeats(&self) -> Result<bool, DriverError> {
        let sets = 0..self.sets.len();
        let alone = sets.clone().map(|set| self.alone(set));
        let alone = alone.collect::<Result<Vec<_>, _>>()?;
        graph(&[self], None)?.launch()?;
        for (set, (before, (data, once))) in sets.zip(alone) {
            let (again, after) = self.contents(set)?;
            let counts = before.iter().zip(&once).zip(&after);
            let counted = |((before, once), after): ((&u64, &u64), &u64)| {
                let of_one = once.wrapping_sub(*before);
                after.wrapping_sub(*once) == of_one.wrapping_mul(ROUNDS as u64)
            };
            if again != data || !counts.into_iter().all(counted) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a pass over a set by itself: what had been counted before, and [`contents`](Self::contents).
    fn alone(&self, set: usize) -> Result<(Vec<u64>, Contents), DriverError> {
        let before = self.contents(set)?.1;
        self.enqueue(&self.buffers.stream, set, None)?;
        Ok((before, self.contents(set)?))
    }

    /// What a set's passes have made last, and counted so far.
    fn contents(&self, set: usize) -> Result<Contents, DriverError> {
        let (stream, set) = (&self.buffers.stream, &self.buffers.sets[set]);
        let contents = (
            stream.clone_dtoh(&set.out)?,
            stream.clone_dtoh(&set.counters)?,
        );
        stream.synchronize()?;
        Ok(contents)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // The stream may be at work on what is dropped; where that fails, nothing works any more.
        let _ = self.buffers.stream.synchronize();
    }
}

/// Seconds of a pass of all outputs of an engine, one behind the other: as [`Trial::time`]. All have as many sets.
pub fn time_together(trials: &[&Trial<'_>], replays: usize) -> Result<f64, GpuError> {
    try_time(trials, None, replays).map_err(failed)
}

fn graph(trials: &[&Trial<'_>], stage: Option<Stage>) -> Result<CudaGraph, DriverError> {
    let stream = &trials[0].buffers.stream;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let mut passes = (0..passes(trials, stage)).flat_map(|pass| {
        let set = pass % trials[0].sets.len();
        trials.iter().map(move |trial| (set, trial))
    });
    let enqueued = passes.try_for_each(|(set, trial)| trial.enqueue(stream, set, stage));
    // The stream must leave its capture whatever happened.
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    enqueued?;
    graph?.ok_or(DriverError(
        cudarc::driver::sys::CUresult::CUDA_ERROR_INVALID_VALUE,
    ))
}

/// Rounds of passes over all sets in a graph: successive kernels overlap, but not those of successive graphs.
const ROUNDS: usize = 4;

/// Passes of a graph, over all sets in turn.
fn passes(trials: &[&Trial<'_>], stage: Option<Stage>) -> usize {
    let rounds = if stage.is_some() { 1 } else { ROUNDS };
    rounds * trials[0].sets.len()
}

fn try_time(
    trials: &[&Trial<'_>],
    stage: Option<Stage>,
    replays: usize,
) -> Result<f64, DriverError> {
    let (stream, passes) = (&trials[0].buffers.stream, passes(trials, stage));
    let timed = graph(trials, stage)?;
    // A stage by itself works on what a pass leaves, since a transform of its own output soon overflows.
    let refresh = stage.map(|_| graph(trials, None)).transpose()?;
    let mut seconds = Vec::with_capacity(replays);
    for replay in 0..WARM_UP + replays {
        if let Some(refresh) = &refresh {
            refresh.launch()?;
        }
        let begin = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        timed.launch()?;
        let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        let milliseconds = begin.elapsed_ms(&end)?;
        if replay >= WARM_UP {
            seconds.push(f64::from(milliseconds) * 1e-3 / passes as f64);
        }
    }
    Ok(median(seconds))
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn failed(source: DriverError) -> GpuError {
    GpuError::Driver {
        what: "measure kernels",
        source,
    }
}

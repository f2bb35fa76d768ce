//! The kernels of one output on these buffers.

use std::ops::Range;
use std::time::Instant;

use cudarc::driver::sys::{
    CUdeviceptr, CUevent_flags, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode,
};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DriverError, result};
use ground::N_POL;
use ground::stats::median;

use super::{Buffers, Set, WARM_UP, failed};
use crate::engine::ChannelSums;
use crate::gpu::ddc::{Ddc, Held};
use crate::gpu::device::address;
use crate::gpu::form::{KernelChoice, KernelForm};
use crate::gpu::kernel_set::KernelSet;
use crate::gpu::parameters::{
    BackArgs, COUNTERS, Float4, FrontArgs, FrontInput, Intermediate, SampleInput,
};
use crate::gpu::statistics::{self, StatisticsBuffers};
use crate::gpu::{GpuError, tune};
use crate::memory::BatchStats;

/// The delays that a pass has.
#[derive(Clone, Copy, Debug)]
enum Delays {
    Given,
    Other,
}

/// Batches in wire layout, and counters.
type Contents = (Vec<u8>, Vec<u64>);

/// What can be timed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedStage {
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
pub struct KernelTrial<'a> {
    buffers: &'a Buffers,
    form: KernelForm,
    kernels: KernelSet,
    ddc: Option<Ddc>,
    groups: usize,
    sets: Vec<([CUdeviceptr; N_POL], BackArgs)>,
    /// Of [`Delays`], in memory of the host.
    fine: [CUdeviceptr; 2],
    statistics: Option<StatisticsBuffers>,
    _intermediate: CudaSlice<f32>,
}

impl<'a> KernelTrial<'a> {
    /// The kernels that `wanted` comes to, with sums for statistics or without.
    pub fn new(
        buffers: &'a Buffers,
        wanted: &KernelChoice,
        statistics: bool,
    ) -> Result<Self, GpuError> {
        let (gpu, output) = (&buffers.gpu, &buffers.output);
        let form = tune::pick(gpu, output, buffers.bits, wanted, statistics)?;
        Self::of_form(buffers, form, statistics)
    }

    pub(in crate::gpu) fn of_form(
        buffers: &'a Buffers,
        form: KernelForm,
        statistics: bool,
    ) -> Result<Self, GpuError> {
        let gpu = &buffers.gpu;
        let spectra = buffers.spectra;
        let kernels = KernelSet::new(
            gpu,
            &buffers.output,
            buffers.bits,
            form,
            spectra,
            statistics,
        )?;
        let sums = kernels.statistics();
        let sums = sums
            .map(|form| StatisticsBuffers::new(gpu, form))
            .transpose()?;
        let ddc = |narrowband| Ddc::new(gpu, &buffers.output, narrowband, buffers.bits, spectra);
        let ddc = buffers.output.narrowband.as_ref().map(ddc).transpose()?;
        let groups = kernels.ring(spectra);
        let memory = gpu.zeros("the intermediate", groups * kernels.group_bytes() / 4)?;
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
                statistics: sums.as_ref().map(StatisticsBuffers::args),
            };
            (set.samples.each_ref().map(address), back)
        };
        let sets = buffers.sets.iter().map(args).collect();
        let given = buffers.fine.as_ptr().map_err(failed)? as CUdeviceptr;
        let other = given + (spectra * size_of::<Float4>()) as CUdeviceptr;
        Ok(Self {
            buffers,
            form,
            kernels,
            ddc,
            groups,
            sets,
            fine: [given, other],
            statistics: sums,
            _intermediate: memory,
        })
    }

    /// The kernels, as reports name them.
    pub fn name(&self) -> String {
        self.form.to_string()
    }

    /// The stages in order, with their names.
    pub fn stages(&self) -> Vec<(TimedStage, &'static str)> {
        let convert = self.ddc.iter().map(|_| (TimedStage::Convert, "ddc"));
        let others: &[_] = match self.form {
            KernelForm::Fused(_) => &[(TimedStage::Front, "front"), (TimedStage::Post, "back")],
            KernelForm::Cufft => &[
                (TimedStage::Front, "fir"),
                (TimedStage::Transform, "fft"),
                (TimedStage::Post, "post"),
            ],
        };
        convert.chain(others.iter().copied()).collect()
    }

    /// Bytes that a stage must read and write in a pass; what it reads twice while it is near
    /// counts once.
    pub fn bytes(&self, stage: TimedStage) -> usize {
        let Buffers {
            output, spectra, ..
        } = self.buffers;
        let transforms = if self.ddc.is_some() { N_POL } else { 1 };
        let points = transforms * spectra * output.pfb_step();
        let intermediate = self.kernels.number_bytes() * points;
        let window = output.window_samples() - output.spectrum_samples();
        let samples = spectra * output.spectrum_samples() + window;
        let samples = N_POL * self.buffers.bits.bytes(samples);
        let numbers = |ddc: &Ddc| ddc.bytes(*spectra);
        match stage {
            TimedStage::Convert => samples + self.ddc.as_ref().map_or(0, numbers),
            TimedStage::Front => {
                let weights = 4 * output.taps * output.pfb_step();
                self.ddc.as_ref().map_or(samples, numbers) + weights + intermediate
            }
            TimedStage::Transform => 2 * intermediate,
            TimedStage::Post => {
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
        delays: Delays,
        stage: Option<TimedStage>,
    ) -> Result<(), DriverError> {
        let (kernels, spectra) = (&self.kernels, self.buffers.spectra);
        let step = self.buffers.output.spectrum_samples();
        let most = self.ddc.as_ref().map_or(spectra, Ddc::most_spectra);
        let (samples, back) = &self.sets[set];
        let wanted = |of: TimedStage| stage.is_none_or(|stage| stage == of);
        let mut held: [Held; N_POL] = Default::default();
        if stage.is_none() {
            let (copy, from) = (&self.buffers.table_copy, self.fine[delays as usize]);
            // SAFETY: both have an entry for each spectrum. Work that is still under way may use
            // the set's, but is of the same graph, whose passes all have the same delays.
            unsafe { copy.launch(stream, from, back.fine, spectra) }?;
        }
        let (mut first, mut finished) = (0, 0);
        while first < spectra {
            let end = spectra.min(kernels.reach(first, self.groups));
            let end = end.min(first + most);
            let whole = if end == spectra {
                end.div_ceil(kernels.group())
            } else {
                end / kernels.group()
            };
            let groups = finished..whole;
            let offset = self.buffers.offset.map(|offset| offset + first * step);
            let samples = SampleInput {
                addresses: *samples,
                start: self.buffers.begin,
            };
            // SAFETY: the buffers are of the sizes that a pass needs, and `self` keeps them; all is
            // on one stream, which is idle before anything is dropped. Stages by themselves find
            // what the last pass left.
            unsafe {
                let input = match &self.ddc {
                    None => FrontInput {
                        pol: samples.addresses,
                        offset: offset.map(|offset| offset as u64),
                        ring: 0,
                    },
                    Some(ddc) if wanted(TimedStage::Convert) => {
                        ddc.convert(stream, &mut held, &samples, offset, end - first)?
                    }
                    Some(ddc) => ddc.input(samples.start, offset),
                };
                let front = FrontArgs {
                    input,
                    spectra: first..end,
                    number: (back.start / self.buffers.output.spectrum_samples() as u64) as u32,
                    intermediate: back.intermediate,
                    counters: back.counters,
                };
                if wanted(TimedStage::Front) {
                    kernels.front(stream, &front)?;
                }
                match stage {
                    None => kernels.back(stream, groups, back)?,
                    Some(TimedStage::Transform) => groups.into_iter().try_for_each(|group| {
                        kernels.transform(stream, group, back.intermediate)
                    })?,
                    Some(TimedStage::Post) => kernels.post(stream, groups, back)?,
                    Some(TimedStage::Convert | TimedStage::Front) => {}
                }
            }
            (first, finished) = (end, whole);
        }
        Ok(())
    }

    /// Seconds of a pass, or of one stage of it: the median of `replays` replays of a CUDA graph
    /// over all sets.
    pub fn time(&self, stage: Option<TimedStage>, replays: usize) -> Result<f64, GpuError> {
        try_time(&[self], stage, replays).map_err(failed)
    }

    /// Runs passes for at least so many seconds. Returns how many, and how long they took.
    pub fn run_for(&self, seconds: f64) -> Result<(usize, f64), GpuError> {
        self.try_run_for(seconds).map_err(failed)
    }

    fn try_run_for(&self, seconds: f64) -> Result<(usize, f64), DriverError> {
        /// Graphs on the stream before it is waited for: the GPU never waits.
        const QUEUED: usize = 32;
        let stream = &self.buffers.stream;
        let passes = graph(&[self], None, ROUNDS, Delays::Given)?;
        let (begun, mut made) = (Instant::now(), 0);
        while begun.elapsed().as_secs_f64() < seconds {
            for _ in 0..QUEUED {
                passes.launch()?;
            }
            stream.synchronize()?;
            made += QUEUED * ROUNDS * self.sets.len();
        }
        Ok((made, begun.elapsed().as_secs_f64()))
    }

    /// What a pass over the first set makes: batches in wire layout, and their counts.
    pub fn output(&mut self) -> Result<(Vec<u8>, Vec<BatchStats>), GpuError> {
        self.try_output().map_err(failed)
    }

    /// Sums for statistics of all passes since they were taken last, and output chunks of which an
    /// engine has one summed; nothing if none are taken.
    pub fn take_sums(&mut self) -> Result<Option<(Vec<ChannelSums>, u64)>, GpuError> {
        self.try_take_sums().map_err(failed)
    }

    fn try_take_sums(&self) -> Result<Option<(Vec<ChannelSums>, u64)>, DriverError> {
        let Some((sums, form)) = self.statistics.as_ref().zip(self.kernels.statistics()) else {
            return Ok(None);
        };
        let stream = &self.buffers.stream;
        let mut numbers = vec![0.0; 8 * self.buffers.output.channels];
        // SAFETY: only this stream uses the buffers, and it is waited for.
        unsafe {
            let from = sums.collect(form, stream)?;
            result::memcpy_dtoh_async(&mut numbers, from, stream.cu_stream())?;
        }
        stream.synchronize()?;
        Ok(Some((statistics::channels(&numbers), form.every())))
    }

    /// Whether passes behind each other, as they are timed, make what each makes by itself.
    pub fn repeats(&mut self) -> Result<bool, GpuError> {
        self.try_repeats().map_err(failed)
    }

    fn try_output(&self) -> Result<(Vec<u8>, Vec<BatchStats>), DriverError> {
        let (data, counted) = self.alone(0)?;
        let stats = counted.chunks(COUNTERS).map(|counted| BatchStats {
            clipped: [counted[0], counted[1]],
            power: [counted[2], counted[3]],
        });
        Ok((data, stats.collect()))
    }

    fn try_repeats(&self) -> Result<bool, DriverError> {
        let sets = 0..self.sets.len();
        let alone = sets.clone().map(|set| self.alone(set));
        let alone = alone.collect::<Result<Vec<_>, _>>()?;
        let pass = |rounds, delays| graph(&[self], None, rounds, delays)?.launch();
        // A kernel that reads delays before they are there finds these in the round that follows.
        pass(1, Delays::Other)?;
        for rounds in [1, ROUNDS] {
            let made = self.made(sets.clone(), || pass(rounds, Delays::Given))?;
            let same = alone.iter().zip(&made).all(|(alone, made)| {
                let counted = alone.1.iter().map(|count| count * rounds as u64);
                made.0 == alone.0 && counted.eq(made.1.iter().copied())
            });
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a pass over a set makes by itself.
    fn alone(&self, set: usize) -> Result<Contents, DriverError> {
        let pass = || self.enqueue(&self.buffers.stream, set, Delays::Given, None);
        Ok(self.made(set..set + 1, pass)?.remove(0))
    }

    /// What passes over these sets make last, and count together.
    fn made(
        &self,
        sets: Range<usize>,
        passes: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<Vec<Contents>, DriverError> {
        let (stream, sets) = (&self.buffers.stream, &self.buffers.sets[sets]);
        let counters = sets.iter().map(|set| stream.clone_dtoh(&set.counters));
        let before: Vec<_> = counters.collect::<Result<_, _>>()?;
        passes()?;
        let contents = |(set, before): (&Set, Vec<u64>)| {
            let data = stream.clone_dtoh(&set.out)?;
            let mut counters = stream.clone_dtoh(&set.counters)?;
            stream.synchronize()?;
            for (counter, before) in counters.iter_mut().zip(before) {
                *counter -= before;
            }
            Ok((data, counters))
        };
        sets.iter().zip(before).map(contents).collect()
    }
}

impl Drop for KernelTrial<'_> {
    fn drop(&mut self) {
        // The stream may be at work on what is dropped; where that fails, nothing works any more.
        let _ = self.buffers.stream.synchronize();
    }
}

/// Seconds of a pass of all outputs of an engine, one behind the other: as [`KernelTrial::time`].
/// All have as many sets.
pub fn time_together(trials: &[&KernelTrial<'_>], replays: usize) -> Result<f64, GpuError> {
    try_time(trials, None, replays).map_err(failed)
}

/// Rounds of passes over all sets, or of one stage of them.
fn graph(
    trials: &[&KernelTrial<'_>],
    stage: Option<TimedStage>,
    rounds: usize,
    delays: Delays,
) -> Result<CudaGraph, DriverError> {
    let (stream, sets) = (&trials[0].buffers.stream, trials[0].sets.len());
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let mut passes = (0..rounds * sets).flat_map(|pass| {
        let set = pass % sets;
        trials.iter().map(move |trial| (set, trial))
    });
    let enqueued = passes.try_for_each(|(set, trial)| trial.enqueue(stream, set, delays, stage));
    // The stream must leave its capture whatever happened.
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    enqueued?;
    graph?.ok_or(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE))
}

/// Rounds of whole passes in a graph: successive kernels overlap, but not those of successive
/// graphs.
const ROUNDS: usize = 4;

fn try_time(
    trials: &[&KernelTrial<'_>],
    stage: Option<TimedStage>,
    replays: usize,
) -> Result<f64, DriverError> {
    let (stream, delays) = (&trials[0].buffers.stream, Delays::Given);
    let rounds = if stage.is_some() { 1 } else { ROUNDS };
    let timed = graph(trials, stage, rounds, delays)?;
    // A stage by itself works on what a pass leaves, since a transform of its own output soon
    // overflows.
    let refresh = stage.map(|_| graph(trials, None, ROUNDS, delays));
    let refresh = refresh.transpose()?;
    let passes = rounds * trials[0].sets.len();
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

//! One output stream on the GPU.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use cudarc::driver::{CudaSlice, DriverError, result};
use dsp::SampleBits;
use ground::stats::ThreadReport;
use ground::{N_POL, Timestamp};
use num_complex::Complex32;

use super::ddc::{Ddc, Held};
use super::device::address;
use super::form::KernelChoice;
use super::kernel_set::KernelSet;
use super::parameters::{
    BackArgs, COUNTERS, Float4, FrontArgs, FrontInput, Intermediate, SampleInput,
};
use super::power::Power;
use super::slot::Slot;
use super::statistics::Statistics;
use super::streams::{Stopwatch, Streams, failed};
use super::{GpuError, tune};
use crate::config::{OutputConfig, PipelineConfig};
use crate::engine::steer::Gains;
use crate::engine::{Block, OutputChunk, PeriodSums, Pipeline, PipelineError};
use crate::memory::{OutputSpan, SampleView};

/// The output chunks of one pipeline.
#[derive(Clone, Copy, Debug)]
pub struct OutputChunks {
    /// Batches of each.
    pub batches: usize,
    /// Chunks that there are: as many can be under way.
    pub count: usize,
}

/// A [`Pipeline`] on a GPU.
pub struct GpuChanneliser {
    streams: Arc<Streams>,
    kernels: KernelSet,
    /// What makes the filter bank's input; `None` where that is the samples.
    ddc: Option<(Ddc, [Held; N_POL])>,
    /// Counts the digitiser's power where the filter bank does not.
    power: Option<Power>,
    /// Sums, if statistics are taken.
    statistics: Option<Statistics>,
    spectrum_samples: usize,
    /// Samples that one spectrum's kernels read, from its window's first on.
    window_samples: usize,
    sample_bits: SampleBits,
    batches: usize,
    batch_spectra: usize,
    batch_bytes: usize,
    feng_id: u32,
    /// Only the compute stream uses these: they are in order by themselves.
    intermediate: CudaSlice<f32>,
    ring: usize,
    /// Gains from the next output chunk on, and a number that grows when they change.
    next_gains: [Gains; N_POL],
    gains_version: u64,
    /// One per output chunk; they take turns.
    slots: Vec<Slot>,
    /// Slot of the current chunk, and whether that is under construction.
    current: usize,
    open: bool,
    /// Spectra of the current chunk that have been filtered, and groups that are finished.
    filtered: usize,
    finished: usize,
    /// Chunks that the GPU still writes, with their slots, oldest first; and those that are whole.
    under_way: VecDeque<(usize, OutputChunk)>,
    complete: VecDeque<OutputChunk>,
    name: String,
    begun: Instant,
    computing: Stopwatch,
}

impl GpuChanneliser {
    /// A pipeline on `streams`, which its [`GpuIntake`](super::GpuIntake) shares, its gains all
    /// those of `config`.
    pub fn new(
        streams: Arc<Streams>,
        config: &PipelineConfig<'_>,
        chunks: OutputChunks,
        choice: &KernelChoice,
    ) -> Result<Self, GpuError> {
        let (output, bits) = (config.output, config.sample_bits);
        let gpu = streams.gpu().clone();
        let channels = output.channels;
        let OutputChunks { batches, count } = chunks;
        let batch_spectra = output.spectra_per_heap();
        let spectra = batches.saturating_mul(batch_spectra);
        let form = tune::pick(&gpu, output, bits, choice, config.statistics)?;
        let kernels = KernelSet::new(&gpu, output, bits, form, spectra, config.statistics)?;
        let statistics = kernels.statistics();
        let statistics = statistics
            .map(|form| Statistics::new(&streams, form))
            .transpose()?;
        let ddc = |narrowband| Ddc::new(&gpu, output, narrowband, bits, spectra);
        let ddc = output.narrowband.as_ref().map(ddc).transpose()?;
        let ring = kernels.ring(spectra);
        let intermediate = ring.saturating_mul(kernels.group_bytes());
        let out = batches.saturating_mul(output.batch_bytes());
        let room = out.saturating_mul(count).saturating_add(intermediate);
        gpu.check_room(
            "output chunks and intermediates",
            room,
            "--send-chunk-jones",
        )?;
        let slot = |_| Slot::new(&streams, output, batches);
        Ok(Self {
            intermediate: gpu.zeros("the intermediate", intermediate / 4)?,
            slots: (0..count.max(1)).map(slot).collect::<Result<_, _>>()?,
            next_gains: [0; N_POL]
                .map(|_| Gains::uniform(channels, Complex32::new(config.gain as f32, 0.0))),
            gains_version: 1,
            ring,
            kernels,
            ddc: ddc.map(|ddc| (ddc, Default::default())),
            power: None,
            statistics,
            spectrum_samples: output.spectrum_samples(),
            window_samples: output
                .window_samples()
                .max(output.taps.saturating_mul(output.transform_samples())),
            sample_bits: bits,
            batches,
            batch_spectra,
            batch_bytes: output.batch_bytes(),
            feng_id: config.feng_id as u32,
            current: 0,
            open: false,
            filtered: 0,
            finished: 0,
            under_way: VecDeque::with_capacity(count),
            complete: VecDeque::with_capacity(count),
            name: output.name.clone(),
            begun: Instant::now(),
            computing: Stopwatch::default(),
            streams,
        })
    }

    /// Has the digitiser's power counted for narrowband, too, which costs another pass over the
    /// samples.
    pub fn count_power(&mut self, output: &OutputConfig, bits: SampleBits) -> Result<(), GpuError> {
        if self.ddc.is_some() {
            self.power = Some(Power::new(self.streams.gpu(), output, bits)?);
        }
        Ok(())
    }

    /// Starts a chunk in the next slot: gains that were set since the last one, and counters at
    /// zero.
    fn begin(&mut self) -> Result<(), DriverError> {
        if self.open {
            // The last one was given up. Its tables are read up to here.
            self.slots[self.current]
                .done
                .record(&self.streams.compute)?;
        }
        self.current = (self.current + 1) % self.slots.len();
        self.open = true;
        (self.filtered, self.finished) = (0, 0);
        // Long done, unless the engine has more chunks than there are slots, or gave one up.
        self.slots[self.current].done.synchronize()?;
        if matches!(self.under_way.front(), Some((slot, _)) if *slot == self.current) {
            self.collect()?;
        }
        let Streams {
            table_copy,
            compute,
            ..
        } = &*self.streams;
        let slot = &mut self.slots[self.current];
        let counters = address(&slot.counters);
        // SAFETY: the counters are the slot's, which nothing uses now, and the compute stream has
        // them from here on.
        unsafe {
            result::memset_d8_async(counters, 0, slot.counters.num_bytes(), compute.cu_stream())
        }?;
        if slot.gains_version == self.gains_version {
            return Ok(());
        }
        slot.gains_version = self.gains_version;
        let table = slot.host_gains.as_mut_slice()?;
        let [x, y] = self.next_gains.each_ref().map(Gains::each);
        for (entry, (x, y)) in table.iter_mut().zip(x.iter().zip(y)) {
            entry.set_gain(0, *x, self.ddc.is_none());
            entry.set_gain(1, *y, self.ddc.is_none());
        }
        let (from, to) = (slot.host_gains.as_ptr()? as u64, address(&slot.gains));
        // SAFETY: both tables are the slot's and have all channels; neither is in use before, and
        // the CPU's is not written before `done`.
        unsafe { table_copy.launch(compute, from, to, slot.gains.len()) }
    }

    /// Sends the delays of a block's spectra.
    fn send_fine(&mut self, block: &Block<'_>) -> Result<(), DriverError> {
        let (first, fine) = (block.first, block.fine);
        let slot = &mut self.slots[self.current];
        let table = &mut slot.host_fine.as_mut_slice()?[first..first + fine.len()];
        for (entry, fine) in table.iter_mut().zip(fine) {
            *entry = fine.into();
        }
        if self.statistics.is_some() {
            for &spectrum in block.absent {
                table[spectrum].leave_out();
            }
        }
        let offset = (first * size_of::<Float4>()) as u64;
        let (from, to) = (table.as_ptr() as u64, address(&slot.fine) + offset);
        let Streams {
            table_copy,
            compute,
            ..
        } = &*self.streams;
        // SAFETY: both tables are the slot's and have all spectra of a chunk. No kernel has read
        // these entries since the slot's last chunk was done, and the CPU does not write its own
        // before this one is.
        unsafe { table_copy.launch(compute, from, to, fine.len()) }
    }

    /// Filters `spectra` of the output chunk, which begins at `start`, by one launch of each
    /// kernel, and finishes the groups that are then whole. The first window begins `offset`
    /// samples into `input`.
    fn launch_front(
        &mut self,
        input: &SampleInput,
        offset: [usize; N_POL],
        spectra: Range<usize>,
        start: Timestamp,
    ) -> Result<(), DriverError> {
        let end = spectra.end;
        let counters = address(&self.slots[self.current].counters);
        let stream = &self.streams.compute;
        if let Some(power) = &self.power {
            // SAFETY: as below.
            unsafe { power.add(stream, input, offset, spectra.clone(), counters) }?;
        }
        let input = match &mut self.ddc {
            None => FrontInput {
                pol: input.addresses,
                offset: offset.map(|offset| offset as u64),
                ring: 0,
            },
            Some((ddc, held)) => {
                // SAFETY: as below; nobody else has the rings.
                unsafe { ddc.convert(stream, held, input, offset, spectra.len()) }?
            }
        };
        let args = FrontArgs {
            input,
            spectra,
            number: (start.0 / self.spectrum_samples as u64) as u32,
            intermediate: self.intermediate(),
            counters,
        };
        // SAFETY: all that is used is on the compute stream, which the intake has made wait for the
        // samples. They have the windows of these spectra (`has_windows`), and padding behind; the
        // ring has room for all groups that are unfinished.
        unsafe { self.kernels.front(&self.streams.compute, &args) }?;
        self.filtered = end;
        self.finish_groups(end / self.kernels.group(), end, start)
    }

    fn intermediate(&self) -> Intermediate {
        Intermediate {
            data: address(&self.intermediate),
            groups: self.ring,
        }
    }

    /// Finishes groups up to `end_group`; spectra from `limit` on are dropped.
    fn finish_groups(
        &mut self,
        end_group: usize,
        limit: usize,
        start: Timestamp,
    ) -> Result<(), DriverError> {
        if end_group <= self.finished {
            return Ok(());
        }
        let (slot, intermediate) = (&self.slots[self.current], self.intermediate());
        let statistics = self.statistics.as_mut().zip(self.kernels.statistics());
        let statistics = statistics.filter(|(statistics, form)| statistics.are_of(form));
        let args = BackArgs {
            intermediate,
            gains: address(&slot.gains),
            fine: address(&slot.fine),
            out: address(&slot.out),
            counters: address(&slot.counters),
            start: start.0,
            limit,
            feng_id: self.feng_id,
            statistics: statistics.as_ref().map(|(of, _)| of.buffers.args()),
        };
        let groups = self.finished..end_group;
        // SAFETY: all that is used is on the compute stream, and the slot is this chunk's until it
        // is done. The groups were filtered, and the chunk has the spectra below `limit`.
        unsafe { self.kernels.back(&self.streams.compute, groups, &args) }?;
        if let Some((statistics, _)) = statistics {
            let group = self.kernels.group();
            let spectra = self.finished * group..limit.min(end_group * group);
            let fine = &slot.host_fine.as_slice()?[spectra];
            statistics.add(fine.iter().filter(|fine| !fine.is_left_out()).count());
        }
        self.finished = end_group;
        Ok(())
    }

    /// Whether the input has all windows of the block, and an output chunk its spectra: what the
    /// kernels rely on.
    fn has_windows(&self, samples: usize, block: &Block<'_>) -> bool {
        let end = |offset: usize| {
            let last = (block.fine.len() - 1).checked_mul(self.spectrum_samples)?;
            last.checked_add(self.window_samples)?.checked_add(offset)
        };
        let spectra = block.first.checked_add(block.fine.len());
        spectra.is_some_and(|spectra| spectra <= self.batches * self.batch_spectra)
            && block
                .offset
                .map(end)
                .iter()
                .all(|end| end.is_some_and(|end| end <= samples))
    }

    fn try_front(
        &mut self,
        input: &SampleInput,
        block: &Block<'_>,
        start: Timestamp,
    ) -> Result<(), DriverError> {
        if block.first == 0 {
            self.begin()?;
        }
        let streams = self.streams.clone();
        self.computing.start(&streams.compute)?;
        self.send_fine(block)?;
        let end = block.first + block.fine.len();
        let most = self.ddc.as_ref().map(|(ddc, _)| ddc.most_spectra());
        let mut first = block.first;
        while first < end {
            let to = end.min(self.kernels.reach(first, self.ring));
            let to = to.min(most.map_or(to, |most| first + most));
            let skip = (first - block.first) * self.spectrum_samples;
            self.launch_front(input, block.offset.map(|o| o + skip), first..to, start)?;
            first = to;
        }
        self.computing.stop(&streams.compute)
    }

    fn try_back(&mut self, batches: usize, chunk: OutputChunk) -> Result<(), DriverError> {
        let limit = (batches * self.batch_spectra).min(self.filtered);
        self.finish_groups(limit.div_ceil(self.kernels.group()), limit, chunk.start())?;
        self.open = false;
        if let Some(statistics) = &mut self.statistics {
            statistics.end_chunk();
        }
        // Kept before the first copy is issued: whatever fails, the memory outlives the copies.
        self.under_way.push_back((self.current, chunk));
        let Some((_, chunk)) = self.under_way.back_mut() else {
            return Ok(());
        };
        let slot = &mut self.slots[self.current];
        let stream = &self.streams.copy_out;
        slot.computed.record(&self.streams.compute)?;
        stream.wait(&slot.computed)?;
        let data = &mut chunk.writer().span().data[..batches * self.batch_bytes];
        let counters = slot.host_counters.as_mut_slice()?;
        // SAFETY: the sources are at least as long, for `back` has compared. Nobody reads or writes
        // the destinations before `done`, and nobody but this stream uses the slot's memory.
        unsafe {
            if !data.is_empty() {
                result::memcpy_dtoh_async(data, address(&slot.out), stream.cu_stream())?;
            }
            result::memcpy_dtoh_async(counters, address(&slot.counters), stream.cu_stream())?;
        }
        slot.done.record(stream)
    }

    /// Fills in what was counted in the oldest chunk, which is done.
    fn collect(&mut self) -> Result<(), DriverError> {
        if let Some((slot, mut chunk)) = self.under_way.pop_front() {
            let counters = self.slots[slot].host_counters.as_slice()?;
            let stats = chunk.writer().span().stats;
            for (stats, counters) in stats.iter_mut().zip(counters.chunks(COUNTERS)) {
                stats.clipped.copy_from_slice(&counters[..N_POL]);
                stats.power.copy_from_slice(&counters[N_POL..]);
            }
            self.complete.push_back(chunk);
        }
        Ok(())
    }

    fn try_poll(&mut self) -> Result<Option<OutputChunk>, DriverError> {
        self.computing.read()?;
        while let Some((slot, _)) = self.under_way.front()
            && self.slots[*slot].done.try_is_complete()?
        {
            self.collect()?;
        }
        Ok(self.complete.pop_front())
    }
}

impl Pipeline for GpuChanneliser {
    fn name(&self) -> String {
        let (gpu, kernels) = (self.streams.gpu().name(), self.kernels.name());
        format!("cuda ({gpu}; {kernels})")
    }

    fn set_gains(&mut self, pol: usize, gains: &mut Gains) {
        if let Some(next) = self.next_gains.get_mut(pol)
            && gains.channels() == next.channels()
        {
            std::mem::swap(next, gains);
            self.gains_version += 1;
        }
    }

    fn run_frontend(
        &mut self,
        input: &SampleView<'_>,
        block: &Block<'_>,
        chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        let stage = "the front end on the GPU";
        let Some(samples) = input.device else {
            let way_out = "give the engine the GPU's intake";
            return Err(PipelineError::new(
                stage,
                "the input is not in its memory",
                way_out,
            ));
        };
        if block.fine.is_empty() {
            return Ok(());
        }
        // Anyone can write what a view says of itself.
        let there = input.samples.min(samples.count(self.sample_bits));
        if !self.has_windows(there, block) {
            let cause = format!(
                "{} spectra from {} on, at {:?} of {} samples, are not there",
                block.fine.len(),
                block.first,
                block.offset,
                there
            );
            let way_out = "give it no more than the input and an output chunk have";
            return Err(PipelineError::new(stage, cause, way_out));
        }
        let samples = SampleInput {
            addresses: samples.addresses(),
            start: input.start,
        };
        self.try_front(&samples, block, chunk.start)
            .map_err(failed(stage))
    }

    fn finish_chunk(&mut self, batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        let stage = "the back end on the GPU";
        if batches > self.batches {
            let cause = format!("{batches} batches of {} are wanted", self.batches);
            let way_out = "give it chunks of the size that it was made for";
            return Err(PipelineError::new(stage, cause, way_out));
        }
        self.try_back(batches, chunk).map_err(failed(stage))
    }

    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        self.try_poll().map_err(failed("computing on the GPU"))
    }

    fn end_period(&mut self) -> Result<bool, PipelineError> {
        let Some((statistics, form)) = self.statistics.as_mut().zip(self.kernels.statistics())
        else {
            return Ok(false);
        };
        let ended = statistics.end_period(form, &self.streams);
        ended.map_err(failed("statistics on the GPU"))?;
        Ok(true)
    }

    fn poll_sums(&mut self) -> Result<Option<PeriodSums>, PipelineError> {
        let statistics = self.statistics.as_mut();
        let sums = statistics.map_or(Ok(None), Statistics::poll);
        sums.map_err(failed("statistics on the GPU"))
    }

    fn busy(&self) -> Option<(String, Arc<AtomicU64>)> {
        Some((stage_name(&self.name), self.computing.busy().clone()))
    }

    fn thread_reports(&self) -> Vec<ThreadReport> {
        let name = stage_name(&self.name);
        vec![self.computing.report(&name, "compute", self.begun)]
    }
}

/// The name, in sensors and metrics, of what the GPU does for an output.
fn stage_name(output: &str) -> String {
    match output {
        // That of the input's copies.
        "in" => "gpu-output-in".to_owned(),
        output => format!("gpu-{output}"),
    }
}

impl Drop for GpuChanneliser {
    fn drop(&mut self) {
        self.streams.settle();
    }
}

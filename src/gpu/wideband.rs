//! One wideband output stream on the GPU.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaSlice, DriverError, PinnedHostSlice};
use rustfft::num_complex::Complex32;

use super::form::Kernels;
use super::input::{Current, Input};
use super::variant::{BackArgs, COUNTERS, Float4, FrontArgs, Intermediate, Variant, address};
use super::{Gpu, GpuError, tune};
use crate::config::OutputConfig;
use crate::engine::{
    Block, FineDelay, InputView, OutputChunk, OutputSpan, Pipeline, PipelineError,
};
use crate::monitor::report::LcoreReport;
use crate::units::{N_POL, Timestamp};

/// A wideband [`Pipeline`] on a GPU.
pub struct Wideband {
    gpu: Arc<Gpu>,
    input: Arc<Input>,
    variant: Variant,
    channels: usize,
    batch_spectra: usize,
    batch_bytes: usize,
    seed: u64,
    feng_id: u32,
    intermediate: CudaSlice<f32>,
    ring: usize,
    gains: CudaSlice<Float4>,
    fine: CudaSlice<Float4>,
    out: CudaSlice<u32>,
    counters: CudaSlice<u64>,
    host_gains: PinnedHostSlice<Float4>,
    host_fine: PinnedHostSlice<Float4>,
    host_out: PinnedHostSlice<u32>,
    host_counters: PinnedHostSlice<u64>,
    gains_changed: bool,
    staged: [Option<Vec<Complex32>>; N_POL],
    /// Spectra of the current chunk that have been filtered, and groups that are finished.
    filtered: usize,
    finished: usize,
    complete: VecDeque<OutputChunk>,
    begun: Instant,
    busy: Duration,
}

impl Wideband {
    /// A pipeline over `input` for output chunks of up to `batches` batches, its gains all `gain`.
    pub fn new(
        output: &OutputConfig,
        input: Arc<Input>,
        batches: usize,
        feng_id: u64,
        gain: f64,
    ) -> Result<Self, GpuError> {
        Self::with_kernels(output, input, batches, feng_id, gain, &Kernels::default())
    }

    /// The same with kernels of one's choice.
    pub fn with_kernels(
        output: &OutputConfig,
        input: Arc<Input>,
        batches: usize,
        feng_id: u64,
        gain: f64,
        kernels: &Kernels,
    ) -> Result<Self, GpuError> {
        let gpu = input.gpu().clone();
        let channels = output.channels;
        let batch_spectra = output.spectra_per_heap();
        let spectra = batches * batch_spectra;
        let form = tune::pick(&gpu, output, input.bits(), kernels)?;
        let variant = Variant::new(&gpu, output, input.bits(), form, spectra)?;
        let jones = batches * output.jones_per_batch;
        let ring = variant.ring(spectra);
        let mut wideband = Self {
            intermediate: gpu.zeros("the intermediate", ring * variant.group_bytes() / 4)?,
            gains: gpu.zeros("gains", channels)?,
            fine: gpu.zeros("delays", spectra)?,
            out: gpu.zeros("an output chunk", jones)?,
            counters: gpu.zeros("counters", batches * COUNTERS)?,
            host_gains: gpu.pinned("gains", channels)?,
            host_fine: gpu.pinned("delays", spectra)?,
            host_out: gpu.pinned("an output chunk", jones)?,
            host_counters: gpu.pinned("counters", batches * COUNTERS)?,
            ring,
            variant,
            channels,
            batch_spectra,
            batch_bytes: output.batch_bytes(),
            seed: output.dither_seed,
            feng_id: feng_id as u32,
            gains_changed: false,
            staged: [None, None],
            filtered: 0,
            finished: 0,
            complete: VecDeque::new(),
            begun: Instant::now(),
            busy: Duration::ZERO,
            gpu,
            input,
        };
        let gain = Complex32::new(gain as f32, 0.0);
        for pol in 0..N_POL {
            wideband.set_gains(pol, &vec![gain; channels]);
        }
        Ok(wideband)
    }

    /// Starts a chunk: gains that were set since the last one, and counters at zero.
    fn begin(&mut self) -> Result<(), DriverError> {
        let stream = &self.gpu.stream;
        // A chunk that was given up may still be under way, and reads the tables.
        stream.synchronize()?;
        for pol in 0..N_POL {
            if let Some(gains) = self.staged[pol].take() {
                let table = self.host_gains.as_mut_slice()?;
                for (entry, gain) in table.iter_mut().zip(gains) {
                    entry.set_gain(pol, gain);
                }
                self.gains_changed = true;
            }
        }
        if std::mem::take(&mut self.gains_changed) {
            stream.memcpy_htod(&self.host_gains, &mut self.gains)?;
        }
        stream.memset_zeros(&mut self.counters)?;
        (self.filtered, self.finished) = (0, 0);
        Ok(())
    }

    /// Sends the delays of spectra `first ..` of the chunk.
    fn send_fine(&mut self, first: usize, fine: &[FineDelay]) -> Result<(), DriverError> {
        let end = first + fine.len();
        let table = &mut self.host_fine.as_mut_slice()?[first..end];
        for (entry, fine) in table.iter_mut().zip(fine) {
            *entry = fine.into();
        }
        // A part of a pinned slice is a plain slice: the copy is still asynchronous, but nothing waits for
        // it by itself. The entries are written once per chunk, and a chunk begins when the stream is idle.
        let mut room = self.fine.slice_mut(first..end);
        self.gpu.stream.memcpy_htod(&*table, &mut room)
    }

    /// Filters spectra `first .. end`, and finishes the groups that are then whole.
    fn stretch(
        &mut self,
        input: &Current,
        offset: [usize; N_POL],
        (first, end): (usize, usize),
        start: Timestamp,
    ) -> Result<(), DriverError> {
        let args = FrontArgs {
            samples: [0, 1].map(|pol| address(input.pol(pol))),
            offset: offset.map(|offset| offset as u64),
            spectra: (first, end),
            intermediate: self.intermediate(),
            counters: address(&self.counters),
        };
        // SAFETY: all that is used is on one stream. The input has the windows of spectra `first .. end`, or the engine
        // would not give them, and padding behind; the ring has room for all groups that are unfinished.
        unsafe { self.variant.front(&self.gpu.stream, &args) }?;
        self.filtered = end;
        self.finish_groups(end / self.variant.group(), end, start)
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
        let args = BackArgs {
            intermediate: self.intermediate(),
            gains: address(&self.gains),
            fine: address(&self.fine),
            out: address(&self.out),
            counters: address(&self.counters),
            start: start.0,
            limit,
            seed: self.seed,
            feng_id: self.feng_id,
        };
        let groups = self.finished..end_group;
        // SAFETY: all that is used is on one stream. The groups were filtered, and the chunk has the spectra below `limit`.
        unsafe { self.variant.back(&self.gpu.stream, groups, &args) }?;
        self.finished = end_group;
        Ok(())
    }

    fn try_front(
        &mut self,
        input: &InputView<'_>,
        block: &Block<'_>,
        start: Timestamp,
    ) -> Result<(), DriverError> {
        if block.first == 0 {
            self.begin()?;
        }
        let shared = self.input.clone();
        let input = shared.upload(input)?;
        self.send_fine(block.first, block.fine)?;
        let step = 2 * self.channels;
        let end = block.first + block.fine.len();
        let mut first = block.first;
        while first < end {
            let to = end.min(self.variant.reach(first, self.ring));
            let offset = block.offset.map(|o| o + (first - block.first) * step);
            self.stretch(&input, offset, (first, to), start)?;
            first = to;
        }
        Ok(())
    }

    fn try_back(&mut self, batches: usize, chunk: &mut OutputSpan<'_>) -> Result<(), DriverError> {
        let limit = (batches * self.batch_spectra).min(self.filtered);
        self.finish_groups(limit.div_ceil(self.variant.group()), limit, chunk.start)?;
        let stream = &self.gpu.stream;
        let bytes = batches * self.batch_bytes;
        if batches > 0 {
            let out = self.out.slice(..bytes / 4);
            stream.memcpy_dtoh(&out, &mut self.host_out)?;
        }
        stream.memcpy_dtoh(&self.counters, &mut self.host_counters)?;
        let out = self.host_out.as_slice()?;
        // SAFETY: any bytes are bytes, and the range is the slice's.
        let out = unsafe { std::slice::from_raw_parts(out.as_ptr().cast::<u8>(), 4 * out.len()) };
        chunk.data[..bytes].copy_from_slice(&out[..bytes]);
        let counters = self.host_counters.as_slice()?;
        for (stats, counters) in chunk.stats.iter_mut().zip(counters.chunks(COUNTERS)) {
            stats.saturated.copy_from_slice(&counters[..N_POL]);
            stats.power.copy_from_slice(&counters[N_POL..]);
        }
        Ok(())
    }
}

fn failed(stage: &'static str) -> impl Fn(DriverError) -> PipelineError {
    let way_out = "look for Xid messages of the driver in dmesg, or use --backend cpu";
    move |error| PipelineError::new(stage, error, way_out)
}

impl Pipeline for Wideband {
    fn name(&self) -> String {
        format!("cuda ({}; {})", self.gpu.name(), self.variant.name())
    }

    fn set_gains(&mut self, pol: usize, gains: &[Complex32]) {
        if pol < N_POL && gains.len() == self.channels {
            self.staged[pol] = Some(gains.to_vec());
        }
    }

    fn front(
        &mut self,
        input: &InputView<'_>,
        block: &Block<'_>,
        chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        if block.fine.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        self.try_front(input, block, chunk.start)
            .map_err(failed("the front end on the GPU"))?;
        self.busy += begun.elapsed();
        Ok(())
    }

    fn back(&mut self, batches: usize, mut chunk: OutputChunk) -> Result<(), PipelineError> {
        let begun = Instant::now();
        self.try_back(batches, &mut chunk.span())
            .map_err(failed("the back end on the GPU"))?;
        self.busy += begun.elapsed();
        self.complete.push_back(chunk);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(self.complete.pop_front())
    }

    fn lcores(&self) -> Vec<LcoreReport> {
        let idle = self.begun.elapsed().saturating_sub(self.busy);
        vec![LcoreReport {
            name: "cuda".into(),
            core: None,
            phases: vec![
                ("enqueue+wait".into(), self.busy.as_secs_f64()),
                ("idle".into(), idle.as_secs_f64()),
            ],
        }]
    }
}

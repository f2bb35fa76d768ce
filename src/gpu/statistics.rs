//! Sums for statistics on the GPU: what the back end adds to, and how periods' sums come back.

use std::collections::VecDeque;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DriverError, PinnedHostSlice, result};
use ground::N_POL;
use num_complex::Complex64;

use super::compile::SUM_STATISTICS;
use super::device::address;
use super::launch::{Arguments, Kernel};
use super::parameters::StatisticsArgs;
use super::streams::Streams;
use super::{Gpu, GpuError};
use crate::engine::{ChannelSums, PeriodSums};

/// Numbers per channel as they come back: both powers, their squares, the product's parts, clipped.
const NUMBERS: usize = 8;

/// What a kernel set's back end adds up, and the kernel that takes its blocks' parts together.
#[derive(Debug)]
pub(super) struct StatisticsForm {
    kernel: Kernel,
    /// Of the launch of the back end that has most blocks.
    columns: usize,
    rows: usize,
    /// Numbers in all parts together.
    numbers: usize,
    channels: usize,
    /// Output chunks of which one is summed.
    every: u64,
}

impl StatisticsForm {
    /// Threads of a block of the kernel.
    const THREADS: u32 = 256;

    /// Output chunks of which one is summed, so that looking takes at most 3 % of an H100's rate
    /// (docs/decisions/0034-sums-in-the-back-end.md).
    pub const CHUNKS: u64 = 8;
    /// The same where a block of the back end has no room for its sums.
    pub const CHUNKS_WITHOUT_ROOM: u64 = 16;
    /// As [`CHUNKS`](Self::CHUNKS), behind cuFFT.
    pub const CHUNKS_OF_CUFFT: u64 = 64;

    /// Compiles the kernel for the back end with these macros.
    pub fn new(
        gpu: &Gpu,
        macros: &[(&'static str, u64)],
        grid: [usize; 2],
        numbers: usize,
        channels: usize,
        every: u64,
    ) -> Result<Self, GpuError> {
        Ok(Self {
            kernel: Kernel {
                function: gpu.function(SUM_STATISTICS, macros, 0)?,
                threads: Self::THREADS,
                shared: 0,
                overlaps: false,
            },
            columns: grid[0],
            rows: grid[1],
            numbers,
            channels,
            every,
        })
    }

    /// Output chunks of which one is summed.
    pub fn every(&self) -> u64 {
        self.every
    }
}

/// What is added to.
#[derive(Debug)]
pub(super) struct StatisticsBuffers {
    sums: CudaSlice<f32>,
    clipped: CudaSlice<u64>,
    all: CudaSlice<f64>,
}

impl StatisticsBuffers {
    /// Zeros.
    pub fn new(gpu: &Gpu, form: &StatisticsForm) -> Result<Self, GpuError> {
        Ok(Self {
            sums: gpu.zeros("sums for statistics", form.numbers)?,
            clipped: gpu.zeros("counts for statistics", N_POL * form.channels)?,
            all: gpu.zeros("sums for statistics", NUMBERS * form.channels)?,
        })
    }

    /// What the back end is given.
    pub fn args(&self) -> StatisticsArgs {
        StatisticsArgs {
            sums: address(&self.sums),
            clipped: address(&self.clipped),
        }
    }

    /// Takes all parts together behind what `stream` has, and starts anew. Returns where the sums
    /// are.
    ///
    /// # Safety
    ///
    /// Nothing else touches the buffers meanwhile, and they live until the stream has passed.
    pub unsafe fn collect(
        &self,
        form: &StatisticsForm,
        stream: &CudaStream,
    ) -> Result<CUdeviceptr, DriverError> {
        let StatisticsArgs { sums, clipped } = self.args();
        let (all, columns, rows) = (address(&self.all), form.columns as i32, form.rows as i32);
        let mut arguments = Arguments::default();
        arguments.arg(&sums).arg(&clipped).arg(&all);
        arguments.arg(&columns).arg(&rows);
        let threads = NUMBERS * form.channels;
        let blocks = threads.div_ceil(StatisticsForm::THREADS as usize);
        // SAFETY: the arguments are those of sum_statistics, and the caller vouches for the rest.
        unsafe {
            form.kernel.launch(stream, &mut arguments, [blocks, 1, 1])?;
        }
        Ok(all)
    }
}

/// Periods that there is memory for from the start: one is on its way while the next one ends.
const PERIODS: usize = 2;

/// The sums of one pipeline, period by period.
#[derive(Debug)]
pub(super) struct Statistics {
    pub buffers: StatisticsBuffers,
    /// Spectra so far in the period under way that count, and its chunks that are finished.
    spectra: u64,
    chunks: u64,
    /// On their way, oldest first.
    ended: VecDeque<Ended>,
    spare: Vec<Ended>,
}

/// A period's sums in memory of the host, once they have come.
#[derive(Debug)]
struct Ended {
    sums: PinnedHostSlice<f64>,
    spectra: u64,
    /// After the kernel, and after the copy.
    summed: CudaEvent,
    done: CudaEvent,
}

impl Statistics {
    /// Nothing yet. Memory for two periods is there from the start: to get some while the GPU
    /// works takes milliseconds.
    pub fn new(streams: &Streams, form: &StatisticsForm) -> Result<Self, GpuError> {
        let gpu = streams.gpu();
        let event = || {
            streams.event().map_err(|source| GpuError::Driver {
                what: "make an event",
                source,
            })
        };
        let ended = |_| -> Result<Ended, GpuError> {
            Ok(Ended {
                sums: gpu.pinned("statistics", NUMBERS * form.channels)?,
                spectra: 0,
                summed: event()?,
                done: event()?,
            })
        };
        Ok(Self {
            buffers: StatisticsBuffers::new(gpu, form)?,
            spectra: 0,
            chunks: 0,
            ended: VecDeque::new(),
            spare: (0..PERIODS).map(ended).collect::<Result<_, _>>()?,
        })
    }

    /// Whether the chunk under way is summed: a period's first, and one in so many behind it.
    pub fn are_of(&self, form: &StatisticsForm) -> bool {
        self.chunks.is_multiple_of(form.every)
    }

    /// So many more spectra count.
    pub fn add(&mut self, spectra: usize) {
        self.spectra += spectra as u64;
    }

    /// The chunk under way is finished.
    pub fn end_chunk(&mut self) {
        self.chunks += 1;
    }

    /// Sends all that has been issued to the compute stream on its way.
    pub fn end_period(
        &mut self,
        form: &StatisticsForm,
        streams: &Streams,
    ) -> Result<(), DriverError> {
        let mut ended = match self.spare.pop() {
            Some(ended) => ended,
            None => Ended {
                // SAFETY: written before it is read.
                sums: unsafe {
                    let context = streams.compute.context();
                    context.alloc_pinned(NUMBERS * form.channels)?
                },
                spectra: 0,
                summed: streams.event()?,
                done: streams.event()?,
            },
        };
        ended.spectra = std::mem::take(&mut self.spectra);
        self.chunks = 0;
        if let Some(before) = self.ended.back() {
            // The sums are copied from the same place.
            streams.compute.wait(&before.done)?;
        }
        // SAFETY: only the compute stream uses the buffers, and what copies the sums away is waited
        // for. Pipelines settle the streams before they give them up.
        let from = unsafe { self.buffers.collect(form, &streams.compute) }?;
        ended.summed.record(&streams.compute)?;
        streams.copy_out.wait(&ended.summed)?;
        // Kept before the copy is issued: whatever fails, the memory outlives it.
        self.ended.push_back(ended);
        if let Some(ended) = self.ended.back_mut() {
            let sums = ended.sums.as_mut_slice()?;
            // SAFETY: both have all numbers; nobody reads the host's before `done`.
            unsafe { result::memcpy_dtoh_async(sums, from, streams.copy_out.cu_stream()) }?;
            ended.done.record(&streams.copy_out)?;
        }
        Ok(())
    }

    /// The sums of the oldest period that has ended, if they have come.
    pub fn poll(&mut self) -> Result<Option<PeriodSums>, DriverError> {
        match self.ended.front() {
            Some(ended) if ended.done.try_is_complete()? => {}
            _ => return Ok(None),
        }
        let Some(ended) = self.ended.pop_front() else {
            return Ok(None);
        };
        let sums = PeriodSums {
            spectra: ended.spectra,
            channels: channels(ended.sums.as_slice()?),
        };
        self.spare.push(ended);
        Ok(Some(sums))
    }
}

/// Sums as the kernel lays them out.
pub(super) fn channels(numbers: &[f64]) -> Vec<ChannelSums> {
    let channel = |numbers: &[f64]| ChannelSums {
        power: [numbers[0], numbers[1]],
        power_squared: [numbers[2], numbers[3]],
        cross: Complex64::new(numbers[4], numbers[5]),
        // Counts are u64 in the same places.
        clipped: [numbers[6].to_bits(), numbers[7].to_bits()],
    };
    numbers.chunks_exact(NUMBERS).map(channel).collect()
}

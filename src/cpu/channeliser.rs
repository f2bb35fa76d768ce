//! One output stream on the workers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ground::N_POL;
use ground::stats::ThreadReport;
use num_complex::Complex32;

use super::coefficients::Gains;
use super::down::{Baseband, DownConverter};
use super::group::{GroupKernels, GroupSpectra, Rows, Scratch};
use super::oversampled::{DownInput, HopSpectra, Hops};
use super::simd::{GroupOutput, OutputGroups};
use super::{Level, Workers};
use crate::config::PipelineConfig;
use crate::engine::{Block, FineDelay, OutputChunk, PeriodSums, Pipeline, PipelineError, steer};
use crate::memory::{BatchStats, OutputSpan, SampleView};

/// Spectra per group, at most: one cache line of output per channel. Larger groups would unpack
/// fewer rows twice (`taps − 1` per group), but lose more when the transforms leave the caches.
const MAX_GROUP: usize = 16;

/// A [`Pipeline`] on CPU workers, wideband or narrowband.
pub struct CpuChanneliser {
    kernels: GroupKernels,
    /// In front of a narrowband output, with what it made of the current block.
    down: Option<DownConverter>,
    baseband: Baseband,
    /// The hops of an oversampled output.
    hops: Option<Hops>,
    batch_spectra: usize,
    workers: Arc<Workers>,
    scratch: Vec<Mutex<Scratch>>,
    /// A group cut by a block's end waits in the current one; the other takes the next cut group.
    pending: [Mutex<Pending>; 2],
    current: usize,
    gains: Gains,
    /// Gains from the next output chunk on, for the polarisations that have some.
    next_gains: [steer::Gains; N_POL],
    has_next_gains: [bool; N_POL],
    finished: VecDeque<OutputChunk>,
    /// Sums of statistics periods that have ended.
    sums: VecDeque<PeriodSums>,
    begun: Instant,
}

/// A group whose first spectra were filtered from an earlier block.
struct Pending {
    rows: Rows,
    fine: Vec<FineDelay>,
    /// Whether statistics count each spectrum.
    counts: Vec<bool>,
}

impl CpuChanneliser {
    /// A pipeline at the highest [`Level`] of the machine, its gains all those of `config`.
    pub fn new(config: &PipelineConfig<'_>, workers: Arc<Workers>) -> Self {
        Self::with_level(config, workers, Level::detect())
    }

    /// A pipeline at `level`, or the machine's highest below it.
    pub fn with_level(config: &PipelineConfig<'_>, workers: Arc<Workers>, level: Level) -> Self {
        let (output, bits) = (config.output, config.sample_bits);
        let batch_spectra = output.spectra_per_heap();
        let group = 1 << batch_spectra.trailing_zeros().min(MAX_GROUP.ilog2());
        let kernels = GroupKernels::new(level, config, group);
        let down = output.narrowband.as_ref();
        let down = down.map(|n| DownConverter::new(n, output.pfb_step(), bits, level));
        let tile = down.as_ref().map_or(0, DownConverter::tile_samples);
        let pending = || {
            Mutex::new(Pending {
                rows: kernels.rows(),
                fine: vec![FineDelay::default(); group],
                counts: vec![true; group],
            })
        };
        Self {
            batch_spectra,
            scratch: (0..workers.count())
                .map(|_| Mutex::new(kernels.scratch(tile)))
                .collect(),
            pending: [pending(), pending()],
            current: 0,
            gains: Gains::new(output.channels, config.gain),
            next_gains: [0; N_POL]
                .map(|_| steer::Gains::uniform(output.channels, Complex32::default())),
            has_next_gains: [false; N_POL],
            finished: VecDeque::new(),
            sums: VecDeque::new(),
            begun: Instant::now(),
            workers,
            kernels,
            down,
            baseband: Baseband::default(),
            hops: Hops::new(output),
        }
    }

    /// The same, whose statistics have all spectra, whatever they cost.
    pub(super) fn summing_all(mut self) -> Self {
        self.kernels.sums_every = 1;
        self
    }

    /// Instruction set in use.
    pub fn level(&self) -> Level {
        self.kernels.at.level()
    }
}

/// One call of [`Pipeline::run_frontend`], as the workers see it.
struct Front<'a> {
    pipeline: &'a CpuChanneliser,
    input: &'a SampleView<'a>,
    block: &'a Block<'a>,
    start: ground::Timestamp,
    stats: Mutex<&'a mut [BatchStats]>,
}

impl Front<'_> {
    /// FIR of `count` spectra from spectrum `first` of the chunk on into `rows[to..]`.
    fn filter(
        &self,
        scratch: &mut Scratch,
        rows: &mut Rows,
        first: usize,
        to: usize,
        count: usize,
    ) -> [u64; N_POL] {
        let CpuChanneliser {
            kernels, baseband, ..
        } = self.pipeline;
        let row = first - self.block.first;
        if let Some(hops) = &self.pipeline.hops {
            let of = HopSpectra {
                number: self.start.0 / kernels.spectrum_samples as u64 + first as u64,
                first: row,
                to,
                count,
            };
            let (input, offset) = (self.input, self.block.offset);
            if self.pipeline.down.is_some() {
                let from = DownInput {
                    baseband,
                    samples: input,
                    offset,
                };
                return kernels.front_down_hops(hops, scratch, rows, from, of);
            }
            return kernels.front_hops(hops, scratch, rows, input, offset, of);
        }
        if self.pipeline.down.is_some() {
            return kernels.front_down(scratch, rows, baseband, row, to, count);
        }
        let offset = self
            .block
            .offset
            .map(|o| o + row * kernels.spectrum_samples);
        kernels.front(scratch, rows, self.input, offset, to, count)
    }

    /// Takes one group as far as the block reaches.
    fn group(&self, scratch: &mut Scratch, output: GroupOutput<'_>) {
        let CpuChanneliser { kernels, .. } = self.pipeline;
        let (group, step) = (kernels.group, kernels.spectrum_samples);
        let group_first = output.index() * group;
        let first = group_first.max(self.block.first);
        let end = (group_first + group).min(self.block.first + self.block.fine.len());
        let of_block = first - self.block.first..end - self.block.first;
        let counts = of_block.clone().map(|s| !self.block.lacks_input(s));
        let fine = &self.block.fine[of_block];
        let start = self.start + (group_first * step) as u64;
        let batch = group_first / self.pipeline.batch_spectra;
        let (power, clipped) = if fine.len() == group {
            let mut rows = std::mem::take(&mut scratch.rows);
            let power = self.filter(scratch, &mut rows, first, 0, group);
            let mut counted = [true; MAX_GROUP];
            counted
                .iter_mut()
                .zip(counts)
                .for_each(|(to, from)| *to = from);
            let of = GroupSpectra {
                start,
                fine,
                counts: &counted[..group],
                gains: &self.pipeline.gains,
            };
            let clipped = kernels.back(scratch, &mut rows, of, output);
            scratch.rows = rows;
            (power, clipped)
        } else {
            let pending = self.pipeline.pending_for(self.block, group_first);
            let pending = &mut *ground::lock(&self.pipeline.pending[pending]);
            let (from, to) = (first - group_first, end - group_first);
            pending.fine[from..to].copy_from_slice(fine);
            let kept = pending.counts[from..to].iter_mut();
            kept.zip(counts).for_each(|(to, from)| *to = from);
            let rows = &mut pending.rows;
            let power = self.filter(scratch, rows, first, from, to - from);
            let clipped = if to == group {
                let of = GroupSpectra {
                    start,
                    fine: &pending.fine,
                    counts: &pending.counts,
                    gains: &self.pipeline.gains,
                };
                kernels.back(scratch, rows, of, output)
            } else {
                [0; N_POL]
            };
            (power, clipped)
        };
        if let Some(stats) = ground::lock(&self.stats).get_mut(batch) {
            for pol in 0..N_POL {
                stats.power[pol] += power[pol];
                stats.clipped[pol] += clipped[pol];
            }
        }
    }
}

impl CpuChanneliser {
    /// Which pending buffer a cut group uses: the current one if the block starts inside it.
    fn pending_for(&self, block: &Block<'_>, group_first: usize) -> usize {
        if group_first <= block.first {
            self.current
        } else {
            1 - self.current
        }
    }
}

impl Pipeline for CpuChanneliser {
    fn name(&self) -> String {
        format!(
            "cpu ({}, {} workers)",
            self.level().name(),
            self.workers.count()
        )
    }

    fn set_gains(&mut self, pol: usize, gains: &mut steer::Gains) {
        if pol < N_POL && gains.channels() == self.kernels.channels {
            std::mem::swap(&mut self.next_gains[pol], gains);
            self.has_next_gains[pol] = true;
        }
    }

    fn run_frontend(
        &mut self,
        input: &SampleView<'_>,
        block: &Block<'_>,
        chunk: &mut OutputSpan<'_>,
    ) -> Result<(), PipelineError> {
        if block.fine.is_empty() {
            return Ok(());
        }
        if block.first == 0 {
            for pol in 0..N_POL {
                if std::mem::take(&mut self.has_next_gains[pol]) {
                    self.gains.swap(pol, &mut self.next_gains[pol]);
                }
            }
        }
        let group = self.kernels.group;
        let end = block.first + block.fine.len();
        let groups = block.first / group..end.div_ceil(group);
        let last = groups.end - 1;
        if let Some(down) = &self.down {
            let spectra = block.fine.len();
            let numbers = match &self.hops {
                None => (spectra + self.kernels.taps - 1) * down.row(),
                Some(hops) => hops.numbers(spectra),
            };
            let (scratch, baseband) = (&self.scratch, &mut self.baseband);
            down.run(
                &self.workers,
                scratch,
                input,
                block.offset,
                numbers,
                baseband,
            );
        }
        let output = OutputGroups::new(
            chunk.data,
            self.kernels.bits,
            self.kernels.channels,
            self.batch_spectra,
            group,
            groups,
        );
        let front = Front {
            pipeline: self,
            input,
            block,
            start: chunk.start,
            stats: Mutex::new(chunk.stats),
        };
        self.workers.run(|worker| {
            let scratch = &mut *ground::lock(&self.scratch[worker]);
            while let Some(output) = output.next() {
                front.group(scratch, output);
            }
        });
        if !end.is_multiple_of(group) {
            self.current = self.pending_for(block, last * group);
        }
        Ok(())
    }

    fn finish_chunk(&mut self, _batches: usize, chunk: OutputChunk) -> Result<(), PipelineError> {
        // Whole groups were finished as they came; a cut one belongs to a discarded batch.
        self.finished.push_back(chunk);
        Ok(())
    }

    fn poll_finished(&mut self) -> Result<Option<OutputChunk>, PipelineError> {
        Ok(self.finished.pop_front())
    }

    fn end_period(&mut self) -> Result<bool, PipelineError> {
        let Some(total) = &self.kernels.sums else {
            return Ok(false);
        };
        self.workers.run(|worker| {
            if let Some(sums) = &mut ground::lock(&self.scratch[worker]).sums {
                sums.flush(total);
            }
        });
        self.sums.push_back(total.take());
        Ok(true)
    }

    fn poll_sums(&mut self) -> Result<Option<PeriodSums>, PipelineError> {
        Ok(self.sums.pop_front())
    }

    fn thread_reports(&self) -> Vec<ThreadReport> {
        let total = self.begun.elapsed();
        let worker = |(i, scratch): (usize, &Mutex<Scratch>)| {
            let times = ground::lock(scratch).times;
            let busy = times.ddc + times.fir + times.fft + times.post;
            let phase =
                |name: &str, time: std::time::Duration| (name.to_owned(), time.as_secs_f64());
            ThreadReport {
                name: format!("cpu-{i}"),
                core: self.workers.core(i),
                phases: match self.down {
                    None => vec![phase("unpack+fir", times.fir)],
                    Some(_) => vec![phase("unpack+ddc", times.ddc), phase("fir", times.fir)],
                }
                .into_iter()
                .chain([
                    phase("fft", times.fft),
                    phase("post", times.post),
                    phase("wait", total.saturating_sub(busy)),
                ])
                .collect(),
                longest_turn: None,
            }
        };
        self.scratch.iter().enumerate().map(worker).collect()
    }
}

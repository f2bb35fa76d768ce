//! One wideband output stream on the GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{
    CudaFunction, CudaSlice, DeviceRepr, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg,
    ValidAsZeroBits,
};
use rustfft::num_complex::{Complex32, Complex64};

use super::compile::{FFT_POST, PFB_FFT};
use super::input::{Current, Input};
use super::shape::Shape;
use super::{Gpu, GpuError};
use crate::config::{Dither, OutputConfig};
use crate::dsp::pfb;
use crate::engine::{Block, FineDelay, InputView, OutputSpan, Pipeline};
use crate::monitor::report::LcoreReport;
use crate::units::{N_POL, Timestamp};

/// Bytes of the intermediate, about: more than that gains nothing.
const INTERMEDIATE: usize = 128 << 20;

/// Numbers per batch in the GPU's counters: saturated and power, per polarisation.
const COUNTERS: usize = 2 * N_POL;

/// `Stretch` of geometry.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: i32,
    end: i32,
    first_group: i32,
    ring: i32,
}

// SAFETY: the same four integers as in geometry.cuh.
unsafe impl DeviceRepr for Stretch {}

/// `Stream` of fft_post.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct StreamParameters {
    start: u64,
    seed: u64,
    feng_id: u32,
    limit: i32,
}

// SAFETY: the same fields in the same order as in fft_post.cu, whose alignment is that of C.
unsafe impl DeviceRepr for StreamParameters {}

/// Four numbers, as the kernels' `float4`; two of them a `float2`.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default)]
struct Float4([f32; 4]);

// SAFETY: plain numbers with the layout of `float4`.
unsafe impl DeviceRepr for Float4 {}
// SAFETY: zero bits are four zeros.
unsafe impl ValidAsZeroBits for Float4 {}

/// A wideband [`Pipeline`] on a GPU.
pub struct Wideband {
    gpu: Arc<Gpu>,
    input: Arc<Input>,
    shape: Shape,
    batch_spectra: usize,
    batch_bytes: usize,
    seed: u64,
    feng_id: u32,
    front: CudaFunction,
    back: CudaFunction,
    weights: CudaSlice<f32>,
    /// e^(−2πik/N), as pairs.
    roots: CudaSlice<f32>,
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
        let gpu = input.gpu().clone();
        let channels = output.channels;
        let shape = Shape::choose(channels, gpu.shared()).ok_or(GpuError::Channels {
            channels,
            shared: gpu.shared(),
        })?;
        let points = shape.points();
        let batch_spectra = output.spectra_per_heap();
        let macros = [
            ("BITS", u64::from(input.bits().get())),
            ("TAPS", output.taps as u64),
            ("LOG_N1", u64::from(shape.log_n1)),
            ("LOG_N2", u64::from(points.ilog2() - shape.log_n1)),
            ("TILE", shape.tile as u64),
            ("WIDTH", shape.width as u64),
            ("GROUP", shape.group as u64),
            ("FRONT_THREADS", u64::from(shape.front_threads)),
            ("FRONT_BLOCKS", u64::from(shape.front_blocks)),
            ("BACK_THREADS", u64::from(shape.back_threads)),
            ("BACK_BLOCKS", u64::from(shape.back_blocks)),
            ("SPECTRA_PER_HEAP", batch_spectra as u64),
            ("DITHER", u64::from(output.dither == Dither::Uniform)),
        ];
        let weights = pfb::weights(
            output.spectrum_samples(),
            output.taps,
            output.w_cutoff,
            output.window_function,
        );
        let root = |k: usize| {
            let root = Complex64::cis(-std::f64::consts::TAU * k as f64 / points as f64);
            [root.re as f32, root.im as f32]
        };
        let roots: Vec<f32> = (0..points).flat_map(root).collect();
        let spectra = batches * batch_spectra;
        let jones = batches * output.jones_per_batch;
        let group_bytes = points * shape.group * 8;
        // One group more than is finished at a time: a block may end inside it.
        let most = (spectra / shape.group + 2).next_power_of_two();
        let ring = (INTERMEDIATE / group_bytes)
            .max(2)
            .next_power_of_two()
            .min(most);
        let mut wideband = Self {
            front: gpu.function(PFB_FFT, &macros, shape.front_shared())?,
            back: gpu.function(FFT_POST, &macros, shape.back_shared())?,
            weights: gpu.table("filter weights", &weights)?,
            roots: gpu.table("twiddle factors", &roots)?,
            intermediate: gpu.zeros("the intermediate", ring * group_bytes / 4)?,
            gains: gpu.zeros("gains", channels)?,
            fine: gpu.zeros("delays", spectra)?,
            out: gpu.zeros("an output chunk", jones)?,
            counters: gpu.zeros("counters", batches * COUNTERS)?,
            host_gains: gpu.pinned("gains", channels)?,
            host_fine: gpu.pinned("delays", spectra)?,
            host_out: gpu.pinned("an output chunk", jones)?,
            host_counters: gpu.pinned("counters", batches * COUNTERS)?,
            ring,
            shape,
            batch_spectra,
            batch_bytes: output.batch_bytes(),
            seed: output.dither_seed,
            feng_id: feng_id as u32,
            gains_changed: false,
            staged: [None, None],
            filtered: 0,
            finished: 0,
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
                // The factors of the separation, 1/2 and 1/(2i), are exact.
                let table = self.host_gains.as_mut_slice()?;
                for (entry, g) in table.iter_mut().zip(gains) {
                    let pair = match pol {
                        0 => [g.re / 2.0, g.im / 2.0],
                        _ => [g.im / 2.0, -g.re / 2.0],
                    };
                    entry.0[2 * pol..2 * pol + 2].copy_from_slice(&pair);
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
            entry.0 = [fine.delay[0], fine.delay[1], fine.phase[0], fine.phase[1]];
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
        let group = self.shape.group;
        let first_group = first / group;
        let stretch = Stretch {
            first: first as i32,
            end: end as i32,
            first_group: first_group as i32,
            ring: self.ring as i32,
        };
        let config = LaunchConfig {
            grid_dim: (
                (self.shape.n2() / self.shape.tile) as u32,
                (end.div_ceil(group) - first_group) as u32,
                1,
            ),
            block_dim: (self.shape.front_threads, 1, 1),
            shared_mem_bytes: self.shape.front_shared() as u32,
        };
        let offset = offset.map(|offset| offset as u64);
        let mut launch = self.gpu.stream.launch_builder(&self.front);
        launch
            .arg(input.pol(0))
            .arg(input.pol(1))
            .arg(&offset[0])
            .arg(&offset[1])
            .arg(&self.weights)
            .arg(&self.roots)
            .arg(&mut self.intermediate)
            .arg(&mut self.counters)
            .arg(&stretch);
        // SAFETY: the arguments are those of pfb_fft. It reads windows of spectra `first .. end`, which the
        // engine gives only if the input has them, and padding behind; it writes groups modulo the ring,
        // which has room for all that are unfinished, and counters of the chunk's batches.
        unsafe { launch.launch(config) }?;
        self.filtered = end;
        self.finish_groups(end / group, end, start)
    }

    /// Finishes groups up to `end_group`; spectra from `limit` on are dropped.
    fn finish_groups(
        &mut self,
        end_group: usize,
        limit: usize,
        start: Timestamp,
    ) -> Result<(), DriverError> {
        let groups = end_group.saturating_sub(self.finished);
        if groups == 0 {
            return Ok(());
        }
        let stretch = Stretch {
            first: 0,
            end: 0,
            first_group: self.finished as i32,
            ring: self.ring as i32,
        };
        let stream = StreamParameters {
            start: start.0,
            seed: self.seed,
            feng_id: self.feng_id,
            limit: limit as i32,
        };
        let config = LaunchConfig {
            grid_dim: ((self.shape.n1() / 2) as u32, groups as u32, 1),
            block_dim: (self.shape.back_threads, 1, 1),
            shared_mem_bytes: self.shape.back_shared() as u32,
        };
        let mut launch = self.gpu.stream.launch_builder(&self.back);
        launch
            .arg(&self.intermediate)
            .arg(&self.roots)
            .arg(&self.gains)
            .arg(&self.fine)
            .arg(&mut self.out)
            .arg(&mut self.counters)
            .arg(&stretch)
            .arg(&stream);
        // SAFETY: the arguments are those of fft_post. It reads groups that are in the ring and delays of
        // spectra below `limit`, and writes those spectra, which the chunk has.
        unsafe { launch.launch(config) }?;
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
        let step = self.shape.points();
        let end = block.first + block.fine.len();
        let mut first = block.first;
        while first < end {
            // As many groups as the ring has room for besides the last, which may be cut.
            let reach = (first / self.shape.group + self.ring - 1) * self.shape.group;
            let to = end.min(reach);
            let offset = block.offset.map(|o| o + (first - block.first) * step);
            self.stretch(&input, offset, (first, to), start)?;
            first = to;
        }
        Ok(())
    }

    fn try_back(&mut self, batches: usize, chunk: &mut OutputSpan<'_>) -> Result<(), DriverError> {
        let limit = (batches * self.batch_spectra).min(self.filtered);
        self.finish_groups(limit.div_ceil(self.shape.group), limit, chunk.start)?;
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

/// The GPU failed in the middle of a run: nothing can be finished, and nothing stale may be sent.
fn insist(result: Result<(), DriverError>) {
    if let Err(error) = result {
        panic!("the GPU failed while it computed: {error}; use --backend cpu");
    }
}

impl Pipeline for Wideband {
    fn name(&self) -> String {
        format!("cuda ({})", self.gpu.name())
    }

    fn set_gains(&mut self, pol: usize, gains: &[Complex32]) {
        if pol < N_POL && gains.len() == self.shape.channels {
            self.staged[pol] = Some(gains.to_vec());
        }
    }

    fn front(&mut self, input: &InputView<'_>, block: &Block<'_>, chunk: &mut OutputSpan<'_>) {
        if block.fine.is_empty() {
            return;
        }
        let begun = Instant::now();
        insist(self.try_front(input, block, chunk.start));
        self.busy += begun.elapsed();
    }

    fn back(&mut self, batches: usize, chunk: &mut OutputSpan<'_>) {
        let begun = Instant::now();
        insist(self.try_back(batches, chunk));
        self.busy += begun.elapsed();
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

//! One compiled form of the channeliser: what pipelines, benchmarks and the tuner launch.

use std::ops::Range;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, CudaStream, DriverError};
use dsp::{Dither, SampleBits};
use ground::N_POL;
use num_complex::Complex64;

use super::compile::{FFT_POST, PFB_FFT, PFB_FFT_HOPS, PFB_FFT_RUN, PFB_FIR, POST};
use super::cufft::Transform;
use super::device::address;
use super::form::KernelForm;
use super::launch::{Arguments, Kernel};
use super::parameters::{BackArgs, FrontArgs, Intermediate, SpectraRange, Stream};
use super::shape::{FilterForm, KernelShape};
use super::statistics::StatisticsForm;
use super::{Gpu, GpuError};
use crate::config::OutputConfig;

/// Bytes of the intermediate, about: more than that gains nothing, and less, so that it stays in
/// the L2 cache, loses more at the ends of launches than it gains.
const INTERMEDIATE: usize = 128 << 20;

/// Threads of a block behind cuFFT.
const POST_THREADS: u32 = 256;

/// The kernels and tables of one output: transform, sample width, taps, dither and spectra per heap
/// are fixed.
#[derive(Debug)]
pub(super) struct KernelSet {
    form: KernelForm,
    shape: KernelShape,
    /// Of a spectrum: one for wideband, one per polarisation for narrowband.
    transforms: usize,
    /// A library's, over a slice.
    transform: Option<Transform>,
    /// Groups of the kernels in one of the set, a power of two.
    slice: usize,
    front: KernelLaunch,
    back: KernelLaunch,
    /// The back end that takes sums for statistics as well, if any are taken.
    summing: Option<(KernelLaunch, StatisticsForm)>,
    weights: Table,
    /// e^(−2πik/N), as pairs.
    roots: Table,
}

/// A kernel whose blocks are (columns, groups of spectra, transforms).
#[derive(Debug)]
struct KernelLaunch {
    kernel: Kernel,
    columns: usize,
    layers: usize,
    /// Rows of blocks that run at a time.
    rows: usize,
}

impl KernelLaunch {
    /// Launches `rows` of blocks.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::launch`].
    unsafe fn launch(
        &self,
        stream: &CudaStream,
        arguments: &mut Arguments<'_>,
        rows: usize,
    ) -> Result<(), DriverError> {
        // SAFETY: as the caller vouches.
        unsafe {
            self.kernel
                .launch(stream, arguments, [self.columns, rows, self.layers])
        }
    }
}

/// Numbers that stay where they are.
#[derive(Debug)]
struct Table {
    at: CUdeviceptr,
    _memory: CudaSlice<f32>,
}

impl Table {
    fn new(gpu: &Gpu, what: &'static str, values: &[f32]) -> Result<Self, GpuError> {
        let memory = gpu.table(what, values)?;
        Ok(Self {
            at: address(&memory),
            _memory: memory,
        })
    }
}

/// Bytes of the numbers between filter and back end for output chunks of `spectra` spectra, at
/// most, whichever kernels are taken. What cuFFT keeps for itself comes besides.
pub fn most_intermediate_bytes(output: &OutputConfig, spectra: usize) -> usize {
    const NUMBER: usize = 8;
    let transforms = output.narrowband.as_ref().map_or(1, |_| N_POL);
    let spectrum = transforms * output.pfb_step() * NUMBER;
    // cuFFT has one group at least.
    let group = spectrum.saturating_mul(KernelShape::plain(output.pfb_step()).group);
    // The ring has a power of two of groups.
    (2 * INTERMEDIATE)
        .max(group)
        .min(2 * spectrum.saturating_mul(spectra))
}

/// Macros of all kernels, but for those of the shape; `baseband` is as geometry.cuh has it.
fn common_macros(
    output: &OutputConfig,
    bits: SampleBits,
    shape: &KernelShape,
    (baseband, back_threads): (u64, u32),
) -> Vec<(&'static str, u64)> {
    let mut macros = vec![
        ("BITS", u64::from(bits.get())),
        ("BASEBAND", baseband),
        ("SUBSAMPLING", output.subsampling() as u64),
        ("TAPS", output.taps as u64),
        ("LOG_N2", u64::from(shape.points.ilog2() - shape.log_n1)),
        ("SPECTRA_PER_HEAP", output.spectra_per_heap() as u64),
        ("BACK_THREADS", u64::from(back_threads)),
    ];
    // Without oversampling the macros are left out, so that the code is compiled as before.
    let of = output.oversampling;
    if !of.is_none() {
        macros.push(("OVER", of.numerator() as u64));
        macros.push(("UNDER", of.denominator() as u64));
    }
    macros
}

/// Macros of back ends alone: front ends are the same for all of these, and are compiled once.
fn back_macros(output: &OutputConfig, statistics: u64) -> [(&'static str, u64); 5] {
    [
        ("OUT_BITS", u64::from(output.sample_bits.get())),
        ("DITHER", u64::from(output.dither == Dither::Uniform)),
        ("SEED_LOW", output.dither_seed & 0xFFFF_FFFF),
        ("SEED_HIGH", output.dither_seed >> 32),
        ("STATISTICS", statistics),
    ]
}

/// The twiddle factors of a transform: e^(−2πik/N), as pairs.
fn roots(points: usize) -> Vec<f32> {
    let root = |k: usize| {
        let root = Complex64::cis(-std::f64::consts::TAU * k as f64 / points as f64);
        [root.re as f32, root.im as f32]
    };
    (0..points).flat_map(root).collect()
}

impl KernelSet {
    /// Compiles `form` for what `output` asks for, and makes its tables, for output chunks of
    /// `spectra` spectra; with sums for statistics if wanted.
    pub fn new(
        gpu: &Gpu,
        output: &OutputConfig,
        bits: SampleBits,
        form: KernelForm,
        spectra: usize,
        statistics: bool,
    ) -> Result<Self, GpuError> {
        let shape = match form {
            KernelForm::Fused(shape) => shape,
            KernelForm::Cufft => KernelShape::plain(output.pfb_step()),
        };
        let points = shape.points;
        let filter = FilterForm::of(output, bits);
        let (transforms, baseband) = match &output.narrowband {
            None => (1, 0),
            Some(_) if output.channels == points => (N_POL, 1),
            Some(_) => (N_POL, 2),
        };
        let slice = match form {
            KernelForm::Fused(_) => 1,
            KernelForm::Cufft => (INTERMEDIATE / (transforms * points * shape.group * 8))
                .clamp(1, spectra.div_ceil(shape.group).max(1)),
        };
        // A power of two, because the kernels' ring is one: the one below.
        let slice = 1 << slice.ilog2();
        let transform = match form {
            KernelForm::Fused(_) => None,
            KernelForm::Cufft => {
                let count = slice * transforms * shape.group;
                Some(Transform::new(gpu, points, count)?)
            }
        };
        let back_threads = match form {
            KernelForm::Fused(_) => shape.back_threads(),
            KernelForm::Cufft => POST_THREADS,
        };
        let common = common_macros(output, bits, &shape, (baseband, back_threads));
        let results = shape.statistics_results(output.channels, output.narrowband.is_some());
        // How sums are taken, as geometry.cuh has it, bytes that a block keeps for them, and chunks
        // of which one is summed.
        let kept = results * 16 * back_threads as usize;
        let (taken, kept, every) = match form {
            KernelForm::Cufft => (3, 0, StatisticsForm::CHUNKS_OF_CUFFT),
            KernelForm::Fused(_) if shape.back_shared() + kept <= gpu.shared() => {
                (1, kept, StatisticsForm::CHUNKS)
            }
            KernelForm::Fused(_) => (2, 0, StatisticsForm::CHUNKS_WITHOUT_ROOM),
        };
        let fused = matches!(form, KernelForm::Fused(_));
        let stage =
            |source, macros: &[_], [columns, layers]: [usize; 2], threads, shared, blocks: u32| {
                let macros = [&shape.macros()[..], &common, macros].concat();
                let kernel = Kernel {
                    function: gpu.function(source, &macros, shared)?,
                    threads,
                    shared,
                    // pfb_fft loads what ddc makes as memory that nothing writes while the kernel
                    // is there.
                    overlaps: fused
                        && gpu.architecture() >= Kernel::OVERLAP
                        && !(source == PFB_FFT && baseband > 0),
                };
                let at_a_time = gpu.multiprocessors() * blocks as usize;
                Ok::<_, GpuError>(KernelLaunch {
                    kernel,
                    columns,
                    layers,
                    rows: (at_a_time / (columns * layers)).max(1),
                })
            };
        let compile_front = |source, columns, shared| {
            let grid = [columns, transforms];
            stage(
                source,
                &[],
                grid,
                shape.front_threads,
                shared,
                shape.front_blocks,
            )
        };
        let compile_back = |source, columns, shared, statistics| {
            let (macros, blocks) = (back_macros(output, statistics), shape.back_blocks);
            stage(source, &macros, [columns, 1], back_threads, shared, blocks)
        };
        let (front, back_source, columns, shared) = match form {
            KernelForm::Fused(_) => {
                let source = match shape.depth {
                    0 => PFB_FFT,
                    _ if output.oversampling.is_none() => PFB_FFT_RUN,
                    _ => PFB_FFT_HOPS,
                };
                let parts = shape.back_parts(output.spectra_per_heap());
                // Two rows make a block: of one transform, or of both.
                let pairs = shape.n1() * transforms / 2;
                let columns = shape.n2() / shape.tile;
                let front = compile_front(source, columns, shape.front_shared(filter))?;
                (front, FFT_POST, pairs * parts, shape.back_shared())
            }
            KernelForm::Cufft => {
                let threads = shape.width * shape.front_threads as usize;
                let front = compile_front(PFB_FIR, points / threads, 0)?;
                (front, POST, output.channels / shape.tile, 0)
            }
        };
        let summing = statistics.then(|| {
            let back = compile_back(back_source, columns, shared + kept, taken)?;
            let (grid, numbers) = match form {
                KernelForm::Fused(_) => {
                    let blocks = back.columns * back.rows;
                    let numbers = blocks * results * 4 * back_threads as usize;
                    ([back.columns, back.rows], numbers)
                }
                KernelForm::Cufft => ([1, 1], 6 * output.channels),
            };
            let macros = [&shape.macros()[..], &common, &back_macros(output, taken)].concat();
            let form = StatisticsForm::new(gpu, &macros, grid, numbers, output.channels, every)?;
            Ok::<_, GpuError>((back, form))
        });
        let summing = summing.transpose()?;
        let back = compile_back(back_source, columns, shared, 0)?;
        Ok(Self {
            front,
            back,
            weights: Table::new(gpu, "filter weights", &output.weights())?,
            roots: Table::new(gpu, "twiddle factors", &roots(points))?,
            form,
            shape,
            transforms,
            transform,
            slice,
            summing,
        })
    }

    /// The kernels, as reports name them.
    pub fn name(&self) -> String {
        self.form.to_string()
    }

    /// What is added up for statistics, if anything.
    pub fn statistics(&self) -> Option<&StatisticsForm> {
        self.summing.as_ref().map(|(_, form)| form)
    }

    /// Spectra of one group: the back end finishes whole groups.
    pub fn group(&self) -> usize {
        self.slice * self.shape.group
    }

    /// Bytes of a complex number in the intermediate: what a library transforms is in single
    /// precision, else as mid.cuh has it.
    pub fn number_bytes(&self) -> usize {
        if self.transform.is_some() { 8 } else { 6 }
    }

    /// Bytes of one group in the intermediate.
    pub fn group_bytes(&self) -> usize {
        self.transforms * self.shape.points * self.group() * self.number_bytes()
    }

    /// Groups that the ring should have for output chunks of `spectra` spectra, a power of two.
    pub fn ring(&self, spectra: usize) -> usize {
        if self.transform.is_some() {
            return 1;
        }
        // One group more than is finished at a time: a block may end inside it.
        let most = (spectra / self.group() + 2).next_power_of_two();
        (INTERMEDIATE / self.group_bytes())
            .max(2)
            .next_power_of_two()
            .min(most)
    }

    /// The spectrum up to which a stretch from `first` may go, if all groups before that of `first`
    /// are finished.
    pub fn reach(&self, first: usize, ring: usize) -> usize {
        (first / self.group() + ring) * self.group()
    }

    /// Filters a stretch of spectra and counts their power; `stream` has it behind all that it had
    /// before.
    ///
    /// # Safety
    ///
    /// All pointers are to memory of the GPU of the sizes that [`FrontArgs`] states and that
    /// `spectra` needs, which lives until the stream has passed the launch and is not touched
    /// elsewhere meanwhile. The ring has room for the groups of `spectra` besides those that the
    /// back end has yet to read.
    pub unsafe fn front(&self, stream: &CudaStream, args: &FrontArgs) -> Result<(), DriverError> {
        let (first, end) = args.spectra;
        let group = self.shape.group;
        let first_group = first / group;
        let stretch = SpectraRange {
            first: first as i32,
            end: end as i32,
            first_group: first_group as i32,
            ring: (args.intermediate.groups * self.slice) as i32,
            input_ring: args.input.ring as i32,
            number: args.number,
        };
        let groups = end.div_ceil(group) - first_group;
        let run = self.run(groups);
        let rows = match self.shape.depth {
            0 => groups,
            _ => groups.div_ceil(run as usize),
        };
        let mut arguments = Arguments::default();
        arguments
            .arg(&args.input.pol[0])
            .arg(&args.input.pol[1])
            .arg(&args.input.offset[0])
            .arg(&args.input.offset[1])
            .arg(&self.weights.at);
        if self.transform.is_none() {
            arguments.arg(&self.roots.at);
        }
        arguments
            .arg(&args.intermediate.data)
            .arg(&args.counters)
            .arg(&stretch);
        if self.shape.depth > 0 {
            arguments.arg(&run);
        }
        // SAFETY: the arguments are those of pfb_fft, pfb_fft_run, pfb_fft_hops or pfb_fir, and the
        // caller vouches for what they point to.
        unsafe { self.front.launch(stream, &mut arguments, rows) }
    }

    /// Successive groups of each block of the front kernel, of `groups` in all, such that all
    /// blocks run at a time.
    fn run(&self, groups: usize) -> i32 {
        match self.shape.depth {
            0 => 1,
            _ => groups.div_ceil(self.front.rows) as i32,
        }
    }

    /// Finishes `groups` of the chunk; `stream` has it behind all that it had before.
    ///
    /// # Safety
    ///
    /// As for [`front`](Self::front). The groups are in the ring. A library's transform is in one
    /// stream at a time.
    pub unsafe fn back(
        &self,
        stream: &CudaStream,
        groups: Range<usize>,
        args: &BackArgs,
    ) -> Result<(), DriverError> {
        if self.transform.is_none() {
            // SAFETY: as the caller vouches.
            return unsafe { self.post(stream, groups, args) };
        }
        for group in groups {
            // SAFETY: as the caller vouches.
            unsafe {
                self.transform(stream, group, args.intermediate)?;
                self.post(stream, group..group + 1, args)?;
            }
        }
        Ok(())
    }

    /// A library's transform of a group, if the set has one.
    ///
    /// # Safety
    ///
    /// As for [`back`](Self::back).
    pub unsafe fn transform(
        &self,
        stream: &CudaStream,
        group: usize,
        intermediate: Intermediate,
    ) -> Result<(), DriverError> {
        let Some(transform) = &self.transform else {
            return Ok(());
        };
        let at = group % intermediate.groups * self.group_bytes();
        // SAFETY: the ring has the group, and the caller vouches for the rest.
        unsafe { transform.launch(stream, intermediate.data + at as CUdeviceptr) }
    }

    /// What is left of [`back`](Self::back) behind [`transform`](Self::transform).
    ///
    /// # Safety
    ///
    /// As for [`back`](Self::back).
    pub unsafe fn post(
        &self,
        stream: &CudaStream,
        groups: Range<usize>,
        args: &BackArgs,
    ) -> Result<(), DriverError> {
        let first = groups.start * self.slice;
        let end = (groups.end * self.slice).min(args.limit.div_ceil(self.shape.group));
        if end <= first {
            return Ok(());
        }
        let stretch = SpectraRange {
            first: 0,
            end: args.limit.min(end * self.shape.group) as i32,
            first_group: first as i32,
            ring: (args.intermediate.groups * self.slice) as i32,
            input_ring: 0,
            number: 0,
        };
        let parameters = Stream {
            start: args.start,
            feng_id: args.feng_id,
            unused: 0,
        };
        let run = self.run(end - first);
        let back = match (&args.statistics, &self.summing) {
            (Some(_), Some((back, _))) => back,
            _ => &self.back,
        };
        let rows = match self.transform {
            None => back.rows.min(end - first),
            Some(_) => end - first,
        };
        let mut arguments = Arguments::default();
        arguments.arg(&args.intermediate.data);
        if self.transform.is_none() {
            arguments.arg(&self.roots.at);
        }
        arguments
            .arg(&args.gains)
            .arg(&args.fine)
            .arg(&args.out)
            .arg(&args.counters)
            .arg(&stretch)
            .arg(&parameters);
        if self.transform.is_none() {
            arguments.arg(&run);
        }
        if let (Some(statistics), Some(_)) = (&args.statistics, &self.summing) {
            arguments.arg(statistics);
        }
        // SAFETY: the arguments are those of fft_post or post, and the caller vouches for what they
        // point to.
        unsafe { back.launch(stream, &mut arguments, rows) }
    }
}

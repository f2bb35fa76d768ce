//! The kernels of one output, compiled: what pipelines, benchmarks and the tuner launch.

use std::ops::Range;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaSlice, CudaStream, DriverError};
use dsp::SampleBits;
use num_complex::Complex64;

use super::cufft::Transform;
use super::device::address;
use super::form::KernelForm;
use super::launch::{Arguments, Kernel};
use super::parameters::{BackArgs, DitherOrigin, FrontArgs, Intermediate, SpectraRange};
use super::shape::KernelShape;
use super::statistics::StatisticsForm;
use super::variant::{INTERMEDIATE, KernelBuild, SummingBuild, Variant, transforms};
use super::{Gpu, GpuError};
use crate::config::OutputConfig;

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
    fn compile(gpu: &Gpu, build: &KernelBuild) -> Result<Self, GpuError> {
        let kernel = Kernel {
            function: gpu.function(build.source, &build.macros, build.shared)?,
            threads: build.threads,
            shared: build.shared,
            overlaps: build.overlaps && gpu.architecture() >= Kernel::OVERLAP,
        };
        let at_a_time = gpu.multiprocessors() * build.blocks as usize;
        Ok(Self {
            kernel,
            columns: build.columns,
            layers: build.layers,
            rows: (at_a_time / (build.columns * build.layers)).max(1),
        })
    }

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
    let spectrum = transforms(output) * output.pfb_step() * NUMBER;
    // cuFFT has one group at least.
    let group = spectrum.saturating_mul(KernelShape::plain(output.pfb_step()).group);
    // The ring has a power of two of groups.
    (2 * INTERMEDIATE)
        .max(group)
        .min(2 * spectrum.saturating_mul(spectra))
}

/// The twiddle factors of a transform: e^(−2πik/N), as pairs.
fn roots(points: usize) -> Vec<f32> {
    let root = |k: usize| {
        let root = Complex64::cis(-std::f64::consts::TAU * k as f64 / points as f64);
        [root.re as f32, root.im as f32]
    };
    (0..points).flat_map(root).collect()
}

/// The back end that takes sums for statistics, and what it adds them to.
fn compile_summing(
    gpu: &Gpu,
    summing: &SummingBuild,
    channels: usize,
) -> Result<(KernelLaunch, StatisticsForm), GpuError> {
    let back = KernelLaunch::compile(gpu, &summing.back)?;
    let grid = match summing.sums.have_parts() {
        true => [back.columns, back.rows],
        false => [1, 1],
    };
    let numbers = grid[0] * grid[1] * summing.part;
    let (macros, every) = (&summing.back.macros, summing.sums.every());
    let form = StatisticsForm::new(gpu, macros, grid, numbers, channels, every)?;
    Ok((back, form))
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
        let variant = Variant::new(output, bits, form, spectra, gpu.shared());
        let (shape, transforms, slice) = (variant.shape, variant.transforms, variant.slice);
        let transform = match form {
            KernelForm::Fused(_) => None,
            KernelForm::Cufft => {
                let count = slice * transforms * shape.group;
                Some(Transform::new(gpu, shape.points, count)?)
            }
        };
        let front = KernelLaunch::compile(gpu, &variant.front)?;
        let summing = match statistics {
            true => Some(compile_summing(gpu, &variant.summing, output.channels)?),
            false => None,
        };
        Ok(Self {
            front,
            summing,
            back: KernelLaunch::compile(gpu, &variant.back)?,
            weights: Table::new(gpu, "filter weights", &output.weights())?,
            roots: Table::new(gpu, "twiddle factors", &roots(shape.points))?,
            form,
            shape,
            transforms,
            transform,
            slice,
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

    /// The spectrum up to which a launch from `first` on may go, if all groups before that of
    /// `first` are finished.
    pub fn reach(&self, first: usize, ring: usize) -> usize {
        (first / self.group() + ring) * self.group()
    }

    /// Filters spectra in one launch and counts their power; `stream` has it behind all that it
    /// had before.
    ///
    /// # Safety
    ///
    /// All pointers are to memory of the GPU of the sizes that [`FrontArgs`] states and that
    /// `spectra` needs, which lives until the stream has passed the launch and is not touched
    /// elsewhere meanwhile. The ring has room for the groups of `spectra` besides those that the
    /// back end has yet to read.
    pub unsafe fn front(&self, stream: &CudaStream, args: &FrontArgs) -> Result<(), DriverError> {
        let Range { start: first, end } = args.spectra;
        let group = self.shape.group;
        let first_group = first / group;
        let range = SpectraRange {
            first: first as i32,
            end: end as i32,
            first_group: first_group as i32,
            ring: (args.intermediate.groups * self.slice) as i32,
            input_ring: args.input.ring as i32,
            number: args.number,
        };
        let groups = end.div_ceil(group) - first_group;
        let run = self.groups_per_block(groups);
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
            .arg(&range);
        if self.shape.depth > 0 {
            arguments.arg(&run);
        }
        // SAFETY: the arguments are those of pfb_fft, pfb_fft_run, pfb_fft_hops or pfb_fir, and the
        // caller vouches for what they point to.
        unsafe { self.front.launch(stream, &mut arguments, rows) }
    }

    /// Successive groups of each block of the front kernel, of `groups` in all, such that all
    /// blocks run at a time: the kernels' `run`.
    fn groups_per_block(&self, groups: usize) -> i32 {
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
        let range = SpectraRange {
            first: 0,
            end: args.limit.min(end * self.shape.group) as i32,
            first_group: first as i32,
            ring: (args.intermediate.groups * self.slice) as i32,
            input_ring: 0,
            number: 0,
        };
        let origin = DitherOrigin {
            start: args.start,
            feng_id: args.feng_id,
            unused: 0,
        };
        let run = self.groups_per_block(end - first);
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
            .arg(&range)
            .arg(&origin);
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

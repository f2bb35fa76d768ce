//! Which variant of the kernels an output takes: the macros that they are compiled with, as
//! `kernels/geometry.cuh` lists them, and the blocks that they run in.

use dsp::{Dither, SampleBits};
use ground::N_POL;

use super::compile::{FFT_POST, PFB_FFT, PFB_FFT_HOPS, PFB_FFT_RUN, PFB_FIR, POST, Source};
use super::form::KernelForm;
use super::shape::{FilterForm, KernelShape};
use super::statistics::StatisticsForm;
use crate::config::OutputConfig;

/// Bytes of the intermediate, about: more than that gains nothing, and less, so that it stays in
/// the L2 cache, loses more at the ends of launches than it gains.
pub(super) const INTERMEDIATE: usize = 128 << 20;

/// Threads of a block behind cuFFT.
const POST_THREADS: u32 = 256;

/// The compiler's options by name. Their order is kept: by it the cache knows what it has.
type Macros = Vec<(&'static str, u64)>;

/// The kernels of an output before they are compiled.
#[derive(Debug)]
pub(super) struct Variant {
    pub shape: KernelShape,
    /// Of a spectrum, as [`transforms`] has it.
    pub transforms: usize,
    /// Groups of the kernels in one of the set, a power of two.
    pub slice: usize,
    pub front: KernelBuild,
    pub back: KernelBuild,
    pub summing: SummingBuild,
}

/// A kernel before it is compiled.
#[derive(Clone, Debug)]
pub(super) struct KernelBuild {
    pub source: Source,
    pub macros: Macros,
    /// Blocks side by side, and in how many layers; the rest of a grid are groups of spectra.
    pub columns: usize,
    pub layers: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// Blocks that a multiprocessor has room for.
    pub blocks: u32,
    /// Whether it may begin before the kernel before it has ended, where the GPU can do that.
    pub overlaps: bool,
}

/// The back end that takes sums for statistics as well.
#[derive(Debug)]
pub(super) struct SummingBuild {
    pub back: KernelBuild,
    pub sums: Sums,
    /// Numbers that a block adds to: its own, or those of all blocks.
    pub part: usize,
}

/// Where sums for statistics are taken, numbered as in geometry.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sums {
    /// In fft_post, in shared memory.
    Shared = 1,
    /// In fft_post, in global memory.
    Global = 2,
    /// In post.
    Post = 3,
}

impl Sums {
    /// Whether each block of the back end has sums of its own.
    pub fn have_parts(self) -> bool {
        matches!(self, Self::Shared | Self::Global)
    }

    /// Output chunks of which one is summed.
    pub fn every(self) -> u64 {
        match self {
            Self::Shared => StatisticsForm::CHUNKS,
            Self::Global => StatisticsForm::CHUNKS_WITHOUT_ROOM,
            Self::Post => StatisticsForm::CHUNKS_OF_CUFFT,
        }
    }
}

/// Transforms of a spectrum: one for wideband, one per polarisation for narrowband.
pub(super) fn transforms(output: &OutputConfig) -> usize {
    output.narrowband.as_ref().map_or(1, |_| N_POL)
}

impl Variant {
    /// What `form` is for `output` and output chunks of `spectra` spectra, on a GPU whose blocks
    /// may have `room` bytes of shared memory.
    pub fn new(
        output: &OutputConfig,
        bits: SampleBits,
        form: KernelForm,
        spectra: usize,
        room: usize,
    ) -> Self {
        match form {
            KernelForm::Fused(shape) => Self::fused(output, bits, shape, room),
            KernelForm::Cufft => Self::around_cufft(output, bits, spectra),
        }
    }

    fn fused(output: &OutputConfig, bits: SampleBits, shape: KernelShape, room: usize) -> Self {
        let transforms = transforms(output);
        let threads = shape.back_threads();
        let common = common_macros(output, bits, &shape, threads);
        let source = match shape.depth {
            0 => PFB_FFT,
            _ if output.oversampling.is_none() => PFB_FFT_RUN,
            _ => PFB_FFT_HOPS,
        };
        let front = KernelBuild {
            source,
            macros: common.clone(),
            columns: shape.n2() / shape.tile,
            layers: transforms,
            threads: shape.front_threads,
            shared: shape.front_shared(FilterForm::of(output, bits)),
            blocks: shape.front_blocks,
            // pfb_fft loads what ddc makes as memory that nothing writes while the kernel is there.
            overlaps: source != PFB_FFT || output.narrowband.is_none(),
        };
        // Two rows make a block: of one transform, or of both.
        let pairs = shape.n1() * transforms / 2;
        let back = |sums: Option<Sums>, kept: usize| KernelBuild {
            source: FFT_POST,
            macros: back_macros(&common, output, sums),
            columns: pairs * shape.back_parts(output.spectra_per_heap()),
            layers: 1,
            threads,
            shared: shape.back_shared() + kept,
            blocks: shape.back_blocks,
            overlaps: true,
        };
        let results = shape.statistics_results(output.channels, output.narrowband.is_some());
        // Bytes that a block keeps for sums.
        let kept = results * 16 * threads as usize;
        let (sums, kept) = match shape.back_shared() + kept <= room {
            true => (Sums::Shared, kept),
            false => (Sums::Global, 0),
        };
        Self {
            shape,
            transforms,
            slice: 1,
            front,
            back: back(None, 0),
            summing: SummingBuild {
                back: back(Some(sums), kept),
                sums,
                part: results * 4 * threads as usize,
            },
        }
    }

    fn around_cufft(output: &OutputConfig, bits: SampleBits, spectra: usize) -> Self {
        let transforms = transforms(output);
        let shape = KernelShape::plain(output.pfb_step());
        let slice = (INTERMEDIATE / (transforms * shape.points * shape.group * 8))
            .clamp(1, spectra.div_ceil(shape.group).max(1));
        let common = common_macros(output, bits, &shape, POST_THREADS);
        let front = KernelBuild {
            source: PFB_FIR,
            macros: common.clone(),
            columns: shape.points / (shape.width * shape.front_threads as usize),
            layers: transforms,
            threads: shape.front_threads,
            shared: 0,
            blocks: shape.front_blocks,
            overlaps: false,
        };
        let back = |sums: Option<Sums>| KernelBuild {
            source: POST,
            macros: back_macros(&common, output, sums),
            columns: output.channels / shape.tile,
            layers: 1,
            threads: POST_THREADS,
            shared: 0,
            blocks: shape.back_blocks,
            overlaps: false,
        };
        Self {
            shape,
            transforms,
            // A power of two, because the kernels' ring is one: the one below.
            slice: 1 << slice.ilog2(),
            front,
            back: back(None),
            summing: SummingBuild {
                back: back(Some(Sums::Post)),
                sums: Sums::Post,
                part: 6 * output.channels,
            },
        }
    }
}

/// Macros of all kernels.
fn common_macros(
    output: &OutputConfig,
    bits: SampleBits,
    shape: &KernelShape,
    back_threads: u32,
) -> Macros {
    let baseband = match &output.narrowband {
        None => 0,
        Some(_) if output.channels == shape.points => 1,
        Some(_) => 2,
    };
    let mut macros = shape.macros().to_vec();
    macros.extend([
        ("BITS", u64::from(bits.get())),
        ("BASEBAND", baseband),
        ("SUBSAMPLING", output.subsampling() as u64),
        ("TAPS", output.taps as u64),
        ("LOG_N2", u64::from(shape.points.ilog2() - shape.log_n1)),
        ("SPECTRA_PER_HEAP", output.spectra_per_heap() as u64),
        ("BACK_THREADS", u64::from(back_threads)),
    ]);
    // Without oversampling the macros are left out, so that the code is compiled as before.
    let of = output.oversampling;
    if !of.is_none() {
        macros.push(("OVER", of.numerator() as u64));
        macros.push(("UNDER", of.denominator() as u64));
    }
    macros
}

/// Macros of a back end. Front ends are the same whatever those that it adds are, and are compiled
/// once.
fn back_macros(common: &Macros, output: &OutputConfig, sums: Option<Sums>) -> Macros {
    let mut macros = common.clone();
    macros.extend([
        ("OUT_BITS", u64::from(output.sample_bits.get())),
        ("DITHER", u64::from(output.dither == Dither::Uniform)),
        ("SEED_LOW", output.dither_seed & 0xFFFF_FFFF),
        ("SEED_HIGH", output.dither_seed >> 32),
        ("STATISTICS", sums.map_or(0, |sums| sums as u64)),
    ]);
    macros
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NarrowbandOptions;
    use crate::config::tests::engine;

    const SHAPE: KernelShape = KernelShape {
        points: 2048,
        log_n1: 4,
        tile: 16,
        width: 2,
        group: 16,
        depth: 20,
        front_threads: 128,
        front_blocks: 3,
        filter_registers: 0,
        back_group: 8,
        back_blocks: 2,
    };
    const ROOM: usize = 227 << 10;

    fn wideband(options: &str) -> OutputConfig {
        let options = format!("name=w,channels=1024,dst=239.10.1.0{options}");
        engine(&options, |_| {}).outputs.remove(0)
    }

    fn narrowband() -> OutputConfig {
        let options: NarrowbandOptions =
            "name=n,channels=1024,decimation=8,centre_frequency=300e6,dst=239.11.0.0+7"
                .parse()
                .unwrap();
        let clock = engine("name=w,channels=1024,dst=239.10.1.0", |_| {}).clock;
        options.into_config(1 << 20, 0, clock).unwrap()
    }

    fn variant(output: &OutputConfig, form: KernelForm, room: usize) -> Variant {
        let bits = SampleBits::new(10).unwrap();
        Variant::new(output, bits, form, 256, room)
    }

    fn options(build: &KernelBuild) -> String {
        let options = build.macros.iter();
        let options: Vec<_> = options
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        options.join(" ")
    }

    /// In another order they would be compiled once more on every machine.
    #[test]
    fn options_are_given_in_one_order() {
        let mut output = wideband(",oversampling=32/27");
        output.dither_seed = (1 << 32) + 2;
        let variant = variant(&output, KernelForm::Fused(SHAPE), ROOM);
        let front = "LOG_N1=4 TILE=16 WIDTH=2 GROUP=16 DEPTH=20 FRONT_THREADS=128 FRONT_BLOCKS=3 \
            FILTER_REGISTERS=0 BACK_GROUP=8 BACK_BLOCKS=2 BITS=10 BASEBAND=0 SUBSAMPLING=1 \
            TAPS=16 LOG_N2=7 SPECTRA_PER_HEAP=1024 BACK_THREADS=64 OVER=32 UNDER=27";
        assert_eq!(options(&variant.front), front);
        let back = format!("{front} OUT_BITS=8 DITHER=1 SEED_LOW=2 SEED_HIGH=1");
        assert_eq!(options(&variant.back), format!("{back} STATISTICS=0"));
        let summing = options(&variant.summing.back);
        assert_eq!(summing, format!("{back} STATISTICS=1"));
    }

    #[test]
    fn sums_are_in_shared_memory_where_there_is_room() {
        let output = narrowband();
        let fused = |room| variant(&output, KernelForm::Fused(SHAPE), room);
        let with_room = fused(ROOM);
        let (back, summing) = (&with_room.back, &with_room.summing);
        assert_eq!(summing.sums, Sums::Shared);
        assert_eq!(summing.back.shared, back.shared + 4 * summing.part);
        let exact = summing.back.shared;
        assert_eq!(fused(exact).summing.sums, Sums::Shared);
        let without = fused(exact - 1).summing;
        assert_eq!(without.sums, Sums::Global);
        assert_eq!(without.back.shared, back.shared);
        assert!(options(&without.back).ends_with("STATISTICS=2"));
        let post = variant(&output, KernelForm::Cufft, ROOM).summing;
        assert!(!post.sums.have_parts() && options(&post.back).ends_with("STATISTICS=3"));
    }

    #[test]
    fn of_fused_kernels_pfb_fft_of_narrowband_alone_does_not_overlap() {
        let front = |output: &OutputConfig, depth: usize| {
            let shape = KernelShape { depth, ..SHAPE };
            let front = variant(output, KernelForm::Fused(shape), ROOM).front;
            (front.source, front.overlaps)
        };
        assert_eq!(front(&narrowband(), 0), (PFB_FFT, false));
        assert_eq!(front(&narrowband(), 20), (PFB_FFT_RUN, true));
        assert_eq!(front(&wideband(""), 0), (PFB_FFT, true));
    }
}

//! The down-conversion in front of a narrowband output's filter bank: packed samples to rings of
//! complex numbers.
//!
//! Number i of a polarisation is u(S·i) of [`dsp::ddc`](dsp::ddc); S is the subsampling. A ring has
//! each of them once, however many blocks and chunks need it.

use std::ops::Range;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg,
};
use dsp::mixer::Mixer;
use dsp::{SampleBits, ddc};
use ground::{N_POL, Timestamp};
use half::f16;
use num_complex::{Complex32, Complex64};

use super::compile::DDC;
use super::device::address;
use super::parameters::{FrontInput, SampleInput};
use super::{Gpu, GpuError};
use crate::config::{Narrowband, OutputConfig};

/// Numbers of one row of the kernel's matrices.
const OUTPUTS: usize = 4;
/// Rows, and columns of a step, of one matrix.
const TILE: usize = 16;
/// Columns of the filter's matrix: real and imaginary parts of a row's numbers.
const COLUMNS: usize = 2 * OUTPUTS;
/// Lanes of a warp.
const LANES: usize = 32;
/// Numbers of a ring, at least if so many are ever needed: blocks of few spectra would load the
/// same rows again and again.
const RING: usize = 1 << 23;

/// How a block of the kernel is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tiling {
    subsampling: usize,
    taps: usize,
    /// Matrices of a warp.
    tiles: usize,
    /// Warps of a block.
    warps: usize,
}

impl Tiling {
    /// About 2^13 samples a block.
    fn new(subsampling: usize, taps: usize) -> Self {
        let tiles = (32 / subsampling).clamp(1, 4);
        let warps = (128 / (tiles * subsampling)).clamp(1, 4);
        Self {
            subsampling,
            taps,
            tiles,
            warps,
        }
    }

    fn rows(&self) -> usize {
        TILE * self.tiles * self.warps
    }

    /// Steps of a matrix product.
    fn deep(&self) -> usize {
        (self.taps + (OUTPUTS - 1) * self.subsampling).div_ceil(TILE)
    }

    /// Bytes of shared memory of a block, as the kernel has it.
    fn shared(&self, bits: SampleBits) -> usize {
        let step = OUTPUTS * self.subsampling;
        let samples = (self.rows() - 1) * step + TILE * self.deep();
        let samples = samples.next_multiple_of(2 * LANES * self.warps);
        let apart = if step.is_multiple_of(TILE) { 8 } else { 0 };
        let planes = if bits.get() > 12 { 2 } else { 1 };
        (samples / step + 1) * (step + apart) * size_of::<f16>() * planes
    }
}

/// The mixed filter as the kernel reads it, and what its sums are to be multiplied by.
///
/// Per step and lane two pairs of halves, then two pairs of what these leave of the coefficients:
/// row 2t + i, and 8 rows on, of column g, with lane = 4g + t.
fn table(filter: &[Complex64], shape: Tiling) -> (Vec<u32>, f32) {
    let largest = filter.iter().map(|g| g.norm()).fold(0.0, f64::max);
    // A power of two that brings the largest coefficient to at least half of 2^14.
    let exponent = if largest > 0.0 {
        13 - largest.log2().floor() as i32
    } else {
        0
    };
    let scale = 2f64.powi(exponent);
    let coefficient = |row: usize, column: usize| {
        let (number, part) = (column / 2, column % 2);
        let tap = row.checked_sub(number * shape.subsampling);
        let g = tap.and_then(|tap| filter.get(tap)).copied();
        let g = g.unwrap_or_default() * scale;
        if part == 0 { g.re } else { g.im }
    };
    let mut table = Vec::with_capacity(shape.deep() * LANES * 4);
    for step in 0..shape.deep() {
        for lane in 0..LANES {
            let (column, t) = (lane / 4, lane % 4);
            debug_assert!(column < COLUMNS);
            let halves = |low: bool| {
                [0, TILE / 2].map(|further| {
                    let half = |i: usize| {
                        let x = coefficient(step * TILE + further + 2 * t + i, column);
                        let high = f16::from_f64(x);
                        let rest = f16::from_f64(x - f64::from(high));
                        u32::from(if low { rest } else { high }.to_bits())
                    };
                    half(0) | half(1) << 16
                })
            };
            table.extend(halves(false));
            table.extend(halves(true));
        }
    }
    (table, (1.0 / scale) as f32)
}

/// `Phase` of ddc.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Phase {
    low: u64,
    high: u64,
}

impl From<u128> for Phase {
    fn from(turns: u128) -> Self {
        Self {
            low: turns as u64,
            high: (turns >> 64) as u64,
        }
    }
}

// SAFETY: the same fields in the same order as in ddc.cu, whose alignment is that of C.
unsafe impl DeviceRepr for Phase {}

/// `Part` of ddc.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: i64,
    phase: Phase,
    at: u32,
    count: i32,
    skip: i32,
    unused: i32,
}

// SAFETY: the same fields in the same order as in ddc.cu, whose alignment is that of C.
unsafe impl DeviceRepr for Part {}

/// Range of the numbers that a ring holds, for one polarisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held(Range<u64>);

impl Held {
    /// Makes `need` be held, in a ring of `ring` numbers, which are at least as many. Returns what
    /// is to be computed.
    fn extend(&mut self, need: Range<u64>, ring: u64) -> Range<u64> {
        if !(self.0.start..=self.0.end).contains(&need.start) {
            self.0 = need.start..need.start;
        }
        let new = self.0.end..need.end.max(self.0.end);
        self.0.end = new.end;
        self.0.start = self.0.start.max(new.end.saturating_sub(ring));
        new
    }
}

/// The kernel, its tables and its rings.
#[derive(Debug)]
pub(super) struct Ddc {
    function: CudaFunction,
    shape: Tiling,
    shared: usize,
    filter: CUdeviceptr,
    scale: f32,
    mixer: Mixer,
    /// One per polarisation.
    rings: [CUdeviceptr; N_POL],
    _memory: (CudaSlice<u32>, CudaSlice<f32>),
    /// Numbers of each, a power of two.
    ring: usize,
    /// Of the filter bank: numbers from one spectrum to the next, and of a window.
    hop: usize,
    window: usize,
}

/// Bytes of the rings for launches of up to `spectra` spectra.
pub fn ring_bytes(output: &OutputConfig, spectra: usize) -> usize {
    N_POL * Ddc::ring(output, spectra) * size_of::<Complex32>()
}

impl Ddc {
    /// What `output` needs, for launches of up to `spectra` spectra.
    pub fn new(
        gpu: &Gpu,
        output: &OutputConfig,
        narrowband: &Narrowband,
        bits: SampleBits,
        spectra: usize,
    ) -> Result<Self, GpuError> {
        let shape = Tiling::new(narrowband.subsampling(), narrowband.ddc_taps());
        let shared = shape.shared(bits);
        if shared > gpu.shared() {
            return Err(GpuError::Subsampling {
                subsampling: shape.subsampling,
                taps: shape.taps,
                needs: shared,
                has: gpu.shared(),
            });
        }
        let macros = [
            ("BITS", u64::from(bits.get())),
            ("SUBSAMPLING", shape.subsampling as u64),
            ("DDC_TAPS", shape.taps as u64),
            ("DDC_TILES", shape.tiles as u64),
            ("DDC_WARPS", shape.warps as u64),
        ];
        let mixed = ddc::mixed(&narrowband.filter, &narrowband.mixer);
        let (table, scale) = table(&mixed, shape);
        let ring = Self::ring(output, spectra);
        gpu.check_room(
            "the down-conversion's numbers",
            N_POL * ring * size_of::<Complex32>(),
            "--send-chunk-jones",
        )?;
        let filter = gpu.table("the down-conversion's filter", &table)?;
        let rings: CudaSlice<f32> = gpu.zeros("the down-conversion's numbers", N_POL * ring * 2)?;
        let pol = |pol| address(&rings) + (pol * ring * size_of::<Complex32>()) as CUdeviceptr;
        Ok(Self {
            function: gpu.function(DDC, &macros, shared)?,
            shape,
            shared,
            filter: address(&filter),
            scale,
            mixer: narrowband.mixer,
            rings: [pol(0), pol(1)],
            _memory: (filter, rings),
            ring,
            hop: output.pfb_hop(),
            window: output.taps * output.pfb_step(),
        })
    }

    /// Numbers that a ring should have for launches of up to `spectra` spectra.
    pub fn ring(output: &OutputConfig, spectra: usize) -> usize {
        let window = output.taps.saturating_mul(output.pfb_step());
        let most = spectra.saturating_mul(output.pfb_hop()) + window;
        // Half as much again as a window, at least, so that not every spectrum needs a launch of
        // its own.
        most.min(RING.max(window + window / 2)).next_power_of_two()
    }

    /// Spectra of a launch, at most.
    pub fn most_spectra(&self) -> usize {
        (self.ring - self.window) / self.hop + 1
    }

    /// Numbers of each polarisation that `spectra` spectra need.
    fn numbers(&self, spectra: usize) -> usize {
        spectra.saturating_sub(1) * self.hop + self.window
    }

    /// Their bytes, both polarisations.
    pub fn bytes(&self, spectra: usize) -> usize {
        N_POL * self.numbers(spectra) * size_of::<Complex32>()
    }

    /// What the filter reads, if the rings have it: the first window begins `offset` samples behind
    /// `start`.
    pub fn input(&self, start: Timestamp, offset: [usize; N_POL]) -> FrontInput {
        let subsampling = self.shape.subsampling as u64;
        FrontInput {
            pol: self.rings,
            offset: offset.map(|offset| (start.0 + offset as u64) / subsampling),
            ring: self.ring,
        }
    }

    /// Makes the rings hold what `spectra` spectra need, no more than
    /// [`most_spectra`](Self::most_spectra); `stream` has it behind all that it had before. Returns
    /// what the filter reads.
    ///
    /// The first window begins `offset` samples into `samples`, which are a multiple of S, as the
    /// timestamp of the first sample is.
    ///
    /// # Safety
    ///
    /// As for [`KernelSet::front`](super::kernel_set::KernelSet::front). The rings are used on
    /// `stream` alone, and `held` says what they have.
    pub unsafe fn convert(
        &self,
        stream: &CudaStream,
        held: &mut [Held; N_POL],
        samples: &SampleInput,
        offset: [usize; N_POL],
        spectra: usize,
    ) -> Result<FrontInput, DriverError> {
        let subsampling = self.shape.subsampling as u64;
        let numbers = self.numbers(spectra) as u64;
        let input = self.input(samples.start, offset);
        let first = input.offset;
        let part = |pol: usize, held: &mut Held| {
            let new = held.extend(first[pol]..first[pol] + numbers, self.ring as u64);
            // Rows are the same wherever a launch begins, so that sums are rounded alike.
            let aligned = new.start - new.start % OUTPUTS as u64;
            let time = aligned * subsampling;
            Part {
                offset: time as i64 - samples.start.0 as i64,
                phase: self.mixer.exact(time).into(),
                at: aligned as u32,
                count: if new.is_empty() {
                    0
                } else {
                    (new.end - aligned) as i32
                },
                skip: (new.start - aligned) as i32,
                unused: 0,
            }
        };
        let [held0, held1] = held;
        let parts = [part(0, held0), part(1, held1)];
        let most = parts.iter().map(|part| part.count).max().unwrap_or(0) as usize;
        if most == 0 {
            return Ok(input);
        }
        let mask = self.ring as u32 - 1;
        let advance = Phase::from(self.mixer.exact(subsampling));
        let mut launch = stream.launch_builder(&self.function);
        launch
            .arg(&samples.addresses[0])
            .arg(&samples.addresses[1])
            .arg(&self.filter)
            .arg(&self.scale)
            .arg(&advance)
            .arg(&self.rings[0])
            .arg(&self.rings[1])
            .arg(&mask)
            .arg(&parts[0])
            .arg(&parts[1]);
        let blocks = most.div_ceil(self.shape.rows() * OUTPUTS);
        let config = LaunchConfig {
            grid_dim: (blocks as u32, N_POL as u32, 1),
            block_dim: ((LANES * self.shape.warps) as u32, 1, 1),
            shared_mem_bytes: self.shared as u32,
        };
        // SAFETY: the arguments are those of ddc, and the caller vouches for the samples of the
        // windows, of which these are part.
        unsafe { launch.launch(config) }?;
        Ok(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ring_has_each_number_once() {
        let mut held = Held::default();
        assert_eq!(held.extend(100..200, 256), 100..200);
        // Windows overlap, and coarse delays go back and forth.
        assert_eq!(held.extend(150..260, 256), 200..260);
        assert_eq!(held.extend(149..250, 256), 260..260);
        assert_eq!(held.extend(260..300, 256), 260..300);
        // A gap, and what is not there any more.
        assert_eq!(held.extend(301..400, 256), 301..400);
        assert_eq!(held.extend(300..400, 256), 300..400);
    }

    proptest! {
        #[test]
        fn whatever_is_needed_is_in_the_ring(steps in prop::collection::vec((0u64..300, 1u64..=64), 1..50)) {
            const RING: u64 = 64;
            let mut ring = vec![u64::MAX; RING as usize];
            let mut held = Held::default();
            for (first, count) in steps {
                for i in held.extend(first..first + count, RING) {
                    ring[(i % RING) as usize] = i;
                }
                for i in first..first + count {
                    prop_assert_eq!(ring[(i % RING) as usize], i);
                }
            }
        }

        #[test]
        fn the_table_is_the_filter(subsampling in 1usize..40, taps in 1usize..300, seed in 0u64..100) {
            use rand::{Rng, SeedableRng};
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let shape = Tiling::new(subsampling, taps);
            let filter: Vec<_> = (0..taps)
                .map(|_| Complex64::new(rng.random_range(-0.3..0.3), rng.random_range(-0.3..0.3)))
                .collect();
            let (table, scale) = table(&filter, shape);
            prop_assert_eq!(table.len(), shape.deep() * LANES * 4);
            let half = |at: usize, i: usize| {
                f64::from(f16::from_bits((table[at] >> (16 * i)) as u16))
            };
            let mut sums = vec![Complex64::default(); OUTPUTS];
            let mut expected = sums.clone();
            for row in 0..TILE * shape.deep() {
                // Any input tells the rows apart.
                let x = 1.0 + (row % 13) as f64;
                for column in 0..COLUMNS {
                    let within = row % TILE;
                    let (t, pair, i) = (within % 8 / 2, within / 8, within % 2);
                    let at = (row / TILE * LANES + 4 * column + t) * 4 + pair;
                    let g = (half(at, i) + half(at + 2, i)) * f64::from(scale);
                    let sum = &mut sums[column / 2];
                    if column % 2 == 0 { sum.re += g * x } else { sum.im += g * x }
                }
                for (number, sum) in expected.iter_mut().enumerate() {
                    if let Some(g) = row.checked_sub(number * subsampling).and_then(|tap| filter.get(tap)) {
                        *sum += g * x;
                    }
                }
            }
            for (got, expected) in sums.iter().zip(&expected) {
                prop_assert!((got - expected).norm() < 1e-7 * 13.0 * taps as f64);
            }
        }
    }
}

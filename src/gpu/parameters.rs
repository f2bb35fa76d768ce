//! What the kernels of an output are given, as they lay it out.

use std::ops::Range;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{DeviceRepr, ValidAsZeroBits};
use ground::{N_POL, Timestamp};
use num_complex::Complex32;

use crate::engine::FineDelay;

/// Four numbers, as the kernels' `float4`; two of them a `float2`.
///
/// Gains: per channel, complex, of polarisation 0 and 1; for wideband times the factors of the
/// separation, 1/2 and 1/(2i). Delays: per spectrum, as [`FineDelay`] has them, delays of
/// polarisation 0 and 1, then phases.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Float4(pub [f32; 4]);

impl Float4 {
    /// Sets the gain of one polarisation. The factors of the separation, which transforms of both
    /// polarisations need, are exact.
    pub fn set_gain(&mut self, pol: usize, gain: Complex32, separate: bool) {
        let pair = match pol {
            _ if !separate => [gain.re, gain.im],
            0 => [gain.re / 2.0, gain.im / 2.0],
            _ => [gain.im / 2.0, -gain.re / 2.0],
        };
        self.0[2 * pol..2 * pol + 2].copy_from_slice(&pair);
    }
}

impl Float4 {
    /// Marks the delays of a spectrum that statistics leave out: the first is not a number.
    pub fn leave_out(&mut self) {
        self.0[0] = f32::NAN;
    }

    /// Whether statistics leave this spectrum out.
    pub fn is_left_out(&self) -> bool {
        self.0[0].is_nan()
    }
}

impl From<&FineDelay> for Float4 {
    fn from(fine: &FineDelay) -> Self {
        Self([fine.delay[0], fine.delay[1], fine.phase[0], fine.phase[1]])
    }
}

// SAFETY: plain numbers with the layout of `float4`.
unsafe impl DeviceRepr for Float4 {}
// SAFETY: zero bits are four zeros.
unsafe impl ValidAsZeroBits for Float4 {}

/// Numbers (`u64`) per batch in the counters: clipped and power, per polarisation.
pub(super) const COUNTERS: usize = 2 * N_POL;

/// `SpectraRange` of geometry.cuh: the spectra of one launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SpectraRange {
    pub first: i32,
    pub end: i32,
    pub first_group: i32,
    pub ring: i32,
    pub input_ring: i32,
    pub number: u32,
}

// SAFETY: the same six integers as in geometry.cuh.
unsafe impl DeviceRepr for SpectraRange {}

/// What the dither of an output chunk is drawn from. `DitherOrigin` of correct.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DitherOrigin {
    /// Timestamp of the chunk's first spectrum.
    pub start: u64,
    pub feng_id: u32,
    pub unused: u32,
}

// SAFETY: the same fields in the same order as in correct.cuh, whose alignment is that of C.
unsafe impl DeviceRepr for DitherOrigin {}

/// What lies between the front end and the back end: a ring of groups of spectra.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intermediate {
    /// `groups × KernelSet::group_bytes`.
    pub data: CUdeviceptr,
    /// Groups of the kernel set in the ring, a power of two; group i lies at i modulo `groups`.
    pub groups: usize,
}

/// Where the samples of a view are on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleInput {
    /// Per polarisation, packed samples as in [`FrontInput`].
    pub addresses: [CUdeviceptr; N_POL],
    /// Timestamp of the first.
    pub start: Timestamp,
}

/// Where the windows of successive spectra are.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrontInput {
    /// Per polarisation, packed samples, 16-byte aligned, with `SampleView::PADDING` bytes behind
    /// the last; for narrowband a ring of complex numbers.
    pub pol: [CUdeviceptr; N_POL],
    /// Per polarisation, index of the first sample or number of the window of the first spectrum.
    pub offset: [u64; N_POL],
    /// Numbers in a ring, a power of two; of no meaning for wideband.
    pub ring: usize,
}

/// What the front end reads, and which spectra it makes of it.
#[derive(Clone, Debug)]
pub(super) struct FrontArgs {
    /// What it reads.
    pub input: FrontInput,
    /// Spectra of the output chunk.
    pub spectra: Range<usize>,
    /// Number of the output chunk's first spectrum, counted from time 0; may wrap around.
    pub number: u32,
    /// Where filtered groups go.
    pub intermediate: Intermediate,
    /// [`COUNTERS`] per batch of the chunk, added to.
    pub counters: CUdeviceptr,
}

/// What the back end reads, and what it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackArgs {
    /// Where filtered groups are.
    pub intermediate: Intermediate,
    /// One [`Float4`] per channel.
    pub gains: CUdeviceptr,
    /// One [`Float4`] per spectrum of the output chunk.
    pub fine: CUdeviceptr,
    /// The output chunk.
    pub out: CUdeviceptr,
    /// [`COUNTERS`] per batch of the chunk, added to.
    pub counters: CUdeviceptr,
    /// Timestamp of the chunk's first spectrum.
    pub start: u64,
    /// Spectra from here on are discarded.
    pub limit: usize,
    /// The dither's engine.
    pub feng_id: u32,
    /// Where sums for statistics go, if the kernels take any.
    pub statistics: Option<StatisticsArgs>,
}

/// `Statistics` of statistics.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct StatisticsArgs {
    pub sums: CUdeviceptr,
    pub clipped: CUdeviceptr,
}

// SAFETY: two addresses, as in statistics.cuh.
unsafe impl DeviceRepr for StatisticsArgs {}

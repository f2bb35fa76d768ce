//! Views of chunks: what a backend reads, and what it fills.

use ground::{N_POL, Timestamp};

use super::DeviceSamples;

/// Packed samples of one receive chunk followed by its tail.
#[derive(Clone, Copy, Debug)]
pub struct SampleView<'a> {
    /// Timestamp of sample 0 of both polarisations.
    pub start: Timestamp,
    /// Usable samples per polarisation.
    pub samples: usize,
    /// Packed samples per polarisation; at least [`SampleView::PADDING`] readable bytes follow the
    /// last one. Empty where a GPU computes.
    pub pol: [&'a [u8]; N_POL],
    /// Where a GPU reads the same, if one computes.
    pub device: Option<DeviceSamples<'a>>,
}

impl SampleView<'_> {
    /// Readable bytes after the last sample, so that vector loads need no special end.
    pub const PADDING: usize = 128;
}

/// What one batch counted while it was computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Complex samples that quantisation clamped, per polarisation.
    pub clipped: [u64; N_POL],
    /// Σ x² over the last tap of each spectrum's window, per polarisation: with o the window's
    /// first sample, over SS = [`OutputConfig::spectrum_samples`] samples from o +
    /// [`OutputConfig::last_tap`] on. Those of successive spectra tile the time axis. Outputs of an
    /// engine other than its first may leave it 0.
    ///
    /// [`OutputConfig::spectrum_samples`]: crate::config::OutputConfig::spectrum_samples
    /// [`OutputConfig::last_tap`]: crate::config::OutputConfig::last_tap
    pub power: [u64; N_POL],
}

/// An output chunk while it is being computed: whole batches in wire layout, each (channel,
/// spectrum, polarisation, re/im) of `i8`, or of nibbles, the real part in the high one, where the
/// output has 4 bits.
#[derive(Debug)]
pub struct OutputSpan<'a> {
    /// Timestamp of spectrum 0.
    pub start: Timestamp,
    /// `batches × batch_bytes`.
    pub data: &'a mut [u8],
    /// One per batch; zeroed by the engine when the chunk is started.
    pub stats: &'a mut [BatchStats],
}

//! What the heaps of a stream are made of.

use std::net::SocketAddrV4;

use dsp::OutputBits;
use spead::{Descriptor, item};

use crate::sink::layout::{MAX_CHANNELS, shape_of};

/// Bytes of a heap whose shape a descriptor tells: more is not an F-engine's, and each heap takes
/// memory.
const LARGEST_HEAP: u64 = 1 << 28;

/// What a stream's heaps are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels of one substream.
    pub channels: u64,
    /// Spectra in a heap.
    pub spectra: u64,
    /// Bits of each real and imaginary part.
    pub bits: OutputBits,
}

impl Shape {
    /// Bytes of a heap.
    pub(super) fn heap_bytes(self) -> u64 {
        self.channels * self.spectra * self.bits.jones_bytes() as u64
    }

    /// As a descriptor says; `None` if that is not of spectra.
    pub(super) fn described(dst: SocketAddrV4, descriptors: &[Descriptor]) -> Option<Self> {
        let raw = descriptors.iter().find(|d| d.id == item::FENG_RAW)?;
        let (channels, spectra, bits) = shape_of(dst, &raw.shape, &raw.element).ok()?;
        let shape = Self {
            channels,
            spectra,
            bits,
        };
        let sane = (1..=MAX_CHANNELS).contains(&channels)
            && (1..=LARGEST_HEAP).contains(&spectra)
            && shape.heap_bytes() <= LARGEST_HEAP;
        sane.then_some(shape)
    }
}

//! Memory of one run of numbers.

use crate::number::Number;
use crate::types::Scalar;

/// Bytes in a cache line.
pub(crate) const LINE: usize = 64;

/// Bytes from the start of a cache line on, in whole lines.
#[derive(Default)]
pub(crate) struct Lane {
    words: Vec<u64>,
    /// The first word of a cache line.
    start: usize,
    bytes: usize,
}

impl Lane {
    /// Room for `bytes`, all 0.
    pub fn new(bytes: usize) -> Lane {
        let bytes = bytes.next_multiple_of(LINE);
        let words = vec![0u64; (bytes + LINE) / 8];
        let start = words.as_ptr().align_offset(LINE).min(LINE / 8);
        Lane {
            words,
            start,
            bytes,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words[self.start..])[..self.bytes]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words[self.start..])[..self.bytes]
    }

    pub fn get(&self, scalar: Scalar, index: usize) -> Number {
        let at = index * scalar.bytes();
        Number::read(scalar, &self.bytes()[at..]).unwrap_or(Number::zero(scalar))
    }

    pub fn set(&mut self, scalar: Scalar, index: usize, bits: u64) {
        let size = scalar.bytes();
        self.bytes_mut()[index * size..][..size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }
}

/// The bits of a number in the low end of a word.
pub(crate) fn bits(number: Number, scalar: Scalar) -> u64 {
    match number.cast(scalar) {
        Number::Int(value) => value as u64,
        Number::F32(value) => value.to_bits().into(),
        Number::F64(value) => value.to_bits(),
    }
}

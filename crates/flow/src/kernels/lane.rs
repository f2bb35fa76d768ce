//! Memory of one run of numbers.

use std::ptr::NonNull;

use crate::number::Number;
use crate::types::Scalar;

/// Bytes in a cache line.
pub(crate) const LINE: usize = 64;

/// Bytes from the start of a cache line on, in whole lines: its own, or some that it was lent.
#[derive(Default)]
pub(crate) struct Lane {
    words: Vec<u64>,
    /// The first word of a cache line.
    start: usize,
    bytes: usize,
    lent: Option<NonNull<u8>>,
}

// SAFETY: what it was lent is its own for that time, see `lend`.
unsafe impl Send for Lane {}

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
            lent: None,
        }
    }

    /// Lends it as many bytes as it has, in the place of its own.
    ///
    /// # Safety
    ///
    /// `memory` is aligned to 8 bytes, its bytes are initialised, and nobody else reads or writes
    /// them until [`Lane::give_back`], or, without it, as long as the lane is used.
    pub unsafe fn lend(&mut self, memory: NonNull<u8>) {
        self.lent = Some(memory);
    }

    /// Has its own bytes again.
    pub fn give_back(&mut self) {
        self.lent = None;
    }

    pub fn bytes(&self) -> &[u8] {
        match self.lent {
            // SAFETY: whoever lent it promised so many bytes, for as long as it has them.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.as_ptr(), self.bytes) },
            None => &bytemuck::cast_slice(&self.words[self.start..])[..self.bytes],
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self.lent {
            // SAFETY: as above, and nobody else has them.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), self.bytes) },
            None => &mut bytemuck::cast_slice_mut(&mut self.words[self.start..])[..self.bytes],
        }
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

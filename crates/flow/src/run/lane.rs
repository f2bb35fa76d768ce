//! Memory of signals: real and imaginary parts in arrays of their own, from a cache line on.

use crate::number::Number;
use crate::types::{Scalar, Type};
use crate::value::Value;

/// Words in a cache line.
const LINE: usize = 8;

/// Numbers of one scalar type.
#[derive(Default)]
pub(super) struct Lane {
    words: Vec<u64>,
    /// The first word of a cache line.
    start: usize,
    bytes: usize,
}

impl Lane {
    /// Room for `bytes`, all 0.
    pub fn new(bytes: usize) -> Lane {
        let words = vec![0; bytes.div_ceil(8) + LINE];
        let start = words.as_ptr().align_offset(8 * LINE).min(LINE);
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

    fn get(&self, scalar: Scalar, index: usize) -> Number {
        let at = index * scalar.bytes();
        Number::read(scalar, &self.bytes()[at..]).unwrap_or(Number::zero(scalar))
    }

    fn set(&mut self, scalar: Scalar, index: usize, number: Number) {
        let word = bits(number, scalar).to_le_bytes();
        let size = scalar.bytes();
        self.bytes_mut()[index * size..][..size].copy_from_slice(&word[..size]);
    }
}

/// The bits of a number in the low end of a word.
pub(super) fn bits(number: Number, scalar: Scalar) -> u64 {
    match number.cast(scalar) {
        Number::Int(value) => value as u64,
        Number::F32(value) => value.to_bits().into(),
        Number::F64(value) => value.to_bits(),
    }
}

/// What one output of one node puts out in a step.
#[derive(Default)]
pub(super) struct Signal {
    pub re: Lane,
    /// Empty where the type is real.
    pub im: Lane,
}

/// What a signal is.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub kind: Type,
    /// Ticks between two samples.
    pub period: u64,
    /// The value for ever. Its signal has one sample.
    pub constant: Option<Value>,
    /// The value before the first sample.
    pub rest: Value,
}

impl Shape {
    /// Samples in so many ticks.
    pub fn samples(&self, ticks: u64) -> usize {
        if self.constant.is_some() {
            1
        } else {
            (ticks / self.period) as usize
        }
    }

    /// Bytes of a sample in one lane.
    pub fn lane_bytes(&self) -> usize {
        self.kind.scalar.bytes() * self.kind.len
    }
}

impl Signal {
    /// Room for the samples of a step, filled with the value before the first.
    pub fn new(shape: &Shape, step: u64) -> Signal {
        let bytes = shape.samples(step) * shape.lane_bytes();
        let mut signal = Signal {
            re: Lane::new(bytes),
            im: Lane::new(if shape.kind.complex { bytes } else { 0 }),
        };
        let value = shape.constant.as_ref().unwrap_or(&shape.rest);
        for sample in 0..shape.samples(step) {
            signal.set(sample, value);
        }
        signal
    }

    /// One sample.
    pub fn get(&self, kind: Type, sample: usize) -> Value {
        let first = sample * kind.len;
        Value::build(kind, |index| {
            let im = if kind.complex {
                self.im.get(kind.scalar, first + index)
            } else {
                Number::Int(0)
            };
            (self.re.get(kind.scalar, first + index), im)
        })
    }

    /// Sets one sample to a value of the signal's type.
    pub fn set(&mut self, sample: usize, value: &Value) {
        let kind = value.kind();
        let first = sample * kind.len;
        for (index, &number) in value.re().iter().enumerate() {
            self.re.set(kind.scalar, first + index, number);
        }
        for (index, &number) in value.im().iter().enumerate() {
            self.im.set(kind.scalar, first + index, number);
        }
    }

    /// Takes samples from raw bytes, complex numbers interleaved, from sample 0 on.
    pub fn read(&mut self, kind: Type, bytes: &[u8]) {
        if !kind.complex {
            self.re.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            return;
        }
        let size = kind.scalar.bytes();
        for (index, pair) in bytes.chunks_exact(2 * size).enumerate() {
            self.re.bytes_mut()[index * size..][..size].copy_from_slice(&pair[..size]);
            self.im.bytes_mut()[index * size..][..size].copy_from_slice(&pair[size..]);
        }
    }

    /// Appends the raw bytes of the first samples, complex numbers interleaved.
    pub fn write(&self, kind: Type, samples: usize, bytes: &mut Vec<u8>) {
        let size = kind.scalar.bytes();
        let all = samples * kind.len * size;
        if !kind.complex {
            bytes.extend_from_slice(&self.re.bytes()[..all]);
            return;
        }
        let parts = self.re.bytes()[..all]
            .chunks_exact(size)
            .zip(self.im.bytes()[..all].chunks_exact(size));
        for (re, im) in parts {
            bytes.extend_from_slice(re);
            bytes.extend_from_slice(im);
        }
    }
}

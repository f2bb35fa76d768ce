//! Signals in lanes: real and imaginary parts in arrays of their own.

use crate::kernels::View;
use crate::kernels::lane::{Lane, bits};
use crate::number::Number;
use crate::types::Type;
use crate::value::Value;

/// What a signal is.
#[derive(Clone, Debug)]
pub(super) struct SignalShape {
    pub kind: Type,
    /// Ticks between two samples.
    pub period: u64,
    /// The value for ever. Its signal has one sample.
    pub constant: Option<Value>,
    /// The parameter that the constant is, if it may change.
    pub parameter: Option<usize>,
    /// The value before the first sample.
    pub rest: Value,
}

impl SignalShape {
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

/// Where the parts of a signal lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub kind: Type,
    pub re: View,
    pub im: Option<View>,
}

impl Slot {
    /// One sample.
    pub fn get(&self, lanes: &[Lane], sample: usize) -> Value {
        let part = |view: View, index: usize| {
            lanes[view.lane].get(view.scalar, view.first + sample * view.len + index)
        };
        Value::build(self.kind, |index| {
            let im = self.im.map_or(Number::Int(0), |im| part(im, index));
            (part(self.re, index), im)
        })
    }

    /// Sets one sample to a value of the signal's type.
    pub fn set(&self, lanes: &mut [Lane], sample: usize, value: &Value) {
        let mut set = |view: View, numbers: &[Number]| {
            for (index, &number) in numbers.iter().enumerate() {
                let at = view.first + sample * view.len + index;
                lanes[view.lane].set(view.scalar, at, bits(number, view.scalar));
            }
        };
        set(self.re, value.re());
        if let Some(im) = self.im {
            set(im, value.im());
        }
    }
}

/// The first byte of a view in its lane.
pub(super) fn first_byte(view: View) -> usize {
    view.first * view.scalar.bytes()
}

/// Signals without anything that works on them.
#[derive(Default)]
pub(super) struct Store {
    pub lanes: Vec<Lane>,
    pub slots: Vec<Slot>,
}

impl Store {
    /// Room for the samples of a step, filled with the values before the first.
    pub fn new(shapes: &[SignalShape], step: u64) -> Store {
        let mut store = Store::default();
        for shape in shapes {
            let samples = shape.samples(step);
            let mut view = || {
                store.lanes.push(Lane::new(samples * shape.lane_bytes()));
                View {
                    lane: store.lanes.len() - 1,
                    first: 0,
                    len: shape.kind.len,
                    scalar: shape.kind.scalar,
                }
            };
            let slot = Slot {
                kind: shape.kind,
                re: view(),
                im: shape.kind.complex.then(view),
            };
            store.slots.push(slot);
            let value = shape.constant.as_ref().unwrap_or(&shape.rest);
            for sample in 0..samples {
                slot.set(&mut store.lanes, sample, value);
            }
        }
        store
    }

    /// The parts of a signal, from its first sample on.
    fn parts(&mut self, signal: usize) -> (&mut [u8], &mut [u8]) {
        let slot = self.slots[signal];
        let Some(im) = slot.im else {
            return (
                &mut self.lanes[slot.re.lane].bytes_mut()[first_byte(slot.re)..],
                &mut [],
            );
        };
        // Imaginary parts are made right behind the real ones.
        let (before, behind) = self.lanes.split_at_mut(im.lane);
        (
            &mut before[slot.re.lane].bytes_mut()[first_byte(slot.re)..],
            &mut behind[0].bytes_mut()[first_byte(im)..],
        )
    }

    pub fn clear(&mut self, signal: usize) {
        let (re, im) = self.parts(signal);
        re.fill(0);
        im.fill(0);
    }

    /// Takes samples from raw bytes, complex numbers interleaved, from sample 0 on.
    pub fn read(&mut self, signal: usize, bytes: &[u8]) {
        let kind = self.slots[signal].kind;
        let (re, im) = self.parts(signal);
        if !kind.complex {
            re[..bytes.len()].copy_from_slice(bytes);
            return;
        }
        match kind.scalar.bytes() {
            1 => split::<1>(bytes, re, im),
            2 => split::<2>(bytes, re, im),
            4 => split::<4>(bytes, re, im),
            _ => split::<8>(bytes, re, im),
        }
    }

    /// Appends the raw bytes of the first samples, complex numbers interleaved.
    pub fn write(&mut self, signal: usize, samples: usize, bytes: &mut Vec<u8>) {
        let kind = self.slots[signal].kind;
        let size = kind.scalar.bytes();
        let all = samples * kind.len * size;
        let (re, im) = self.parts(signal);
        if !kind.complex {
            bytes.extend_from_slice(&re[..all]);
            return;
        }
        let from = bytes.len();
        bytes.resize(from + 2 * all, 0);
        let out = &mut bytes[from..];
        match size {
            1 => join::<1>(&re[..all], &im[..all], out),
            2 => join::<2>(&re[..all], &im[..all], out),
            4 => join::<4>(&re[..all], &im[..all], out),
            _ => join::<8>(&re[..all], &im[..all], out),
        }
    }
}

fn split<const N: usize>(bytes: &[u8], re: &mut [u8], im: &mut [u8]) {
    let (pairs, _) = bytes.as_chunks::<N>();
    let (re, _) = re.as_chunks_mut::<N>();
    let (im, _) = im.as_chunks_mut::<N>();
    for ((pair, re), im) in pairs.chunks_exact(2).zip(re).zip(im) {
        (*re, *im) = (pair[0], pair[1]);
    }
}

fn join<const N: usize>(re: &[u8], im: &[u8], out: &mut [u8]) {
    let (re, _) = re.as_chunks::<N>();
    let (im, _) = im.as_chunks::<N>();
    let (pairs, _) = out.as_chunks_mut::<N>();
    for ((pair, re), im) in pairs.chunks_exact_mut(2).zip(re).zip(im) {
        (pair[0], pair[1]) = (*re, *im);
    }
}

//! Operations that look up or call, and long delays.

use super::element::sized;
use super::execute::{Memory, Operation, View};
use super::lane::Lane;
use super::op::Op;
use crate::types::Scalar;

/// What a long delay holds: a ring of bytes. Or numbers that are used once, in their order.
pub(crate) struct Line {
    held: Lane,
    bytes: usize,
    at: usize,
}

impl Line {
    /// A delay that holds these numbers, the first to come out first.
    pub fn new(scalar: Scalar, count: usize, bits: impl Fn(usize) -> u64) -> Line {
        let mut held = Lane::new(count * scalar.bytes());
        for index in 0..count {
            held.set(scalar, index, bits(index));
        }
        Line {
            held,
            bytes: count * scalar.bytes(),
            at: 0,
        }
    }

    /// What is left of numbers that are used once.
    pub fn left<T: bytemuck::Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.held.bytes()[self.at..self.bytes])
    }

    /// So many bytes of these have been used.
    pub fn used(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Copies a run of what is held: up to the ring's end, and from its beginning on.
    fn out(&self, to: &mut [u8]) {
        let held = &self.held.bytes()[..self.bytes];
        let first = to.len().min(held.len() - self.at);
        to[..first].copy_from_slice(&held[self.at..][..first]);
        let rest = to.len() - first;
        to[first..].copy_from_slice(&held[..rest]);
    }

    fn take(&mut self, from: &[u8]) {
        let held = &mut self.held.bytes_mut()[..self.bytes];
        let first = from.len().min(held.len() - self.at);
        held[self.at..][..first].copy_from_slice(&from[..first]);
        held[..from.len() - first].copy_from_slice(&from[first..]);
        self.at = (self.at + from.len()) % held.len();
    }

    /// Puts the input behind what is held.
    fn pass(&mut self, input: &[u8], output: &mut [u8]) {
        let early = self.bytes.min(output.len());
        self.out(&mut output[..early]);
        let through = output.len() - early;
        output[early..].copy_from_slice(&input[..through]);
        // Of a longer step the last samples alone stay, and the ring begins anew.
        self.take(&input[input.len() - early..]);
    }
}

/// Does an operation of this kind.
pub(super) fn run(op: &Operation, memory: &mut Memory) {
    match op {
        Op::Recall { d, line } => {
            let lines = std::mem::take(&mut memory.lines);
            sized!(d.scalar, T => memory.write::<T, _>(*d, |out, _| {
                lines[*line].out(bytemuck::cast_slice_mut(out));
            }));
            memory.lines = lines;
        }
        Op::Remember { a, line } => {
            let size = a.scalar.bytes() * a.len;
            let first = a.first * a.scalar.bytes() + memory.at * size;
            let bytes = &memory.lanes[a.lane].bytes()[first..][..memory.count * size];
            memory.lines[*line].take(bytes);
        }
        Op::Pass { d, a, line } => {
            let lines = std::mem::take(&mut memory.lines);
            sized!(d.scalar, T => memory.write::<T, _>(*d, |out, inputs| {
                let a = inputs.get::<T>(*a);
                lines[*line].pass(bytemuck::cast_slice(a), bytemuck::cast_slice_mut(out));
            }));
            memory.lines = lines;
        }
        Op::Enable { context, from } => {
            let samples = &mut memory.contexts[*context];
            samples.clear();
            for at in 0..memory.count {
                let on = |view: &View| memory.lanes[view.lane].bytes()[view.first + at] != 0;
                if from.iter().all(on) {
                    samples.push(at as u32);
                }
            }
        }
        Op::Map { d, a, function: f } => {
            let f = f.in_f64();
            match d.scalar {
                Scalar::F32 => memory.write::<f32, _>(*d, |out, inputs| {
                    for (out, &a) in out.iter_mut().zip(inputs.get::<f32>(*a)) {
                        *out = f(a.into()) as f32;
                    }
                }),
                _ => memory.write::<f64, _>(*d, |out, inputs| {
                    for (out, &a) in out.iter_mut().zip(inputs.get::<f64>(*a)) {
                        *out = f(a);
                    }
                }),
            }
        }
        Op::Atan2 { d, y, x } => match d.scalar {
            Scalar::F32 => memory.write::<f32, _>(*d, |out, inputs| {
                let inputs = inputs.get::<f32>(*y).iter().zip(inputs.get::<f32>(*x));
                for (out, (&y, &x)) in out.iter_mut().zip(inputs) {
                    *out = f64::from(y).atan2(x.into()) as f32;
                }
            }),
            _ => memory.write::<f64, _>(*d, |out, inputs| {
                let inputs = inputs.get::<f64>(*y).iter().zip(inputs.get::<f64>(*x));
                for (out, (&y, &x)) in out.iter_mut().zip(inputs) {
                    *out = y.atan2(x);
                }
            }),
        },
        Op::Blend { d, a, table } => memory.write::<f64, _>(*d, |out, inputs| {
            let last = table.len() - 1;
            for (out, &at) in out.iter_mut().zip(inputs.get::<f64>(*a)) {
                let below = (at as usize).min(last);
                let (a, b) = (table[below], table[(below + 1).min(last)]);
                *out = a + (at - below as f64).clamp(0.0, 1.0) * (b - a);
            }
        }),
        Op::Nearest { d, re, im, points } => memory.write::<i64, _>(*d, |out, inputs| {
            let inputs = inputs.get::<f64>(*re).iter().zip(inputs.get::<f64>(*im));
            for (out, (&re, &im)) in out.iter_mut().zip(inputs) {
                let far = |point: &(f64, f64)| (re - point.0).powi(2) + (im - point.1).powi(2);
                let nearest = points
                    .iter()
                    .map(far)
                    .enumerate()
                    .min_by(|a, b| a.1.total_cmp(&b.1));
                *out = nearest.map_or(0, |(symbol, _)| symbol as i64);
            }
        }),
        _ => debug_assert!(false, "{op:?} is for memory to be laid out, not to be run"),
    }
}

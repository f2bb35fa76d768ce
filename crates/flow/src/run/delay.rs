//! Delays in bytes: what is held goes out in runs, not sample by sample.

use std::sync::{Arc, Mutex, PoisonError};

use super::lane::{Lane, Shape, Signal};
use super::layout::Part;
use super::unit::{Fault, Run};
use crate::value::Value;

/// What a delay holds: a ring of one lane's bytes.
struct Ring {
    lane: Lane,
    at: usize,
}

impl Ring {
    /// Copies a run of `bytes` at a time: up to the ring's end, and from its beginning on.
    fn out(&self, to: &mut [u8]) {
        let held = self.lane.bytes();
        let first = to.len().min(held.len() - self.at);
        to[..first].copy_from_slice(&held[self.at..][..first]);
        let rest = to.len() - first;
        to[first..].copy_from_slice(&held[..rest]);
    }

    fn take(&mut self, from: &[u8]) {
        let held = self.lane.bytes_mut();
        let first = from.len().min(held.len() - self.at);
        held[self.at..][..first].copy_from_slice(&from[..first]);
        held[..from.len() - first].copy_from_slice(&from[first..]);
        self.at = (self.at + from.len()) % held.len();
    }
}

/// A delay outside of enabled subsystems.
pub(super) struct Line {
    from: usize,
    to: usize,
    constant: bool,
    re: Ring,
    im: Option<Ring>,
}

impl Line {
    pub fn new(part: &Part, item: usize) -> Option<Line> {
        let item = part.items[item].as_ref()?;
        let length = item.plain_delay();
        let kind = item.outputs[0];
        let mut step = item.node.start(&item.inputs, &item.outputs);
        let mut outputs = item.node.rest(&item.outputs);
        let mut held = Signal::new(
            &Shape {
                kind,
                period: 1,
                constant: None,
                rest: Value::zero(kind),
            },
            length as u64,
        );
        let nothing = [Value::zero(kind)];
        for sample in 0..length {
            step.compute(&[], &mut outputs);
            step.update(&nothing);
            held.set(sample, &outputs[0]);
        }
        let ring = |lane| Ring { lane, at: 0 };
        Some(Line {
            from: item.from[0],
            to: item.to[0],
            constant: part.shapes[item.from[0]].constant.is_some(),
            re: ring(held.re),
            im: kind.complex.then_some(ring(held.im)),
        })
    }

    /// Whether the line can be run for whole steps.
    pub fn serves(&self) -> bool {
        !self.constant && !self.re.lane.bytes().is_empty()
    }
}

type Shared = Arc<Mutex<Line>>;

/// Puts out a step of a delay that holds a step at least.
pub(super) struct Recall(pub Shared);
/// Takes in a step of the same delay.
pub(super) struct Remember(pub Shared);

impl Run for Recall {
    fn run(&mut self, signals: &mut [Signal]) -> Result<(), Fault> {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let out = &mut signals[line.to];
        line.re.out(out.re.bytes_mut());
        if let Some(im) = &line.im {
            im.out(out.im.bytes_mut());
        }
        Ok(())
    }
}

impl Run for Remember {
    fn run(&mut self, signals: &mut [Signal]) -> Result<(), Fault> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = &signals[line.from];
        line.re.take(from.re.bytes());
        if let Some(im) = &mut line.im {
            im.take(from.im.bytes());
        }
        Ok(())
    }
}

/// A delay of any length: its input goes out behind what it holds.
pub(super) struct Pass(pub Line);

impl Pass {
    fn lane(ring: &mut Ring, input: &[u8], output: &mut [u8]) {
        let held = ring.lane.bytes().len();
        let early = held.min(output.len());
        ring.out(&mut output[..early]);
        let through = output.len() - early;
        output[early..].copy_from_slice(&input[..through]);
        // Of a longer step the last samples alone stay, and the ring begins anew.
        ring.take(&input[input.len() - early..]);
    }
}

impl Run for Pass {
    fn run(&mut self, signals: &mut [Signal]) -> Result<(), Fault> {
        let Line {
            from, to, re, im, ..
        } = &mut self.0;
        let mut out = std::mem::take(&mut signals[*to]);
        let input = &signals[*from];
        Pass::lane(re, input.re.bytes(), out.re.bytes_mut());
        if let Some(im) = im {
            Pass::lane(im, input.im.bytes(), out.im.bytes_mut());
        }
        signals[*to] = out;
        Ok(())
    }
}

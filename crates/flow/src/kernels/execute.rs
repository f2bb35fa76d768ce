//! Operations on lanes.

use std::mem::{size_of, take};

use bytemuck::Pod;

use super::lane::Lane;
use super::op::Op;
use super::simd::{self, Level, Width, Work};
use super::{chain, element, fir, formula, rearrange, recur, table};
use crate::types::Scalar;

/// Where a run lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub lane: usize,
    /// The first number, in numbers of the run's type from the lane's beginning.
    pub first: usize,
    pub len: usize,
    pub scalar: Scalar,
}

/// An operation in memory.
pub(crate) type Operation = Op<View>;

impl Operation {
    /// Every operand, and how many samples beyond the present one it reaches.
    pub fn reaches(&self) -> Vec<(View, usize)> {
        let (d, from) = self.operands();
        let mut all: Vec<(View, usize)> = d.into_iter().chain(from).map(|view| (view, 0)).collect();
        if let Op::Fir { terms, .. } = self {
            all.extend(terms.iter().map(|term| (term.a, term.count - 1)));
        }
        if let (Op::Accumulate { .. } | Op::Count { .. }, Some(d)) = (self, d) {
            let before = View {
                first: d.first - 1,
                ..d
            };
            all.push((before, 0));
        }
        all
    }
}

/// What operations work on.
pub(crate) struct Memory<'a> {
    pub lanes: &'a mut [Lane],
    pub lines: &'a mut [super::table::Line],
    /// The samples of each context.
    pub contexts: &'a mut [Vec<u32>],
    /// For second copies of what filters read.
    pub scratch: &'a mut Lane,
    /// The first sample, and how many.
    pub at: usize,
    pub count: usize,
    pub level: Level,
}

/// The lanes but for the part of one that is written.
pub(crate) struct Inputs<'a> {
    lanes: &'a [Lane],
    pub contexts: &'a [Vec<u32>],
    own: usize,
    before: &'a [u8],
    pub at: usize,
    pub count: usize,
}

impl<'a> Inputs<'a> {
    /// The numbers of a run, and so many samples more.
    #[inline(always)]
    pub fn wide<T: Pod>(&self, view: View, more: usize) -> &'a [T] {
        let bytes = if view.lane == self.own {
            self.before
        } else {
            self.lanes[view.lane].bytes()
        };
        let first = (view.first + self.at * view.len) * size_of::<T>();
        let size = (self.count + more) * view.len * size_of::<T>();
        bytemuck::cast_slice(&bytes[first..first + size])
    }

    #[inline(always)]
    pub fn get<T: Pod>(&self, view: View) -> &'a [T] {
        self.wide(view, 0)
    }

    /// All of a lane from where a run begins.
    #[inline(always)]
    pub fn open<T: Pod>(&self, view: View) -> &'a [T] {
        let bytes = self.lanes[view.lane].bytes();
        bytemuck::cast_slice(&bytes[view.first * size_of::<T>()..])
    }

    /// The sample in front of what is written.
    #[inline(always)]
    pub fn sample_before<T: Pod>(&self, len: usize) -> &'a [T] {
        let bytes = &self.before[self.before.len() - len * size_of::<T>()..];
        bytemuck::cast_slice(bytes)
    }

    /// The number in front of what is written.
    #[inline(always)]
    pub fn last<T: Pod>(&self) -> T {
        let from = self.before.len() - size_of::<T>();
        bytemuck::pod_read_unaligned(&self.before[from..])
    }

    /// The same with another number of samples, for another domain.
    #[inline(always)]
    pub fn counted<T: Pod>(&self, view: View, count: usize) -> &'a [T] {
        let inputs = Inputs {
            lanes: self.lanes,
            contexts: self.contexts,
            own: self.own,
            before: self.before,
            at: 0,
            count,
        };
        inputs.get(view)
    }
}

impl Memory<'_> {
    /// Writes a run from others.
    #[inline(always)]
    pub fn write<T: Pod, R>(&mut self, d: View, f: impl FnOnce(&mut [T], Inputs) -> R) -> R {
        let mut lane = take(&mut self.lanes[d.lane]);
        let first = (d.first + self.at * d.len) * size_of::<T>();
        let size = self.count * d.len * size_of::<T>();
        let (before, out) = lane.bytes_mut().split_at_mut(first);
        let inputs = Inputs {
            lanes: self.lanes,
            contexts: self.contexts,
            own: d.lane,
            before,
            at: self.at,
            count: self.count,
        };
        let result = f(bytemuck::cast_slice_mut(&mut out[..size]), inputs);
        self.lanes[d.lane] = lane;
        result
    }
}

/// Runs operations in their order.
pub(crate) fn execute(ops: &[Operation], memory: &mut Memory<'_>) {
    for op in ops {
        one(op, memory);
    }
}

struct Element<'a, 'm>(&'a Operation, &'a mut Memory<'m>);

impl Work for Element<'_, '_> {
    type Result = bool;
    #[inline(always)]
    fn work(self, _: Width) -> bool {
        element::run(self.0, self.1) || rearrange::run(self.0, self.1)
    }
}

fn one(op: &Operation, memory: &mut Memory) {
    match op {
        Op::Fir { .. } | Op::Begin { .. } | Op::Dot { .. } => fir::run(op, memory),
        Op::Chain {
            d,
            first,
            held,
            links,
        } => chain::run(*d, (*first, *held), links, memory),
        Op::Formula { d, parts } => formula::run(*d, parts, memory),
        Op::Recur { d, turns } => recur::run(*d, turns, memory),
        _ => {
            let level = memory.level;
            if !simd::at(level.narrow(), Element(op, memory)) {
                table::run(op, memory);
            }
        }
    }
}

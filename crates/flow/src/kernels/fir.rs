//! Sums of products with windows of samples.
//!
//! Each output is a chain of fused multiply-adds from the first tap on. Outputs side by side take
//! a lane of a vector each, and enough vectors at once hide the latency of their chains; a tap is
//! read once for all of them.
//!
//! Filters of one run go by [`columns`](super::columns) where the processor has vectors. What is
//! left to this is filters of two runs, and what makes no whole vector.
//!
//! A window begins at any number, so that every other vector of it may lie across two cache lines,
//! which takes two reads. So the samples are copied twice, the second time half a line further on:
//! of the two, one has the vector within a line.

use std::mem::size_of;

use super::columns;
use super::element::{Real, typed};
use super::execute::{Memory, Operation, View};
use super::lane::LINE;
use super::op::{Op, Term};
use super::simd::{self, Width, Work};
use super::table::Line;
use crate::types::Scalar;

/// Bytes of a vector.
const VECTOR: usize = LINE / 2;
/// The most terms of one sum.
pub(crate) const TERMS: usize = 2;

/// Bytes that the second copies of a sum's samples may need.
pub(crate) fn scratch(terms: usize, taps: usize, count: usize, size: usize) -> usize {
    terms * room(taps + count, size)
}

/// Bytes for both copies of so many samples.
fn room(samples: usize, size: usize) -> usize {
    2 * (samples * size + LINE).next_multiple_of(LINE)
}

pub(super) fn run(op: &Operation, memory: &mut Memory) {
    match op {
        Op::Fir {
            d,
            terms,
            newest_first,
            fused,
        } => typed!(d.scalar, T => fir::<T>(memory, *d, terms, *newest_first, *fused)),
        Op::Dot { d, terms } => typed!(d.scalar, T => dot::<T>(memory, *d, terms)),
        Op::Begin {
            d,
            term,
            newest_first,
            from,
            line,
        } => {
            let lines = std::mem::take(&mut memory.lines);
            let first = First {
                term,
                newest_first: *newest_first,
                from,
            };
            typed!(d.scalar, T => begin_outputs::<T>(memory, *d, &first, &mut lines[*line]));
            memory.lines = lines;
        }
        _ => {}
    }
}

/// The filter, and the tap that each of its first outputs goes on from.
struct First<'a> {
    term: &'a Term<View>,
    newest_first: bool,
    from: &'a [usize],
}

fn begin_outputs<T: Real>(memory: &mut Memory, d: View, first: &First, line: &mut Line) {
    let left = line.left::<T>();
    if left.is_empty() {
        return;
    }
    let count = first.term.count;
    let done = memory.write::<T, _>(d, |out, inputs| {
        let samples = inputs.wide::<T>(first.term.a, count - 1);
        let taps: &[T] = &bytemuck::cast_slice(&first.term.taps)[..count];
        let from = &first.from[first.from.len() - left.len()..];
        let begins = left.iter().zip(from).enumerate();
        for (out, (index, (&number, &from))) in out.iter_mut().zip(begins) {
            let ago = |tap| match first.newest_first {
                true => count - 1 - tap,
                false => tap,
            };
            let product = |tap: usize| taps[tap].mul(samples[index + ago(tap)]);
            *out = (from..count).fold(number, |sum, tap| product(tap).add(sum));
        }
        out.len().min(left.len())
    });
    line.used(done * size_of::<T>());
}

/// The samples of one term, from the oldest of the first output on, and copies of them: one from
/// the start of a cache line on, one from half a line on, which begins `other` numbers behind the
/// first. Without copies, both are the samples themselves.
#[derive(Clone, Copy)]
struct Samples<'a, T> {
    taps: &'a [T],
    samples: &'a [T],
    copies: &'a [T],
    other: usize,
}

struct Outputs<'a, T> {
    out: &'a mut [T],
    terms: &'a [Samples<'a, T>],
    newest_first: bool,
    fused: bool,
}

/// `sum + a b`, rounded once or twice.
#[inline(always)]
fn add<T: Real, const FUSED: bool>(a: T, b: T, sum: T) -> T {
    if FUSED {
        a.fused(b, sum)
    } else {
        a.mul(b).add(sum)
    }
}

/// What a sum begins with: without fusing, what leaves the first product as it is.
#[inline(always)]
fn begin<T: Real, const FUSED: bool>() -> T {
    if FUSED {
        T::default()
    } else {
        T::default().neg()
    }
}

impl<T: Real> Outputs<'_, T> {
    /// The sum for one output.
    #[inline(always)]
    fn one<const FUSED: bool>(&mut self, index: usize) {
        let taps = self.terms[0].taps.len();
        let mut sum = begin::<T, FUSED>();
        for tap in 0..taps {
            let at = index
                + if self.newest_first {
                    taps - 1 - tap
                } else {
                    tap
                };
            for term in self.terms {
                sum = add::<T, FUSED>(term.taps[tap], term.samples[at], sum);
            }
        }
        self.out[index] = sum;
    }

    /// The sums for `M` vectors of `V` outputs, `N` in all, at once, from output `first` on.
    #[inline(always)]
    fn tile<const FUSED: bool, const V: usize, const M: usize, const N: usize>(
        &mut self,
        first: usize,
    ) {
        let mut sums = [[begin::<T, FUSED>(); V]; M];
        match self.terms {
            [term] => term.passes::<FUSED, V, M, N>(first, self.newest_first, &mut sums),
            terms => {
                let taps = terms[0].taps.len();
                for tap in 0..taps {
                    let at = first
                        + if self.newest_first {
                            taps - 1 - tap
                        } else {
                            tap
                        };
                    for term in terms {
                        let samples = &term.samples[at..at + N];
                        step::<T, FUSED, V, M, N>(term.taps[tap], samples, samples, &mut sums);
                    }
                }
            }
        }
        let out = self.out[first..first + N].chunks_exact_mut(V);
        for (out, sums) in out.zip(&sums) {
            out.copy_from_slice(sums);
        }
    }

    /// All sums; `N2` and so on are the outputs of so many vectors.
    #[inline(always)]
    fn all<
        const FUSED: bool,
        const V: usize,
        const N2: usize,
        const N4: usize,
        const N8: usize,
        const N12: usize,
    >(
        &mut self,
    ) {
        let count = self.out.len();
        let mut first = 0;
        // A last tile that is not full begins earlier, over outputs that were computed already: the
        // same values come out again.
        while first < count {
            let (left, all) = ((count - first) / V, count / V);
            let more = !(count - first).is_multiple_of(V);
            let (tile, at) = match left {
                12.. => (12, first),
                8..12 if all >= 12 && (left > 8 || more) => (12, count - N12),
                8..12 => (8, first),
                4..8 if all >= 8 && (left > 4 || more) => (8, count - N8),
                4..8 => (4, first),
                2..4 if all >= 4 && (left > 2 || more) => (4, count - N4),
                2..4 => (2, first),
                1 if all >= 2 && more => (2, count - N2),
                1 => (1, first),
                _ if all >= 1 => (1, count - V),
                _ => (0, first),
            };
            match tile {
                12 => self.tile::<FUSED, V, 12, N12>(at),
                8 => self.tile::<FUSED, V, 8, N8>(at),
                4 => self.tile::<FUSED, V, 4, N4>(at),
                2 => self.tile::<FUSED, V, 2, N2>(at),
                1 => self.tile::<FUSED, V, 1, V>(at),
                _ => (first..count).for_each(|index| self.one::<FUSED>(index)),
            }
            first = if tile == 0 { count } else { at + tile * V };
        }
    }
}

/// Adds one product to each sum: even vectors are read from one copy, odd ones from the other.
#[inline(always)]
fn step<T: Real, const FUSED: bool, const V: usize, const M: usize, const N: usize>(
    factor: T,
    even: &[T],
    odd: &[T],
    sums: &mut [[T; V]; M],
) {
    let (Ok(even), Ok(odd)) = (<&[T; N]>::try_from(even), <&[T; N]>::try_from(odd)) else {
        return;
    };
    for (m, sums) in sums.iter_mut().enumerate() {
        let samples = if m % 2 == 0 { even } else { odd };
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = add::<T, FUSED>(factor, samples[m * V + lane], *sum);
        }
    }
}

impl<T: Real> Samples<'_, T> {
    /// Adds the products of all taps. Even vectors are read from the copy in which they lie within
    /// cache lines, odd ones from the other.
    #[inline(always)]
    fn passes<const FUSED: bool, const V: usize, const M: usize, const N: usize>(
        &self,
        first: usize,
        newest_first: bool,
        sums: &mut [[T; V]; M],
    ) {
        let taps = self.taps.len();
        let (line, half) = (LINE / size_of::<T>(), VECTOR / size_of::<T>());
        let copies = self.copies;
        let mut own = *sums;
        for (tap, &factor) in self.taps.iter().enumerate() {
            let at = first + if newest_first { taps - 1 - tap } else { tap };
            let within = at % line <= half;
            let (even, odd) = (at, at + self.other);
            let (even, odd) = if within { (even, odd) } else { (odd, even) };
            let (Some(even), Some(odd)) = (copies.get(even..even + N), copies.get(odd..odd + N))
            else {
                break;
            };
            step::<T, FUSED, V, M, N>(factor, even, odd, &mut own);
        }
        *sums = own;
    }
}

impl<T: Real> Work for Outputs<'_, T> {
    type Result = ();
    #[inline(always)]
    fn work(mut self, _: Width) {
        match (T::FLOAT, size_of::<T>(), self.fused) {
            (true, 4, true) => self.all::<true, 8, 16, 32, 64, 96>(),
            (true, 4, false) => self.all::<false, 8, 16, 32, 64, 96>(),
            (true, _, true) => self.all::<true, 4, 8, 16, 32, 48>(),
            (true, _, false) => self.all::<false, 4, 8, 16, 32, 48>(),
            _ => (0..self.out.len()).for_each(|index| self.one::<true>(index)),
        }
    }
}

fn fir<T: Real>(
    memory: &mut Memory,
    d: View,
    terms: &[Term<View>],
    newest_first: bool,
    fused: bool,
) {
    let level = memory.level;
    let mut scratch = std::mem::take(memory.scratch);
    memory.write::<T, _>(d, |out, inputs| {
        let more = terms[0].count - 1;
        let done = match terms {
            [term] => {
                let taps = &bytemuck::cast_slice(&term.taps)[..term.count];
                let from = inputs.wide::<T>(term.a, more);
                columns::run(level, from, taps, out, newest_first, fused)
            }
            _ => 0,
        };
        let out = &mut out[done..];
        if out.is_empty() {
            return;
        }
        let empty = Samples {
            taps: &[],
            samples: &[],
            copies: &[],
            other: 0,
        };
        let mut all = [empty; TERMS];
        let size = room(out.len() + more + 1, size_of::<T>());
        let mut copies = scratch.bytes_mut().chunks_mut(size);
        for (samples, term) in all.iter_mut().zip(terms) {
            let from = &inputs.wide::<T>(term.a, more)[done..];
            *samples = Samples {
                taps: &bytemuck::cast_slice(&term.taps)[..term.count],
                samples: from,
                copies: from,
                other: 0,
            };
            // A few outputs are not worth copies.
            if T::FLOAT
                && size_of_val(&*out) >= 4 * VECTOR
                && let Some(both) = copies.next()
            {
                let both: &mut [T] = bytemuck::cast_slice_mut(both);
                let other = both.len() / 2 + VECTOR / size_of::<T>();
                both[..from.len()].copy_from_slice(from);
                both[other..other + from.len()].copy_from_slice(from);
                (samples.copies, samples.other) = (both, other);
            }
        }
        let terms = &all[..terms.len().min(TERMS)];
        let outputs = Outputs {
            out,
            terms,
            newest_first,
            fused,
        };
        simd::at(level, outputs);
    });
    *memory.scratch = scratch;
}

/// Inner products of the elements of each sample.
struct Inner<'a, T> {
    out: &'a mut [T],
    terms: &'a [(&'a [T], &'a [T], bool)],
    len: usize,
}

impl<T: Real> Work for Inner<'_, T> {
    type Result = ();
    #[inline(always)]
    fn work(self, _: Width) {
        for (index, out) in self.out.iter_mut().enumerate() {
            let mut sum = T::default();
            for at in index * self.len..(index + 1) * self.len {
                for (a, b, minus) in self.terms {
                    let a = if *minus { a[at].neg() } else { a[at] };
                    sum = a.fused(b[at], sum);
                }
            }
            *out = sum;
        }
    }
}

fn dot<T: Real>(memory: &mut Memory, d: View, terms: &[(View, View, bool)]) {
    let level = memory.level;
    memory.write::<T, _>(d, |out, inputs| {
        let mut all: [(&[T], &[T], bool); TERMS] = [(&[], &[], false); TERMS];
        for (slot, &(a, b, minus)) in all.iter_mut().zip(terms) {
            *slot = (inputs.get::<T>(a), inputs.get::<T>(b), minus);
        }
        let inner = Inner {
            out,
            terms: &all[..terms.len().min(TERMS)],
            len: terms[0].0.len,
        };
        simd::at(level, inner);
    });
}

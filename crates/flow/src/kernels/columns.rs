//! Filters of one run of floats, by columns of taps.
//!
//! A vector of samples that begins at any number meets one tap of this vector of outputs, the tap a
//! vector further on of the next one, and so on: it is read once for a whole column of taps. Each
//! output's products are still added one after the other, from the first tap on: so outputs enter
//! one vector after the other, and each one leaves when all columns have passed it. Several such
//! trains, in parts of the step far from each other, go at once: a tap is read once for all of
//! them, and there are enough sums to hide how long an addition takes.
//!
//! So the units that multiply and add are the limit, and not reads that cross cache lines.

use std::ops::Range;

use super::element::Real;
use super::simd::{self, Level, Width, Work};
use super::vector::{Float, Lanes};

/// The outputs of one filter.
struct Columns<'a, T> {
    samples: &'a [T],
    taps: &'a [T],
    out: &'a mut [T],
    newest_first: bool,
    fused: bool,
}

/// Filters as many of the first outputs as make whole vectors, and says how many these are: none
/// where the processor has no vectors for this. Samples are the output's own with so many before as
/// there are taps but one.
pub(super) fn run<T: Real>(
    level: Level,
    samples: &[T],
    taps: &[T],
    out: &mut [T],
    newest_first: bool,
    fused: bool,
) -> usize {
    fn cast<'a, T: Real, F: Float>(
        (samples, taps): (&'a [T], &'a [T]),
        out: &'a mut [T],
        newest_first: bool,
        fused: bool,
    ) -> Columns<'a, F> {
        Columns {
            samples: bytemuck::cast_slice(samples),
            taps: bytemuck::cast_slice(taps),
            out: bytemuck::cast_slice_mut(out),
            newest_first,
            fused,
        }
    }
    match (T::FLOAT, size_of::<T>()) {
        (false, _) => 0,
        (_, 4) => simd::at(
            level,
            cast::<T, f32>((samples, taps), out, newest_first, fused),
        ),
        _ => simd::at(
            level,
            cast::<T, f64>((samples, taps), out, newest_first, fused),
        ),
    }
}

impl<T: Float> Work for Columns<'_, T> {
    type Result = usize;
    #[inline(always)]
    fn work(self, width: Width) -> usize {
        assert!(
            self.samples.len() + 1 >= self.out.len() + self.taps.len() && !self.taps.is_empty()
        );
        let raw = Raw {
            samples: self.samples.as_ptr(),
            taps: self.taps.as_ptr(),
            count: self.taps.len(),
            out: self.out.as_mut_ptr(),
            newest_first: self.newest_first,
        };
        let len = self.out.len();
        // SAFETY: the slices are as long as has been seen above, and the width is the caller's.
        unsafe {
            match (width, self.fused) {
                (Width::Any, _) => 0,
                (Width::Half, true) => raw.all::<T::Half, true, false>(len),
                (Width::Half, false) => raw.all::<T::Half, false, false>(len),
                (Width::Full, true) => raw.all::<T::Full, true, true>(len),
                (Width::Full, false) => raw.all::<T::Full, false, true>(len),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Raw<T> {
    samples: *const T,
    taps: *const T,
    /// How many taps.
    count: usize,
    out: *mut T,
    newest_first: bool,
}

/// Adds a product to a sum.
///
/// # Safety
///
/// The condition of [`Lanes`].
#[inline(always)]
unsafe fn add<V: Lanes, const FUSED: bool>(tap: V, samples: V, sum: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        if FUSED {
            tap.fused(samples, sum)
        } else {
            tap.mul(samples).add(sum)
        }
    }
}

/// What a sum begins with: without fusing, what leaves the first product as it is.
///
/// # Safety
///
/// The condition of [`Lanes`].
#[inline(always)]
unsafe fn nothing<V: Lanes, const FUSED: bool>() -> V {
    let zero = V::Real::default();
    // SAFETY: the caller's.
    unsafe { V::all(if FUSED { zero } else { zero.neg() }) }
}

/// # Safety
///
/// That of [`Lanes`]; `samples` are `count - 1` more than there are outputs.
impl<T: Float> Raw<T> {
    /// All whole vectors of `len` outputs; `WIDE` is whether there are 32 registers.
    #[inline(always)]
    unsafe fn all<V: Lanes<Real = T>, const FUSED: bool, const WIDE: bool>(
        self,
        len: usize,
    ) -> usize {
        let vectors = len / V::COUNT;
        let mut tap = 0;
        // SAFETY: the caller's; no pass goes beyond the vectors or the taps.
        unsafe {
            loop {
                let columns = (self.count - tap) / V::COUNT;
                // A train is as long as there are vectors for it, and idles while it fills.
                let (columns, trains) = match columns {
                    6.. if vectors >= 24 => (6, 2),
                    4.. if !WIDE && vectors >= 16 => (4, 2),
                    3.. if WIDE && vectors >= 24 => (3, 4),
                    2.. if vectors >= 16 => (2, 4),
                    1.. if vectors >= 12 => (1, 6),
                    _ => break,
                };
                let length = vectors / trains;
                match columns {
                    6 => self.trains::<V, FUSED, 6, 2>(tap, length),
                    4 => self.trains::<V, FUSED, 4, 2>(tap, length),
                    3 => self.trains::<V, FUSED, 3, 4>(tap, length),
                    2 => self.trains::<V, FUSED, 2, 4>(tap, length),
                    _ => self.trains::<V, FUSED, 1, 6>(tap, length),
                }
                let end = tap + columns * V::COUNT;
                self.rows::<V, FUSED>(tap..end, length * trains..vectors);
                tap = end;
            }
            if tap < self.count {
                self.rows::<V, FUSED>(tap..self.count, 0..vectors);
            }
        }
        vectors * V::COUNT
    }

    /// `S` trains of `length` vectors each, over `C` columns from tap `from` on. Sums go on from
    /// what the outputs have, but for the first tap.
    #[inline(always)]
    unsafe fn trains<V: Lanes<Real = T>, const FUSED: bool, const C: usize, const S: usize>(
        self,
        from: usize,
        length: usize,
    ) {
        let count = V::COUNT;
        // The first number of the vector of a train that enters at a stage.
        let vector = |train: usize, stage: usize| -> isize {
            let first = (train * length * count) as isize;
            let stage = if self.newest_first {
                length as isize - 1 - stage as isize
            } else {
                stage as isize
            };
            first + stage * count as isize
        };
        // SAFETY: of outputs only those of the trains are read and written. Samples are read for
        // outputs that are too few or too many by one less than the columns, together with the
        // taps of the columns: these are numbers that the first or last output needs itself.
        unsafe {
            let enters = |train: usize, stage: usize| {
                if from == 0 || stage >= length {
                    nothing::<V, FUSED>()
                } else {
                    V::load(self.out.offset(vector(train, stage)))
                }
            };
            let mut sums = [[nothing::<V, FUSED>(); C]; S];
            for (train, sums) in sums.iter_mut().enumerate() {
                sums[0] = enters(train, 0);
            }
            for stage in 0..length + C - 1 {
                let mut at = [self.samples; S];
                for (train, at) in at.iter_mut().enumerate() {
                    let tap = if self.newest_first {
                        self.count - 1 - from
                    } else {
                        from
                    };
                    *at = self.samples.offset(vector(train, stage) + tap as isize);
                }
                for row in 0..count {
                    let mut samples = [nothing::<V, FUSED>(); S];
                    for (samples, at) in samples.iter_mut().zip(at) {
                        *samples = V::load(if self.newest_first {
                            at.sub(row)
                        } else {
                            at.add(row)
                        });
                    }
                    #[expect(clippy::needless_range_loop, reason = "of the sums of each train")]
                    for column in 0..C {
                        let tap = self.taps.add(from + count * column + row);
                        // The compiler must not read all taps first, or sums go to memory. With 32
                        // registers there is room for both, but for products of their own.
                        let room = FUSED && size_of::<V>() > 32;
                        let tap = V::all(if room { *tap } else { tap.read_volatile() });
                        for train in 0..S {
                            let sum = sums[train][column];
                            sums[train][column] = add::<V, FUSED>(tap, samples[train], sum);
                        }
                    }
                }
                for (train, sums) in sums.iter_mut().enumerate() {
                    if stage + 1 >= C {
                        sums[C - 1].store(self.out.offset(vector(train, stage + 1 - C)));
                    }
                    for column in (1..C).rev() {
                        sums[column] = sums[column - 1];
                    }
                    sums[0] = enters(train, stage + 1);
                }
            }
        }
    }

    /// Some taps of some vectors of outputs, tap by tap.
    #[inline(always)]
    unsafe fn rows<V: Lanes<Real = T>, const FUSED: bool>(
        self,
        taps: Range<usize>,
        mut vectors: Range<usize>,
    ) {
        // SAFETY: the caller's.
        unsafe {
            while vectors.len() >= 8 {
                self.tile::<V, FUSED, 8>(taps.clone(), vectors.start);
                vectors.start += 8;
            }
            while vectors.len() >= 2 {
                self.tile::<V, FUSED, 2>(taps.clone(), vectors.start);
                vectors.start += 2;
            }
            if vectors.len() == 1 {
                self.tile::<V, FUSED, 1>(taps, vectors.start);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<V: Lanes<Real = T>, const FUSED: bool, const M: usize>(
        self,
        taps: Range<usize>,
        vector: usize,
    ) {
        let first = vector * V::COUNT;
        // SAFETY: the caller's.
        unsafe {
            let mut sums = [nothing::<V, FUSED>(); M];
            if taps.start > 0 {
                for (m, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(self.out.add(first + m * V::COUNT));
                }
            }
            for tap in taps {
                let at = if self.newest_first {
                    self.count - 1 - tap
                } else {
                    tap
                };
                let at = self.samples.add(first + at);
                let tap = V::all(*self.taps.add(tap));
                for (m, sum) in sums.iter_mut().enumerate() {
                    *sum = add::<V, FUSED>(tap, V::load(at.add(m * V::COUNT)), *sum);
                }
            }
            for (m, sum) in sums.into_iter().enumerate() {
                sum.store(self.out.add(first + m * V::COUNT));
            }
        }
    }
}

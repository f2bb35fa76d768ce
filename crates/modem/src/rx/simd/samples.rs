//! Loops over samples.

use std::mem::MaybeUninit;

use num_complex::Complex32;

use super::{Kind, LANES, Level, kernel, mac};
use crate::rx::bank::ROW;

/// Values that [`filter`] makes at once.
pub(crate) const FILTER_STEP: usize = 64;

kernel! {
    /// out[i] = Σₜ taps[t] x[i + 2t]: a filter of real taps over interleaved complex numbers. The
    /// length of `out` is a multiple of [`FILTER_STEP`].
    filter(x: &[f32], taps: &[f32], out: &mut [f32]) {
        for (step, out) in out.as_chunks_mut::<FILTER_STEP>().0.iter_mut().enumerate() {
            let x = &x[step * FILTER_STEP..][..2 * taps.len() - 2 + FILTER_STEP];
            let mut sums = [0.0; FILTER_STEP];
            for (t, &tap) in taps.iter().enumerate() {
                let Some(x) = x[2 * t..].first_chunk::<FILTER_STEP>() else { break };
                for i in 0..FILTER_STEP {
                    sums[i] = mac::<FMA>(tap, x[i], sums[i]);
                }
            }
            *out = sums;
        }
    }
}

kernel! {
    /// A stage of the Golay correlator: (sum, difference) = weight·a ± b.
    golay_stage(weight: f32, a: &[f32], b: &[f32], sum: &mut [f32], difference: &mut [f32]) {
        let _ = FMA;
        for (((a, b), sum), difference) in a.iter().zip(b).zip(sum).zip(difference) {
            let a = weight * a;
            *sum = a + b;
            *difference = a - b;
        }
    }
}

kernel! {
    /// out = a + b.
    add(a: &[f32], b: &[f32], out: &mut [f32]) {
        let _ = FMA;
        for ((a, b), out) in a.iter().zip(b).zip(out) {
            *out = a + b;
        }
    }
}

kernel! {
    /// out = scale · a · b*, of interleaved complex numbers.
    conjugate_product(scale: f32, a: &[f32], b: &[f32], out: &mut [f32]) {
        let pairs = a.as_chunks::<2>().0.iter().zip(b.as_chunks::<2>().0);
        for ((a, b), out) in pairs.zip(out.as_chunks_mut::<2>().0) {
            out[0] = scale * mac::<FMA>(a[0], b[0], a[1] * b[1]);
            out[1] = scale * mac::<FMA>(a[1], b[0], -(a[0] * b[1]));
        }
    }
}

kernel! {
    /// out = |x|², of interleaved complex numbers.
    power(x: &[f32], out: &mut [f32]) {
        for (x, out) in x.as_chunks::<2>().0.iter().zip(out) {
            *out = mac::<FMA>(x[0], x[0], x[1] * x[1]);
        }
    }
}

/// Complex samples that [`despread`] leaves of a block.
pub(crate) const SPREAD: usize = 56;
/// Parts of a block that [`despread`] keeps apart.
pub(crate) const PARTS: usize = 4;

kernel! {
    /// out[s][i] = Σₖ signs[8s + k] x[3 (8s + k) + i] for k in 0..8: what is left of a block of 32
    /// known symbols, ahead of the filter and in four parts, so that a filter of any delay and
    /// a frequency can be applied to it afterwards.
    despread(x: &[f32], signs: &[f32; 32], out: &mut [[f32; 2 * SPREAD]; PARTS]) {
        let _ = FMA;
        for (part, out) in out.iter_mut().enumerate() {
            let mut sums = [0.0; 2 * SPREAD];
            for k in 8 * part..8 * part + 8 {
                let Some(x) = x[6 * k..].first_chunk::<{ 2 * SPREAD }>() else { break };
                for i in 0..2 * SPREAD {
                    sums[i] = mac::<FMA>(signs[k], x[i], sums[i]);
                }
            }
            *out = sums;
        }
    }
}

/// The lanes of a sum of complex numbers, (re, im) in turn, added up.
#[inline(always)]
fn complex_sum(lanes: &[f32; 8]) -> [f32; 2] {
    [
        (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]),
        (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]),
    ]
}

kernel! {
    /// Σ row[i] x[i] of interleaved complex numbers; each tap is in the row twice.
    row_product(x: &[f32], row: &[f32; ROW]) -> [f32; 2] {
        let mut sums = [0.0; 8];
        let Some(x) = x.first_chunk::<ROW>() else { return [0.0; 2] };
        for (x, row) in x.as_chunks::<8>().0.iter().zip(row.as_chunks::<8>().0) {
            for i in 0..8 {
                sums[i] = mac::<FMA>(row[i], x[i], sums[i]);
            }
        }
        complex_sum(&sums)
    }
}

kernel! {
    /// Copies samples, with what is no number or larger than `limit` as 0; tells how many samples
    /// that were. Lengths are the same.
    copy_good(limit: f32, samples: &[Complex32], out: &mut [MaybeUninit<f32>]) -> u32 {
        let _ = FMA;
        let mut bad = 0;
        for (sample, out) in samples.iter().zip(out.as_chunks_mut::<2>().0) {
            let good = (sample.re.abs() <= limit) & (sample.im.abs() <= limit);
            out[0].write(if good { sample.re } else { 0.0 });
            out[1].write(if good { sample.im } else { 0.0 });
            bad += u32::from(!good);
        }
        bad
    }
}

/// Appends samples, with what is no number or larger than `limit` as 0; tells how many samples that
/// were.
pub(crate) fn take_in(level: Level, limit: f32, samples: &[Complex32], out: &mut Vec<f32>) -> u64 {
    let mut bad = 0;
    for samples in samples.chunks(1 << 20) {
        let more = 2 * samples.len();
        out.reserve(more);
        let behind = out.len() + more;
        bad += u64::from(copy_good(
            level,
            limit,
            samples,
            &mut out.spare_capacity_mut()[..more],
        ));
        // SAFETY: `copy_good` has written all of `more` values, two for each sample.
        unsafe { out.set_len(behind) };
    }
    bad
}

kernel! {
    /// First place where magnitude > scale · power².
    first_above(scale: f32, magnitude: &[f32], power: &[f32]) -> Option<usize> {
        let _ = FMA;
        let groups = magnitude.chunks(LANES).zip(power.chunks(LANES));
        for (group, (magnitude, power)) in groups.enumerate() {
            let mut above = false;
            for (m, p) in magnitude.iter().zip(power) {
                above |= *m > scale * p * p;
            }
            if above {
                let mut pairs = magnitude.iter().zip(power);
                return pairs.position(|(m, p)| *m > scale * p * p).map(|i| group * LANES + i);
            }
        }
        None
    }
}

kernel! {
    /// out = Σ turns[s] · parts[s], of interleaved complex numbers.
    turned_sum(
        parts: &[[f32; 2 * SPREAD]; PARTS],
        turns: &[[f32; 2]; PARTS],
        out: &mut [f32; 2 * SPREAD],
    ) {
        for (part, &[a, b]) in parts.iter().zip(turns) {
            for (x, out) in part.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0) {
                out[0] = mac::<FMA>(a, x[0], mac::<FMA>(-b, x[1], out[0]));
                out[1] = mac::<FMA>(a, x[1], mac::<FMA>(b, x[0], out[1]));
            }
        }
    }
}

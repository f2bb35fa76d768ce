//! Matched filter and interpolation of symbols: most of what the receiver does.

use super::{Kind, Level};
use crate::rx::bank::ROW;

/// Symbols that are made at once.
const GROUP: usize = 8;
/// Values that a group reads: its symbols are three samples apart.
const READ: usize = 6 * (GROUP - 1) + ROW;

/// Real and imaginary parts of a group.
type Group = ([f32; GROUP], [f32; GROUP]);

/// Symbols that are three samples apart, the first with its row at the beginning of `x`:
/// z[k] = turn · rotation[k] · Σ row[i] x[6k + i]. The number of symbols is a multiple of 8.
pub(crate) fn interpolate(
    level: Level,
    x: &[f32],
    row: &[f32; ROW],
    turn: [f32; 2],
    rotation: (&[f32], &[f32]),
    z: (&mut [f32], &mut [f32]),
) {
    let outputs =
        z.0.as_chunks_mut::<GROUP>()
            .0
            .iter_mut()
            .zip(z.1.as_chunks_mut::<GROUP>().0);
    let turns = rotation
        .0
        .as_chunks::<GROUP>()
        .0
        .iter()
        .zip(rotation.1.as_chunks::<GROUP>().0);
    for ((group, (re, im)), (a, b)) in outputs.enumerate().zip(turns) {
        let Some(x) = x[6 * GROUP * group..].first_chunk::<READ>() else {
            break;
        };
        let (y_re, y_im) = match level.0 {
            Kind::Portable => sums(x, row),
            // SAFETY: only `available` makes such a level, after asking the processor.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::Avx512 => unsafe { sums_avx2(x, row) },
        };
        for s in 0..GROUP {
            let r = turn[0] * a[s] - turn[1] * b[s];
            let i = turn[0] * b[s] + turn[1] * a[s];
            re[s] = y_re[s] * r - y_im[s] * i;
            im[s] = y_re[s] * i + y_im[s] * r;
        }
    }
}

fn sums(x: &[f32; READ], row: &[f32; ROW]) -> Group {
    let mut group = ([0.0; GROUP], [0.0; GROUP]);
    for s in 0..GROUP {
        let mut lanes = [0.0; 8];
        let x = &x[6 * s..6 * s + ROW];
        for (x, row) in x.as_chunks::<8>().0.iter().zip(row.as_chunks::<8>().0) {
            for i in 0..8 {
                lanes[i] += row[i] * x[i];
            }
        }
        group.0[s] = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]);
        group.1[s] = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]);
    }
    group
}

/// The same by hand: the compiler turns the loop over symbols and the one over lanes around, and
/// shuffles.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn sums_avx2(x: &[f32; READ], row: &[f32; ROW]) -> Group {
    use std::arch::x86_64::*;

    let mut sums = [_mm256_setzero_ps(); GROUP];
    for v in 0..ROW / 8 {
        // SAFETY: 8 v + 8 is at most ROW.
        let taps = unsafe { _mm256_loadu_ps(row.as_ptr().add(8 * v)) };
        for (s, sum) in sums.iter_mut().enumerate() {
            // SAFETY: 6 s + 8 v + 8 is at most READ.
            let x = unsafe { _mm256_loadu_ps(x.as_ptr().add(6 * s + 8 * v)) };
            *sum = _mm256_fmadd_ps(taps, x, *sum);
        }
    }
    let halves =
        sums.map(|sum| _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum)));
    // Of two symbols each: re, im, re, im.
    let pair = |s: usize| {
        let (a, b) = (_mm_castps_pd(halves[s]), _mm_castps_pd(halves[s + 1]));
        let (low, high) = (_mm_unpacklo_pd(a, b), _mm_unpackhi_pd(a, b));
        _mm_add_ps(_mm_castpd_ps(low), _mm_castpd_ps(high))
    };
    let mut group = ([0.0; GROUP], [0.0; GROUP]);
    for half in 0..2 {
        let (a, b) = (pair(4 * half), pair(4 * half + 2));
        // SAFETY: 4 half + 4 is at most GROUP.
        unsafe {
            _mm_storeu_ps(
                group.0.as_mut_ptr().add(4 * half),
                _mm_shuffle_ps::<0b10_00_10_00>(a, b),
            );
            _mm_storeu_ps(
                group.1.as_mut_ptr().add(4 * half),
                _mm_shuffle_ps::<0b11_01_11_01>(a, b),
            );
        }
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_make_the_same_symbols() {
        let value = |i: usize| ((i * 7919 % 1013) as f32 - 506.0) / 506.0;
        let x: Vec<f32> = (0..READ + 6 * GROUP).map(value).collect();
        let row = std::array::from_fn(|i| value(i / 2 + 5000));
        let (a, b): (Vec<f32>, Vec<f32>) = (0..16).map(|k| (value(k), value(k + 77))).unzip();
        let made = |level| {
            let mut z = ([0.0; 16], [0.0; 16]);
            interpolate(level, &x, &row, [0.6, -0.8], (&a, &b), (&mut z.0, &mut z.1));
            z
        };
        for k in 0..16 {
            let sum = |part: usize| -> f64 {
                let term = |i: usize| f64::from(row[2 * i]) * f64::from(x[6 * k + 2 * i + part]);
                (0..ROW / 2).map(term).sum()
            };
            let turn = num_complex::Complex64::new(0.6, -0.8);
            let rotation = num_complex::Complex64::new(f64::from(a[k]), f64::from(b[k]));
            let golden = num_complex::Complex64::new(sum(0), sum(1)) * turn * rotation;
            for level in Level::available() {
                let z = made(level);
                let z = num_complex::Complex64::new(f64::from(z.0[k]), f64::from(z.1[k]));
                assert!((z - golden).norm() < 1e-4, "{level} {k}: {z} {golden}");
            }
        }
    }
}

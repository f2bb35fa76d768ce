//! Loops over symbols.

use super::{Kind, Level, kernel, mac};

/// Symbols that [`equalise`] and the sums over symbols make at once.
pub(crate) const LANES: usize = 16;
/// Symbols that [`equalise`] makes at once.
pub(crate) const WIDE: usize = 32;

kernel! {
    /// z[k] = Σᵢ taps[i] y[k + i]. The number of symbols is a multiple of [`WIDE`].
    equalise(
        taps: (&[f32], &[f32]),
        y: (&[f32], &[f32]),
        z: (&mut [f32], &mut [f32]),
    ) {
        let outputs = z.0.as_chunks_mut::<WIDE>().0.iter_mut().zip(z.1.as_chunks_mut::<WIDE>().0);
        for (step, (out_re, out_im)) in outputs.enumerate() {
            let (mut re, mut im) = ([0.0; WIDE], [0.0; WIDE]);
            for (i, (&a, &b)) in taps.0.iter().zip(taps.1).enumerate() {
                let from = step * WIDE + i;
                let (Some(y_re), Some(y_im)) = (
                    y.0[from..].first_chunk::<WIDE>(),
                    y.1[from..].first_chunk::<WIDE>(),
                ) else {
                    break;
                };
                for k in 0..WIDE {
                    re[k] = mac::<FMA>(a, y_re[k], re[k]);
                    im[k] = mac::<FMA>(a, y_im[k], im[k]);
                }
                for k in 0..WIDE {
                    re[k] = mac::<FMA>(-b, y_im[k], re[k]);
                    im[k] = mac::<FMA>(b, y_re[k], im[k]);
                }
            }
            (*out_re, *out_im) = (re, im);
        }
    }
}

kernel! {
    /// taps[i] += Σₖ error[k] y*[k + i]. The number of taps is a multiple of 8.
    adapt(
        taps: (&mut [f32], &mut [f32]),
        error: (&[f32], &[f32]),
        y: (&[f32], &[f32]),
    ) {
        let chunks = taps.0.as_chunks_mut::<8>().0.iter_mut().zip(taps.1.as_chunks_mut::<8>().0);
        for (chunk, (tap_re, tap_im)) in chunks.enumerate() {
            let (mut re, mut im) = (*tap_re, *tap_im);
            for (k, (&a, &b)) in error.0.iter().zip(error.1).enumerate() {
                let from = 8 * chunk + k;
                let (Some(y_re), Some(y_im)) =
                    (y.0[from..].first_chunk::<8>(), y.1[from..].first_chunk::<8>())
                else {
                    break;
                };
                for i in 0..8 {
                    re[i] = mac::<FMA>(a, y_re[i], mac::<FMA>(b, y_im[i], re[i]));
                    im[i] = mac::<FMA>(b, y_re[i], mac::<FMA>(-a, y_im[i], im[i]));
                }
            }
            (*tap_re, *tap_im) = (re, im);
        }
    }
}

#[inline(always)]
fn sum(lanes: &[f32; LANES]) -> f32 {
    lanes.iter().sum()
}

kernel! {
    /// Σ a* b. Values behind the last multiple of [`LANES`] are left out.
    conjugate_dot(a: (&[f32], &[f32]), b: (&[f32], &[f32])) -> [f32; 2] {
        let (mut re, mut im) = ([0.0; LANES], [0.0; LANES]);
        let a = a.0.as_chunks::<LANES>().0.iter().zip(a.1.as_chunks::<LANES>().0);
        let b = b.0.as_chunks::<LANES>().0.iter().zip(b.1.as_chunks::<LANES>().0);
        for ((a_re, a_im), (b_re, b_im)) in a.zip(b) {
            for i in 0..LANES {
                re[i] = mac::<FMA>(a_re[i], b_re[i], mac::<FMA>(a_im[i], b_im[i], re[i]));
                im[i] = mac::<FMA>(a_re[i], b_im[i], mac::<FMA>(-a_im[i], b_re[i], im[i]));
            }
        }
        [sum(&re), sum(&im)]
    }
}

kernel! {
    /// Nearest points of a square constellation of `side_bits` bits a side, divided by `scale`;
    /// their integers go to `symbols`, they themselves to `d`.
    decide_square(
        side_bits: u32,
        scale: f32,
        z: (&[f32], &[f32]),
        d: (&mut [f32], &mut [f32]),
        symbols: &mut [u8],
    ) {
        let last = ((1u32 << side_bits) - 1) as f32;
        let (half, step, far) = (0.5 * scale, 2.0 / scale, last / scale);
        let middle = 0.5 * last + 0.5;
        let z = z.0.as_chunks::<LANES>().0.iter().zip(z.1.as_chunks::<LANES>().0);
        let d = d.0.as_chunks_mut::<LANES>().0.iter_mut().zip(d.1.as_chunks_mut::<LANES>().0);
        for ((z, d), symbols) in z.zip(d).zip(symbols.as_chunks_mut::<LANES>().0) {
            #[allow(clippy::needless_range_loop)]
            for i in 0..LANES {
                // What is no number becomes 0 here, by the order of the comparisons.
                let index = |x: f32| -> i32 {
                    let x = if x > 0.0 { x } else { 0.0 };
                    let x = if x < last + 0.5 { x } else { last + 0.5 };
                    // SAFETY: between 0 and 16.
                    unsafe { x.to_int_unchecked::<i32>() }
                };
                let column = index(mac::<FMA>(z.0[i], half, middle));
                let row = index(mac::<FMA>(z.1[i], -half, middle));
                d.0[i] = mac::<FMA>(column as f32, step, -far);
                d.1[i] = mac::<FMA>(row as f32, -step, far);
                let gray = |number: i32| number ^ (number >> 1);
                symbols[i] = ((gray(column) << side_bits) | gray(row)) as u8;
            }
        }
    }
}

kernel! {
    /// Nearest points of BPSK (`im` 0) or QPSK (`re` = `im` = 1/√2), and their integers.
    decide_signs(
        quadrature: bool,
        z: (&[f32], &[f32]),
        d: (&mut [f32], &mut [f32]),
        symbols: &mut [u8],
    ) {
        let _ = FMA;
        let (re, im) = if quadrature {
            (std::f32::consts::FRAC_1_SQRT_2, std::f32::consts::FRAC_1_SQRT_2)
        } else {
            (1.0, 0.0)
        };
        let mask = u32::from(quadrature) << 1;
        let z = z.0.iter().zip(z.1);
        for ((z, d), symbol) in z.zip(d.0.iter_mut().zip(d.1)).zip(symbols) {
            *d.0 = if *z.0 < 0.0 { -re } else { re };
            *d.1 = if *z.1 < 0.0 { -im } else { im };
            *symbol = (u32::from(*z.0 < 0.0) | (u32::from(*z.1 < 0.0) << 1) & mask) as u8;
        }
    }
}

/// Sums over a block of equalised symbols z and their decisions d.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSums {
    /// Σ z d*.
    pub product: [f32; 2],
    /// Σ |d|².
    pub power: f32,
    /// Σ |d − z|².
    pub error: f32,
    /// Σ Re(d*ₖ₋₁ zₖ − d*ₖ zₖ₋₁).
    pub timing: f32,
}

kernel! {
    /// [`BlockSums`] of symbols 1 and on, symbol 0 being the last one before; and e = scale (d −
    /// z). The number of symbols without symbol 0 is a multiple of [`LANES`].
    block_sums(
        scale: f32,
        z: (&[f32], &[f32]),
        d: (&[f32], &[f32]),
        e: (&mut [f32], &mut [f32]),
    ) -> BlockSums {
        let mut sums = [[0.0f32; LANES]; 5];
        let chunks = e.0.as_chunks_mut::<LANES>().0.iter_mut().zip(e.1.as_chunks_mut::<LANES>().0);
        for (step, (e_re, e_im)) in chunks.enumerate() {
            let at = step * LANES;
            let lanes = |x: &[f32], from: usize| -> [f32; LANES] {
                x[from..].first_chunk().copied().unwrap_or([0.0; LANES])
            };
            let (zr, zi) = (lanes(z.0, at + 1), lanes(z.1, at + 1));
            let (dr, di) = (lanes(d.0, at + 1), lanes(d.1, at + 1));
            let (zr0, zi0) = (lanes(z.0, at), lanes(z.1, at));
            let (dr0, di0) = (lanes(d.0, at), lanes(d.1, at));
            for i in 0..LANES {
                sums[0][i] = mac::<FMA>(zr[i], dr[i], mac::<FMA>(zi[i], di[i], sums[0][i]));
                sums[1][i] = mac::<FMA>(zi[i], dr[i], mac::<FMA>(-zr[i], di[i], sums[1][i]));
                sums[2][i] = mac::<FMA>(dr[i], dr[i], mac::<FMA>(di[i], di[i], sums[2][i]));
                let (a, b) = (dr[i] - zr[i], di[i] - zi[i]);
                sums[3][i] = mac::<FMA>(a, a, mac::<FMA>(b, b, sums[3][i]));
                let later = mac::<FMA>(dr0[i], zr[i], di0[i] * zi[i]);
                sums[4][i] += mac::<FMA>(-dr[i], zr0[i], mac::<FMA>(-di[i], zi0[i], later));
                e_re[i] = scale * a;
                e_im[i] = scale * b;
            }
        }
        BlockSums {
            product: [sum(&sums[0]), sum(&sums[1])],
            power: sum(&sums[2]),
            error: sum(&sums[3]),
            timing: sum(&sums[4]),
        }
    }
}

/// Most bits that an axis of a constellation decides.
const AXIS_BITS: usize = 4;

kernel! {
    /// Log-likelihood ratios of the bits that an axis decides: ratio · (least squared distance to a
    /// value with bit 1 − that with bit 0). `axis` has values and the integers they stand for; the
    /// ratio of bit b of symbol k goes to `out[k · count + b]`. The number of symbols is a multiple
    /// of [`LANES`]; what is no number gives 0.
    soft_axis(
        ratio: f32,
        axis: &[(f32, u8)],
        bits: &[u8],
        x: &[f32],
        count: usize,
        out: &mut [f32],
    ) {
        let _ = FMA;
        let chunks = x.as_chunks::<LANES>().0.iter().zip(out.chunks_exact_mut(LANES * count));
        for (x, out) in chunks {
            let mut nearest = [[[f32::INFINITY; LANES]; 2]; AXIS_BITS];
            for &(value, integer) in axis {
                let mut distance = [0.0; LANES];
                for i in 0..LANES {
                    distance[i] = (x[i] - value) * (x[i] - value);
                }
                for (nearest, bit) in nearest.iter_mut().zip(bits) {
                    let of_bit = &mut nearest[usize::from(integer >> bit & 1)];
                    for i in 0..LANES {
                        of_bit[i] = if distance[i] < of_bit[i] { distance[i] } else { of_bit[i] };
                    }
                }
            }
            for (nearest, &bit) in nearest.iter().zip(bits) {
                for i in 0..LANES {
                    let value = ratio * (nearest[1][i] - nearest[0][i]);
                    out[i * count + usize::from(bit)] = if value.is_finite() { value } else { 0.0 };
                }
            }
        }
    }
}

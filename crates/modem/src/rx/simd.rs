//! Loops over samples and symbols, compiled for the instruction sets that there are.
//!
//! Each kernel is written once. It is compiled three times: plainly, for AVX2 with fused
//! multiply-add, and for AVX-512; a [`Level`] says which one runs. Levels differ in the last bits
//! of a sum, never in anything else. The calls of functions that are compiled for a processor's
//! features are the only `unsafe` of the receiver.
#![allow(unsafe_code)]

use std::fmt;

use num_complex::Complex32;

use super::bank::ROW;

/// An instruction set that the receiver's loops are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Plain Rust, on any machine.
    pub const PORTABLE: Level = Level(Kind::Portable);

    /// All that this machine has, the lowest first.
    pub fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2 {
                levels.push(Level(Kind::Avx2));
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Level(Kind::Avx512));
            }
        }
        levels
    }

    /// The highest of this machine.
    pub fn detect() -> Level {
        Level::available().pop().unwrap_or(Level::PORTABLE)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "AVX-512",
        })
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// a·b + c, fused where the processor does that.
#[inline(always)]
fn mac<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Defines a function that runs its body as compiled for a level. `FMA` says in the body whether
/// multiply-add is fused.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name(level: Level, $($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<const FMA: bool>($($arg: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $type),*) $(-> $result)? { body::<true>($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $type),*) $(-> $result)? { body::<true>($($arg),*) }
            match level.0 {
                Kind::Portable => body::<false>($($arg),*),
                // SAFETY: only `available` makes such a level, after asking the processor.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}

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

/// Symbols that [`interpolate`] makes at once.
pub(crate) const GROUP: usize = 8;

kernel! {
    /// Matched filter and interpolation of symbols that are three samples apart, the first with its
    /// row at the beginning of `x`: re[k] + j im[k] = Σ row[i] x[6k + i], then rotated:
    /// times turn · rotation[k]. The number of symbols is a multiple of [`GROUP`].
    interpolate(
        x: &[f32],
        row: &[f32; ROW],
        turn: [f32; 2],
        rotation: &[[f32; 2]],
        re: &mut [f32],
        im: &mut [f32],
    ) {
        let outputs = re.as_chunks_mut::<GROUP>().0.iter_mut().zip(im.as_chunks_mut::<GROUP>().0);
        for ((group, (re, im)), rotation) in
            outputs.enumerate().zip(rotation.as_chunks::<GROUP>().0)
        {
            let Some(x) = x[6 * GROUP * group..].first_chunk::<{ 6 * (GROUP - 1) + ROW }>() else {
                break;
            };
            let mut sums = [[0.0; 8]; GROUP];
            for v in 0..ROW / 8 {
                for (s, sums) in sums.iter_mut().enumerate() {
                    for i in 0..8 {
                        sums[i] = mac::<FMA>(row[8 * v + i], x[6 * s + 8 * v + i], sums[i]);
                    }
                }
            }
            for s in 0..GROUP {
                let [y_re, y_im] = complex_sum(&sums[s]);
                let [a, b] = rotation[s];
                let r = mac::<FMA>(turn[0], a, -(turn[1] * b));
                let i = mac::<FMA>(turn[0], b, turn[1] * a);
                re[s] = mac::<FMA>(y_re, r, -(y_im * i));
                im[s] = mac::<FMA>(y_re, i, y_im * r);
            }
        }
    }
}

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
    /// [`BlockSums`] of symbols 1 and on, symbol 0 being the last one before; and e = scale (d − z).
    /// The number of symbols without symbol 0 is a multiple of [`LANES`].
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

kernel! {
    /// Appends samples, with what is no number or larger than `limit` as 0; tells how many samples
    /// that were.
    take_in(limit: f32, samples: &[Complex32], out: &mut Vec<f32>) -> u64 {
        let _ = FMA;
        let from = out.len();
        out.resize(from + 2 * samples.len(), 0.0);
        let mut bad = 0u32;
        for (sample, out) in samples.iter().zip(out[from..].as_chunks_mut::<2>().0) {
            let good = (sample.re.abs() <= limit) & (sample.im.abs() <= limit);
            out[0] = if good { sample.re } else { 0.0 };
            out[1] = if good { sample.im } else { 0.0 };
            bad += u32::from(!good);
        }
        u64::from(bad)
    }
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

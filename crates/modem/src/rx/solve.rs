//! The equaliser's start: least squares over the channel estimation field.
//!
//! Taps g minimise Σₖ |dₖ − Σᵢ gᵢ y[k + i]|² over the known symbols d of the field: R g = p with
//! Rᵢⱼ = Σₖ y*[k + i] y[k + j] and pᵢ = Σₖ y*[k + i] dₖ (S. Haykin, *Adaptive Filter Theory*,
//! chapter on least squares, "covariance method"). Row and column of R follow from the ones before:
//! only the first row is a sum over all symbols.
//!
//! Least squares makes symbols too small, by the factor α = Σ gᵢ pᵢ* / Σ |d|², because that lessens
//! noise; decisions between levels want them whole, so the taps are divided by α.
//!
//! The same α gives the ratio of signal to noise behind the equaliser. 1 − α is the error over the
//! n symbols that the t taps were fitted to, which is smaller than that of symbols to come by
//! (n − t) / (n + t): the fit takes t of n equations away from the noise, and its own errors add
//! t / n to what comes. That is the final prediction error of H. Akaike, *Fitting autoregressive
//! models for prediction*, Ann. Inst. Statist. Math. 21, 1969, here for a regression in
//! white noise. So ε = (1 − α) (n + t) / (n − t), and the ratio is (1 − ε) / ε.

use num_complex::Complex64;

use super::simd::{self, Level};

/// A planar sequence of complex numbers.
pub type Planar<'a> = (&'a [f32], &'a [f32]);

/// Taps and what they achieve.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    pub taps: Vec<Complex64>,
    /// Energy of a symbol by that of noise and interference.
    pub ratio: f64,
}

/// Largest ratio that is told: what single precision can tell.
const LARGEST_RATIO: f64 = 1e9;
/// Smallest ratio that is told, as there is no logarithm of less than nothing.
const SMALLEST_RATIO: f64 = 1e-3;
/// What is added to the diagonal, relative to it.
const LOADING: f64 = 1e-7;

/// Taps for `count` known real symbols `d`; symbol k sees y[k .. k + taps]. `None` if there is no
/// solution, as for samples that are all zero.
pub(crate) fn least_squares(level: Level, y: Planar, d: &[f32], taps: usize) -> Option<Solution> {
    let n = d.len();
    let part = |at: usize| (&y.0[at..at + n], &y.1[at..at + n]);
    let at = |i: usize| Complex64::new(f64::from(y.0[i]), f64::from(y.1[i]));
    let dot = |a: Planar, b: Planar| {
        let [re, im] = simd::conjugate_dot(level, a, b);
        Complex64::new(f64::from(re), f64::from(im))
    };
    let mut r = vec![Complex64::ZERO; taps * taps];
    for (j, r) in r[..taps].iter_mut().enumerate() {
        *r = dot(part(0), part(j));
    }
    for i in 1..taps {
        for j in i..taps {
            let leaves = at(i - 1).conj() * at(j - 1);
            let enters = at(i - 1 + n).conj() * at(j - 1 + n);
            r[i * taps + j] = r[(i - 1) * taps + j - 1] - leaves + enters;
        }
    }
    for i in 0..taps {
        r[i * taps + i] *= 1.0 + LOADING;
    }
    let zero = vec![0.0; n];
    let p: Vec<Complex64> = (0..taps).map(|i| dot(part(i), (d, &zero))).collect();
    let g = solve(&mut r, &p)?;
    let energy: f64 = d.iter().map(|d| f64::from(d * d)).sum();
    let product: Complex64 = g.iter().zip(&p).map(|(g, p)| g * p.conj()).sum();
    let alpha = (product.re / energy).min(1.0);
    if !alpha.is_finite() || alpha <= 1e-3 {
        return None;
    }
    // With as many taps as symbols, or more, nothing is known of noise.
    let (n, t) = (n as f64, taps as f64);
    let error = (1.0 - alpha) * (n + t) / (n - t).max(1.0);
    let taps = g.iter().map(|g| g / alpha).collect();
    let ratio = (1.0 / error.max(1.0 / LARGEST_RATIO) - 1.0).clamp(SMALLEST_RATIO, LARGEST_RATIO);
    Some(Solution { taps, ratio })
}

/// Solves R g = p for a Hermitian R of which the upper half is given, by Cholesky's factors
/// R = Uᴴ U.
fn solve(r: &mut [Complex64], p: &[Complex64]) -> Option<Vec<Complex64>> {
    let n = p.len();
    for i in 0..n {
        for k in 0..i {
            let factor = r[k * n + i].conj();
            for j in i..n {
                let value = r[k * n + j];
                r[i * n + j] -= factor * value;
            }
        }
        let pivot = r[i * n + i].re;
        if !pivot.is_finite() || pivot <= 0.0 {
            return None;
        }
        let root = pivot.sqrt();
        for j in i..n {
            r[i * n + j] /= root;
        }
    }
    let mut g = p.to_vec();
    for i in 0..n {
        for k in 0..i {
            let known = g[k];
            g[i] -= r[k * n + i].conj() * known;
        }
        g[i] /= r[i * n + i].re;
    }
    for i in (0..n).rev() {
        for k in i + 1..n {
            let known = g[k];
            g[i] -= r[i * n + k] * known;
        }
        g[i] /= r[i * n + i].re;
    }
    g.iter().all(|g| g.is_finite()).then_some(g)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    #[test]
    fn equations_are_solved() {
        let a = |re: f64, im: f64| Complex64::new(re, im);
        let rows = [a(4.0, 0.0), a(1.0, 1.0), a(0.0, 0.0), a(3.0, 0.0)];
        let g = solve(&mut rows.clone(), &[a(1.0, 2.0), a(0.5, -1.0)]).unwrap();
        let first = rows[0] * g[0] + rows[1] * g[1];
        let second = rows[1].conj() * g[0] + rows[3] * g[1];
        assert!((first - a(1.0, 2.0)).norm() < 1e-12);
        assert!((second - a(0.5, -1.0)).norm() < 1e-12);
    }

    #[test]
    fn what_has_no_solution_is_refused() {
        let y = vec![0.0; 80];
        let d = vec![1.0; 64];
        assert!(least_squares(Level::detect(), (&y, &y), &d, 8).is_none());
        let y = vec![f32::NAN; 80];
        assert!(least_squares(Level::detect(), (&y, &y), &d, 8).is_none());
    }

    /// Symbols in white noise of a known power, once for the fit and once more to try it on: the
    /// ratio that the fit tells is the one of the symbols that it has not seen.
    #[test]
    fn the_ratio_is_that_of_symbols_to_come() {
        const SYMBOLS: usize = 1792;
        const RUNS: usize = 12;
        for (taps, decibels) in [(16, 20.0), (128, 20.0), (128, 6.0)] {
            let noise = 10f64.powf(-decibels / 10.0);
            let (mut told, mut error) = (0.0, 0.0);
            for run in 0..RUNS {
                let mut random = ChaCha8Rng::seed_from_u64(run as u64);
                let mut field = || {
                    let d: Vec<f32> = (0..SYMBOLS + taps)
                        .map(|_| if random.random() { 1.0 } else { -1.0 })
                        .collect();
                    let mut part = || -> f32 {
                        let normal: f64 = StandardNormal.sample(&mut random);
                        (normal * (noise / 2.0).sqrt()) as f32
                    };
                    let re: Vec<f32> = d.iter().map(|d| d + part()).collect();
                    let im: Vec<f32> = d.iter().map(|_| part()).collect();
                    (d[taps / 2..][..SYMBOLS].to_vec(), re, im)
                };
                let (d, re, im) = field();
                let solution = least_squares(Level::detect(), (&re, &im), &d, taps).unwrap();
                told += 1.0 / solution.ratio / RUNS as f64;
                let (d, re, im) = field();
                for (k, d) in d.iter().enumerate() {
                    let at = |i| Complex64::new(f64::from(re[k + i]), f64::from(im[k + i]));
                    let z: Complex64 = (0..taps).map(|i| solution.taps[i] * at(i)).sum();
                    error += (z - f64::from(*d)).norm_sqr() / (SYMBOLS * RUNS) as f64;
                }
            }
            // 21 504 errors are known to 1 %; that of the fit is 15 % off with 128 taps.
            assert!((told / error - 1.0).abs() < 0.03, "{taps}: {told} {error}");
            // What the noise alone makes, and the taps' own errors.
            let wanted = noise * (1.0 + taps as f64 / SYMBOLS as f64);
            assert!(
                (told / wanted - 1.0).abs() < 0.05,
                "{taps}: {told} {wanted}"
            );
        }
    }

    #[test]
    fn an_echo_is_taken_out() {
        let sign = |k: usize| {
            if (k * k * 7 + k / 3) % 5 < 2 {
                1.0
            } else {
                -1.0
            }
        };
        let d: Vec<f32> = (0..512).map(|k| sign(k + 20)).collect();
        let re: Vec<f32> = (0..560).map(|k| sign(k + 12)).collect();
        let im: Vec<f32> = (0..560).map(|k| 0.4 * sign(k + 11)).collect();
        let solution = least_squares(Level::detect(), (&re, &im), &d, 16).unwrap();
        assert!(solution.ratio > 1000.0, "{}", solution.ratio);
        let z: Complex64 = (0..16)
            .map(|i| {
                solution.taps[i] * Complex64::new(f64::from(re[i + 40]), f64::from(im[i + 40]))
            })
            .sum();
        assert!((z - f64::from(d[40])).norm() < 0.1, "{z}");
    }
}

//! Spectral kurtosis: which channels have something else than Gaussian noise.
//!
//! Formulas are those of Nita and Gary, *The generalized spectral kurtosis estimator*, MNRAS
//! Letters 406, L60 (2010), for spectra that are not averaged before (N = 1, d = 1).

/// Points of a distribution that is integrated.
const POINTS: usize = 1 << 14;
/// How far it is, in standard deviations to both sides.
const REACH: (f64, f64) = (-12.0, 40.0);

/// The share of channels with noise alone that three standard deviations of a normal distribution
/// leave on one side.
pub const THREE_SIGMA: f64 = 0.001_349_898;

/// The estimate from Σp and Σp² over so many spectra, of which there are at least two: 1 for
/// Gaussian noise on the average, 0 for a steady tone, more than 1 for pulses. Equation 8. `None`
/// if there is no power, or if a sum is not finite: what it was added up in had no room for it.
pub fn estimate(power: f64, power_squared: f64, spectra: u64) -> Option<f64> {
    let m = spectra as f64;
    let is_known = power.is_finite() && power_squared.is_finite();
    (spectra > 1 && power > 0.0 && is_known)
        .then(|| (m + 1.0) / (m - 1.0) * (m * power_squared / (power * power) - 1.0))
}

/// Between which values the estimate lies for Gaussian noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Below lies a tone, or another signal of constant power.
    pub low: f64,
    /// Above lie pulses, and what comes and goes.
    pub high: f64,
}

/// Least number of spectra for [`Thresholds`]: with fewer, the approximations are too far from the
/// true distribution.
pub const LEAST_SPECTRA: u64 = 24;
/// From so many spectra on, both thresholds are quantiles of the Pearson distribution.
const MANY_SPECTRA: u64 = 1 << 16;

impl Thresholds {
    /// Thresholds that noise over so many spectra passes with `probability` on either side. `None`
    /// for less than [`LEAST_SPECTRA`].
    ///
    /// The high one is a quantile of the Pearson distribution that has the estimate's first four
    /// moments, as in the paper, integrated numerically. So is the low one for many spectra. For
    /// few, noise would pass that only six times in ten of what is wanted, so that it is taken from
    /// a saddlepoint approximation (`low_quantile`).
    pub fn new(spectra: u64, probability: f64) -> Option<Self> {
        if spectra < LEAST_SPECTRA {
            return None;
        }
        let [variance, skewness, kurtosis] = moments(spectra as f64);
        let (low, high) = pearson_quantiles(skewness, kurtosis, probability);
        let value = |z: f64| 1.0 + z * variance.sqrt();
        let low = if spectra < MANY_SPECTRA {
            low_quantile(spectra as f64, probability)
        } else {
            value(low)
        };
        Some(Self {
            low,
            high: value(high),
        })
    }

    /// Whether an estimate is outside.
    pub fn flags(&self, estimate: f64) -> bool {
        !(self.low..=self.high).contains(&estimate)
    }
}

/// By how much the estimate's variance for white noise is larger over all spectra of a filter bank
/// than over independent ones: Σ|ρₖ|⁴ over all k, with ρₖ = Σw(n)·w(n + k·hop) / Σw² the
/// correlation of spectra that are k apart. `weights` are those of the bank's prototype, `hop` the
/// samples from spectrum to spectrum, of which there is at least one. 1 without weights.
///
/// Near 1, the estimate varies as the mean of 2·L₂(p) does, where L₂ is the second Laguerre
/// polynomial and p a spectrum's power, whose mean is 1. For powers of correlated noise L₂(p) and
/// L₂(q) have the covariance |ρ|⁴ (Kibble, *A two-variate gamma type distribution*, Sankhyā 5, 137,
/// 1941).
pub fn variance_growth(weights: &[f32], hop: usize) -> f64 {
    let product = |shift: usize| -> f64 {
        let pairs = weights.iter().zip(&weights[shift..]);
        pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
    };
    let energy = product(0);
    if energy <= 0.0 {
        return 1.0;
    }
    let shifts = (1..)
        .map(|k| k * hop)
        .take_while(|&shift| shift < weights.len());
    let apart: f64 = shifts.map(|shift| (product(shift) / energy).powi(4)).sum();
    1.0 + 2.0 * apart
}

/// Variance, skewness and kurtosis of the estimate for noise over m spectra: equations 9 to 11.
fn moments(m: f64) -> [f64; 3] {
    let second = 4.0 * m * m / ((m - 1.0) * (m + 2.0) * (m + 3.0));
    let below = (m + 2.0) * (m + 3.0) * (m + 4.0) * (m + 5.0);
    let third = 16.0 * m.powi(3) * (5.0 * m - 7.0) / ((m - 1.0).powi(2) * below);
    let polynomial = ((m + 98.0) * m - 185.0) * m + 78.0;
    let fourth =
        48.0 * m.powi(4) * polynomial / ((m - 1.0).powi(3) * below * (m + 6.0) * (m + 7.0));
    [second, third / second.powf(1.5), fourth / (second * second)]
}

/// The value that the estimate for noise over m spectra is below with this probability, which is
/// less than a half.
///
/// Powers of noise are exponentially distributed, and the estimate does not depend on their sum. So
/// the probability is that of a small Σp² for a given Σp = m, by Skovgaard's double saddlepoint
/// approximation (*Saddlepoint expansions for conditional distributions*, J. Appl. Prob. 24, 875,
/// 1987).
fn low_quantile(m: f64, probability: f64) -> f64 {
    // Σp² for tilts from almost none on is the less, the more they tilt.
    let (mut from, mut to) = (0.1 / m.sqrt(), 1e3);
    for _ in 0..60 {
        let middle = 0.5 * (from + to);
        if Tilted::with_unit_mean(middle).probability(m) > probability {
            from = middle;
        } else {
            to = middle;
        }
    }
    let square = Tilted::with_unit_mean(to).moments[1];
    (m + 1.0) / (m - 1.0) * (square - 1.0)
}

/// The density exp(−a·x − b·x²) / Z of positive x.
struct Tilted {
    a: f64,
    b: f64,
    z: f64,
    /// Means of x, x², x³, x⁴.
    moments: [f64; 4],
}

impl Tilted {
    fn new(a: f64, b: f64) -> Self {
        let at = a / (2.0 * b.sqrt());
        let z = 0.5 * (std::f64::consts::PI / b).sqrt() * (at * at).exp() * libm::erfc(at);
        // By parts: 2b·⟨x^(k+1)⟩ = k·⟨x^(k−1)⟩ − a·⟨x^k⟩, and 1/Z more for k = 0.
        let first = (1.0 / z - a) / (2.0 * b);
        let second = (1.0 - a * first) / (2.0 * b);
        let third = (2.0 * first - a * second) / (2.0 * b);
        let fourth = (3.0 * second - a * third) / (2.0 * b);
        Self {
            a,
            b,
            z,
            moments: [first, second, third, fourth],
        }
    }

    /// The one with a mean of 1.
    fn with_unit_mean(b: f64) -> Self {
        let (mut from, mut to) = (-4.0 * b - 1.0, 1.0);
        for _ in 0..80 {
            let middle = 0.5 * (from + to);
            if Self::new(middle, b).moments[0] > 1.0 {
                from = middle;
            } else {
                to = middle;
            }
        }
        Self::new(to, b)
    }

    /// The probability that the mean of the squares of m exponential variables is below the second
    /// moment, if their mean is 1.
    fn probability(&self, m: f64) -> f64 {
        let [first, second, third, fourth] = self.moments;
        let variances = (second - first * first) * (fourth - second * second);
        let determinant = variances - (third - first * second).powi(2);
        let exponent = 1.0 - self.a - self.b * second - self.z.ln();
        let r = -(2.0 * m * exponent).max(0.0).sqrt();
        let u = -self.b * (m * determinant).sqrt();
        let normal = 0.5 * libm::erfc(-r / std::f64::consts::SQRT_2);
        let density = (-0.5 * r * r).exp() / std::f64::consts::TAU.sqrt();
        normal + density * (1.0 / r - 1.0 / u)
    }
}

/// Quantiles of the Pearson distribution with mean 0, variance 1 and these moments, as far from
/// either end.
///
/// Its density p obeys p′/p = −(z + a)/(b₀ + a·z + b₂·z²), and is 0 behind where that is not
/// finite.
fn pearson_quantiles(skewness: f64, kurtosis: f64, probability: f64) -> (f64, f64) {
    let squared = skewness * skewness;
    let scale = 10.0 * kurtosis - 12.0 * squared - 18.0;
    let a = skewness * (kurtosis + 3.0) / scale;
    let b = [
        (4.0 * kurtosis - 3.0 * squared) / scale,
        (2.0 * kurtosis - 3.0 * squared - 6.0) / scale,
    ];
    let denominator = |z: f64| b[0] + a * z + b[1] * z * z;
    let step = (REACH.1 - REACH.0) / POINTS as f64;
    // From the middle outwards, by Simpson's rule for the logarithm.
    let slope = |z: f64| -(z + a) / denominator(z);
    let outwards = |direction: f64, points: usize| {
        let mut density = Vec::with_capacity(points);
        let (mut z, mut logarithm) = (0.0, 0.0f64);
        for _ in 0..points {
            density.push(logarithm.exp());
            let (half, next) = (z + 0.5 * direction * step, z + direction * step);
            if denominator(next) <= 0.0 {
                break;
            }
            logarithm += direction * step / 6.0 * (slope(z) + 4.0 * slope(half) + slope(next));
            z = next;
        }
        density
    };
    let below = outwards(-1.0, (-REACH.0 / step) as usize);
    let above = outwards(1.0, (REACH.1 / step) as usize);
    let total: f64 = below.iter().sum::<f64>() + above.iter().skip(1).sum::<f64>();
    // From an end inwards, by the trapezoidal rule.
    let quantile = |side: &[f64]| {
        let (mut sum, wanted) = (0.0, probability * total);
        for i in (1..side.len()).rev() {
            let part = 0.5 * (side[i] + side[i - 1]);
            if sum + part >= wanted {
                return (i as f64 - (wanted - sum) / part) * step;
            }
            sum += part;
        }
        0.0
    };
    (-quantile(&below), quantile(&above))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    /// Moments of Σw², w uniform on the simplex, from those of the Dirichlet distribution: the
    /// estimate is a linear function of it.
    #[test]
    fn moments_are_those_of_powers_of_noise() {
        for m in [3.0f64, 5.0, 24.0, 100.0] {
            let rising = |n: u32| (0..n).map(|i| m + f64::from(i)).product::<f64>();
            let pairs = m * (m - 1.0);
            let raw = [
                1.0,
                2.0 * m / rising(2),
                (24.0 * m + 4.0 * pairs) / rising(4),
                (720.0 * m + 3.0 * 48.0 * pairs + 8.0 * pairs * (m - 2.0)) / rising(6),
                (40320.0 * m
                    + (4.0 * 1440.0 + 3.0 * 576.0) * pairs
                    + 6.0 * 96.0 * pairs * (m - 2.0)
                    + 16.0 * pairs * (m - 2.0) * (m - 3.0))
                    / rising(8),
            ];
            let mean = raw[1];
            let central = [
                raw[2] - mean * mean,
                raw[3] - 3.0 * mean * raw[2] + 2.0 * mean.powi(3),
                raw[4] - 4.0 * mean * raw[3] + 6.0 * mean * mean * raw[2] - 3.0 * mean.powi(4),
            ];
            let factor = m * (m + 1.0) / (m - 1.0);
            let expected = [
                central[0] * factor * factor,
                central[1] / central[0].powf(1.5),
                central[2] / central[0].powi(2),
            ];
            for (got, expected) in moments(m).into_iter().zip(expected) {
                assert!((got / expected - 1.0).abs() < 1e-6, "{m}: {got} {expected}");
            }
            let on_average = (m + 1.0) / (m - 1.0) * (m * mean - 1.0);
            assert!((on_average - 1.0).abs() < 1e-12, "{m}: {on_average}");
        }
    }

    #[test]
    fn a_normal_distribution_has_its_own_quantiles() {
        let (low, high) = pearson_quantiles(0.0, 3.0, THREE_SIGMA);
        assert!(
            (low + 3.0).abs() < 2e-3 && (high - 3.0).abs() < 2e-3,
            "{low} {high}"
        );
    }

    #[test]
    fn thresholds_are_near_those_of_a_normal_distribution_for_many_spectra() {
        let thresholds = Thresholds::new(1 << 22, THREE_SIGMA).unwrap();
        let sigma = 2.0 / 2048.0;
        assert!((thresholds.low - (1.0 - 3.0 * sigma)).abs() < 0.05 * sigma);
        assert!((thresholds.high - (1.0 + 3.0 * sigma)).abs() < 0.05 * sigma);
        assert_eq!(Thresholds::new(LEAST_SPECTRA - 1, THREE_SIGMA), None);
    }

    #[test]
    fn both_low_thresholds_agree_where_one_takes_over() {
        let few = Thresholds::new(MANY_SPECTRA - 1, THREE_SIGMA).unwrap();
        let many = Thresholds::new(MANY_SPECTRA, THREE_SIGMA).unwrap();
        let sigma = 2.0 / (MANY_SPECTRA as f64).sqrt();
        assert!(
            (few.low - many.low).abs() < 0.01 * sigma,
            "{few:?} {many:?}"
        );
    }

    /// Powers of noise are exponentially distributed.
    #[test]
    fn noise_is_flagged_as_often_as_theory_says() {
        const TRIALS: usize = 400_000;
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for spectra in [LEAST_SPECTRA, 128, 512] {
            let thresholds = Thresholds::new(spectra, THREE_SIGMA).unwrap();
            let mut flagged = [0; 2];
            for _ in 0..TRIALS {
                let (mut sum, mut squares) = (0.0, 0.0);
                for _ in 0..spectra {
                    let uniform = (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0;
                    let power = -uniform.ln();
                    sum += power;
                    squares += power * power;
                }
                let estimate = estimate(sum, squares, spectra).unwrap();
                flagged[0] += usize::from(estimate < thresholds.low);
                flagged[1] += usize::from(estimate > thresholds.high);
            }
            let expected = THREE_SIGMA * TRIALS as f64;
            let rates = flagged.map(|count| count as f64 / expected);
            let both = 0.5 * (rates[0] + rates[1]);
            let near = rates.iter().all(|rate| (rate - 1.0).abs() < 0.15);
            assert!(near && (both - 1.0).abs() < 0.1, "{spectra}: {rates:?}");
        }
    }

    /// Complex noise through the prototype of one channel, at the hop of its spectra.
    #[test]
    fn the_estimate_of_a_filter_bank_varies_as_theory_says() {
        use crate::{Oversampling, WindowFunction, pfb};
        const STEP: usize = 12;
        const SPECTRA: usize = 256;
        const TRIALS: usize = 2000;
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let mut uniform = || (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0;
        for (taps, w_cutoff, ratio, expected) in [
            (4, 1.0, (1, 1), 1.0),
            (4, 0.0, (1, 1), 1.37),
            (8, 0.5, (1, 1), 1.43),
            (4, 0.0, (3, 2), 2.02),
        ] {
            let ratio = Oversampling::new(ratio.0, ratio.1).unwrap();
            let window = WindowFunction::Hann;
            let weights = pfb::prototype(STEP, taps, w_cutoff, window, ratio);
            let hop = ratio.hop(STEP);
            let growth = variance_growth(&weights, hop);
            assert!(
                (growth - expected).abs() < 0.05,
                "{taps}, {w_cutoff}, {ratio}: {growth}"
            );
            let mut noise = vec![[0.0; 2]; (SPECTRA - 1) * hop + weights.len()];
            let mut squares = 0.0;
            for _ in 0..TRIALS {
                noise.fill_with(|| {
                    let (size, turn) =
                        ((-uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
                    [size * turn.cos(), size * turn.sin()]
                });
                let (mut sum, mut sum_squared) = (0.0, 0.0);
                for window in noise.windows(weights.len()).step_by(hop) {
                    let part = |part: usize| -> f64 {
                        let products = window.iter().zip(&weights);
                        products.map(|(of, &w)| of[part] * f64::from(w)).sum()
                    };
                    let power = part(0).powi(2) + part(1).powi(2);
                    sum += power;
                    sum_squared += power * power;
                }
                let estimate = estimate(sum, sum_squared, SPECTRA as u64).unwrap();
                squares += (estimate - 1.0).powi(2);
            }
            let [variance, ..] = moments(SPECTRA as f64);
            let seen = squares / TRIALS as f64 / variance;
            assert!(
                (seen / growth - 1.0).abs() < 0.12,
                "{taps}, {w_cutoff}, {ratio}: {seen}, {growth}"
            );
        }
        assert_eq!(variance_growth(&[], 1), 1.0);
    }

    #[test]
    fn a_tone_and_a_pulse_are_outside() {
        let thresholds = Thresholds::new(1000, THREE_SIGMA).unwrap();
        let tone = estimate(1000.0, 1000.0, 1000).unwrap();
        let pulse = estimate(100.0, 1000.0, 1000).unwrap();
        assert!(tone.abs() < 1e-9 && thresholds.flags(tone), "{tone}");
        assert!(pulse > 50.0 && thresholds.flags(pulse), "{pulse}");
        assert!(!thresholds.flags(1.0));
        assert!(thresholds.flags(f64::NAN));
        assert_eq!(estimate(0.0, 0.0, 1000), None);
        assert_eq!(estimate(1.0, 1.0, 1), None);
        assert_eq!(estimate(1e20, f64::INFINITY, 1000), None);
        assert_eq!(estimate(f64::INFINITY, f64::INFINITY, 1000), None);
    }
}

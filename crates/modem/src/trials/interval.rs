//! Confidence of a counted rate.

use serde::Serialize;

/// An interval of rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// ln Γ(x) for x > 0, by Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse / 1260.0)) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series
}

/// The regularised incomplete beta function, by its continued fraction (M. Abramowitz, I. Stegun,
/// *Handbook of Mathematical Functions*, 26.5.8), evaluated as Lentz does.
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(b, a, 1.0 - x);
    }
    let front = a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    let (mut c, mut d) = (1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / (1.0 + even * d);
        c = 1.0 + even / c;
        fraction *= c * d;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / (1.0 + odd * d);
        c = 1.0 + odd / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-13 {
            break;
        }
    }
    front.exp() * fraction / a
}

/// The interval of rates of which `errors` among `trials` is no surprise with a confidence such as
/// 0.95: C. Clopper, E. Pearson, Biometrika 26(4), 1934.
pub fn clopper_pearson(errors: u64, trials: u64, confidence: f64) -> Interval {
    let (k, n) = (errors.min(trials) as f64, trials as f64);
    let tail = 0.5 * (1.0 - confidence);
    let solve = |a: f64, b: f64, wanted: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if beta(a, b, middle) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        0.5 * (low + high)
    };
    Interval {
        low: if k > 0.0 {
            solve(k, n - k + 1.0, tail)
        } else {
            0.0
        },
        high: if k < n {
            solve(k + 1.0, n - k, 1.0 - tail)
        } else {
            1.0
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_binomial_distribution() {
        // No errors: 1 − (α/2)^(1/n).
        let none = clopper_pearson(0, 1000, 0.95);
        assert!((none.high - (1.0 - 0.025f64.powf(1e-3))).abs() < 1e-9);
        // At the ends, the tails of the distribution have what is left of the confidence.
        let interval = clopper_pearson(7, 40, 0.9);
        let below = |p: f64, k: u32| -> f64 {
            let choose = |i: u32| {
                (0..i)
                    .map(|j| f64::from(40 - j) / f64::from(j + 1))
                    .product::<f64>()
            };
            let term = |i: u32| choose(i) * p.powi(i as i32) * (1.0 - p).powi(40 - i as i32);
            (0..=k).map(term).sum()
        };
        assert!((1.0 - below(interval.low, 6) - 0.05).abs() < 1e-9);
        assert!((below(interval.high, 7) - 0.05).abs() < 1e-9);
    }
}

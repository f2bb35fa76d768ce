//! How sure a measured rate is.

use std::ops::Range;

use serde::Serialize;

/// An interval for a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The interval of Clopper and Pearson for a rate of which `events` of `trials` were seen: with a
/// probability of at least `confidence` it holds the true rate, if trials are independent
/// [C. Clopper, E. Pearson, *The use of confidence or fiducial limits illustrated in the case of
/// the binomial*, Biometrika 26(4), 1934].
///
/// Bit errors of one symbol, or of a frame that was badly received, are not independent: the
/// interval is then too narrow.
///
/// From 10⁸ events on, and as many trials without, the binomial is taken for normal [E. Wilson,
/// *Probable inference, the law of succession, and statistical inference*, J. Am. Stat. Assoc. 22,
/// 1927]: the ends move by less than 10⁻⁴ of the interval.
pub fn clopper_pearson(events: u64, trials: u64, confidence: f64) -> Interval {
    let events = events.min(trials);
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    if trials == 0 || tail == 0.0 {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    // Rates near 0 have more digits than those near 1.
    let rest = trials - events;
    if rest < events {
        let mirrored = ends(rest, trials, tail);
        return Interval {
            low: 1.0 - mirrored.high,
            high: 1.0 - mirrored.low,
        };
    }
    ends(events, trials, tail)
}

/// The interval beyond each of whose ends the probability is `tail`; half of the trials at most are
/// events.
fn ends(events: u64, trials: u64, tail: f64) -> Interval {
    const NORMAL: u64 = 100_000_000;
    let (k, n) = (events as f64, trials as f64);
    if events == 0 {
        // P(X = 0) = (1 − p)ⁿ.
        let high = -(tail.ln() / n).exp_m1();
        return Interval { low: 0.0, high };
    }
    if events >= NORMAL {
        let z = normal_quantile(tail);
        let middle = |k: f64| (k + z * z / 2.0) / (n + z * z);
        let half = |k: f64| z * (k * (1.0 - k / n) + z * z / 4.0).sqrt() / (n + z * z);
        // Half an event more and less: a sum over whole numbers has become an integral.
        let (below, above) = (k - 0.5, k + 0.5);
        return Interval {
            low: middle(below) - half(below),
            high: middle(above) + half(above),
        };
    }
    // Both are monotonic in p, and above ½ where p is the rate that was seen.
    Interval {
        low: root(0.0..k / n, |p| at_least(k, n, p) < tail),
        high: root(k / n..1.0, |p| at_most(k, n, p) > tail),
    }
}

/// The number of standard deviations above which a normal variable is with a probability of `tail`.
fn normal_quantile(tail: f64) -> f64 {
    // Beyond 40 no such probability is a number.
    root(0.0..40.0, |x| {
        libm::erfc(x / std::f64::consts::SQRT_2) / 2.0 > tail
    })
}

/// The place in a range up to which `below` holds, by bisection over the logarithm or the number.
fn root(range: Range<f64>, below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (range.start, range.end);
    loop {
        // Rates are often tiny: halve the exponent, not the number, while the ends are far apart.
        let middle = if high > 4.0 * low.max(1e-300) && high < 0.5 {
            (low.max(1e-300) * high).sqrt()
        } else {
            (low + high) / 2.0
        };
        if middle <= low || middle >= high {
            return middle;
        }
        match below(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
}

/// The sum of `term`, and of terms each of which is the one before by the next of these ratios,
/// which fall.
fn sum(mut term: f64, ratios: impl Iterator<Item = f64>) -> f64 {
    let mut sum = term;
    for ratio in ratios {
        term *= ratio;
        sum += term;
        if term <= f64::EPSILON / 16.0 * sum {
            break;
        }
    }
    sum
}

/// P(X ≥ k) of a binomial X: `n` trials with a probability of `p` each, of which no more than k are
/// to be expected.
fn at_least(k: f64, n: f64, p: f64) -> f64 {
    let more = (0..).map(|i| k + f64::from(i)).take_while(|i| *i < n);
    let ratios = more.map(|i| (n - i) * p / ((i + 1.0) * (1.0 - p)));
    sum(binomial(k, n - k, p, 1.0 - p), ratios)
}

/// P(X ≤ k), where no less than k are to be expected.
fn at_most(k: f64, n: f64, p: f64) -> f64 {
    let less = (0..).map(|i| k - f64::from(i)).take_while(|i| *i > 0.0);
    let ratios = less.map(|i| i * (1.0 - p) / ((n - i + 1.0) * p));
    sum(binomial(k, n - k, p, 1.0 - p), ratios)
}

/// The probability of `a` events and `b` trials without, of the probabilities x and y = 1 − x, by
/// its deviance from the largest such, so that no large logarithms cancel [C. Loader, *Fast and
/// accurate computation of binomial probabilities*, 2000].
fn binomial(a: f64, b: f64, x: f64, y: f64) -> f64 {
    let n = a + b;
    // The same as n·y − b, of which y may have lost all digits.
    let difference = if x < y { a - n * x } else { n * y - b };
    let log = stirling_error(n)
        - stirling_error(a)
        - stirling_error(b)
        - deviance(a, n * x, difference)
        - deviance(b, n * y, -difference);
    log.exp() * (n / (2.0 * std::f64::consts::PI * a * b)).sqrt()
}

/// ln Γ(n + 1) less Stirling's formula, (n + ½)·ln n − n + ½·ln 2π.
fn stirling_error(n: f64) -> f64 {
    if n < 20.0 {
        let stirling = (n + 0.5) * n.ln() - n + (2.0 * std::f64::consts::PI).ln() / 2.0;
        return libm::lgamma(n + 1.0) - stirling;
    }
    let square = n * n;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / 1680.0 / square) / square) / square) / n
}

/// k·ln(k/m) + m − k, with the difference k − m.
fn deviance(k: f64, m: f64, difference: f64) -> f64 {
    let v = difference / (k + m);
    if v.abs() >= 0.1 {
        return k * (k / m).ln() - difference;
    }
    // ln(k/m) = 2·artanh v, whose first term makes (k − m)·v with m − k.
    let terms = (3..60).step_by(2).scan(2.0 * k * v, |power, odd| {
        *power *= v * v;
        Some(*power / f64::from(odd))
    });
    difference * v + terms.sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    }

    /// Made by scipy: `binomtest(k, n).proportion_ci(0.95)`.
    const SCIPY: [(u64, u64, f64, f64); 9] = [
        (0, 100, 0.0000000000e+00, 3.6216692645e-02),
        (1, 100, 2.5314603268e-04, 5.4459385392e-02),
        (5, 20, 8.6571469101e-02, 4.9104587171e-01),
        (100, 1000, 8.2105334356e-02, 1.2028793652e-01),
        (37, 147072, 1.7713973949e-04, 3.4674988287e-04),
        (100, 100000000, 8.1364003065e-07, 1.2162675478e-06),
        (3, 12, 5.4860644528e-02, 5.7185846188e-01),
        (999, 1000, 9.9444107572e-01, 9.9997468251e-01),
        (250000, 1000000, 2.4915153569e-01, 2.5084991260e-01),
    ];

    /// A probability whose complement has few digits, or none.
    #[test]
    fn wide_intervals_reach_as_far_as_they_must() {
        let all = Interval {
            low: 0.0,
            high: 1.0,
        };
        assert_eq!(clopper_pearson(3, 10, 1.0), all);
        assert_eq!(clopper_pearson(0, 10, 1.0), all);
        let wide = clopper_pearson(3, 10, 1.0 - f64::EPSILON);
        let (p, q, tail) = (wide.high, 1.0 - wide.high, f64::EPSILON / 2.0);
        let ways = [(120.0, 3), (45.0, 2), (10.0, 1), (1.0, 0)];
        let below = ways.map(|(ways, k)| ways * p.powi(k) * q.powi(10 - k));
        close(below.iter().sum(), tail);
        let tiny = clopper_pearson(1, 2, 1.0 - f64::EPSILON);
        // P(X ≥ 1) = 1 − (1 − p)².
        close(tiny.low, tail / 2.0);
        assert!(tiny.high > 1.0 - f64::EPSILON);
    }

    /// Beyond all trials that are counted one by one: standard deviations are √(p·(1 − p)/n), and
    /// the limits of few events are Poisson's: half of χ²'s quantiles of 6 and of 8 degrees of
    /// freedom.
    #[test]
    fn intervals_of_very_many_trials_are_as_wide_as_they_should_be() {
        for power in [1u64 << 30, 1 << 40, 1 << 53, 1 << 63] {
            let interval = clopper_pearson(power / 2, power, 0.95);
            let half = 1.959_963_984_54 * (0.25 / power as f64).sqrt();
            let found = [0.5 - interval.low, interval.high - 0.5].map(|width| width / half);
            let digits = 1e-3 + f64::EPSILON / half;
            assert!(
                found.iter().all(|width| (width - 1.0).abs() < digits),
                "{power}: {found:?}"
            );
        }
        for trials in [1u64 << 40, 1 << 60] {
            let three = clopper_pearson(3, trials, 0.95);
            close(three.low * trials as f64, 0.618_672_12);
            close(three.high * trials as f64, 8.767_273);
        }
    }

    /// The exact interval and the normal one meet.
    #[test]
    fn the_normal_interval_is_the_exact_one() {
        let [below, above] =
            [99_999_999, 100_000_000].map(|events| clopper_pearson(events, 1 << 30, 0.95));
        let width = above.high - above.low;
        let step = 1.0 / (1u64 << 30) as f64;
        for (below, above) in [(below.low, above.low), (below.high, above.high)] {
            assert!(
                (above - below - step).abs() < 1e-4 * width,
                "{below} {above} {width}"
            );
        }
    }

    #[test]
    fn intervals_are_those_of_scipy() {
        for (events, trials, low, high) in SCIPY {
            let interval = clopper_pearson(events, trials, 0.95);
            if low == 0.0 {
                assert_eq!(interval.low, 0.0);
            } else {
                close(interval.low, low);
            }
            close(interval.high, high);
        }
    }

    /// Without events: 1 − (α/2)^(1/n), the closed form.
    #[test]
    fn without_events_the_interval_ends_where_its_closed_form_says() {
        for trials in [1u64, 10, 1000, 100_000_000] {
            let expected = -((0.025f64.ln() / trials as f64).exp_m1());
            close(clopper_pearson(0, trials, 0.95).high, expected);
            let mirrored = clopper_pearson(trials, trials, 0.95);
            assert_eq!(mirrored.high, 1.0);
            assert!((1.0 - mirrored.low - expected).abs() < 1e-9);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_measured_rate_lies_within(trials in 1u64..10_000_000, share in 0.0f64..1.0) {
            let events = (trials as f64 * share) as u64;
            let interval = clopper_pearson(events, trials, 0.95);
            let rate = events as f64 / trials as f64;
            prop_assert!(interval.low <= rate && rate <= interval.high, "{interval:?} {rate}");
            let wider = clopper_pearson(events, trials, 0.99);
            prop_assert!(wider.low <= interval.low && interval.high <= wider.high);
        }
    }
}

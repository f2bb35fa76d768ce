//! How sure a measured rate is.

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
pub fn clopper_pearson(events: u64, trials: u64, confidence: f64) -> Interval {
    if trials == 0 {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    let events = events.min(trials);
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let (k, n) = (events as f64, trials as f64);
    // P(X ≥ k) = I_p(k, n − k + 1), and P(X ≤ k) = 1 − I_p(k + 1, n − k); both are monotonic in p.
    let low = match events {
        0 => 0.0,
        _ => root(|p| beta(p, k, n - k + 1.0) < tail),
    };
    let high = match events == trials {
        true => 1.0,
        false => root(|p| 1.0 - beta(p, k + 1.0, n - k) > tail),
    };
    Interval { low, high }
}

/// The place in 0…1 up to which `below` holds, by bisection over the logarithm of p or of 1 − p.
fn root(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high): (f64, f64) = (0.0, 1.0);
    for _ in 0..200 {
        // Rates are often tiny: halve the exponent, not the number, while the ends are far apart.
        let middle = if high > 4.0 * low.max(1e-300) && high < 0.5 {
            (low.max(1e-300) * high).sqrt()
        } else {
            (low + high) / 2.0
        };
        match below(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function I_x(a, b), by the continued fraction of DLMF 8.17.22,
/// evaluated with Lentz's method, on the side where it converges quickly.
fn beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(1.0 - x, b, a);
    }
    let log_front =
        libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p();
    const TINY: f64 = 1e-300;
    let far = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / far(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..100_000u32 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / far(1.0 + numerator * d);
            c = far(1.0 + numerator / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    log_front.exp() * fraction / a
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

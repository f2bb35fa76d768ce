//! The digital down-conversion of a narrowband output: mixer, low-pass filter, subsampling.
//!
//! With x the digitiser's samples, h the filter of L taps and S the subsampling factor, the
//! narrowband PFB's input is
//!
//! ```text
//! v[n] = x[n]·e^{2πi·m·n}           n: ADC timestamp, m: see Mixer
//! u(τ) = Σ_{l<L} h[l]·v[τ + l]      τ: a multiple of S
//!      = e^{2πi·m·τ}·Σ_{l<L} g[l]·x[τ + l],   g[l] = h[l]·e^{2πi·m·l}
//! ```
//!
//! u(τ) bears the timestamp of its first sample; no group delay is compensated. The second form
//! mixes the filter once instead of every sample, and leaves one rotation per output.

use num_complex::Complex64;

use super::mixer::Mixer;
use super::remez::{Band, RemezError, remez};

/// What a narrowband output asks of its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterSpec {
    /// Taps (L).
    pub taps: usize,
    /// Subsampling factor (S).
    pub subsampling: usize,
    /// Weight of errors in the pass band; those in stop bands count 1.
    pub weight_pass: f64,
    /// Width of the pass band as a fraction of the output band, where aliases are kept out of that
    /// alone and no channel is discarded; `None` where the transform is twice as wide as the output
    /// band and its outer half is discarded.
    pub pass_fraction: Option<f64>,
}

impl FilterSpec {
    /// Designs the filter: h, earliest sample first, symmetric, rounded to single precision.
    ///
    /// Frequencies are in units of the subsampled rate. With `pass_fraction` p: pass \[0, p/2\],
    /// stop \[1 − p/2, S/2\]. Without: pass \[0, ¼\], and stop what folds onto it, \[k + ¾, k +
    /// 1¼\] for k = 0, 1, … below S/2. h is scaled by √S: a filter of gain √S keeps the noise
    /// density that S aliases fold together, so that white noise of variance σ² again has variance
    /// σ² in every channel of the pass band.
    pub fn design(&self) -> Result<Vec<f32>, RemezError> {
        let filter = remez(self.taps, &self.bands())?;
        let gain = (self.subsampling as f64).sqrt();
        Ok(filter.into_iter().map(|h| (h * gain) as f32).collect())
    }

    /// Bands in cycles per ADC sample.
    fn bands(&self) -> Vec<Band> {
        let s = self.subsampling as f64;
        let band = |low: f64, high: f64, desired, weight| Band {
            low: low / s,
            high: (high / s).min(0.5),
            desired,
            weight,
        };
        let pass = |high| band(0.0, high, 1.0, self.weight_pass);
        match self.pass_fraction {
            Some(p) => vec![pass(p / 2.0), band(1.0 - p / 2.0, s / 2.0, 0.0, 1.0)],
            None => {
                let stops = (0..self.subsampling)
                    .map(|k| k as f64 + 0.75)
                    .take_while(|low| *low < s / 2.0)
                    .map(|low| band(low, low + 0.5, 0.0, 1.0));
                std::iter::once(pass(0.25)).chain(stops).collect()
            }
        }
    }
}

/// g\[l\] = h\[l\]·e^{2πi·m·l}: the filter, mixed.
pub fn mixed(filter: &[f32], mixer: &Mixer) -> Vec<Complex64> {
    let taps = (0..).zip(filter);
    taps.map(|(l, &h)| mixer.phasor(l) * f64::from(h)).collect()
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    const fn spec(subsampling: usize, taps: usize, pass_fraction: Option<f64>) -> FilterSpec {
        FilterSpec {
            taps,
            subsampling,
            weight_pass: 0.005,
            pass_fraction,
        }
    }

    /// Σh, h[0], largest coefficient, peak-to-peak ripple in dB, stop band in dB.
    const REFERENCE: [(FilterSpec, [f64; 5]); 10] = [
        (
            spec(2, 32, None),
            [1.41421775, 6.1401128e-06, 0.603048732, 5e-5, -156.0],
        ),
        (
            spec(4, 64, None),
            [2.00000584, -2.70642423e-07, 0.459171241, 5e-5, -156.1],
        ),
        (
            spec(8, 128, None),
            [2.82843515, -2.29681196e-06, 0.330645497, 5e-5, -156.4],
        ),
        (
            spec(16, 256, None),
            [4.0000111, -3.55074992e-06, 0.234481157, 5e-5, -156.6],
        ),
        (
            spec(32, 512, None),
            [5.65686968, -4.99046704e-06, 0.16524327, 5e-5, -156.8],
        ),
        (
            spec(8, 128, Some(0.598131)),
            [2.82819898, 2.70325758e-06, 0.330016619, 0.00143, -127.4],
        ),
        (
            spec(16, 256, Some(0.598131)),
            [3.99968279, 1.73257159e-06, 0.234397629, 0.00140, -127.6],
        ),
        (
            spec(32, 512, Some(0.598131)),
            [5.65641664, 1.62160444e-06, 0.165925684, 0.00136, -127.9],
        ),
        (
            spec(16, 256, Some(0.299065)),
            [3.9999999, 1.0050105e-09, 0.230973178, 1e-5, -197.7],
        ),
        (
            spec(8, 128, Some(0.149533)),
            [2.82842713, -5.82270915e-10, 0.319255407, 1e-5, -170.3],
        ),
    ];

    /// h[1] of the first of these.
    const SECOND: [f64; 5] = [
        7.60648247e-05,
        1.04413676e-05,
        8.11617566e-07,
        -7.66477867e-07,
        -1.30824207e-06,
    ];

    #[test]
    fn second_coefficients_match_the_reference() {
        for ((spec, row), second) in REFERENCE.into_iter().zip(SECOND) {
            let filter = spec.design().unwrap();
            let error = (f64::from(filter[1]) - second).abs();
            assert!(
                error < 1e-9 * row[2],
                "S {}: {}",
                spec.subsampling,
                filter[1]
            );
        }
    }

    #[test]
    fn filters_match_the_reference() {
        for (spec, [sum, first, largest, ripple, stop]) in REFERENCE {
            let (s, taps) = (spec.subsampling, spec.taps);
            let filter: Vec<f64> = spec.design().unwrap().iter().map(|&h| h.into()).collect();
            let close = |got: f64, expected: f64, what: &str| {
                let error = (got - expected).abs();
                assert!(
                    error < 1e-6 * largest,
                    "S {s}: {what} {got}, not {expected}"
                );
            };
            assert_eq!(filter.len(), taps);
            close(filter[0], first, "h[0]");
            close(filter[taps / 2], largest, "h[L/2]");
            // Of as many coefficients, each rounded to single precision.
            let total: f64 = filter.iter().sum();
            assert!((total - sum).abs() < 1e-7 * sum, "S {s}: Σh {total}");
            // What the bands are promised, of the design before that rounding.
            let exact = remez(taps, &spec.bands()).unwrap();
            let response = |f: f64| {
                let centre = (taps - 1) as f64 / 2.0;
                let terms = (0..).zip(&exact);
                terms
                    .map(|(n, h)| h * (2.0 * PI * f * (f64::from(n) - centre)).cos())
                    .sum::<f64>()
            };
            let (mut low, mut high, mut leak) = (f64::MAX, f64::MIN, 0.0f64);
            for band in spec.bands() {
                for i in 0..=2000 {
                    let f = band.low + (band.high - band.low) * f64::from(i) / 2000.0;
                    match band.desired {
                        0.0 => leak = leak.max(response(f).abs()),
                        _ => (low, high) = (low.min(response(f)), high.max(response(f))),
                    }
                }
            }
            let decibel = |x: f64| 20.0 * x.log10();
            assert!(
                decibel(high / low) < 1.05 * ripple,
                "S {s}: ripple {}",
                decibel(high / low)
            );
            assert!(
                decibel(leak) < stop + 0.1,
                "S {s}: stop band {}",
                decibel(leak)
            );
        }
    }

    /// Every eighth coefficient of `scipy.signal.remez(..., maxiter=1000)·√S`, SciPy 1.16, and the
    /// one at the centre.
    #[test]
    fn odd_and_short_filters_match_scipy() {
        let scipy: [(FilterSpec, &[f64], f64); 4] = [
            (
                spec(6, 97, Some(0.6)),
                &[
                    3.51830176429e-06,
                    0.000126833574611,
                    0.000467189241286,
                    -0.0073813382512,
                    0.0292117646618,
                    -0.0609301070941,
                    0.383189859277,
                ],
                0.383189859277,
            ),
            (
                spec(5, 80, Some(0.6)),
                &[
                    5.52006729141e-06,
                    -0.000477511376663,
                    0.00501380364453,
                    0.00689048424406,
                    -0.0773475175667,
                ],
                0.41361012525,
            ),
            (
                spec(4, 33, None),
                &[-0.000509719826312, -0.027710791574, 0.443666859002],
                0.443666859002,
            ),
            (
                spec(8, 40, Some(0.6)),
                &[-0.00310131526399, -0.00862346063676, 0.242064895678],
                0.306899661269,
            ),
        ];
        for (spec, eighths, centre) in scipy {
            let (taps, filter) = (spec.taps, spec.design().unwrap());
            let close = |i: usize, expected: f64| {
                let error = (f64::from(filter[i]) - expected).abs();
                assert!(error < 1e-6 * centre, "{taps} taps: h[{i}] {}", filter[i]);
            };
            (0..)
                .step_by(8)
                .zip(eighths)
                .for_each(|(i, &h)| close(i, h));
            close((taps - 1) / 2, centre);
        }
    }

    /// A pass band as wide as half of the sampled band leaves no transition; one beyond cannot be.
    #[test]
    fn pass_bands_too_wide_are_refused() {
        for fraction in [1.0, 1.5, -0.1, f64::NAN] {
            let refused = spec(8, 128, Some(fraction)).design();
            assert!(
                matches!(refused, Err(RemezError::Band { .. })),
                "{fraction}"
            );
        }
    }

    #[test]
    fn the_mixed_filter_is_the_filter_at_the_mixers_phases() {
        let mixer = Mixer::new(0.21, 1.0);
        for (l, g) in mixed(&[0.5, -0.25, 2.0], &mixer).into_iter().enumerate() {
            let expected = Complex64::cis(-2.0 * PI * 0.21 * l as f64) * [0.5, -0.25, 2.0][l];
            assert!((g - expected).norm() < 1e-14, "{l}");
        }
    }
}

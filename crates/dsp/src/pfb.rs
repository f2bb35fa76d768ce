//! Prototype filter of the polyphase filter bank.

use std::f64::consts::PI;

use crate::Oversampling;

/// Window of the PFB prototype filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum WindowFunction {
    /// sin², symmetric.
    Hann,
    /// All ones.
    Rect,
    /// Kaiser's, as deep as taps and the distance to what folds onto a channel allow.
    Kaiser,
}

impl WindowFunction {
    /// The [`weights`]' `w_cutoff` where nobody says: 1, or for Kaiser's window the largest with
    /// which the stop band of [`TARGET`] begins where it must, but [`LEAST_CUTOFF`] at least.
    pub fn cutoff(self, taps: usize, oversampling: Oversampling) -> f64 {
        match self {
            Self::Hann | Self::Rect => 1.0,
            Self::Kaiser => {
                let width = (TARGET - 8.0) / (KAISER * taps as f64);
                (2.0 * oversampling.stop() - width).clamp(LEAST_CUTOFF, 1.0)
            }
        }
    }
}

/// Depth in dB of the stop band that Kaiser's window is designed for.
pub const TARGET: f64 = 102.0;
/// The least cutoff that a design takes by itself: with less, a channel's edges are so weak that
/// noise which comes behind the filter counts more there than what folds.
pub const LEAST_CUTOFF: f64 = 0.9;
/// Most dB: single precision has no more.
const DEEPEST: f64 = 125.0;
/// Kaiser's formula: a transition of Δ widths of a channel and T taps give 8 + 14.36·Δ·T dB.
const KAISER: f64 = 14.36;

/// Depth in dB of the stop band that a filter with Kaiser's window has, by his formula.
pub fn kaiser_depth(taps: usize, w_cutoff: f64, oversampling: Oversampling) -> f64 {
    let width = 2.0 * oversampling.stop() - w_cutoff;
    (8.0 + KAISER * width * taps as f64).clamp(0.0, DEEPEST)
}

/// Kaiser's β for a depth in dB.
fn kaiser_beta(depth: f64) -> f64 {
    match depth {
        50.0.. => 0.1102 * (depth - 8.7),
        21.0.. => 0.5842 * (depth - 21.0).powf(0.4) + 0.07886 * (depth - 21.0),
        _ => 0.0,
    }
}

/// The modified Bessel function I₀, by its power series.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..200 {
        term *= (x / (2.0 * f64::from(k))).powi(2);
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    sum
}

/// Coefficients of the prototype filter, earliest sample first, `step × taps` of them.
///
/// `step` is the stride in PFB input samples (2C for wideband). With i the index, w(i) =
/// window(i)·sinc(`w_cutoff`·((i + ½)/step − taps/2)), scaled so that Σw² = 1: white noise of
/// variance σ² then has variance σ² in every channel. Computed in double precision, then rounded.
///
/// The windows are symmetric (n − 1 in the denominator), so a Hann filter begins with an exact
/// zero.
pub fn weights(step: usize, taps: usize, w_cutoff: f64, window: WindowFunction) -> Vec<f32> {
    prototype(step, taps, w_cutoff, window, Oversampling::NONE)
}

/// The same for an oversampled bank. Only Kaiser's window depends on that: its stop band begins
/// where channels fold ([`Oversampling::stop`]), and is as deep as that allows
/// ([`kaiser_depth`]).
pub fn prototype(
    step: usize,
    taps: usize,
    w_cutoff: f64,
    window: WindowFunction,
    oversampling: Oversampling,
) -> Vec<f32> {
    let n = step * taps;
    let beta = kaiser_beta(kaiser_depth(taps, w_cutoff, oversampling));
    let mut w: Vec<f64> = (0..n)
        .map(|i| {
            let z = (i as f64 + 0.5) / step as f64 - taps as f64 / 2.0;
            let window = match window {
                WindowFunction::Kaiser => {
                    let edge = 2.0 * z / taps as f64;
                    bessel(beta * (1.0 - edge * edge).max(0.0).sqrt())
                }
                other => window_value(other, i, n),
            };
            window * sinc(w_cutoff * z)
        })
        .collect();
    let norm = w.iter().map(|w| w * w).sum::<f64>().sqrt();
    // A Hann window of one or two samples is all zero; there is nothing to scale then.
    if norm > 0.0 {
        w.iter_mut().for_each(|w| *w /= norm);
    }
    w.into_iter().map(|w| w as f32).collect()
}

fn window_value(window: WindowFunction, i: usize, n: usize) -> f64 {
    match window {
        WindowFunction::Hann if n > 1 => (PI * i as f64 / (n - 1) as f64).sin().powi(2),
        _ => 1.0,
    }
}

/// sin(πz)/(πz), 1 at zero.
fn sinc(z: f64) -> f64 {
    if z == 0.0 {
        1.0
    } else {
        (PI * z).sin() / (PI * z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WindowFunction::{Hann, Kaiser, Rect};

    #[test]
    fn sums_and_maxima_match_the_reference() {
        let golden = [
            (2048, 16, 1.0, Hann, 46.4629095, 0.0226824898),
            (8192, 16, 1.0, Hann, 92.9257618, 0.0113412393),
            (16384, 16, 1.0, Hann, 131.416859, 0.00801946595),
            (65536, 16, 1.0, Hann, 262.833698, 0.00400973298),
            (65536, 16, 0.9, Hann, 277.759609, 0.00381536293),
            (65536, 16, 0.91, Hann, 276.1511, 0.00383523642),
            (2048, 1, 0.0, Rect, 45.2548332, 0.0220970865),
        ];
        for (step, taps, w_cutoff, window, sum, max) in golden {
            let w = weights(step, taps, w_cutoff, window);
            assert_eq!(w.len(), step * taps);
            let got: f64 = w.iter().map(|&w| f64::from(w)).sum();
            assert!((got - sum).abs() < 1e-6 * sum, "step {step}: Σw {got}");
            let got = w.iter().copied().fold(f32::MIN, f32::max);
            let error = (f64::from(got) - max).abs();
            assert!(error <= max * f64::from(f32::EPSILON), "{got} {max}");
            let energy: f64 = w.iter().map(|&w| f64::from(w).powi(2)).sum();
            assert!((energy - 1.0).abs() < 1e-6, "step {step}: Σw² {energy}");
        }
    }

    #[test]
    fn sixteen_coefficients_match_the_reference() {
        let golden: [f64; 16] = [
            -0.0,
            -0.000397315976,
            -0.00252853939,
            -0.00712420652,
            -0.013437815,
            -0.0188954454,
            -0.0193362143,
            -0.00986623764,
            0.0138445282,
            0.0541512221,
            0.11030902,
            0.17799221,
            0.249665186,
            0.315792829,
            0.366647899,
            0.394299418,
        ];
        let w = weights(8, 4, 1.0, Hann);
        for (i, &g) in golden.iter().enumerate() {
            let error = (f64::from(w[i]) - g).abs();
            assert!(error <= g.abs() * f64::from(f32::EPSILON), "w[{i}]");
            assert!((f64::from(w[31 - i]) - g).abs() < 1e-8, "mirror of w[{i}]");
        }
    }

    /// Gain at `f` widths of a channel from its centre, relative to the centre's, in dB.
    fn response(w: &[f32], step: usize, f: f64) -> f64 {
        let (mut re, mut im, mut sum) = (0.0, 0.0, 0.0);
        for (i, &w) in w.iter().enumerate() {
            let (s, c) = (2.0 * PI * f * i as f64 / step as f64).sin_cos();
            re += f64::from(w) * c;
            im += f64::from(w) * s;
            sum += f64::from(w);
        }
        20.0 * (re.hypot(im) / sum).log10()
    }

    /// What the design promises: the stop band's depth where channels fold, and edges that are not
    /// lost.
    #[test]
    fn what_folds_onto_a_channel_is_as_weak_as_designed() {
        const STEP: usize = 64;
        for (m, n, taps, stop, edge) in [
            (32, 27, 16, -100.0, -9.0),
            (32, 27, 32, -120.0, -7.0),
            (4, 3, 16, -120.0, -7.0),
            (8, 7, 16, -94.0, -14.0),
            (8, 7, 32, -100.0, -9.0),
            (2, 1, 8, -120.0, -7.0),
        ] {
            let of = Oversampling::new(m, n).unwrap();
            let w = prototype(STEP, taps, Kaiser.cutoff(taps, of), Kaiser, of);
            let first = of.stop();
            let steps = (0..4000).map(|i| first + f64::from(i) * (32.0 - first) / 4000.0);
            let worst = steps
                .map(|f| response(&w, STEP, f))
                .fold(f64::MIN, f64::max);
            assert!(
                worst < stop,
                "{of}, {taps} taps: {worst:.1} dB from {first:.3} on"
            );
            let at_edge = response(&w, STEP, 0.5);
            assert!(
                at_edge > edge,
                "{of}, {taps} taps: {at_edge:.1} dB at the edge"
            );
            let energy: f64 = w.iter().map(|&w| f64::from(w).powi(2)).sum();
            assert!((energy - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn tiny_filters_are_finite() {
        for (step, taps) in [(1, 1), (2, 1), (1, 2)] {
            for window in [Hann, Rect, Kaiser] {
                let w = weights(step, taps, 1.0, window);
                assert!(w.iter().all(|w| w.is_finite()), "{window:?}");
            }
        }
    }
}

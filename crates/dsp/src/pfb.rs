//! Prototype filter of the polyphase filter bank.

use std::f64::consts::PI;

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
    let n = step * taps;
    let mut w: Vec<f64> = (0..n)
        .map(|i| {
            let z = (i as f64 + 0.5) / step as f64 - taps as f64 / 2.0;
            window_value(window, i, n) * sinc(w_cutoff * z)
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
        WindowFunction::Hann | WindowFunction::Rect => 1.0,
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
    use WindowFunction::{Hann, Rect};

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

    #[test]
    fn tiny_filters_are_finite() {
        for (step, taps) in [(1, 1), (2, 1), (1, 2)] {
            assert!(weights(step, taps, 1.0, Hann).iter().all(|w| w.is_finite()));
        }
    }
}

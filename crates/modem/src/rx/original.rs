//! Parts of the original's receiver (revision 1.40) that this crate's does otherwise, so that the
//! figures of the original can be had again.

use num_complex::Complex64;

use super::solve::{Planar, Solution};

/// Step at the beginning and at the end of the channel estimation field.
const STEPS: (f64, f64) = (0.015, 0.001);
/// Symbols between updates.
const BATCH: usize = 8;
/// Batches from which an update does not yet know.
const LATE: usize = 11;

/// Block least mean squares over known symbols `d`: symbol k sees y[k .. k + taps].
///
/// g ← g + Σ μ ε y* over a batch, with ε = d − Σ gᵢ y[k + i]. A batch uses the taps as they stood
/// 11 batches before. μ falls linearly from 0.015 to 0.001. The second value is the mean |ε|² of
/// each batch.
pub fn mean_squares(y: Planar<'_>, d: &[f32], taps: usize) -> (Vec<Complex64>, Vec<f64>) {
    let mut initial = vec![Complex64::ZERO; taps];
    if let Some(centre) = initial.get_mut(taps / 2) {
        *centre = Complex64::ONE;
    }
    let at = |k: usize| Complex64::new(f64::from(y.0[k]), f64::from(y.1[k]));
    let mut history = vec![initial; LATE];
    let mut errors = Vec::with_capacity(d.len() / BATCH);
    let mut current = history[0].clone();
    for (batch, known) in d.chunks_exact(BATCH).enumerate() {
        let used = std::mem::take(&mut history[batch % LATE]);
        let mut squared = 0.0;
        for (i, &known) in known.iter().enumerate() {
            let k = batch * BATCH + i;
            let z: Complex64 = used.iter().enumerate().map(|(i, g)| g * at(k + i)).sum();
            let error = f64::from(known) - z;
            squared += error.norm_sqr();
            let step = STEPS.0 - (STEPS.0 - STEPS.1) * (k + 1) as f64 / d.len() as f64;
            for (i, g) in current.iter_mut().enumerate() {
                *g += step * error * at(k + i).conj();
            }
        }
        errors.push(squared / BATCH as f64);
        history[batch % LATE] = current.clone();
    }
    (current, errors)
}

/// Mean power of symbols that the equaliser trains on. The original's gain control gives them
/// 1/0.875: with echoes, as in the profile cost207RAx4, steps of 0.015 that come 88 symbols late
/// then make the taps run away at the beginning of the field.
const POWER: f64 = 1.0;

/// The original's start of the equaliser, with symbols of a mean power of 1.
/// The second value is the step behind the field, for symbols as they are.
pub(crate) fn train(y: Planar, d: &[f32], taps: usize) -> Option<(Solution, f32)> {
    let of_field = y.0.iter().zip(y.1).skip(taps / 2).take(d.len());
    let energy: f64 = of_field.map(|(a, b)| f64::from(a * a + b * b)).sum();
    let gain = (POWER * d.len() as f64 / energy).sqrt();
    if !gain.is_finite() {
        return None;
    }
    let scaled = |part: &[f32]| -> Vec<f32> { part.iter().map(|x| x * gain as f32).collect() };
    let used = d.len() + taps;
    let y = (scaled(&y.0[..used]), scaled(&y.1[..used]));
    let (mut taps, errors) = mean_squares((&y.0, &y.1), d, taps);
    taps.iter_mut().for_each(|tap| *tap *= gain);
    let last = &errors[errors.len() - errors.len() / 8..];
    let error = last.iter().sum::<f64>() / last.len().max(1) as f64;
    let good = error.is_finite() && taps.iter().all(|tap| tap.is_finite());
    let ratio = 1.0 / error.max(1e-9);
    good.then_some((Solution { taps, ratio }, (STEPS.1 * gain * gain) as f32))
}

/// The differentiator of the original's peak detector: 16 taps, antisymmetric, of which this is the
/// first half. Parks–McClellan, amplitude proportional to frequency.
pub const DIFFERENTIATOR: [f64; 8] = [
    -0.001528, 0.002440, -0.002016, 0.002703, -0.004288, 0.008236, -0.022637, 0.202758,
];

/// Taps of the original's cubic Farrow interpolator for a delay of 1 + `mu` samples, the newest
/// sample's first: y = ((c₃ μ + c₂) μ + c₁) μ + c₀.
pub fn farrow_taps(mu: f64) -> [f64; 4] {
    const C: [[f64; 4]; 4] = [
        [0.0, 1.0, 0.0, 0.0],
        [-0.48124, -0.33413, 1.02020, -0.25639],
        [0.70609, -1.31155, 0.62547, 0.03154],
        [-0.22485, 0.64567, -0.64567, 0.22485],
    ];
    std::array::from_fn(|i| ((C[3][i] * mu + C[2][i]) * mu + C[1][i]) * mu + C[0][i])
}

/// The original's estimate of how early a peak of the correlator is, in samples, of the values of
/// |Cb|² before, at and after it, for a pulse with roll-off ½.
pub fn early(before: f64, peak: f64, after: f64) -> f64 {
    0.5 / 0.5957 * (before - after) / peak
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::cef;

    #[test]
    fn block_mean_squares_have_the_golden_errors_and_taps() {
        let known: Vec<f32> = cef().iter().map(|&sign| f32::from(sign)).collect();
        let n = known.len();
        let channel = [Complex64::ONE, Complex64::ZERO, Complex64::new(0.0, 0.2)];
        let turn = Complex64::from_polar(0.9, 0.3);
        // Eight zeros before, zeros behind.
        let mut y = [vec![0.0f32; n + 16], vec![0.0f32; n + 16]];
        for k in 0..n {
            let x: Complex64 = (0..3.min(k + 1))
                .map(|i| channel[i] * f64::from(known[k - i]))
                .sum();
            let x = turn * x;
            (y[0][k + 8], y[1][k + 8]) = (x.re as f32, x.im as f32);
        }
        let (taps, errors) = mean_squares((&y[0], &y[1]), &known, 16);
        let golden = [
            (0, 0.167888),
            (10, 0.0696007),
            (11, 0.141489),
            (12, 0.112126),
            (20, 0.0167712),
            (40, 0.00694314),
            (80, 0.00168733),
            (223, 1.02787e-7),
        ];
        for (batch, error) in golden {
            assert!(
                (errors[batch] / error - 1.0).abs() < 2e-3,
                "{batch}: {}",
                errors[batch]
            );
        }
        let golden = [
            (8, 1.061486, -0.328351),
            (6, -0.065673, -0.212295),
            (4, -0.042457, 0.013132),
            (2, 0.002620, 0.008482),
            (0, 0.001634, -0.000508),
        ];
        for (i, re, im) in golden {
            assert!(
                (taps[i] - Complex64::new(re, im)).norm() < 2e-6,
                "{i}: {}",
                taps[i]
            );
        }
        for i in [1, 3, 5, 7, 9, 10, 11, 12, 13, 14, 15] {
            assert!(taps[i].norm() < 1e-5, "{i}: {}", taps[i]);
        }
    }

    #[test]
    fn the_differentiator_rises_with_frequency() {
        // Antisymmetric: H(f) = 2j Σ h(i) sin(2πf (7.5 − i)).
        let response = |f: f64| -> f64 {
            let term =
                |(i, h): (usize, &f64)| h * (std::f64::consts::TAU * f * (7.5 - i as f64)).sin();
            2.0 * DIFFERENTIATOR.iter().enumerate().map(term).sum::<f64>()
        };
        let slope = response(0.25) / 0.25;
        for step in 1..=45 {
            let f = f64::from(step) / 100.0;
            assert!((response(f) / f / slope - 1.0).abs() < 0.02, "{f}");
        }
    }

    #[test]
    fn the_interpolator_has_the_golden_taps() {
        let close = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(close(
            farrow_taps(0.5),
            [-0.0922, 0.58576, 0.58576, -0.0922]
        ));
        assert!(close(
            farrow_taps(0.25),
            [-0.07969, 0.84458, 0.28405, -0.05861]
        ));
        assert_eq!(farrow_taps(0.0), [0.0, 1.0, 0.0, 0.0]);
    }
}

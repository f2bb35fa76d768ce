//! The equaliser by least mean squares (LMS).

use num_complex::Complex64;

use crate::rx::solve::{Planar, Solution};

/// Step at the beginning and at the end of the channel estimation field.
const STEPS: (f64, f64) = (0.015, 0.001);
/// Symbols between updates.
const BATCH: usize = 8;
/// Batches of which an update does not yet know.
const LATE: usize = 11;

/// Block least mean squares: symbol k sees y[k .. k + taps].
///
/// g ← g + Σ μ ε y* over 8 symbols, with ε = d − Σ gᵢ y[k + i]. A batch uses the taps as they stood
/// 11 batches before; the first ones see y alone, through the tap in the middle.
#[derive(Clone, Debug)]
pub struct BlockLms {
    /// The taps of this batch and the next ones, in turn.
    history: [Vec<Complex64>; LATE],
    newest: Vec<Complex64>,
    batches: usize,
    /// What y is multiplied by.
    gain: f64,
}

impl BlockLms {
    /// With so many taps, for symbols to be multiplied by `gain`.
    pub fn new(taps: usize, gain: f64) -> BlockLms {
        let mut initial = vec![Complex64::ZERO; taps];
        if let Some(centre) = initial.get_mut(taps / 2) {
            *centre = Complex64::ONE;
        }
        BlockLms {
            history: std::array::from_fn(|_| initial.clone()),
            newest: initial,
            batches: 0,
            gain,
        }
    }

    /// Equalises a batch that begins with symbol `from`; `decide` says what a symbol should have
    /// been, from its number within the batch and its value, and with what step that counts.
    pub fn batch(
        &mut self,
        y: Planar,
        from: usize,
        mut decide: impl FnMut(usize, Complex64) -> (Complex64, f64),
    ) {
        let used = &mut self.history[self.batches % LATE];
        for i in 0..BATCH {
            let seen = (from + i..from + i + used.len())
                .map(|k| self.gain * Complex64::new(f64::from(y.0[k]), f64::from(y.1[k])));
            let z: Complex64 = used.iter().zip(seen.clone()).map(|(g, y)| g * y).sum();
            let (d, step) = decide(i, z);
            let change = step * (d - z);
            for (g, y) in self.newest.iter_mut().zip(seen) {
                *g += change * y.conj();
            }
        }
        used.copy_from_slice(&self.newest);
        self.batches += 1;
    }

    /// The newest taps, for symbols as they are.
    pub fn taps(&self) -> Vec<Complex64> {
        self.newest.iter().map(|tap| tap * self.gain).collect()
    }

    /// Trains on known symbols with a step that falls from 0.015 to 0.001. Returns the mean |ε|² of
    /// each batch.
    pub fn train(&mut self, y: Planar, known: &[f32]) -> Vec<f64> {
        let batches = known.chunks_exact(BATCH).enumerate();
        let errors = batches.map(|(batch, of_batch)| {
            let mut squared = 0.0;
            self.batch(y, batch * BATCH, |i, z| {
                let d = Complex64::from(f64::from(of_batch[i]));
                squared += (d - z).norm_sqr();
                let place = (batch * BATCH + i + 1) as f64 / known.len() as f64;
                (d, STEPS.0 - (STEPS.0 - STEPS.1) * place)
            });
            squared / BATCH as f64
        });
        errors.collect()
    }

    /// Equalises `count` symbols, whole batches, from symbol `from` on, and follows decisions with
    /// a step of 0.001. `decide` gives the nearest point to the value of a symbol.
    pub fn follow(
        &mut self,
        y: Planar,
        from: usize,
        count: usize,
        mut decide: impl FnMut(usize, Complex64) -> Complex64,
    ) {
        for begin in (0..count).step_by(BATCH) {
            self.batch(y, from + begin, |i, z| (decide(begin + i, z), STEPS.1));
        }
    }
}

/// Mean power of symbols that the equaliser trains on, if they do not come from the original's gain
/// control. That gives them 1/0.875: with echoes, as in the profile cost207RAx4, steps of 0.015
/// that come 88 symbols late then make the taps run away at the beginning of the field.
const POWER: f64 = 1.0;

/// The gain that gives symbols of the field of `d` that power.
pub(crate) fn level(y: Planar, d: &[f32], taps: usize) -> f64 {
    let of_field = y.0.iter().zip(y.1).skip(taps / 2).take(d.len());
    let energy: f64 = of_field.map(|(a, b)| f64::from(a * a + b * b)).sum();
    (POWER * d.len() as f64 / energy).sqrt()
}

/// The original's start of the equaliser, with a finite gain. `None` if the taps ran away.
pub(crate) fn train(y: Planar, d: &[f32], taps: usize, gain: f64) -> Option<(Solution, BlockLms)> {
    let mut equaliser = BlockLms::new(taps, gain);
    let errors = equaliser.train(y, d);
    let taps = equaliser.taps();
    let last = &errors[errors.len() - errors.len() / 8..];
    let error = last.iter().sum::<f64>() / last.len().max(1) as f64;
    let good = error.is_finite() && taps.iter().all(|tap| tap.is_finite());
    let ratio = 1.0 / error.max(1e-9);
    good.then_some((Solution { taps, ratio }, equaliser))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::cef;

    #[test]
    fn block_lms_has_the_golden_errors_and_taps() {
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
        let mut equaliser = BlockLms::new(16, 1.0);
        let errors = equaliser.train((&y[0], &y[1]), &known);
        let taps = equaliser.taps();
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
}

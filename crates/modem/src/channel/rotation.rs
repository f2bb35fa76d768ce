//! Carrier frequency and phase.

use std::f64::consts::TAU;

use num_complex::Complex64;

/// Samples that share one exact phasor.
const STRIDE: u64 = 64;

/// A carrier that turns: y(n) = x(n) e^{j 2π (f n + φ)}. Phases are exact fractions of a turn in 64
/// bits, so that nothing drifts in a long stream.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// Turns per sample, and at sample 0, in units of 2⁻⁶⁴.
    step: u64,
    start: u64,
    /// Phasors of the first samples of a stride.
    table: Vec<Complex64>,
    base: Complex64,
    next: u64,
}

/// A fraction of a turn in units of 2⁻⁶⁴.
fn turns(value: f64) -> u64 {
    // Twice 2⁶³: a whole turn does not fit into an `i64`.
    let half = value - value.round();
    ((half * 2f64.powi(63)) as i64 as u64) << 1
}

fn phasor(turns: u64) -> Complex64 {
    Complex64::cis(turns as i64 as f64 * TAU / 2f64.powi(64))
}

impl Rotation {
    /// A rotation, or none if it would change nothing.
    pub(super) fn new(frequency: f64, phase: f64) -> Option<Rotation> {
        let (step, start) = (turns(frequency), turns(phase));
        let table = (0..STRIDE).map(|i| phasor(step.wrapping_mul(i))).collect();
        (step != 0 || start != 0).then_some(Rotation {
            step,
            start,
            table,
            base: Complex64::default(),
            next: 0,
        })
    }

    pub(super) fn apply(&mut self, samples: &mut [Complex64]) {
        for sample in samples {
            let place = self.next % STRIDE;
            if place == 0 {
                self.base = phasor(self.start.wrapping_add(self.step.wrapping_mul(self.next)));
            }
            *sample *= self.base * self.table[place as usize];
            self.next += 1;
        }
    }
}

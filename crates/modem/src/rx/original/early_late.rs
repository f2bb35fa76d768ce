//! The early-late loop: follows the symbols within a frame.

use num_complex::Complex32;

/// Symbols of which the error is the mean.
const WINDOW: usize = 64;
/// Proportional and integral part, per sample.
const GAINS: (f32, f32) = (0.003, 1e-7);

/// The original's early-late detector with its loop filter.
///
/// e = |y(n)|² − |y(n − 2)|² around a symbol at n − 1, positive if the signal comes late. Its slope
/// is 0.450 a sample for symbols of power 1. What comes out is added to the delay with each sample:
/// −0.003 ē − 10⁻⁷ Σ ē, with ē the mean over 64 symbols.
#[derive(Clone, Debug)]
pub struct EarlyLate {
    /// |y|² of the last two samples, the newest first.
    powers: [f32; 2],
    errors: [f32; WINDOW],
    symbols: usize,
    sum: f32,
    velocity: f32,
}

impl Default for EarlyLate {
    fn default() -> EarlyLate {
        EarlyLate {
            powers: [0.0; 2],
            errors: [0.0; WINDOW],
            symbols: 0,
            sum: 0.0,
            velocity: 0.0,
        }
    }
}

impl EarlyLate {
    /// Takes a sample in; `behind_symbol` says whether the one before is a symbol. Returns what is
    /// to be added to the delay, in samples a sample.
    pub fn next(&mut self, y: Complex32, behind_symbol: bool) -> f32 {
        let power = y.norm_sqr();
        if behind_symbol {
            self.errors[self.symbols % WINDOW] = power - self.powers[1];
            self.symbols += 1;
            let mean = self.errors.iter().sum::<f32>() / WINDOW as f32;
            self.sum += mean;
            self.velocity = -GAINS.0 * mean - GAINS.1 * self.sum;
        }
        self.powers = [power, self.powers[0]];
        self.velocity
    }

    /// The newest error.
    pub fn error(&self) -> f32 {
        self.errors[(self.symbols + WINDOW - 1) % WINDOW]
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        *self = EarlyLate {
            powers: self.powers,
            ..EarlyLate::default()
        };
    }
}

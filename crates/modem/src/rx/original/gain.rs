//! Gain control: a loop on the logarithm of the power, so that its time constant is the same at
//! all levels.

use num_complex::Complex32;

/// Samples of which the power is the mean.
const WINDOW: usize = 16;
/// Samples by which the gain comes late.
const LATE: usize = 8;
/// Part of the error that is taken over with each sample: a time constant of 128 samples, since the
/// error is that of the power, twice that of the gain.
const STEP: f32 = 1.0 / 256.0;
/// Largest logarithm of the gain.
const LIMIT: f32 = 12.0;
/// Entries of both tables for a range of 1.
const PER_ONE: f32 = 64.0;
/// The logarithm's table: its first argument, and its entries.
const LOG_TABLE: (f32, usize) = (0.01, 2000);

/// The original's gain control.
///
/// With p the mean of |x|² over 16 samples and the gain g = e^c of the c of 8 samples ago:
/// c ← c − ln(p g²) / 256 within ±12. Logarithm and exponential are tables with 64 entries for a
/// range of 1, of which the lower entry counts.
#[derive(Clone, Debug)]
pub struct GainControl {
    powers: [f32; WINDOW],
    /// The last values of c, by the sample's number modulo their count.
    logarithms: [f32; LATE],
    samples: usize,
    log_table: Vec<f32>,
    exp_table: Vec<f32>,
}

impl Default for GainControl {
    fn default() -> GainControl {
        let (first, entries) = LOG_TABLE;
        let argument = |i: usize| first + i as f32 / PER_ONE;
        let exponent = |i: usize| -LIMIT + i as f32 / PER_ONE;
        let exponents = (2.0 * LIMIT * PER_ONE) as usize + 1;
        GainControl {
            powers: [0.0; WINDOW],
            logarithms: [0.0; LATE],
            samples: 0,
            log_table: (0..entries).map(|i| argument(i).ln()).collect(),
            exp_table: (0..exponents).map(|i| exponent(i).exp()).collect(),
        }
    }
}

/// The entry at or below an argument; the first or last outside.
fn look_up(table: &[f32], first: f32, argument: f32) -> f32 {
    // A cast of what is negative or no number is 0.
    let index = ((argument - first) * PER_ONE) as usize;
    table[index.min(table.len() - 1)]
}

impl GainControl {
    /// The sample with its gain. While frozen, the gain stays as it is.
    pub fn next(&mut self, x: Complex32, frozen: bool) -> Complex32 {
        self.powers[self.samples % WINDOW] = x.norm_sqr();
        let power = self.powers.iter().sum::<f32>() / WINDOW as f32;
        let newest = self.logarithms[(self.samples + LATE - 1) % LATE];
        let gain = self.gain();
        let error = -look_up(&self.log_table, LOG_TABLE.0, power * gain * gain);
        let changed = if frozen { 0.0 } else { STEP * error };
        self.logarithms[self.samples % LATE] = (newest + changed).clamp(-LIMIT, LIMIT);
        self.samples += 1;
        x * gain
    }

    /// The gain of the next sample.
    pub fn gain(&self) -> f32 {
        let late = self.logarithms[self.samples % LATE];
        look_up(&self.exp_table, -LIMIT, late)
    }
}

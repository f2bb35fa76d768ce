//! The matched filter at fractions of a sample: one row of taps for each of 256 phases.
//!
//! A row evaluates Σₘ x[m] p(m − c) at a centre c = n + φ, with p the transmitter's pulse, which is
//! even, so that this is matched filter and interpolation in one. (f. harris, M. Rice, *Multirate
//! digital filters for symbol timing synchronization in software defined radios*, IEEE JSAC 19(12),
//! 2001.) The nearest of 256 phases is at most 1/512 sample off, which leaves an error of −66 dB.

use crate::waveform::{ROLL_OFF, RRC_TAPS, SAMPLES_PER_SYMBOL, rrc_value};

/// Phases of a sample.
pub(crate) const PHASES: usize = 256;
/// Taps of a row, with zeros behind the pulse's end.
pub(crate) const TAPS: usize = 52;
/// Values of a row: each tap twice, for real and imaginary part.
pub(crate) const ROW: usize = 2 * TAPS;
/// Samples before ⌊c⌋ at which a row begins.
pub(crate) const LEAD: usize = 24;

/// All rows.
#[derive(Debug)]
pub(crate) struct Bank {
    rows: Vec<[f32; ROW]>,
}

impl Bank {
    pub fn new() -> Bank {
        let half = (RRC_TAPS / 2) as f64;
        let value = |t: f64| {
            // Always as many taps as the transmitter's filter has.
            let inside = t > -half - 0.5 && t <= half + 0.5;
            f64::from(u8::from(inside)) * rrc_value(ROLL_OFF, t / SAMPLES_PER_SYMBOL as f64)
        };
        let energy: f64 = (0..RRC_TAPS).map(|i| value(i as f64 - half).powi(2)).sum();
        let rows = (0..PHASES)
            .map(|phase| {
                let fraction = phase as f64 / PHASES as f64;
                let mut row = [0.0; ROW];
                for (i, pair) in row.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let t = i as f64 - LEAD as f64 - fraction;
                    *pair = [(value(t) / energy.sqrt()) as f32; 2];
                }
                row
            })
            .collect();
        Bank { rows }
    }

    /// The sample ⌊c⌋ and the row for the centre `c`.
    pub fn at(&self, c: f64) -> (i64, &[f32; ROW]) {
        let steps = (c * PHASES as f64).round();
        // A cast of what is no number is 0.
        let steps = steps as i64;
        let phase = steps.rem_euclid(PHASES as i64);
        (steps.div_euclid(PHASES as i64), &self.rows[phase as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::rrc_taps;

    #[test]
    fn the_first_row_is_the_matched_filter() {
        let bank = Bank::new();
        let (n, row) = bank.at(7.0);
        assert_eq!(n, 7);
        for (i, tap) in rrc_taps().iter().enumerate() {
            assert!((f64::from(row[2 * i]) - tap).abs() < 1e-7, "{i}");
        }
        assert!(row[2 * RRC_TAPS..].iter().all(|&tap| tap == 0.0));
    }

    #[test]
    fn rows_interpolate_a_pulse() {
        let bank = Bank::new();
        // A pulse whose centre is at 40.3, filtered at its centre: its energy.
        let centre = 40.3;
        let pulse = |m: usize| rrc_value(ROLL_OFF, (m as f64 - centre) / 3.0);
        let (n, row) = bank.at(centre);
        let first = (n - LEAD as i64) as usize;
        let at = |row: &[f32; ROW]| -> f64 {
            (0..TAPS)
                .map(|i| f64::from(row[2 * i]) * pulse(first + i))
                .sum()
        };
        let energy: f64 = (0..100).map(|m| pulse(m).powi(2)).sum::<f64>().sqrt();
        assert!((at(row) / energy - 1.0).abs() < 1e-3);
        let beside = bank.at(centre - 0.5).1;
        assert!(at(row) > at(beside));
    }
}

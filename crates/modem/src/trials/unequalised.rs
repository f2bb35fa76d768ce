//! The error vector ahead of the equaliser, from what was sent, in double precision.

use num_complex::{Complex32, Complex64};

use crate::rx::ReceivedFrame;
use crate::waveform::{
    BODY_SYMBOLS, Frame, HEADER_SYMBOLS, PREAMBLE_SYMBOLS, ROLL_OFF, RRC_TAPS, SAMPLES_PER_SYMBOL,
    rrc_value,
};

/// Fractions of a sample that there are filters for.
const PHASES: usize = 256;
/// Taps of a filter: the pulse's span around any fraction.
const TAPS: usize = RRC_TAPS + 1;
/// Samples from the first tap to the pulse's centre.
const LEAD: usize = RRC_TAPS / 2;
/// Symbols that share a gain.
const BLOCK: usize = 64;

/// The matched filter at fractions of a sample, and nothing more.
pub(super) struct Unequalised {
    filters: Vec<[f64; TAPS]>,
}

impl Unequalised {
    pub fn new() -> Unequalised {
        let filter = |phase: usize| {
            let fraction = phase as f64 / PHASES as f64;
            let tap = |i: usize| {
                let samples = i as f64 - LEAD as f64 - fraction;
                match samples.abs() <= LEAD as f64 {
                    true => rrc_value(ROLL_OFF, samples / SAMPLES_PER_SYMBOL as f64),
                    false => 0.0,
                }
            };
            std::array::from_fn(tap)
        };
        Unequalised {
            filters: (0..PHASES).map(filter).collect(),
        }
    }

    /// The filtered sample at a position; what is outside counts as 0.
    fn at(&self, samples: &[Complex32], position: f64) -> Complex64 {
        let steps = (position * PHASES as f64).round();
        let (whole, phase) = (
            (steps / PHASES as f64).floor(),
            steps.rem_euclid(PHASES as f64),
        );
        let from = whole as i64 - LEAD as i64;
        let value = |i: usize| {
            let n = usize::try_from(from + i as i64).ok();
            n.and_then(|n| samples.get(n)).copied().unwrap_or_default()
        };
        let taps = &self.filters[(phase as usize).min(PHASES - 1)];
        let products = taps.iter().enumerate().map(|(i, tap)| {
            let x = value(i);
            Complex64::new(f64::from(x.re), f64::from(x.im)) * *tap
        });
        products.sum()
    }

    /// The error vector's magnitude of the body's symbols, at the places that the receiver found:
    /// with the gain of each block that is nearest to what was sent.
    pub fn evm(&self, samples: &[Complex32], sent: &Frame, frame: &ReceivedFrame) -> f64 {
        let points = sent.points();
        let body = points
            .get(PREAMBLE_SYMBOLS + HEADER_SYMBOLS..)
            .unwrap_or(&[]);
        let spacing = SAMPLES_PER_SYMBOL as f64 * (1.0 + 1e-6 * frame.clock_ppm);
        let begin = frame.start as f64 + frame.start_fraction + LEAD as f64;
        let turn = -std::f64::consts::TAU * frame.frequency;
        let (mut error, mut power) = (0.0, 0.0);
        let mut k = PREAMBLE_SYMBOLS + HEADER_SYMBOLS;
        for block in body.chunks(BLOCK) {
            let received: Vec<Complex64> = (k..k + block.len())
                .map(|k| {
                    let position = begin + spacing * k as f64;
                    self.at(samples, position) * Complex64::cis(turn * position)
                })
                .collect();
            k += block.len();
            let pairs = || block.iter().zip(&received);
            let product: Complex64 = pairs().map(|(d, y)| y * d.conj()).sum();
            let of_block: f64 = block.iter().map(|d| d.norm_sqr()).sum();
            let gain = product / of_block;
            if gain.norm_sqr() == 0.0 {
                continue;
            }
            let of_error: f64 = pairs().map(|(d, y)| (y / gain - d).norm_sqr()).sum();
            // A gain that is fitted takes its share of the error.
            let count = block.len() as f64;
            error += of_error * count / (count - 1.0).max(1.0);
            power += of_block;
        }
        debug_assert_eq!(body.len(), BODY_SYMBOLS);
        (error / power.max(f64::MIN_POSITIVE)).sqrt()
    }
}

//! Correlation with the Golay pair, and peaks of it.

use num_complex::Complex32;

use crate::waveform::{GOLAY_DELAYS, GOLAY_LENGTH, GOLAY_WEIGHTS};

/// What |Ca|² and |Cb|² of a peak are between. The lower bound is the threshold of detection, fixed
/// although noise makes peaks smaller behind the gain control; the upper one keeps out peaks of a
/// gain that has not settled.
const RANGE: std::ops::Range<f32> = 0.40..1.40;

/// Whether a correlation's power is that of a peak: from 0.40 to 1.40.
pub fn in_range(power: f32) -> bool {
    RANGE.contains(&power)
}

/// A value of some samples ago, and the newest in its place.
#[derive(Clone, Debug)]
struct Past {
    values: Vec<Complex32>,
    at: usize,
}

impl Past {
    fn exchange(&mut self, value: Complex32) -> Complex32 {
        let old = std::mem::replace(&mut self.values[self.at], value);
        self.at = (self.at + 1) % self.values.len();
        old
    }
}

/// The Golay correlator: five stages of (a, b) ← (W a + b[n − sD], W a − b[n − sD]) with s values
/// a symbol (IEEE 802.11ad-2012, 21.11).
#[derive(Clone, Debug)]
pub struct Correlator {
    stages: Vec<Past>,
}

impl Correlator {
    /// For `per_symbol` values a symbol.
    pub fn new(per_symbol: usize) -> Correlator {
        let stage = |delay: usize| Past {
            values: vec![Complex32::ZERO; per_symbol * delay],
            at: 0,
        };
        Correlator {
            stages: GOLAY_DELAYS.map(stage).to_vec(),
        }
    }

    /// Correlations with Ga and Gb that end with this value, by their length.
    pub fn next(&mut self, x: Complex32) -> (Complex32, Complex32) {
        let (mut a, mut b) = (x, x);
        for (stage, weight) in self.stages.iter_mut().zip(GOLAY_WEIGHTS) {
            let (straight, late) = (a * f32::from(weight), stage.exchange(b));
            (a, b) = (straight + late, straight - late);
        }
        (a / GOLAY_LENGTH as f32, b / GOLAY_LENGTH as f32)
    }
}

/// The differentiator of the original's peak detector: 16 taps, antisymmetric, of which this is the
/// first half. Parks–McClellan, amplitude proportional to frequency.
pub const DIFFERENTIATOR: [f64; 8] = [
    -0.001528, 0.002440, -0.002016, 0.002703, -0.004288, 0.008236, -0.022637, 0.202758,
];

/// The original's estimate of how early a peak of the correlator is, in samples, of the values of
/// |Cb|² before, at and after it, for a pulse with roll-off ½.
pub fn early(before: f64, peak: f64, after: f64) -> f64 {
    0.5 / 0.5957 * (before - after) / peak
}

/// What the peak detector says of the sample [`PeakDetector::LATE`] before the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Whether |Cb|² has a maximum there, and is in range.
    pub peak: bool,
    /// Samples by which the maximum is before the sample.
    pub early: f32,
    /// Whether |Ca|² is in range.
    pub a_in_range: bool,
}

/// Peaks of |Cb|² at the sample rate: where its derivative changes from positive to negative.
#[derive(Clone, Debug)]
pub struct PeakDetector {
    correlator: Correlator,
    /// |Ca|² and |Cb|² of the last samples, the newest first.
    a: [f32; PeakDetector::LATE + 1],
    b: [f32; 2 * DIFFERENTIATOR.len()],
    derivative: f32,
}

impl Default for PeakDetector {
    fn default() -> PeakDetector {
        PeakDetector {
            correlator: Correlator::new(3),
            a: [0.0; PeakDetector::LATE + 1],
            b: [0.0; 2 * DIFFERENTIATOR.len()],
            derivative: 0.0,
        }
    }
}

impl PeakDetector {
    /// Samples by which the differentiator is late. Its delay is 7.5 samples; a change of sign is
    /// between two of its values.
    pub const LATE: usize = 8;

    /// Takes a sample in.
    pub fn next(&mut self, x: Complex32) -> Seen {
        let (a, b) = self.correlator.next(x);
        self.a.rotate_right(1);
        self.b.rotate_right(1);
        (self.a[0], self.b[0]) = (a.norm_sqr(), b.norm_sqr());
        let pairs = self.b.iter().zip(self.b.iter().rev());
        let terms = pairs
            .zip(DIFFERENTIATOR)
            .map(|((newer, older), tap)| tap as f32 * (newer - older));
        let before = std::mem::replace(&mut self.derivative, terms.sum());
        let [before_it, peak, after] = [1, 0, -1].map(|by| {
            let place = PeakDetector::LATE as isize + by;
            self.b[place as usize]
        });
        let estimate = early(before_it.into(), peak.into(), after.into());
        Seen {
            peak: before >= 0.0 && self.derivative < 0.0 && in_range(peak),
            early: estimate as f32,
            a_in_range: in_range(self.a[PeakDetector::LATE]),
        }
    }
}

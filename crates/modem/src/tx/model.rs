//! The transmitter in double precision, as its definition says.

use num_complex::Complex64;

use crate::waveform::{RRC_TAPS, SAMPLES_PER_SYMBOL, rrc_taps};

/// The samples of `points`, with the pulse's tail: `3 · points + 48` of them. Two zeros follow each
/// point, and x(n) = gain √3 Σᵢ h(i) z(n − i).
pub fn model_samples(points: &[Complex64], gain: f64) -> Vec<Complex64> {
    let scale = gain * (SAMPLES_PER_SYMBOL as f64).sqrt();
    let taps = rrc_taps().map(|tap| tap * scale);
    let mut samples = vec![Complex64::default(); SAMPLES_PER_SYMBOL * points.len() + RRC_TAPS - 1];
    for (k, point) in points.iter().enumerate() {
        for (i, tap) in taps.iter().enumerate() {
            samples[SAMPLES_PER_SYMBOL * k + i] += point * tap;
        }
    }
    samples
}

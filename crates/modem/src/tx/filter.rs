//! Upsampling and pulse in one: a filter bank of three phases.
//!
//! Of every three inputs of the plain filter two are zeros, so that
//! x(3k + p) = Σᵢ h(3i + p) s(k − i): 17 taps for phase 0, 16 for the others. Products and sums are
//! rounded each, in the order of i, in every build and for every length of a call: the same points
//! give the same bytes.

use num_complex::Complex32;

use crate::waveform::{RRC_SPAN, RRC_TAPS, SAMPLES_PER_SYMBOL, rrc_taps};

/// Symbols before the newest that a sample depends on.
pub const HISTORY_SYMBOLS: usize = RRC_SPAN;
/// Taps of a phase; the last of phases 1 and 2 is 0.
const PHASE_TAPS: usize = HISTORY_SYMBOLS + 1;
type Taps = [[f32; PHASE_TAPS]; SAMPLES_PER_SYMBOL];

/// Points that are filtered together: six accumulators of eight lanes hide the latency of a sum.
const GROUP: usize = 8;
/// Points that are filtered before the next are fetched: they stay in the first cache.
const BLOCK: usize = 512;

/// Points to samples. It remembers the last 16 points.
#[derive(Clone, Debug)]
pub struct PulseShaper {
    taps: Taps,
    /// History, then the points of a block, then zeros up to a whole group; real and imaginary
    /// parts in turns.
    window: Vec<f32>,
}

impl PulseShaper {
    /// A filter whose samples have a mean power of `gain` squared, if the points have 1.
    pub fn new(gain: f32) -> PulseShaper {
        let scale = f64::from(gain) * (SAMPLES_PER_SYMBOL as f64).sqrt();
        let mut taps = [[0.0; PHASE_TAPS]; SAMPLES_PER_SYMBOL];
        for (n, tap) in rrc_taps().into_iter().enumerate().take(RRC_TAPS) {
            taps[n % SAMPLES_PER_SYMBOL][n / SAMPLES_PER_SYMBOL] = (tap * scale) as f32;
        }
        PulseShaper {
            taps,
            window: vec![0.0; 2 * (HISTORY_SYMBOLS + BLOCK)],
        }
    }

    /// Appends three samples for each point.
    pub fn shape(&mut self, points: &[Complex32], samples: &mut Vec<Complex32>) {
        for block in points.chunks(BLOCK) {
            let count = block.len();
            let fresh = &mut self.window[2 * HISTORY_SYMBOLS..];
            for (parts, point) in fresh.chunks_exact_mut(2).zip(block) {
                (parts[0], parts[1]) = (point.re, point.im);
            }
            let start = samples.len();
            let whole = count.next_multiple_of(GROUP) * SAMPLES_PER_SYMBOL;
            samples.resize(start + whole, Complex32::default());
            simd::filter_groups(&self.taps, &self.window, &mut samples[start..]);
            samples.truncate(start + count * SAMPLES_PER_SYMBOL);
            self.window
                .copy_within(2 * count..2 * (count + HISTORY_SYMBOLS), 0);
        }
    }
}

/// Samples of whole groups of points, which stand behind 16 earlier ones in `window`.
#[inline(always)]
fn filter_groups(taps: &Taps, window: &[f32], samples: &mut [Complex32]) {
    let groups = samples.chunks_exact_mut(GROUP * SAMPLES_PER_SYMBOL);
    for (group, out) in groups.enumerate() {
        filter_group(taps, &window[2 * group * GROUP..], out);
    }
}

/// Samples of eight points, which stand behind 16 earlier ones in `window`.
#[inline(always)]
fn filter_group(taps: &Taps, window: &[f32], out: &mut [Complex32]) {
    let window: &[f32] = &window[..2 * (HISTORY_SYMBOLS + GROUP)];
    let mut sums = [[0.0f32; 2 * GROUP]; SAMPLES_PER_SYMBOL];
    for i in 0..PHASE_TAPS {
        let from = 2 * (HISTORY_SYMBOLS - i);
        let points = &window[from..from + 2 * GROUP];
        for (sums, taps) in sums.iter_mut().zip(taps) {
            for (sum, part) in sums.iter_mut().zip(points) {
                *sum += taps[i] * part;
            }
        }
    }
    for (j, out) in out.chunks_exact_mut(SAMPLES_PER_SYMBOL).enumerate() {
        for (sample, sums) in out.iter_mut().zip(&sums) {
            *sample = Complex32::new(sums[2 * j], sums[2 * j + 1]);
        }
    }
}

/// The same loop, compiled for the vectors that the machine has. Rust contracts no product and sum,
/// so that all give the same bytes.
#[allow(unsafe_code)]
mod simd {
    use super::*;

    pub(super) fn filter_groups(taps: &Taps, window: &[f32], samples: &mut [Complex32]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { with_avx2(taps, window, samples) };
        }
        super::filter_groups(taps, window, samples);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn with_avx2(taps: &Taps, window: &[f32], samples: &mut [Complex32]) {
        super::filter_groups(taps, window, samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_vectors_give_the_same_bytes() {
        let shaper = PulseShaper::new(0.7);
        let window: Vec<f32> = (0..2 * (HISTORY_SYMBOLS + 64))
            .map(|i| (i as f32 * 0.37).sin())
            .collect();
        let mut plain = vec![Complex32::default(); 64 * SAMPLES_PER_SYMBOL];
        let mut wide = plain.clone();
        filter_groups(&shaper.taps, &window, &mut plain);
        simd::filter_groups(&shaper.taps, &window, &mut wide);
        let bits = |x: &Complex32| (x.re.to_bits(), x.im.to_bits());
        assert!(plain.iter().map(bits).eq(wide.iter().map(bits)));
    }
}

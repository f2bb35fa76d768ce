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

/// Points that are filtered before the next are fetched: they stay in the first cache.
const BLOCK: usize = 512;
/// Real and imaginary parts of a block's samples of one phase.
type Phase = [f32; 2 * BLOCK];

/// Points to samples. It remembers the last 16 points.
#[derive(Clone, Debug)]
pub struct PulseShaper {
    taps: Taps,
    /// History, then the points of a block, then zeros up to a whole group; real and imaginary
    /// parts in turns.
    window: Vec<f32>,
    /// Samples of a block, by phase.
    phases: Box<[Phase; SAMPLES_PER_SYMBOL]>,
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
            phases: Box::new([[0.0; 2 * BLOCK]; SAMPLES_PER_SYMBOL]),
        }
    }

    /// Appends three samples for each point.
    pub fn shape(&mut self, points: &[Complex32], samples: &mut Vec<Complex32>) {
        samples.reserve(SAMPLES_PER_SYMBOL * points.len());
        for block in points.chunks(BLOCK) {
            let count = block.len();
            let fresh = &mut self.window[2 * HISTORY_SYMBOLS..];
            for (parts, point) in fresh.chunks_exact_mut(2).zip(block) {
                (parts[0], parts[1]) = (point.re, point.im);
            }
            simd::filter(&self.taps, &self.window, count, &mut self.phases);
            let [a, b, c] = self.phases.each_ref().map(|phase| phase.chunks_exact(2));
            let triples = a.zip(b).zip(c).take(count);
            let part = |parts: &[f32]| Complex32::new(parts[0], parts[1]);
            samples.extend(triples.flat_map(|((a, b), c)| [part(a), part(b), part(c)]));
            self.window
                .copy_within(2 * count..2 * (count + HISTORY_SYMBOLS), 0);
        }
    }
}

/// Samples of `count` points, which stand behind 16 earlier ones in `window`, and of as many behind
/// them as fill a group: `PARTS` real and imaginary parts, whose sums hide each other's latency.
#[inline(always)]
fn filter<const PARTS: usize>(
    taps: &Taps,
    window: &[f32],
    count: usize,
    phases: &mut [Phase; SAMPLES_PER_SYMBOL],
) {
    const { assert!((2 * BLOCK).is_multiple_of(PARTS)) };
    for from in (0..2 * count).step_by(PARTS) {
        let window = &window[from..from + 2 * HISTORY_SYMBOLS + PARTS];
        let mut sums = [[0.0f32; PARTS]; SAMPLES_PER_SYMBOL];
        for i in 0..PHASE_TAPS {
            let newest = 2 * (HISTORY_SYMBOLS - i);
            let points = &window[newest..newest + PARTS];
            for (sums, taps) in sums.iter_mut().zip(taps) {
                for (sum, part) in sums.iter_mut().zip(points) {
                    *sum += taps[i] * part;
                }
            }
        }
        for (phase, sums) in phases.iter_mut().zip(&sums) {
            phase[from..from + PARTS].copy_from_slice(sums);
        }
    }
}

/// The same loop, compiled for the vectors that the machine has. Rust contracts no product and sum,
/// so that all give the same bytes.
#[allow(unsafe_code)]
mod simd {
    use super::*;

    pub(super) fn filter(
        taps: &Taps,
        window: &[f32],
        count: usize,
        phases: &mut [Phase; SAMPLES_PER_SYMBOL],
    ) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { with_avx512(taps, window, count, phases) };
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { with_avx2(taps, window, count, phases) };
        }
        super::filter::<16>(taps, window, count, phases);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    pub(super) fn with_avx512(
        taps: &Taps,
        window: &[f32],
        count: usize,
        phases: &mut [Phase; SAMPLES_PER_SYMBOL],
    ) {
        super::filter::<32>(taps, window, count, phases);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    pub(super) fn with_avx2(
        taps: &Taps,
        window: &[f32],
        count: usize,
        phases: &mut [Phase; SAMPLES_PER_SYMBOL],
    ) {
        super::filter::<16>(taps, window, count, phases);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_vectors_give_the_same_bytes() {
        let shaper = PulseShaper::new(0.7);
        let window: Vec<f32> = (0..2 * (HISTORY_SYMBOLS + BLOCK))
            .map(|i| (i as f32 * 0.37).sin())
            .collect();
        let of = |filter: &dyn Fn(&mut [Phase; SAMPLES_PER_SYMBOL])| {
            let mut phases = [[0.0; 2 * BLOCK]; SAMPLES_PER_SYMBOL];
            filter(&mut phases);
            phases.map(|phase| phase.map(f32::to_bits))
        };
        let narrow = of(&|phases| filter::<2>(&shaper.taps, &window, BLOCK, phases));
        let groups = of(&|phases| filter::<16>(&shaper.taps, &window, BLOCK, phases));
        let wide = of(&|phases| simd::filter(&shaper.taps, &window, BLOCK, phases));
        assert!(narrow == groups && groups == wide);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has what the function is compiled for.
            let avx2 = of(&|phases| unsafe {
                simd::with_avx2(&shaper.taps, &window, BLOCK, phases);
            });
            assert!(avx2 == narrow);
        }
    }
}

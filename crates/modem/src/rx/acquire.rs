//! Acquisition: from a place within the short training field to the frame's first symbol.

use num_complex::Complex64;

use super::bank::Bank;
use super::blocks::{BLOCK_SPAN, Despread, signs};
use super::samples::Samples;
use super::search::{Hit, PERIOD};
use super::simd::Level;
use crate::waveform::{FRAME_SYMBOLS, GOLAY_LENGTH, SAMPLES_PER_SYMBOL, STF_REPETITIONS};

/// Blocks from a hit in which the end of the field must come: all repetitions, and a bit.
const WITHIN: i64 = STF_REPETITIONS as i64 + 4;
/// Blocks before and behind the end that are compared with the preamble.
const COMPARED: std::ops::Range<i64> = -2..18;
/// Samples that the filter may read past a block's end, and some to spare.
const PAST_BLOCK: i64 = 100;
/// Samples after a hit that the search for the end may read.
pub(crate) const LOOK_AHEAD: i64 = PERIOD * (WITHIN + COMPARED.end) + PAST_BLOCK;
/// Share of what the compared blocks would add up to if there were nothing but the preamble.
const AGREEMENT: f64 = 0.5;

/// A frame that begins at a known place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Start {
    /// Centre of the first symbol, as sample and fraction.
    pub sample: i64,
    pub fraction: f64,
    /// Radians per symbol, from the detection.
    pub frequency: f64,
    /// Power of a symbol, from the detection.
    pub strength: f64,
    /// First sample that belongs to no earlier frame.
    pub origin: i64,
}

impl Start {
    /// Centre of the last symbol, rounded.
    pub fn last(&self) -> i64 {
        self.sample + (SAMPLES_PER_SYMBOL * (FRAME_SYMBOLS - 1)) as i64
    }
}

/// Follows the repetitions of Gb from `hit` on to the first one that is turned over, and compares
/// what is around it with the preamble's blocks there: products of neighbouring blocks, so that
/// phase does not matter.
pub(crate) fn find_end(
    level: Level,
    bank: &Bank,
    samples: Samples,
    hit: &Hit,
    origin: i64,
) -> Option<Start> {
    let turn = Complex64::cis(-(GOLAY_LENGTH as f64) * hit.frequency);
    let block = |j: i64, kind: usize| -> Option<Complex64> {
        let last = (hit.peak + PERIOD * j) as f64 + hit.fraction;
        let first = last - BLOCK_SPAN as f64;
        let despread = Despread::new(level, samples, first, &signs(kind), hit.frequency)?;
        Some(despread.at(level, bank, 0.0))
    };
    let turned = STF_REPETITIONS;
    let mut before = block(0, 0)?;
    for j in 1..WITHIN {
        let now = block(j, 0)?;
        let product = now * before.conj() * turn;
        before = now;
        if product.re >= 0.0 {
            continue;
        }
        let (mut sum, mut all) = (0.0, 0.0);
        let mut earlier: Option<Complex64> = None;
        for i in COMPARED {
            let z = block(j + i, (turned as i64 + i) as usize)?;
            if let Some(earlier) = earlier {
                sum += (z * earlier.conj() * turn).re;
            }
            all += z.norm_sqr();
            earlier = Some(z);
        }
        if sum > AGREEMENT * all && all > 0.0 {
            let sample = hit.peak + PERIOD * (j - turned as i64) - BLOCK_SPAN;
            return Some(Start {
                sample,
                fraction: hit.fraction,
                frequency: hit.frequency,
                strength: hit.strength,
                origin,
            });
        }
    }
    None
}

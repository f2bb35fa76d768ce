//! Whether the values of a while are those that were computed here, but for rounding and dither.
//!
//! Rounding and dither are no differences. Each is as likely to make the one value larger as the
//! other, so that Σ (|t|² − |o|²) and Σ Im(t·o*) have no preferred sign, whatever the seeds are,
//! and whether there is dither at all. A sum of terms whose signs are even chances is beyond z
//! times the root of the terms' squares with a probability of 2·exp(−z²/2) at most (Efron 1969,
//! Student's t-test under symmetry conditions). That is all that is taken for granted: neither a
//! level of noise nor a kind of signal. Rounding and dither also do not take two values apart by
//! more than one.

use std::f64::consts::TAU;
use std::ops::RangeInclusive;

use num_complex::Complex64;
use schemars::JsonSchema;
use serde::Serialize;

use super::sums::Cell;

/// A sum is no chance beyond so many times the root of its terms' squares: 2.5·10⁻¹⁴.
const BEYOND: f64 = 8.0;
/// Shares of the amplitude, or radians, up to which single precision and the dither's own grain are
/// an explanation.
const TOLERANCE: f64 = 1e-4;
/// The same of a channel with so few kinds of pairs that differ. A digitiser's signal that repeats
/// repeats each of its values on a tie, and with it the sign of a difference.
const TOLERANCE_OF_FEW: f64 = 1e-3;
const FEW: u32 = 4;
/// Parts that differ by more than one: so many, and this share of a channel's samples.
const APART: (u64, f64) = (8, 2e-3);
/// As [`APART`], over a band.
const APART_ALL: (u64, f64) = (64, 1e-4);
/// Standard deviations beyond which a slope of phase is one.
const SLOPE: f64 = 5.0;
/// Mean of cosines of the phases behind a fit, from which on the fit explains them.
const ALIGNED: f64 = 0.9;
/// Coherence below which values have nothing to do with each other.
const UNLIKE: f64 = 0.3;

/// What may be the reason of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Guess {
    /// All channels have the same ratio.
    Gain,
    /// Each channel has a ratio of its own.
    Gains,
    /// The phase is a slope over channels.
    Delay,
    /// One of both has zeros only.
    Silence,
    /// The values have little to do with each other.
    Values,
}

/// A difference of one polarisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What may be the reason.
    pub guess: Guess,
    /// Where.
    pub channels: Vec<RangeInclusive<usize>>,
    /// Amplitude of what came by that of what was computed here.
    pub ratio: f64,
    /// Phase of what came less that of what was computed here, in radians: in the middle of the
    /// channels.
    pub phase: f64,
    /// By how many seconds what came is later, if phases are a slope.
    pub delay: Option<f64>,
    /// Coherence: 1 for values that are alike.
    pub alike: f64,
    /// Share of the samples that differ.
    pub unequal: f64,
}

impl Finding {
    /// How many channels differ.
    pub fn count(&self) -> usize {
        self.channels
            .iter()
            .map(|range| range.clone().count())
            .sum()
    }

    /// How large it is, to see whether it grows: what is added to the values, as a share of them.
    pub fn size(&self, bandwidth: f64) -> f64 {
        let ratio = self.ratio.clamp(1e-9, 1e9).ln().abs();
        let span = self.count() as f64 * bandwidth / 2.0;
        let slope = self.delay.unwrap_or_default() * TAU * span;
        ratio.hypot(self.phase).hypot(slope) + (1.0 - self.alike)
    }
}

/// Looks for a difference of the channels, which have `bandwidth` in hertz each.
pub fn judge(cells: &[Cell], bandwidth: f64) -> Option<Finding> {
    let odd: Vec<bool> = cells.iter().map(is_odd).collect();
    let rest = cells.iter().zip(&odd).enumerate();
    let rest = rest.filter(|(_, (_, odd))| !**odd);
    let all = is_odd_together(rest.map(|(k, (cell, _))| (k, cell)), cells.len());
    let differs = |k: usize| all || odd[k];
    let channels = runs((0..cells.len()).filter(|&k| differs(k)));
    if channels.is_empty() {
        return None;
    }
    let of: Vec<_> = cells.iter().enumerate().collect();
    let of: Vec<_> = of.into_iter().filter(|(k, _)| differs(*k)).collect();
    Some(describe(&of, bandwidth, channels))
}

/// Whether a sum is neither chance nor too little to matter.
fn is_beyond(sum: f64, squares: f64, least: f64) -> bool {
    sum.abs() > BEYOND * squares.sqrt() && sum.abs() > least
}

fn is_apart(apart: u64, samples: u64, (count, share): (u64, f64)) -> bool {
    apart >= count && apart as f64 > share * samples as f64
}

fn is_odd(cell: &Cell) -> bool {
    let tolerance = match cell.kinds.count_ones() > FEW {
        true => TOLERANCE,
        false => TOLERANCE_OF_FEW,
    };
    let least = tolerance * cell.power();
    is_beyond(cell.louder(), cell.power_squares, 2.0 * least)
        || is_beyond(cell.turned as f64, cell.turn_squares, least)
        || is_apart(cell.apart, cell.samples, APART)
}

/// The same of many channels together: all louder, all turned, or turned in proportion to their
/// distance from the middle of the band.
fn is_odd_together<'a>(cells: impl Iterator<Item = (usize, &'a Cell)>, channels: usize) -> bool {
    let (mut all, mut power) = (Cell::default(), 0.0);
    let [mut slope, mut squares, mut scale] = [0.0; 3];
    for (k, cell) in cells {
        all.add(cell);
        power += cell.power();
        let place = (2 * k + 1) as f64 / channels as f64 - 1.0;
        slope += place * cell.turned as f64;
        squares += place * place * cell.turn_squares;
        scale += place * place * cell.power();
    }
    let least = TOLERANCE * power;
    is_beyond(all.louder(), all.power_squares, 2.0 * least)
        || is_beyond(all.turned as f64, all.turn_squares, least)
        || is_beyond(slope, squares, TOLERANCE * scale)
        || is_apart(all.apart, all.samples, APART_ALL)
}

/// Ascending numbers as ranges.
fn runs(numbers: impl Iterator<Item = usize>) -> Vec<RangeInclusive<usize>> {
    let mut runs: Vec<RangeInclusive<usize>> = Vec::new();
    for k in numbers {
        match runs.last_mut() {
            Some(last) if *last.end() + 1 == k => *last = *last.start()..=k,
            _ => runs.push(k..=k),
        }
    }
    runs
}

fn describe(
    of: &[(usize, &Cell)],
    bandwidth: f64,
    channels: Vec<RangeInclusive<usize>>,
) -> Finding {
    let mut all = Cell::default();
    of.iter().for_each(|(_, cell)| all.add(cell));
    let fit = Fit::of(of);
    let power: f64 = of.iter().map(|(_, cell)| cell.power()).sum();
    let alike = match power > 0.0 {
        true => fit.weight / power,
        false => 0.0,
    };
    let guess = match () {
        () if all.ours == 0 || all.theirs == 0 => Guess::Silence,
        () if alike < UNLIKE => Guess::Values,
        () if fit.is_slope() => Guess::Delay,
        () if fit.aligned > ALIGNED && is_even(of) => Guess::Gain,
        () => Guess::Gains,
    };
    Finding {
        guess,
        channels,
        ratio: (all.theirs as f64 / all.ours as f64).sqrt(),
        phase: fit.phase,
        delay: (guess == Guess::Delay).then(|| -fit.slope / (TAU * bandwidth)),
        alike: alike.min(1.0),
        unequal: all.unequal as f64 / all.samples.max(1) as f64,
    }
}

/// Whether all channels have the same ratio of amplitudes, but for noise.
fn is_even(of: &[(usize, &Cell)]) -> bool {
    let heard = of.iter().filter(|(_, cell)| cell.power() > 0.0);
    let (mut sum, mut squares, mut noise, mut weights) = (0.0, 0.0, 0.0, 0.0);
    for (_, cell) in heard {
        let power = cell.power();
        let ratio = (cell.theirs as f64 / cell.ours as f64).ln() / 2.0;
        sum += power * ratio;
        squares += power * ratio * ratio;
        noise += cell.power_squares / (4.0 * power);
        weights += power;
    }
    let mean = sum / weights;
    let spread = squares / weights - mean * mean;
    spread <= (mean * mean / 4.0).max(9.0 * noise / weights)
}

/// A line through phases over channels.
#[derive(Debug, Default)]
struct Fit {
    /// Phase in the middle of the channels.
    phase: f64,
    /// Radians from one channel to the next, and its standard deviation.
    slope: f64,
    deviation: f64,
    /// Channels from the first to the last.
    span: f64,
    /// Sum of the moduli, and the share of it that is left when the line is taken off.
    weight: f64,
    aligned: f64,
}

impl Fit {
    fn of(cells: &[(usize, &Cell)]) -> Self {
        let points = cells.iter().map(|(k, cell)| {
            let cross = Complex64::new(cell.alike as f64, cell.turned as f64);
            (*k as f64, cross, cell.turn_squares)
        });
        let points: Vec<_> = points.filter(|(_, cross, _)| cross.norm() > 0.0).collect();
        let weight: f64 = points.iter().map(|(_, cross, _)| cross.norm()).sum();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Self::default();
        };
        let (middle, span) = ((first.0 + last.0) / 2.0, last.0 - first.0);
        // Neighbours tell of slopes that go round many times.
        let pairs = points
            .windows(2)
            .filter(|pair| pair[1].0 - pair[0].0 == 1.0);
        let turn: Complex64 = pairs
            .map(|pair| {
                let turn = pair[1].1 * pair[0].1.conj();
                turn / turn.norm().sqrt()
            })
            .sum();
        let (mut slope, mut phase) = (turn.arg(), 0.0);
        let mut aligned = 0.0;
        let information = |(k, cross, squares): &(f64, Complex64, f64)| {
            (k - middle).powi(2) * cross.norm_sqr() / squares.max(f64::MIN_POSITIVE)
        };
        let deviation = points.iter().map(information).sum::<f64>().sqrt().recip();
        for _ in 0..3 {
            let flat = |(k, cross, _): &(f64, Complex64, f64)| {
                cross * Complex64::from_polar(1.0, -phase - slope * (k - middle))
            };
            phase += points.iter().map(flat).sum::<Complex64>().arg();
            let flat = |(k, cross, _): &(f64, Complex64, f64)| {
                let left = cross * Complex64::from_polar(1.0, -phase - slope * (k - middle));
                (k - middle, left)
            };
            let left: Vec<_> = points.iter().map(flat).collect();
            let sum = |term: &dyn Fn(f64, f64, f64) -> f64| -> f64 {
                left.iter().map(|(k, c)| term(*k, c.norm(), c.arg())).sum()
            };
            let mean = sum(&|k, w, _| w * k) / weight;
            let across = sum(&|k, w, r| w * (k - mean) * r);
            let along = sum(&|k, w, _| w * (k - mean).powi(2));
            if along > 0.0 {
                slope += across / along;
            }
            aligned = left.iter().map(|(_, c)| c).sum::<Complex64>().norm() / weight;
        }
        Self {
            phase: Complex64::from_polar(1.0, phase).arg(),
            slope,
            deviation,
            span,
            weight,
            aligned,
        }
    }

    fn is_slope(&self) -> bool {
        let edge = self.slope.abs() * self.span / 2.0;
        self.aligned > ALIGNED && edge > TOLERANCE && self.slope.abs() > SLOPE * self.deviation
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

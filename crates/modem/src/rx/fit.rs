//! Timing, sample clock, frequency and gain of a frame, by fits over its preamble.
//!
//! Block j of 32 symbols gives zⱼ(δ), its correlation with the known symbols at a delay δ from
//! where the start and a nominal clock put it. The early-late difference
//!
//! eⱼ = (|zⱼ(δ + ½)|² − |zⱼ(δ − ½)|²) / (K · mean |z|²), K its slope per sample for a clean pulse,
//!
//! says how late the block is. A straight line through the eⱼ gives delay and clock, three times
//! over, each time around the line before. Where the STF alone shows a clock that is far off, so
//! that blocks far from where the frame was found would be too late for that, all of this is around
//! that clock. The phases of the zⱼ give the frequency in the same way, which is the
//! maximum-likelihood estimate for a tone in noise (S. Tretter, IEEE Trans. Inf. Theory 31(6),
//! 1985).
//!
//! Echoes move delay and phase of a block by what its neighbours are. All inner blocks of the STF
//! have the same neighbours, and in the CEF every eighth block has. So the lines of STF and CEF
//! have one slope but two intercepts, and in the CEF whole periods of eight blocks are fitted: the
//! slope is then free of what echoes do. This doubles its standard deviation against a single line;
//! the loops after the header take the rest.

use num_complex::Complex64;

use super::acquire::Start;
use super::bank::Bank;
use super::blocks::{BLOCK_SPAN, BLOCKS, Despread, signs};
use super::samples::Samples;
use super::search::PERIOD;
use super::simd::Level;
use crate::waveform::{GOLAY_LENGTH, SAMPLES_PER_SYMBOL, STF_REPETITIONS};

/// First block of the CEF.
const CEF: usize = STF_REPETITIONS + 2;
/// Blocks after which the CEF repeats.
const SET: usize = 8;
/// Periods of the CEF.
const SETS: usize = (BLOCKS - CEF) / SET;
/// Blocks of the STF that a fit needs at least.
const LEAST: usize = 4;
/// Fits of the timing, each around the one before.
const ROUNDS: usize = 3;
/// Fits of the STF alone, by which a clock that is far off is found.
const COARSE_ROUNDS: usize = 2;
/// A clock that is far off, relative: over the preamble its blocks get too late for the early-late
/// difference, and for what is kept of them.
const FAR: f64 = 120e-6;
/// An early block counts as absent if its power is below this share of the mean.
const THERE: f64 = 0.25;

/// What the preamble tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    /// Centre of the first symbol of the CEF, as sample and fraction.
    pub cef: i64,
    pub fraction: f64,
    /// How much longer a symbol is than three samples, relative.
    pub clock: f64,
    /// Radians per symbol.
    pub frequency: f64,
    /// Amplitude of a symbol.
    pub amplitude: f64,
}

/// A straight line through points with a common slope and an intercept for each of two groups.
#[derive(Default)]
struct Line {
    product: f64,
    square: f64,
}

impl Line {
    /// Adds a group, each point standing for `weight` blocks; tells its mean place and mean value.
    fn add(&mut self, points: &[(f64, f64)], weight: f64) -> (f64, f64) {
        let count = points.len().max(1) as f64;
        let x = points.iter().map(|p| p.0).sum::<f64>() / count;
        let y = points.iter().map(|p| p.1).sum::<f64>() / count;
        for point in points {
            self.product += weight * (point.0 - x) * (point.1 - y);
            self.square += weight * (point.0 - x).powi(2);
        }
        (x, y)
    }

    fn slope(&self) -> f64 {
        if self.square > 0.0 {
            self.product / self.square
        } else {
            0.0
        }
    }
}

/// How late blocks are, in samples: one line for each field, with a common slope.
struct TimingLine {
    /// Delay at the middle of the STF, and at that of the CEF.
    stf: f64,
    cef: f64,
    /// Change of the delay from one block to the next.
    clock: f64,
    /// Numbers of the blocks at which the middles are.
    stf_middle: f64,
    cef_middle: f64,
}

impl TimingLine {
    /// No delay anywhere, with these blocks of the STF.
    fn new(stf: &[usize]) -> TimingLine {
        TimingLine {
            stf: 0.0,
            cef: 0.0,
            clock: 0.0,
            stf_middle: stf.iter().sum::<usize>() as f64 / stf.len() as f64,
            cef_middle: (CEF + BLOCKS - 1) as f64 / 2.0,
        }
    }

    fn delay(&self, block: usize) -> f64 {
        let (delay, middle) = match block < CEF {
            true => (self.stf, self.stf_middle),
            false => (self.cef, self.cef_middle),
        };
        delay + self.clock * (block as f64 - middle)
    }
}

/// Where blocks are beside those of a nominal clock: their delay at one of them, and its change.
#[derive(Clone, Copy, Default)]
struct Nominal {
    delay: f64,
    /// From one block to the next.
    clock: f64,
    /// Number of the block at which the delay is.
    middle: f64,
}

impl Nominal {
    fn delay(&self, block: usize) -> f64 {
        self.delay + self.clock * (block as f64 - self.middle)
    }
}

/// The raised cosine at `t` symbols from its centre: what pulse and matched filter make together.
fn raised_cosine(t: f64) -> f64 {
    use std::f64::consts::PI;
    if t.abs() < 1e-9 {
        return 1.0;
    }
    (PI * t).sin() / (PI * t) * (PI * t / 2.0).cos() / (1.0 - t * t)
}

/// K: slope per sample of |z(½ − ε)|² − |z(½ + ε)|² at ε = 0.
fn early_late_slope() -> f64 {
    let at = |samples: f64| raised_cosine(samples / SAMPLES_PER_SYMBOL as f64).powi(2);
    let step = 1e-4;
    2.0 * (at(0.5 - step) - at(0.5 + step)) / (2.0 * step)
}

/// Fits frames' preambles. Holds what is left of the blocks of one of them.
pub(crate) struct Fitter {
    level: Level,
    slope: f64,
    blocks: Vec<Despread>,
}

impl Fitter {
    pub fn new(level: Level) -> Fitter {
        Fitter {
            level,
            slope: early_late_slope(),
            blocks: Vec::with_capacity(BLOCKS),
        }
    }

    /// Fits the preamble of the frame that begins at `start`. `None` if its samples or its power
    /// are not there.
    pub fn fit(&mut self, bank: &Bank, samples: Samples, start: &Start) -> Option<Fit> {
        let inner = |first: usize| -> Option<Vec<usize>> {
            let stf: Vec<usize> = (first.max(1)..STF_REPETITIONS - 1).collect();
            (stf.len() >= LEAST).then_some(stf)
        };
        let mut nominal = Nominal::default();
        let mut first = self.despread(bank, samples, start, &nominal)?;
        let mut stf = inner(first)?;
        let coarse = self.coarse(bank, first, &stf)?;
        if coarse.clock.abs() > FAR * PERIOD as f64 {
            nominal = coarse;
            first = self.despread(bank, samples, start, &nominal)?;
            stf = inner(first)?;
        }
        let mut timing = TimingLine::new(&stf);
        let mut power = 0.0;
        for _ in 0..ROUNDS {
            power = self.refine(bank, first, &stf, &mut timing)?;
        }
        let frequency = self.frequency(bank, first, &stf, &timing);
        let to_cef = timing.clock * (CEF as f64 - timing.cef_middle);
        // Delays are those of blocks' middles; of a clock that is near they are nearly the same.
        let to_middle = nominal.clock / PERIOD as f64 * (BLOCK_SPAN / 2) as f64;
        Some(Fit {
            cef: start.sample + PERIOD * CEF as i64,
            fraction: start.fraction + nominal.delay(CEF) - to_middle + timing.cef + to_cef,
            clock: (nominal.clock + timing.clock) / PERIOD as f64,
            frequency,
            amplitude: power.sqrt(),
        })
    }

    /// Delay and clock by the STF alone, which begins near where the frame was found. `None` if it
    /// has no power.
    fn coarse(&self, bank: &Bank, first: usize, stf: &[usize]) -> Option<Nominal> {
        let mut timing = TimingLine::new(stf);
        for _ in 0..COARSE_ROUNDS {
            let values: Vec<(f64, f64)> = stf
                .iter()
                .map(|&j| self.late(bank, first, j, &timing))
                .collect();
            let power = mean_power(&values)?;
            let mut line = Line::default();
            timing.stf += line.add(&self.points(stf, &values, power), 1.0).1;
            timing.clock += line.slope();
        }
        Some(Nominal {
            delay: timing.stf,
            clock: timing.clock,
            middle: timing.stf_middle,
        })
    }

    /// Early-late difference and power of a block.
    fn late(&self, bank: &Bank, first: usize, j: usize, timing: &TimingLine) -> (f64, f64) {
        let delay = timing.delay(j);
        let at = |offset: f64| self.at(bank, first, j, delay + offset).norm_sqr();
        (at(0.5) - at(-0.5), at(0.0))
    }

    /// Blocks of the STF, and how many samples late each is.
    fn points(&self, stf: &[usize], values: &[(f64, f64)], power: f64) -> Vec<(f64, f64)> {
        let points = stf.iter().zip(values);
        points
            .map(|(&j, value)| (j as f64, value.0 / (self.slope * power)))
            .collect()
    }

    /// Fits delays and clock around `timing`, and adds them to it; tells the mean power of the
    /// CEF's blocks. `None` if a field has no power.
    fn refine(
        &self,
        bank: &Bank,
        first: usize,
        stf: &[usize],
        timing: &mut TimingLine,
    ) -> Option<f64> {
        let late = |j: usize| self.late(bank, first, j, timing);
        let of_stf: Vec<(f64, f64)> = stf.iter().map(|&j| late(j)).collect();
        let of_cef: Vec<(f64, f64)> = (CEF..BLOCKS).map(late).collect();
        let powers = [mean_power(&of_stf)?, mean_power(&of_cef)?];
        let mut line = Line::default();
        timing.stf += line.add(&self.points(stf, &of_stf, powers[0]), 1.0).1;
        let points: Vec<_> = of_cef
            .chunks(SET)
            .enumerate()
            .map(|(set, values)| {
                let mean = values.iter().map(|v| v.0).sum::<f64>() / SET as f64;
                let at = CEF as f64 + (set * SET) as f64 + (SET - 1) as f64 / 2.0;
                (at, mean / (self.slope * powers[1]))
            })
            .collect();
        timing.cef += line.add(&points, SET as f64).1;
        timing.clock += line.slope();
        Some(powers[1])
    }

    /// Despreads all blocks that are there; tells the number of the first.
    fn despread(
        &mut self,
        bank: &Bank,
        samples: Samples,
        start: &Start,
        nominal: &Nominal,
    ) -> Option<usize> {
        self.blocks.clear();
        let earliest = (start.origin - start.sample).max(0);
        let earliest = usize::try_from((earliest + PERIOD - 1) / PERIOD).ok()?;
        for j in earliest..BLOCKS {
            let centre = (start.sample + PERIOD * j as i64) as f64 + start.fraction;
            let centre = centre + nominal.delay(j);
            let of_block = Despread::new(self.level, samples, centre, &signs(j), start.frequency)?;
            self.blocks.push(of_block);
        }
        // A field of which the beginning is not there: its blocks have no power.
        let power = |j: usize| self.at(bank, earliest, j, 0.0).norm_sqr();
        let inner = earliest.max(STF_REPETITIONS / 2)..STF_REPETITIONS;
        let mean = inner.clone().map(power).sum::<f64>() / inner.len().max(1) as f64;
        let absent = (earliest..STF_REPETITIONS)
            .rev()
            .find(|&j| power(j) < THERE * mean);
        let first = absent.map_or(earliest, |j| j + 1);
        self.blocks.drain(..first - earliest);
        Some(first)
    }

    fn at(&self, bank: &Bank, first: usize, j: usize, delay: f64) -> Complex64 {
        self.blocks[j - first].at(self.level, bank, delay)
    }

    /// Radians per symbol.
    fn frequency(&self, bank: &Bank, first: usize, stf: &[usize], timing: &TimingLine) -> f64 {
        let z = |j: usize| self.at(bank, first, j, timing.delay(j));
        let of_stf: Vec<Complex64> = stf.iter().map(|&j| z(j)).collect();
        let of_cef: Vec<Complex64> = (CEF..BLOCKS).map(z).collect();
        // Products of neighbours first, so that the phases of all blocks are near each other.
        let products: Complex64 = of_stf.windows(2).map(|pair| pair[1] * pair[0].conj()).sum();
        let mut per_block = products.arg();
        let mut line = Line::default();
        let turned = |z: Complex64, j: usize| z * Complex64::cis(-per_block * j as f64);
        let values = stf
            .iter()
            .zip(&of_stf)
            .map(|(&j, &z)| (j as f64, turned(z, j)));
        line.add(&phases(values), 1.0);
        let sets = of_cef.chunks(SET).enumerate().map(|(set, values)| {
            let from = CEF + set * SET;
            let sum = values.iter().zip(from..).map(|(&z, j)| turned(z, j)).sum();
            (from as f64, sum)
        });
        debug_assert_eq!(sets.len(), SETS);
        line.add(&phases(sets), SET as f64);
        per_block += line.slope();
        per_block / GOLAY_LENGTH as f64
    }
}

/// Mean of the powers of early-late differences and powers. `None` if there is none.
fn mean_power(values: &[(f64, f64)]) -> Option<f64> {
    let power = values.iter().map(|value| value.1).sum::<f64>() / values.len() as f64;
    (power.is_finite() && power > 0.0).then_some(power)
}

/// Phases from that of the sum of all.
fn phases(values: impl Iterator<Item = (f64, Complex64)>) -> Vec<(f64, f64)> {
    let values: Vec<_> = values.collect();
    let sum: Complex64 = values.iter().map(|value| value.1).sum();
    values
        .iter()
        .map(|(at, value)| (*at, (value * sum.conj()).arg()))
        .collect()
}

//! Detection: finds the short training field in a stream of samples.
//!
//! The matched filter runs on every sample, after it the Golay correlator at the sample rate
//! (five stages of ± and a delay), which gives C(n), the correlation with Gb. The field repeats
//! Gb every 96 samples, so with the newest 17 repetitions
//!
//! D(n) = Σᵣ C(n − 96 r) C*(n − 96 (r + 1)), r = 0…15, and P(n) = mean |y|² over 16 · 96 samples,
//!
//! the field is detected where |D| > T · 16 P: delay and correlate, as T. Schmidl and D. Cox do for
//! OFDM (IEEE Trans. Commun. 45(12), 1997). Frequency turns D without making it smaller: its
//! angle is that of 32 symbols. All sums are over finite windows, made of sums of half as many
//! terms, so that nothing that was in the stream earlier stays in them.
//!
//! T = 0.1 lies between what noise and what a tone reach. With noise alone the quotient exceeds T
//! with probability below e^(−32·16·T) (a quadratic form of Gaussian variables whose largest
//! eigenvalue is cos(π/18)); a tone has at most 1/16, since |Ga(f)|² + |Gb(f)|² = 64 bounds |C|² by
//! 64/32². A frame at Es/N0 = 0 dB has 1 / (0.875 + 1) = 0.53, less what frequency takes.

use std::f64::consts::PI;

use super::blocks::BLOCK_SPAN;
use super::simd::{self, Level};
use crate::waveform::{
    GOLAY_DELAYS, GOLAY_LENGTH, GOLAY_WEIGHTS, RRC_TAPS, SAMPLES_PER_SYMBOL, rrc_taps,
};

/// Samples that are searched at once.
pub(crate) const CHUNK: usize = 1024;
/// Samples before and behind a sample that the filter needs.
pub(crate) const REACH: usize = RRC_TAPS / 2;
/// Samples from one repetition of Gb to the next.
pub(crate) const PERIOD: i64 = (SAMPLES_PER_SYMBOL * GOLAY_LENGTH) as i64;
/// Products that are summed.
const PRODUCTS: i64 = 16;
/// Samples after which all windows are full.
const SETTLE: i64 = BLOCK_SPAN + PERIOD * (PRODUCTS + 1);
/// The threshold T.
pub(crate) const THRESHOLD: f32 = 0.1;
/// Samples from the first crossing in which the largest value is looked for.
const LOOK: i64 = PRODUCTS * PERIOD;
/// Samples that the field is late, per (after − before) / peak of |D| around its largest value:
/// ½ / 0.5957, as in the original, [`early`](super::original::early).
///
/// |D| is as |C|², and C(t) = Σₖ c(k) g(t + 3 k) / 32, with c the periodic autocorrelation of Gb
/// and g what pulse and matched filter make together. The quotient bends: at half a sample, the
/// largest offset that there is, it is 0.5957, but its slope at 0 is 1.155, for which the factor
/// would be 0.866. The chord up to half a sample is off by at most 0.006 samples, the tangent by
/// 0.016.
const OFFSET_FACTOR: f64 = 0.839;

/// Values with those of the chunks before.
struct Delayed {
    values: Vec<f32>,
    kept: usize,
}

impl Delayed {
    /// For `kept` values before a chunk of `len`.
    fn new(kept: usize, len: usize) -> Delayed {
        Delayed {
            values: vec![0.0; kept + len],
            kept,
        }
    }

    /// The chunk.
    fn new_values(&mut self) -> &mut [f32] {
        &mut self.values[self.kept..]
    }

    /// The chunk as it was `by` values earlier.
    fn delayed(&self, by: usize) -> &[f32] {
        &self.values[self.kept - by..self.values.len() - by]
    }

    /// Makes room for the next chunk.
    fn roll(&mut self) {
        let from = self.values.len() - self.kept;
        self.values.copy_within(from.., 0);
    }

    fn clear(&mut self) {
        self.values.fill(0.0);
    }
}

/// Where a short training field was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    /// Centre of the last symbol of some Gb, as sample and fraction.
    pub peak: i64,
    pub fraction: f64,
    /// Radians per symbol.
    pub frequency: f64,
    /// Mean of |C|² over the repetitions.
    pub strength: f64,
}

/// The largest |D| since a crossing.
#[derive(Clone, Copy)]
struct Candidate {
    until: i64,
    largest: f32,
    hit: Option<Hit>,
}

/// The search: takes the stream in chunks from an origin on.
pub(crate) struct Search {
    level: Level,
    taps: Vec<f32>,
    origin: i64,
    next: i64,
    candidate: Option<Candidate>,
    filtered: Vec<f32>,
    /// Second input of each stage, with its delay.
    stages: Vec<Delayed>,
    straight: [Vec<f32>; 2],
    correlation: Delayed,
    /// Sums of 1, 2, 4 and 8 products, then all.
    products: Vec<Delayed>,
    all_products: Delayed,
    powers: Vec<Delayed>,
    window: Vec<Delayed>,
    window_power: Vec<f32>,
    magnitude: Delayed,
}

impl Search {
    pub fn new(level: Level) -> Search {
        let complex = 2 * CHUNK;
        let period = PERIOD as usize;
        let doubling = [1, 2, 4, 8];
        Search {
            level,
            taps: rrc_taps().iter().map(|&tap| tap as f32).collect(),
            origin: 0,
            next: 0,
            candidate: None,
            filtered: vec![0.0; complex],
            stages: GOLAY_DELAYS
                .iter()
                .map(|d| Delayed::new(6 * d, complex))
                .collect(),
            straight: [vec![0.0; complex], vec![0.0; complex]],
            correlation: Delayed::new(2 * period, complex),
            products: doubling
                .iter()
                .map(|n| Delayed::new(2 * n * period, complex))
                .collect(),
            all_products: Delayed::new(2, complex),
            powers: doubling
                .iter()
                .map(|n| Delayed::new(n * period, CHUNK))
                .collect(),
            window: [1, 1, 3, 6, 12, 24, 48]
                .iter()
                .map(|&n| Delayed::new(n, CHUNK))
                .collect(),
            window_power: vec![0.0; CHUNK],
            magnitude: Delayed::new(2, CHUNK),
        }
    }

    /// Begins anew at sample `origin`, as if nothing had been before it.
    pub fn restart(&mut self, origin: i64) {
        (self.origin, self.next, self.candidate) = (origin, origin, None);
        let delayed = self
            .stages
            .iter_mut()
            .chain(&mut self.products)
            .chain(&mut self.powers);
        delayed.chain(&mut self.window).for_each(Delayed::clear);
        self.correlation.clear();
        self.all_products.clear();
        self.magnitude.clear();
    }

    /// Where the search has begun.
    pub fn origin(&self) -> i64 {
        self.origin
    }

    /// First sample that the next chunk needs, and the one behind the last.
    pub fn needs(&self) -> (i64, i64) {
        let reach = REACH as i64;
        (self.next - reach, self.next + CHUNK as i64 + reach)
    }

    /// Searches the samples that [`Search::needs`] names.
    pub fn chunk(&mut self, samples: &[f32]) -> Option<Hit> {
        let level = self.level;
        simd::filter(level, samples, &self.taps, &mut self.filtered);
        self.correlate();
        self.sum_products();
        self.sum_power();
        let hit = self.judge();
        self.next += CHUNK as i64;
        let delayed = self
            .stages
            .iter_mut()
            .chain(&mut self.products)
            .chain(&mut self.powers);
        delayed.chain(&mut self.window).for_each(Delayed::roll);
        self.correlation.roll();
        self.all_products.roll();
        self.magnitude.roll();
        hit
    }

    fn correlate(&mut self) {
        let level = self.level;
        self.straight[0].copy_from_slice(&self.filtered);
        self.stages[0].new_values().copy_from_slice(&self.filtered);
        for (i, (delay, weight)) in GOLAY_DELAYS.iter().zip(GOLAY_WEIGHTS).enumerate() {
            let (done, later) = self.stages.split_at_mut(i + 1);
            let [from, to] = &mut self.straight;
            let (from, to) = if i % 2 == 0 { (from, to) } else { (to, from) };
            let difference = match later.first_mut() {
                Some(next) => next.new_values(),
                None => self.correlation.new_values(),
            };
            let b = done[i].delayed(6 * delay);
            simd::golay_stage(level, f32::from(weight), from, b, to, difference);
        }
    }

    fn sum_products(&mut self) {
        let (level, period) = (self.level, PERIOD as usize);
        let (now, before) = (
            self.correlation.delayed(0),
            self.correlation.delayed(2 * period),
        );
        // Each C is a sum over a sequence's symbols, of which the mean is wanted.
        let scale = 1.0 / (GOLAY_LENGTH * GOLAY_LENGTH) as f32;
        simd::conjugate_product(level, scale, now, before, self.products[0].new_values());
        doubled(
            level,
            2 * period,
            &mut self.products,
            self.all_products.new_values(),
        );
    }

    fn sum_power(&mut self) {
        let (level, period) = (self.level, PERIOD as usize);
        simd::power(level, &self.filtered, self.powers[0].new_values());
        doubled(level, period, &mut self.powers, self.window[0].new_values());
        // 1 + 1, and the same delayed by 1 more: 3; then 6, 12, 24, 48, 96.
        let last = self.window.len() - 1;
        for i in 0..last {
            let (done, later) = self.window.split_at_mut(i + 1);
            let delay = if i == 1 { 1 } else { done[i].kept };
            let other = if i == 1 {
                done[0].delayed(0)
            } else {
                done[i].delayed(0)
            };
            simd::add(level, other, done[i].delayed(delay), later[0].new_values());
        }
        let (now, before) = (self.window[last].delayed(0), self.window[last].delayed(48));
        simd::add(level, now, before, &mut self.window_power);
    }

    /// Looks for a crossing, and behind it for the largest value.
    fn judge(&mut self) -> Option<Hit> {
        simd::power(
            self.level,
            self.all_products.delayed(0),
            self.magnitude.new_values(),
        );
        // |D| / 16 against T · P, P being the sum over 16 · 96 samples by that number.
        let scale = THRESHOLD / PERIOD as f32;
        let scale = scale * scale;
        let first = (self.origin + SETTLE - self.next).max(0);
        if self.candidate.is_none() && first < CHUNK as i64 {
            let first = first as usize;
            let magnitude = &self.magnitude.delayed(0)[first..];
            let crossing =
                simd::first_above(self.level, scale, magnitude, &self.window_power[first..])?;
            let until = self.next + (first + crossing) as i64 + LOOK;
            self.candidate = Some(Candidate {
                until,
                largest: 0.0,
                hit: None,
            });
        }
        let candidate = self.candidate.as_mut()?;
        let crossed = candidate.until - LOOK;
        let magnitude = &self.magnitude.values;
        for i in 0..CHUNK {
            // Values at i are those of one sample earlier, so that both neighbours are known.
            let n = self.next + i as i64 - 1;
            if n < crossed || n > candidate.until || magnitude[i + 1] <= candidate.largest {
                continue;
            }
            candidate.largest = magnitude[i + 1];
            let [before, peak, after] =
                [magnitude[i], magnitude[i + 1], magnitude[i + 2]].map(|m| f64::from(m).sqrt());
            let d = &self.all_products.values[2 * i..2 * i + 2];
            candidate.hit = Some(Hit {
                peak: n,
                fraction: (OFFSET_FACTOR * (after - before) / peak).clamp(-0.5, 0.5),
                frequency: f64::from(d[1]).atan2(f64::from(d[0])) / GOLAY_LENGTH as f64,
                strength: peak / PRODUCTS as f64,
            });
        }
        if self.next + CHUNK as i64 - 2 < candidate.until {
            return None;
        }
        let hit = candidate.hit;
        self.candidate = None;
        hit.filter(|hit| hit.frequency.abs() <= PI / GOLAY_LENGTH as f64)
    }
}

/// Sums of 16 values `period` apart, by way of sums of 2, 4 and 8.
fn doubled(level: Level, period: usize, sums: &mut [Delayed], all: &mut [f32]) {
    let last = sums.len() - 1;
    for i in 0..last {
        let (done, later) = sums.split_at_mut(i + 1);
        let (now, before) = (done[i].delayed(0), done[i].delayed(period << i));
        simd::add(level, now, before, later[0].new_values());
    }
    let (now, before) = (sums[last].delayed(0), sums[last].delayed(period << last));
    simd::add(level, now, before, all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::tests::{frame, stream};
    use crate::waveform::{
        Modulation, ROLL_OFF, RRC_SPAN, STF_REPETITIONS, golay_pair, rrc, rrc_value,
    };

    /// Chunks of a clean frame, of which the first sample is sample 0.
    fn search(each: impl FnMut(&mut Search, Option<Hit>)) {
        let mut each = each;
        let mut values = vec![0.0; 2 * REACH];
        for x in stream(&[frame(Modulation::Qpsk, 1)], 0, 24) {
            values.extend([x.re, x.im]);
        }
        let mut search = Search::new(Level::detect());
        search.restart(0);
        while let Some(chunk) = {
            let (from, to) = search.needs();
            let at = |n: i64| 2 * (n + REACH as i64) as usize;
            values.get(at(from)..at(to)).map(<[f32]>::to_vec)
        } {
            let correlation = &mut search;
            let hit = correlation.chunk(&chunk);
            each(&mut search, hit);
        }
    }

    #[test]
    fn the_correlator_has_the_golden_peaks() {
        let mut correlation = Vec::new();
        search(|search, _| {
            // Rolling leaves the chunk's values where they were.
            let chunk = &search.correlation.values[search.correlation.kept..];
            let of_symbol = |c: &[f32; 2]| {
                f64::from(c[0]).hypot(f64::from(c[1])) / (GOLAY_LENGTH as f64 * 3f64.sqrt())
            };
            correlation.extend(chunk.as_chunks::<2>().0.iter().map(of_symbol));
        });
        for r in 0..STF_REPETITIONS {
            let n = REACH + (BLOCK_SPAN + PERIOD * r as i64) as usize;
            let golden =
                |n: usize, value: f64, within: f64| (correlation[n] - value).abs() < within;
            assert!(golden(n, 1.0, 2e-3), "{r}: {}", correlation[n]);
            // Less beside the first and the last: other neighbours than Gb.
            let inner = (1..STF_REPETITIONS - 1).contains(&r);
            let within = if inner { 0.006 } else { 0.03 };
            for beside in [n - 1, n + 1] {
                assert!(golden(beside, 0.81, within), "{r}: {}", correlation[beside]);
            }
        }
    }

    /// |C|² of a field without ends, at `t` samples from a peak: by the pulse's formula, the
    /// matched filter and the sequence.
    fn squared_correlation(t: f64) -> f64 {
        let matched = rrc(ROLL_OFF, RRC_SPAN, SAMPLES_PER_SYMBOL);
        let reach = REACH as f64 + 0.5;
        let pair = |t: f64| -> f64 {
            let pulse = |t: f64| match t.abs() <= reach {
                true => rrc_value(ROLL_OFF, t / SAMPLES_PER_SYMBOL as f64),
                false => 0.0,
            };
            let places = (0..).map(|i| f64::from(i) - REACH as f64);
            let filtered = matched.iter().zip(places);
            filtered.map(|(tap, at)| tap * pulse(at + t)).sum()
        };
        let gb = golay_pair().1.map(f64::from);
        let field = |k: usize| -> f64 {
            let shifted = gb.iter().cycle().skip(k);
            gb.iter().zip(shifted).map(|(a, b)| a * b).sum()
        };
        let half = GOLAY_LENGTH as i64 / 2;
        let symbols = (-half..half).map(|k| {
            let at = t + (SAMPLES_PER_SYMBOL as i64 * k) as f64;
            field(k.rem_euclid(2 * half) as usize) * pair(at)
        });
        symbols.sum::<f64>().powi(2)
    }

    #[test]
    fn the_offset_of_a_peak_is_that_of_the_pulse() {
        let offset = |late: f64| {
            let [before, peak, after] =
                [-1.0, 0.0, 1.0].map(|sample| squared_correlation(sample - late));
            OFFSET_FACTOR * (after - before) / peak
        };
        for late in [0.5, -0.5] {
            assert!((offset(late) - late).abs() < 5e-4, "{}", offset(late));
        }
        for late in (-10..=10).map(|step| f64::from(step) / 20.0) {
            assert!((offset(late) - late).abs() < 0.0065, "{}", offset(late));
        }
    }

    /// Again behind each find, as nobody begins the search anew here.
    #[test]
    fn a_clean_field_is_found_at_its_place() {
        let mut hits = Vec::new();
        search(|_, hit| hits.extend(hit));
        let first_peak = REACH as i64 + BLOCK_SPAN;
        let repetition = |hit: &Hit| (hit.peak - first_peak) / PERIOD;
        hits.retain(|hit| repetition(hit) < STF_REPETITIONS as i64);
        // Windows are full from its 18th repetition on, and then one looks as far as to the 34th.
        let first = hits.first().map(repetition).expect("a hit");
        assert!(
            (PRODUCTS + 1..=2 * PRODUCTS + 1).contains(&first),
            "{first}"
        );
        for hit in hits {
            assert_eq!((hit.peak - first_peak) % PERIOD, 0);
            assert!(hit.fraction.abs() < 0.02 && hit.frequency.abs() < 1e-3);
            // Power of a symbol behind the filter.
            assert!((hit.strength - 3.0).abs() < 0.05, "{}", hit.strength);
        }
    }
}

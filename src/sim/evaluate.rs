//! Samples of signals: each a function of the sample index, so nothing but noise is ever stored.

use std::collections::HashMap;
use std::f64::consts::TAU;

use ground::StopFlag;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::signal::{Operator, Term};

/// Noise is made in blocks of this many samples, each from its own stream of the generator.
const NOISE_BLOCK: usize = 4096;

/// Evaluates signals that repeat every `period` samples.
pub struct Evaluator {
    period: u64,
    adc_sample_rate: f64,
    /// By seed, the block made last.
    noise: HashMap<u64, (u64, Vec<f64>)>,
    /// Leaves tones out from then on: those of one heap may take minutes.
    stop: StopFlag,
}

impl Evaluator {
    /// `period` is in samples, positive and less than 2³²; `adc_sample_rate` in hertz.
    /// What it writes after `stop` is of no use.
    pub fn new(period: u64, adc_sample_rate: f64, stop: StopFlag) -> Self {
        assert!(period > 0 && period < 1 << 32, "period {period}");
        Self {
            period,
            adc_sample_rate,
            noise: HashMap::new(),
            stop,
        }
    }

    /// Writes the samples from index `start` on.
    pub fn evaluate(&mut self, term: &Term, start: u64, out: &mut [f64]) {
        match term {
            Term::Constant(value) => out.fill(*value),
            Term::Cw {
                amplitude,
                frequency,
            } => {
                out.fill(0.0);
                self.add_tone(*amplitude, *frequency, start, out);
            }
            Term::MultiCw {
                tones,
                amplitude,
                frequency,
            } => {
                out.fill(0.0);
                for tone in (0..*tones).take_while(|_| !self.stop.is_set()) {
                    let tone = tone as f64;
                    let amplitude = amplitude.0 + tone * amplitude.1;
                    self.add_tone(amplitude, frequency.0 + tone * frequency.1, start, out);
                }
            }
            Term::Comb {
                amplitude,
                frequency,
            } => {
                let impulses = self.cycles(*frequency);
                for (i, value) in self.indices(start).zip(out) {
                    *value = if is_impulse(i, impulses, self.period) {
                        *amplitude
                    } else {
                        0.0
                    };
                }
            }
            Term::Wgn { std, seed } => self.noise(*std, *seed, start, out),
            Term::Delay(term, samples) => {
                let back = samples.rem_euclid(self.period as i64) as u64;
                self.evaluate(term, start % self.period + self.period - back, out);
            }
            Term::Combine(operator, a, b) => {
                self.evaluate(a, start, out);
                let mut right = vec![0.0; out.len()];
                self.evaluate(b, start, &mut right);
                for (left, right) in out.iter_mut().zip(right) {
                    match operator {
                        Operator::Add => *left += right,
                        Operator::Subtract => *left -= right,
                        Operator::Multiply => *left *= right,
                    }
                }
            }
        }
    }

    /// Indices within the period, from `start` on.
    fn indices(&self, start: u64) -> impl Iterator<Item = u64> + use<> {
        let period = self.period;
        (start % period..period).chain((0..period).cycle())
    }

    /// Whole cycles per period, at least one.
    fn cycles(&self, frequency: f64) -> u64 {
        let cycles = self.period as f64 * frequency / self.adc_sample_rate;
        cycles.round_ties_even().max(1.0) as u64
    }

    fn add_tone(&self, amplitude: f64, frequency: f64, start: u64, out: &mut [f64]) {
        let cycles = self.cycles(frequency) % self.period;
        let unit = TAU / self.period as f64;
        // The phase is counted in integers, so it does not drift.
        let mut phase = (start % self.period) * cycles % self.period;
        for value in out {
            *value += amplitude * (unit * phase as f64).cos();
            phase += cycles;
            if phase >= self.period {
                phase -= self.period;
            }
        }
    }

    fn noise(&mut self, std: f64, seed: u64, start: u64, out: &mut [f64]) {
        let mut index = start % self.period;
        let mut rest = out;
        while !rest.is_empty() {
            let (block, at) = (index / NOISE_BLOCK as u64, index as usize % NOISE_BLOCK);
            let len = (NOISE_BLOCK - at)
                .min(rest.len())
                .min((self.period - index) as usize);
            let (head, tail) = rest.split_at_mut(len);
            let (held, samples) = self.noise.entry(seed).or_insert((u64::MAX, Vec::new()));
            if *held != block {
                let mut generator = ChaCha8Rng::seed_from_u64(seed);
                generator.set_stream(block);
                *samples = StandardNormal
                    .sample_iter(generator)
                    .take(NOISE_BLOCK)
                    .collect();
                *held = block;
            }
            for (value, sample) in head.iter_mut().zip(&samples[at..]) {
                *value = std * sample;
            }
            index = (index + len as u64) % self.period;
            rest = tail;
        }
    }
}

/// Whether index i is round(k·n/w) modulo n for some k < w.
fn is_impulse(i: u64, w: u64, n: u64) -> bool {
    if w >= n {
        return true;
    }
    // w < n, so impulses are at least one sample apart and only the nearest k can be at i; k = w is
    // k = 0 of the next period.
    let (i, w, n) = (u128::from(i), u128::from(w), u128::from(n));
    let near = i * w / n;
    (near..=near + 1).any(|k| {
        let (quotient, remainder) = (k * n / w, k * n % w);
        let up = 2 * remainder > w || 2 * remainder == w && quotient % 2 == 1;
        (quotient + u128::from(up)) % n == i
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::parse;

    const RATE: f64 = 1e9;

    fn samples(program: &str, period: u64) -> Vec<Vec<f64>> {
        let mut evaluator = Evaluator::new(period, RATE, StopFlag::default());
        let signals = parse(program, || 0).unwrap();
        signals
            .iter()
            .map(|signal| {
                let mut out = vec![f64::NAN; period as usize];
                // In uneven pieces, which must not show.
                for (piece, out) in out.chunks_mut(777).enumerate() {
                    evaluator.evaluate(&signal.term, 777 * piece as u64, out);
                }
                out
            })
            .collect()
    }

    #[test]
    fn tone_has_a_whole_number_of_cycles() {
        // 10⁴·123456789/10⁹ is 1234.56789 cycles.
        let out = &samples("cw(3, 123456789);", 10_000)[0];
        for (i, value) in out.iter().enumerate() {
            let expected = 3.0 * (TAU * 1235.0 * i as f64 / 1e4).cos();
            assert!((value - expected).abs() < 3e-6, "{i}: {value} {expected}");
        }
        // Far below a cycle per period it is still one cycle.
        let out = &samples("cw(1, 1);", 100)[0];
        assert!((out[50] + 1.0).abs() < 1e-12);
    }

    #[test]
    fn tones_in_progression() {
        let both = samples(
            "multicw(3, 1, 0.5, 1e8, 2.0e7); cw(1, 1e8) + cw(1.5, 1.2e8) + cw(2, 1.4e8);",
            10_000,
        );
        for (a, b) in both[0].iter().zip(&both[1]) {
            assert!((a - b).abs() < 1e-6);
        }
    }

    #[test]
    fn comb_is_exact() {
        for (frequency, impulses) in [
            (3.0e6, 30),
            (7.1e6, 71),
            (1e8, 1000),
            (3e8, 3000),
            (9.9e8, 9900),
        ] {
            let out = &samples(&format!("comb(2, {frequency});"), 10_000)[0];
            let mut expected = vec![0.0; 10_000];
            for k in 0..impulses {
                expected[(f64::from(k) * 1e4 / f64::from(impulses)).round_ties_even() as usize
                    % 10_000] = 2.0;
            }
            assert_eq!(*out, expected, "{frequency}");
        }
    }

    #[test]
    fn noise_is_gaussian_and_follows_its_seed() {
        let out = samples("wgn(3, 1); wgn(6, 1); wgn(3, 2);", 10_000);
        let mean = out[0].iter().sum::<f64>() / 1e4;
        let squares: f64 = out[0].iter().map(|v| v * v).sum();
        assert!(mean.abs() < 0.15, "{mean}");
        assert!((84079.0..96180.0).contains(&squares), "{squares}");
        for (a, b) in out[0].iter().zip(&out[1]) {
            assert_eq!(2.0 * a, *b);
        }
        let correlation: f64 = out[0].iter().zip(&out[2]).map(|(a, b)| a * b / 9e4).sum();
        assert!(correlation.abs() < 0.3, "{correlation}");
    }

    #[test]
    fn delay_is_circular() {
        let out = samples(
            "n = wgn(1, 9); n; delay(n, 50); delay(n, 100050); delay(n, -99950); delay(n, -50);",
            100_000,
        );
        for i in 0..100_000 {
            let expected = out[0][(i + 99_950) % 100_000];
            assert_eq!([out[1][i], out[2][i], out[3][i]], [expected; 3]);
            assert_eq!(out[4][i], out[0][(i + 50) % 100_000]);
        }
    }

    #[test]
    fn operators_work_by_sample() {
        let out = samples("wgn(1, 1); wgn(1, 2); wgn(1, 1) - wgn(1, 2) * 3 + 1;", 5000);
        for ((a, b), c) in out[0].iter().zip(&out[1]).zip(&out[2]) {
            assert_eq!(*c, a - b * 3.0 + 1.0);
        }
    }
}

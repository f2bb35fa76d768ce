//! Rayleigh fading with the spectrum of Jakes.

use std::f64::consts::TAU;

use num_complex::Complex64;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::paths::Path;
use super::settings::Fading;

/// Waves that a path is made of.
const WAVES: usize = 32;
/// The most samples between two exact gains.
const STRIDE: u64 = 64;
/// The most that the fastest wave turns between two exact gains, in radians. Between them the gain
/// is a straight line, which errs by less than 0.1²/8 of it: −58 dB.
const TURN: f64 = 0.1;

/// Gains of paths over time: for each the sum of 32 waves that come from everywhere,
/// h(n) = √(P/32) Σₘ e^{j 2π (f cos αₘ n + φₘ)}, with αₘ spread evenly about a random start and φₘ
/// random. Its autocorrelation is P J₀(2π f n) in the mean [W. C. Jakes, *Microwave Mobile
/// Communications*, 1974, 1.7; Y. R. Zheng, C. Xiao, IEEE Trans. Commun. 51(6), 2003].
#[derive(Clone, Debug)]
pub(super) struct FadingGains {
    waves: Vec<[(f64, f64); WAVES]>,
    amplitudes: Vec<f64>,
    /// Samples of a stride.
    length: u64,
    /// Gains at both ends of a stride, and the stride's number.
    ends: Vec<[Complex64; 2]>,
    stride: Option<u64>,
    next: u64,
}

impl FadingGains {
    pub(super) fn new(fading: Fading, paths: &[Path], mut random: ChaCha8Rng) -> FadingGains {
        let mut wave = || {
            let start: f64 = random.random();
            let waves: [(f64, f64); WAVES] = std::array::from_fn(|m| {
                let angle = TAU * (m as f64 + start) / WAVES as f64;
                (fading.doppler * angle.cos(), random.random())
            });
            waves
        };
        // A cast of what is infinite is the largest integer.
        let length = (TURN / (TAU * fading.doppler)) as u64;
        FadingGains {
            length: length.clamp(1, STRIDE),
            waves: paths.iter().map(|_| wave()).collect(),
            amplitudes: paths.iter().map(|p| p.gain.norm()).collect(),
            ends: vec![[Complex64::default(); 2]; paths.len()],
            stride: None,
            next: 0,
        }
    }

    fn exact(&self, path: usize, sample: u64) -> Complex64 {
        let waves = self.waves[path].iter();
        let sum: Complex64 = waves
            .map(|(frequency, phase)| {
                let turns = (frequency * sample as f64).fract() + phase;
                Complex64::cis(TAU * turns)
            })
            .sum();
        sum * self.amplitudes[path] / (WAVES as f64).sqrt()
    }

    /// The gain of `path`, `n` samples after the last [`FadingGains::advance`].
    pub(super) fn gain(&mut self, path: usize, n: usize) -> Complex64 {
        let sample = self.next + n as u64;
        let stride = sample / self.length;
        if self.stride != Some(stride) {
            let goes_on = stride > 0 && self.stride == Some(stride - 1);
            self.stride = Some(stride);
            for path in 0..self.ends.len() {
                let begin = match goes_on {
                    true => self.ends[path][1],
                    false => self.exact(path, stride * self.length),
                };
                self.ends[path] = [begin, self.exact(path, (stride + 1) * self.length)];
            }
        }
        let share = (sample % self.length) as f64 / self.length as f64;
        let [begin, end] = self.ends[path];
        begin + (end - begin) * share
    }

    /// Goes on by `samples`.
    pub(super) fn advance(&mut self, samples: usize) {
        self.next += samples as u64;
    }
}

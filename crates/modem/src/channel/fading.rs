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
/// Strides that share one exact phasor of each wave, where strides are shorter than the longest.
const TURNS: usize = 64;
/// The most that the fastest wave turns between two exact gains, in radians. Between them the gain
/// is a straight line, which errs by less than 0.1²/8 of it: −58 dB.
const TURN: f64 = 0.1;

/// A wave, by its turns per sample and its phase in turns, at a sample.
fn phasor((frequency, phase): &(f64, f64), sample: u64) -> Complex64 {
    let turns = (frequency * sample as f64).fract() + phase;
    Complex64::cis(TAU * turns)
}

/// Phasors of a path's waves, for strides that are too short for a sine and a cosine of each.
#[derive(Clone, Debug)]
struct Turns {
    /// How far each wave turns in 0, 1, … strides.
    by_strides: Vec<[Complex64; WAVES]>,
    /// Exact phasors, and the number of the strides that share them.
    base: [Complex64; WAVES],
    number: Option<u64>,
}

impl Turns {
    fn new(waves: &[(f64, f64); WAVES], length: u64) -> Turns {
        let turned = |strides: usize| {
            let sample = strides as u64 * length;
            waves.map(|(frequency, _)| phasor(&(frequency, 0.0), sample))
        };
        Turns {
            by_strides: (0..TURNS).map(turned).collect(),
            base: [Complex64::default(); WAVES],
            number: None,
        }
    }

    /// The sum of all waves where a stride of `length` samples begins.
    fn sum(&mut self, waves: &[(f64, f64); WAVES], stride: u64, length: u64) -> Complex64 {
        let number = stride / TURNS as u64;
        if self.number != Some(number) {
            self.number = Some(number);
            let sample = number * TURNS as u64 * length;
            self.base = std::array::from_fn(|m| phasor(&waves[m], sample));
        }
        let turned = &self.by_strides[(stride % TURNS as u64) as usize];
        self.base.iter().zip(turned).map(|(a, b)| a * b).sum()
    }
}

/// Gains of paths over time: for each the sum of 32 waves that come from everywhere,
/// h(n) = √(P/32) Σₘ e^{j 2π (f cos αₘ n + φₘ)}, with αₘ spread evenly about a random start and φₘ
/// random. Its autocorrelation is P J₀(2π f n) in the mean [W. C. Jakes, *Microwave Mobile
/// Communications*, 1974, 1.7; Y. R. Zheng, C. Xiao, IEEE Trans. Commun. 51(6), 2003].
#[derive(Clone, Debug)]
pub(super) struct FadingGains {
    waves: Vec<[(f64, f64); WAVES]>,
    amplitudes: Vec<f64>,
    /// For each path, if strides are shorter than the longest.
    turns: Vec<Turns>,
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
        let length = length.clamp(1, STRIDE);
        let waves: Vec<_> = paths.iter().map(|_| wave()).collect();
        let short = waves.iter().filter(|_| length < STRIDE);
        FadingGains {
            length,
            turns: short.map(|waves| Turns::new(waves, length)).collect(),
            waves,
            amplitudes: paths.iter().map(|p| p.gain.norm()).collect(),
            ends: vec![[Complex64::default(); 2]; paths.len()],
            stride: None,
            next: 0,
        }
    }

    /// The exact gain of `path` where a stride begins.
    fn exact(&mut self, path: usize, stride: u64) -> Complex64 {
        let (waves, sample) = (&self.waves[path], stride * self.length);
        let sum: Complex64 = match self.turns.get_mut(path) {
            None => waves.iter().map(|wave| phasor(wave, sample)).sum(),
            Some(turns) => turns.sum(waves, stride, self.length),
        };
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
                    false => self.exact(path, stride),
                };
                self.ends[path] = [begin, self.exact(path, stride + 1)];
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Beside sines and cosines of each wave, far into a stream and in whatever order.
    #[test]
    fn waves_of_short_strides_are_exact() {
        let path = Path {
            delay: 0,
            gain: Complex64::ONE,
        };
        for (doppler, is_short) in [(2.4e-4, false), (2.5e-4, true), (1e-3, true), (1e-2, true)] {
            let random = ChaCha8Rng::seed_from_u64(7);
            let mut gains = FadingGains::new(Fading { doppler }, &[path], random);
            assert_eq!(gains.turns.len() == 1, is_short, "{doppler}");
            let strides = (0..200).chain([1_000_000_063, 1_000_000_064, 5]);
            for stride in strides {
                let sample = stride * gains.length;
                let waves = gains.waves[0].iter();
                let sum: Complex64 = waves.map(|wave| phasor(wave, sample)).sum();
                let exact = sum / (WAVES as f64).sqrt();
                let off = (gains.exact(0, stride) - exact).norm();
                assert!(off < 1e-6, "{doppler} {stride} {off}");
            }
        }
    }
}

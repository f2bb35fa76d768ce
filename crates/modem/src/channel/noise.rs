//! White Gaussian noise.

use num_complex::Complex64;
use rand::distr::Distribution;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Complex Gaussian noise of a mean power, the same in both parts.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    /// Standard deviation of each part.
    deviation: f64,
    random: ChaCha8Rng,
}

impl Noise {
    pub(super) fn new(snr_db: f64, random: ChaCha8Rng) -> Noise {
        let power = 10f64.powf(-snr_db / 10.0);
        Noise {
            deviation: (power / 2.0).sqrt(),
            random,
        }
    }

    pub(super) fn apply(&mut self, samples: &mut [Complex64]) {
        for sample in samples {
            let mut normal = || -> f64 { StandardNormal.sample(&mut self.random) };
            let (re, im) = (normal(), normal());
            *sample += Complex64::new(re, im) * self.deviation;
        }
    }
}

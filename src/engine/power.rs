//! Power of the digitiser.

use dsp::SampleBits;
use dsp::power::{self, PowerWindow};
use ground::{N_POL, Timestamp};

use super::steer::PowerLevel;
use crate::config::{EngineConfig, OutputConfig};

/// Digitiser power over windows of about a second.
pub(super) struct Power {
    bits: SampleBits,
    windows: [PowerWindow; N_POL],
}

impl Power {
    pub fn new(config: &EngineConfig, output: &OutputConfig) -> Self {
        let rate = config.clock.adc_sample_rate;
        let length = power::window_samples(1.0, rate, output.batch_samples() as u64);
        Self {
            bits: config.recv.sample_bits,
            windows: [0; N_POL].map(|_| PowerWindow::new(length)),
        }
    }

    /// Adds a batch, without sums if input was missing. The level of a window that it ends, if it
    /// does.
    pub fn add(
        &mut self,
        start: Timestamp,
        samples: u64,
        sums: Option<[u64; N_POL]>,
    ) -> Option<PowerLevel> {
        let length = self.windows[0].length();
        let add = |pol: usize| self.windows[pol].add(start, samples, sums.map(|sums| sums[pol]));
        let [x, y] = [0, 1].map(add);
        let (x, y) = (x?, y?);
        let level = |power| power::dbfs(power, length, self.bits);
        Some(PowerLevel {
            end: x.end,
            dbfs: x.power.zip(y.power).map(|(x, y)| [level(x), level(y)]),
        })
    }
}

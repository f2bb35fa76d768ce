//! Gains of the channels of one polarisation.

use std::sync::Arc;

use num_complex::Complex32;

/// Gains that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GainError {
    /// Neither one for all channels nor one for each.
    #[error("{given} gains: there must be 1, for all channels, or {channels}, one per channel")]
    Count {
        /// How many there were.
        given: usize,
        /// Channels of the output.
        channels: usize,
    },
    /// A part is infinite, also if only in single precision, or not a number.
    #[error("gain {value} of channel {channel} must be finite in single precision: at most 3.4e38")]
    NotFinite {
        /// Channel of the gain, 0 if it is for all.
        channel: usize,
        /// What it was.
        value: Complex32,
    },
}

/// One complex gain per channel of one polarisation. All are finite. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Gains {
    /// One per channel.
    values: Arc<[Complex32]>,
    /// All channels have the same.
    uniform: bool,
}

impl Gains {
    /// Gains of `channels` channels: `values` are one for all of them or one for each.
    pub fn new(channels: usize, values: &[Complex32]) -> Result<Self, GainError> {
        let given = values.len();
        if given == 0 || given != 1 && given != channels {
            return Err(GainError::Count { given, channels });
        }
        if let Some(channel) = values.iter().position(|gain| !gain.is_finite()) {
            let value = values[channel];
            return Err(GainError::NotFinite { channel, value });
        }
        if values.iter().all(|gain| *gain == values[0]) {
            return Ok(Self::uniform(channels, values[0]));
        }
        Ok(Self {
            values: values.into(),
            uniform: false,
        })
    }

    /// The same gain on every channel. The caller sees to it that it is finite.
    pub fn uniform(channels: usize, gain: Complex32) -> Self {
        Self {
            values: std::iter::repeat_n(gain, channels).collect(),
            uniform: true,
        }
    }

    /// How many channels they are for.
    pub fn channels(&self) -> usize {
        self.values.len()
    }

    /// Whether nothing is left of any channel.
    pub fn are_zero(&self) -> bool {
        self.values().iter().all(|gain| *gain == Complex32::ZERO)
    }

    /// One value if all channels have the same, else one per channel: what `?gain` replies.
    pub fn values(&self) -> &[Complex32] {
        if self.uniform {
            &self.values[..1]
        } else {
            &self.values
        }
    }

    /// The gain of each channel.
    pub fn each(&self) -> &[Complex32] {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complex(re: f32, im: f32) -> Complex32 {
        Complex32::new(re, im)
    }

    #[test]
    fn one_for_all_or_one_for_each() {
        let two = [complex(1.0, 2.0), complex(3.0, 0.0)];
        let gains = Gains::new(2, &two).unwrap();
        assert_eq!((gains.values(), gains.each()), (&two[..], &two[..]));
        let gains = Gains::new(4, &two[..1]).unwrap();
        assert_eq!(
            (gains.values(), gains.each()),
            (&two[..1], &[two[0]; 4][..])
        );
        // Told as one, however they were given.
        assert_eq!(Gains::new(4, &[two[0]; 4]).unwrap(), gains);
        assert_eq!(
            Gains::new(4, &two),
            Err(GainError::Count {
                given: 2,
                channels: 4
            })
        );
        assert!(Gains::new(4, &[]).is_err());
    }

    #[test]
    fn gains_of_which_one_is_not_0_leave_something() {
        let of = |values: &[Complex32]| Gains::new(2, values).unwrap().are_zero();
        assert!(of(&[Complex32::ZERO]) && of(&[complex(-0.0, 0.0), Complex32::ZERO]));
        assert!(!of(&[Complex32::ZERO, complex(0.0, 1e-38)]) && !of(&[complex(1.0, 0.0)]));
    }

    #[test]
    fn every_gain_is_finite() {
        for bad in [
            complex(f32::NAN, 0.0),
            complex(0.0, f32::INFINITY),
            complex(1e39_f64 as f32, 0.0),
        ] {
            let error = Gains::new(2, &[complex(1.0, 0.0), bad]).unwrap_err();
            assert!(
                matches!(error, GainError::NotFinite { channel: 1, .. }),
                "{error}"
            );
        }
    }
}

//! The value of `--gain`.

use std::fmt;
use std::str::FromStr;

use dsp::level::LEAST_RMS;

/// What gains outputs begin with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GainOption {
    /// The same for all channels of all outputs.
    Fixed(f64),
    /// Made of the level of a capture, for each channel.
    Auto {
        /// Rms of real and imaginary parts to have, in counts; `None`: what is best for noise.
        rms: Option<f64>,
    },
}

/// A value that is no gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a number, auto, or auto:RMS with the rms that parts are to have, in counts, at least 0.1; try auto"
)]
pub struct GainOptionError;

impl FromStr for GainOption {
    type Err = GainOptionError;

    fn from_str(text: &str) -> Result<Self, GainOptionError> {
        if text == "auto" {
            return Ok(Self::Auto { rms: None });
        }
        if let Some(rms) = text.strip_prefix("auto:") {
            let rms: f64 = rms.parse().map_err(|_| GainOptionError)?;
            return match rms.is_finite() && rms >= LEAST_RMS {
                true => Ok(Self::Auto { rms: Some(rms) }),
                false => Err(GainOptionError),
            };
        }
        text.parse().map(Self::Fixed).map_err(|_| GainOptionError)
    }
}

impl fmt::Display for GainOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(gain) => gain.fmt(f),
            Self::Auto { rms: None } => f.write_str("auto"),
            Self::Auto { rms: Some(rms) } => write!(f, "auto:{rms}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_numbers_or_made() {
        for (text, value) in [
            ("0.05", GainOption::Fixed(0.05)),
            ("-2", GainOption::Fixed(-2.0)),
            ("auto", GainOption::Auto { rms: None }),
            ("auto:12.5", GainOption::Auto { rms: Some(12.5) }),
        ] {
            assert_eq!(text.parse(), Ok(value));
            assert_eq!(value.to_string(), text);
        }
        for text in [
            "",
            "Auto",
            "auto:",
            "auto:-1",
            "auto:nan",
            "auto:0",
            "auto:1e-300",
            "1x",
        ] {
            assert_eq!(text.parse::<GainOption>(), Err(GainOptionError), "{text}");
        }
    }
}

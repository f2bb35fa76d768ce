//! The value of `karoo sink`'s `--synthesis`: which filter bank is to be inverted.

use std::str::FromStr;

use dsp::{Oversampling, pfb};

use super::ConfigError;
use super::outputs::MAX_DECIMATION;
use super::prototype::PrototypeOptions;
use super::suboptions::{Key, SubOptions, key};

/// What `--synthesis` says: keys of the output, as the engine was given them, and its gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SynthesisOptions {
    /// The filter.
    pub prototype: PrototypeOptions,
    /// Of a narrowband output, by how much its band is narrower (D).
    pub decimation: Option<usize>,
    /// Whether a narrowband output has a pass band, and thus all channels of its transform.
    pub whole: bool,
    /// By what the engine multiplied its spectra.
    pub gain: f64,
}

const OPTION: &str = "--synthesis";

const KEYS: [Key; 7] = [
    Key {
        example: Some("32/27"),
        ..key("oversampling", "M/N", "of the output [required]")
    },
    key("taps", "N", "of the output [16]"),
    key("w_cutoff", "X", "of the output [as the output's]"),
    key(
        "window_function",
        "hann|rect|kaiser",
        "of the output [kaiser]",
    ),
    key("decimation", "N", "of a narrowband output"),
    key(
        "pass_bandwidth",
        "HZ",
        "of a narrowband output that has one",
    ),
    key(
        "gain",
        "X",
        "of the engine, by which samples are divided [1]",
    ),
];

impl FromStr for SynthesisOptions {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut given = SubOptions::parse(OPTION, text, KEYS.iter())?;
        let decimation = |s: &str| {
            s.parse()
                .ok()
                .filter(|of| (1..=MAX_DECIMATION).contains(of))
        };
        let finite = |s: &str| {
            let value = s.parse().ok();
            value.filter(|value: &f64| value.is_finite() && *value != 0.0)
        };
        let options = Self {
            prototype: PrototypeOptions::take(&mut given)?,
            decimation: given.optional("decimation", "from 1 to 1024", "8", decimation)?,
            whole: given
                .optional("pass_bandwidth", "hertz", "53.5M", |s| Some(!s.is_empty()))?
                .unwrap_or(false),
            gain: given
                .optional("gain", "a number other than 0", "1", finite)?
                .unwrap_or(1.0),
        };
        if options.whole && options.decimation.is_none() {
            let rule = "is of narrowband outputs, which have a decimation as well";
            let option = format!("{OPTION} pass_bandwidth");
            return Err(ConfigError::new(option, "alone", rule, "add decimation=8"));
        }
        if options.prototype.oversampling.is_none() {
            let rule = "must be more than 1: no other bank has an inverse";
            let (option, of) = (format!("{OPTION} oversampling"), Oversampling::NONE);
            return Err(ConfigError::new(option, of, rule, "try 32/27"));
        }
        let PrototypeOptions { taps, w_cutoff, .. } = options.prototype;
        if taps == 0 || taps > 256 {
            let option = format!("{OPTION} taps");
            return Err(ConfigError::new(option, taps, "must be 1 to 256", "try 16"));
        }
        if !(w_cutoff.is_finite() && w_cutoff >= 0.0) {
            let (option, rule) = (
                format!("{OPTION} w_cutoff"),
                "must be finite and not negative",
            );
            return Err(ConfigError::new(option, w_cutoff, rule, "try 1.0"));
        }
        Ok(options)
    }
}

impl SynthesisOptions {
    /// Points of the transform of an output with so many channels.
    pub fn points(&self, channels: usize) -> usize {
        match self.whole {
            true => channels,
            false => 2 * channels,
        }
    }

    /// ADC samples for each sample of the PFB's input.
    pub fn subsampling(&self) -> usize {
        match (self.decimation, self.whole) {
            (None, _) => 1,
            (Some(decimation), false) => decimation,
            (Some(decimation), true) => 2 * decimation,
        }
    }

    /// ADC samples from spectrum to spectrum.
    pub fn spectrum_samples(&self, channels: usize) -> usize {
        self.prototype.oversampling.hop(self.points(channels)) * self.subsampling()
    }

    /// Coefficients of the prototype filter.
    pub fn weights(&self, channels: usize) -> Vec<f32> {
        let PrototypeOptions {
            taps,
            w_cutoff,
            window_function,
            oversampling,
        } = self.prototype;
        pfb::prototype(
            self.points(channels),
            taps,
            w_cutoff,
            window_function,
            oversampling,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_output() {
        let parse = |text: &str| text.parse::<SynthesisOptions>();
        let wideband = parse("oversampling=32/27,gain=0.1").unwrap();
        assert_eq!(
            (wideband.points(64), wideband.spectrum_samples(64)),
            (128, 108)
        );
        assert_eq!((wideband.prototype.taps, wideband.gain), (16, 0.1));
        let discard = parse("oversampling=4/3,decimation=8").unwrap();
        assert_eq!(
            (discard.points(64), discard.spectrum_samples(64)),
            (128, 768)
        );
        let whole = parse("oversampling=4/3,decimation=8,pass_bandwidth=53.5M").unwrap();
        assert_eq!((whole.points(64), whole.spectrum_samples(64)), (64, 768));
    }

    #[test]
    fn refusals_name_the_key_and_a_way_out() {
        for (text, wanted) in [
            ("taps=16", "add oversampling=32/27"),
            ("oversampling=1/1", "no other bank has an inverse"),
            ("oversampling=4/3,pass_bandwidth=5M", "add decimation=8"),
            ("oversampling=4/3,taps=0", "try 16"),
            ("oversampling=4/3,gain=0", "try gain=1"),
            (
                "oversampling=4/3,decimation=9223372036854775808",
                "from 1 to 1024; try decimation=8",
            ),
            ("oversampling=4/3,w_cutoff=NaN", "try 1.0"),
            ("oversampling=4/3,channels=64", "is not a key"),
        ] {
            let said = text.parse::<SynthesisOptions>().unwrap_err().to_string();
            assert!(
                said.contains(wanted) && said.contains("--synthesis"),
                "{said}"
            );
        }
    }
}

//! The output that is measured.

use std::ops::Range;

use dsp::Dither;
use ground::SampleClock;

use super::chain::QualifyError;
use crate::config::{ConfigError, NarrowbandOptions, OutputConfig, WidebandOptions};

/// Spectra in a heap, unless the output says otherwise: fewer than the default, for short runs.
const SPECTRA: usize = 32;

/// An output, and what is known of it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `--wideband` or `--narrowband`.
    option: &'static str,
    /// Keys and values of the option.
    keys: Vec<(String, String)>,
    config: OutputConfig,
    rate: f64,
}

impl Subject {
    /// The output of `--wideband TEXT`, for samples of `clock`'s rate.
    pub fn wideband(text: &str, clock: SampleClock) -> Result<Self, ConfigError> {
        let options: WidebandOptions = text.parse()?;
        let batch = options.channels.saturating_mul(SPECTRA);
        let config = options.into_config(batch, 0);
        config.validate()?;
        Ok(Self::new("--wideband", text, config, clock))
    }

    /// The output of `--narrowband TEXT`, for samples of `clock`'s rate.
    pub fn narrowband(text: &str, clock: SampleClock) -> Result<Self, ConfigError> {
        let options: NarrowbandOptions = text.parse()?;
        let batch = options.common.channels.saturating_mul(SPECTRA);
        let config = options.into_config(batch, 0, clock)?;
        config.validate()?;
        Ok(Self::new("--narrowband", text, config, clock))
    }

    fn new(option: &'static str, text: &str, config: OutputConfig, clock: SampleClock) -> Self {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        let trim = |text: &str| text.trim().to_owned();
        let mut keys: Vec<_> = pairs.map(|(key, value)| (trim(key), trim(value))).collect();
        if !keys.iter().any(|(key, _)| key == "jones_per_batch") {
            keys.push((
                "jones_per_batch".to_owned(),
                config.jones_per_batch.to_string(),
            ));
        }
        let rate = clock.adc_sample_rate;
        Self {
            option,
            keys,
            config,
            rate,
        }
    }

    /// The option and its value, as commands take them.
    pub fn arguments(&self) -> [String; 2] {
        [self.option.to_owned(), self.text()]
    }

    /// The option's value.
    pub fn text(&self) -> String {
        let pairs = self
            .keys
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    }

    /// An error if these channels are fewer than a measurement takes.
    pub(super) fn check_channels(
        &self,
        channels: &[usize],
        needed: usize,
    ) -> Result<(), QualifyError> {
        if channels.len() >= needed {
            return Ok(());
        }
        Err(QualifyError::FewChannels {
            output: self.arguments().join(" "),
            channels: channels.len(),
            needed,
        })
    }

    /// The name of the stream.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Channels.
    pub fn channels(&self) -> usize {
        self.config.channels
    }

    /// Taps of the filter bank.
    pub fn taps(&self) -> usize {
        self.config.taps
    }

    /// Delay of all filters in samples, as sensors tell it: negative, for timestamps are those of
    /// first samples.
    pub fn group_delay(&self) -> f64 {
        self.config.pfb_group_delay() + self.config.ddc_group_delay()
    }

    /// Samples of the digitiser a second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Samples from one spectrum to the next.
    pub fn spectrum_samples(&self) -> u64 {
        self.config.spectrum_samples() as u64
    }

    /// Samples that so many spectra need, in whole batches.
    pub fn samples(&self, spectra: u64) -> u64 {
        let batch = self.config.batch_samples() as u64;
        let needed = spectra * self.spectrum_samples();
        needed.next_multiple_of(batch) + batch + self.config.window_samples() as u64
    }

    /// Width of a channel in hertz.
    pub fn width(&self) -> f64 {
        let band = self.config.band(self.rate);
        (band.end - band.start) / self.channels() as f64
    }

    /// Frequency in hertz of a channel's centre, or of a place between two.
    pub fn frequency(&self, channel: f64) -> f64 {
        self.config.band(self.rate).start + channel * self.width()
    }

    /// The frequency at which delays do not turn the phase.
    pub fn centre(&self) -> f64 {
        self.frequency(self.channels() as f64 / 2.0)
    }

    /// Channels that are to be right: without the one of 0 Hz, and of narrowband outputs those of
    /// the pass band, or four fifths of all.
    pub fn pass_band(&self) -> Range<usize> {
        let channels = self.channels();
        let Some(narrowband) = &self.config.narrowband else {
            return 1..channels;
        };
        let share = match narrowband.pass_bandwidth {
            Some(width) => width / (self.width() * channels as f64),
            None => 0.8,
        };
        let half = (channels as f64 * share / 2.0).floor() as usize;
        channels / 2 - half..channels / 2 + half + 1
    }

    /// Power of the noise that rounding to counts makes, and dither if there is any: for real and
    /// imaginary part a twelfth each.
    pub fn rounding_power(&self) -> f64 {
        match self.config.dither {
            Dither::None => 1.0 / 6.0,
            Dither::Uniform => 1.0 / 3.0,
        }
    }

    /// Whether it is narrowband.
    pub fn is_narrowband(&self) -> bool {
        self.config.narrowband.is_some()
    }

    /// Whether it is narrowband with a pass band that is told.
    pub fn has_pass_band(&self) -> bool {
        let narrowband = self.config.narrowband.as_ref();
        narrowband.is_some_and(|narrowband| narrowband.pass_bandwidth.is_some())
    }

    /// The subject with another value of a key.
    pub fn with(&self, key: &str, value: String) -> Self {
        let mut other = self.clone();
        for (name, old) in &mut other.keys {
            if name == key {
                old.clone_from(&value);
            }
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine would refuse them, after all the rest was made for it.
    #[test]
    fn outputs_that_no_engine_has_are_refused() {
        let clock = SampleClock {
            adc_sample_rate: 1712e6,
            sync_time: 0.0,
        };
        let wide = |keys: &str| Subject::wideband(&format!("name=w,dst=239.1.1.1,{keys}"), clock);
        assert!(wide("channels=64").is_ok());
        for (keys, key) in [
            ("channels=4", "channels"),
            ("channels=32", "channels"),
            ("channels=64,jones_per_batch=63", "jones_per_batch"),
        ] {
            let error = wide(keys).unwrap_err();
            assert!(error.option.contains(key), "{keys}: {error}");
        }
        let keys = "name=n,dst=239.1.1.1,centre_frequency=428M,decimation=8,channels=8";
        let error = Subject::narrowband(keys, clock).unwrap_err();
        assert!(error.option.contains("channels"), "{error}");
    }
}

//! What a channel does, checked as a whole.

use std::fmt;

use num_complex::Complex64;

use super::front_end::{Converter, IqImbalance};
use super::paths::Path;

/// Rayleigh fading of each path, in place of its fixed phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fading {
    /// Greatest Doppler frequency in cycles per sample.
    pub doppler: f64,
}

/// What a channel does. The default does nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelSettings {
    /// Gain in dB.
    pub gain_db: f64,
    /// Delay in samples, not negative.
    pub delay: f64,
    /// Error o of the sample clocks against each other, in parts per million: the delay grows by o
    /// samples per sample.
    pub clock_ppm: f64,
    /// Carrier frequency offset in cycles per sample.
    pub frequency: f64,
    /// Carrier phase at the first sample, in turns.
    pub phase: f64,
    /// Paths of the signal; none is one path without delay.
    pub paths: Vec<Path>,
    /// Fading of the paths.
    pub fading: Option<Fading>,
    /// Signal-to-noise ratio in dB: a signal power of 1 over the noise power in the whole sampled
    /// band. None adds no noise.
    pub snr_db: Option<f64>,
    /// Differences between the branches of the receiver's mixer.
    pub iq: IqImbalance,
    /// What the receiver adds to both parts.
    pub dc: Complex64,
    /// The receiver's converter; none leaves samples as they are.
    pub converter: Option<Converter>,
    /// Seed of noise and fading.
    pub seed: u64,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        ChannelSettings {
            gain_db: 0.0,
            delay: 0.0,
            clock_ppm: 0.0,
            frequency: 0.0,
            phase: 0.0,
            paths: Vec::new(),
            fading: None,
            snr_db: None,
            iq: IqImbalance::default(),
            dc: Complex64::default(),
            converter: None,
            seed: 0,
        }
    }
}

/// One of a channel's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// [`ChannelSettings::gain_db`].
    Gain,
    /// [`ChannelSettings::delay`].
    Delay,
    /// [`ChannelSettings::clock_ppm`].
    Clock,
    /// [`ChannelSettings::frequency`].
    Frequency,
    /// [`ChannelSettings::phase`].
    Phase,
    /// How many [`ChannelSettings::paths`] there are.
    Paths,
    /// The delay of a path.
    PathDelay,
    /// The gain of a path.
    PathGain,
    /// [`Fading::doppler`].
    Doppler,
    /// [`ChannelSettings::snr_db`].
    Snr,
    /// [`IqImbalance::gain_db`].
    IqGain,
    /// [`IqImbalance::phase_degrees`].
    IqPhase,
    /// [`ChannelSettings::dc`].
    Dc,
    /// [`Converter::bits`].
    Bits,
    /// [`Converter::full_scale`].
    FullScale,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Setting::Gain => "a gain",
            Setting::Delay => "a delay",
            Setting::Clock => "a clock error",
            Setting::Frequency => "a frequency offset",
            Setting::Phase => "a phase",
            Setting::Paths => "a number of paths",
            Setting::PathDelay => "a path's delay",
            Setting::PathGain => "a path's gain",
            Setting::Doppler => "a Doppler frequency",
            Setting::Snr => "a signal-to-noise ratio",
            Setting::IqGain => "an IQ gain",
            Setting::IqPhase => "an IQ phase",
            Setting::Dc => "a DC offset",
            Setting::Bits => "a number of bits",
            Setting::FullScale => "a full scale",
        })
    }
}

/// A setting that no channel can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{setting} of {value:?}: it must be {rule}")]
pub struct SettingError {
    /// What is set.
    pub setting: Setting,
    /// The value that is refused.
    pub value: f64,
    /// What it must be.
    pub rule: &'static str,
}

/// Refuses what lies outside `least..=most`, and what is no number.
pub(super) fn within(
    setting: Setting,
    value: f64,
    (least, most): (f64, f64),
    rule: &'static str,
) -> Result<(), SettingError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(SettingError {
            setting,
            value,
            rule,
        }),
    }
}

impl ChannelSettings {
    /// The first setting that no channel can have.
    pub fn check(&self) -> Result<(), SettingError> {
        const GAIN: &str = "-200 to 200 dB";
        within(Setting::Gain, self.gain_db, (-200.0, 200.0), GAIN)?;
        within(Setting::Delay, self.delay, (0.0, 1e6), "0 to 1e6 samples")?;
        let ppm = "-1000 to 1000 ppm";
        within(Setting::Clock, self.clock_ppm, (-1e3, 1e3), ppm)?;
        let cycles = "-0.5 to 0.5 cycles per sample";
        within(Setting::Frequency, self.frequency, (-0.5, 0.5), cycles)?;
        within(Setting::Phase, self.phase, (-1e6, 1e6), "-1e6 to 1e6 turns")?;
        let count = self.paths.len() as f64;
        within(Setting::Paths, count, (0.0, 64.0), "at most 64")?;
        self.paths.iter().try_for_each(Path::check)?;
        if let Some(fading) = self.fading {
            let rule = "0 to 0.01 cycles per sample";
            within(Setting::Doppler, fading.doppler, (0.0, 0.01), rule)?;
        }
        if let Some(snr) = self.snr_db {
            within(Setting::Snr, snr, (-200.0, 200.0), GAIN)?;
        }
        self.iq.check()?;
        for part in [self.dc.re, self.dc.im] {
            within(Setting::Dc, part, (-1e6, 1e6), "-1e6 to 1e6")?;
        }
        self.converter.as_ref().map_or(Ok(()), Converter::check)
    }
}

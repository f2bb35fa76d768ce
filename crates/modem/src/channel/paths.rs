//! Paths of the signal.

use std::fmt;
use std::str::FromStr;

use num_complex::Complex64;

use super::settings::{Setting, SettingError, within};
use crate::waveform::SAMPLES_PER_SYMBOL;

/// Most samples of delay that a path may have.
const MOST_DELAY: u32 = 1 << 20;

/// One path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Delay in samples.
    pub delay: u32,
    /// Gain; with fading, its magnitude is the root of the mean power.
    pub gain: Complex64,
}

impl Path {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let (delay, most) = (f64::from(self.delay), f64::from(MOST_DELAY));
        within(
            Setting::PathDelay,
            delay,
            (0.0, most),
            "at most 2^20 samples",
        )?;
        for part in [self.gain.re, self.gain.im] {
            within(Setting::PathGain, part, (-1e6, 1e6), "-1e6 to 1e6")?;
        }
        Ok(())
    }
}

/// Named sets of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// One path.
    None,
    /// Delays of 1, 3, 4 and 16 symbols with amplitudes of 0.7, 0.1, 0.2 and 0.
    Manual,
    /// COST 207, rural area, four paths: 0, 4, 8 and 12 symbols with 0, −2, −10 and −20 dB, and a
    /// power of 1 together.
    Cost207RaX4,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 3] = [Profile::None, Profile::Manual, Profile::Cost207RaX4];

    /// Name of the profile on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::None => "none",
            Profile::Manual => "manual",
            Profile::Cost207RaX4 => "cost207RAx4",
        }
    }

    /// Its paths where they fade: with a mean power of 1 together, by which the noise is meant.
    pub fn fading_paths(self) -> Vec<Path> {
        let mut paths = self.paths();
        let power: f64 = paths.iter().map(|path| path.gain.norm_sqr()).sum();
        // Those that have it already stay as they are, to the last bit.
        if (power - 1.0).abs() > 1e-9 {
            paths.iter_mut().for_each(|path| path.gain /= power.sqrt());
        }
        paths
    }

    /// Its paths; none for a single one.
    pub fn paths(self) -> Vec<Path> {
        let of_symbols = |symbols: u32, amplitude: f64| Path {
            delay: symbols * SAMPLES_PER_SYMBOL as u32,
            gain: amplitude.into(),
        };
        match self {
            Profile::None => Vec::new(),
            Profile::Manual => [(1, 0.7), (3, 0.1), (4, 0.2), (16, 0.0)]
                .map(|(symbols, amplitude)| of_symbols(symbols, amplitude))
                .to_vec(),
            Profile::Cost207RaX4 => {
                let decibels = [(0, 0.0), (4, -2.0), (8, -10.0), (12, -20.0)];
                let powers = decibels.map(|(symbols, db)| (symbols, 10f64.powf(db / 10.0)));
                let whole: f64 = powers.iter().map(|(_, power)| power).sum();
                powers
                    .map(|(symbols, power)| of_symbols(symbols, (power / whole).sqrt()))
                    .to_vec()
            }
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a profile: there are none, manual and cost207RAx4")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Profile, UnknownProfile> {
        let named = |profile: &Profile| profile.name() == text;
        let found = Profile::ALL.into_iter().find(named);
        found.ok_or_else(|| UnknownProfile(text.to_owned()))
    }
}

/// The last samples, as far back as the longest delay.
#[derive(Clone, Debug)]
pub(super) struct DelayLine {
    longest: usize,
    held: Vec<Complex64>,
}

impl DelayLine {
    pub(super) fn new(paths: &[Path]) -> DelayLine {
        let longest = paths.iter().map(|path| path.delay).max().unwrap_or(0) as usize;
        DelayLine {
            longest,
            held: vec![Complex64::default(); longest],
        }
    }

    /// Samples that the longest path is late.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Replaces each sample by the sum over paths of `gain(path, n)` times the sample of the path's
    /// delay before, where n counts from the first of `samples`.
    pub(super) fn apply(
        &mut self,
        paths: &[Path],
        samples: &mut [Complex64],
        mut gain: impl FnMut(usize, usize) -> Complex64,
    ) {
        self.held.extend_from_slice(samples);
        for (n, sample) in samples.iter_mut().enumerate() {
            *sample = Complex64::default();
            for (p, path) in paths.iter().enumerate() {
                *sample += gain(p, n) * self.held[self.longest + n - path.delay as usize];
            }
        }
        self.held.drain(..samples.len());
    }
}

//! The keys that say which filter bank an output has.

use dsp::{Oversampling, WindowFunction};

use super::ConfigError;
use super::suboptions::{SubOptions, choice};

/// What says which filter bank it is, besides the length of its transform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrototypeOptions {
    /// Taps.
    pub taps: usize,
    /// Scale of the filter's width.
    pub w_cutoff: f64,
    /// Window of the filter.
    pub window_function: WindowFunction,
    /// Spectra for each transform's length of time.
    pub oversampling: Oversampling,
}

impl PrototypeOptions {
    /// Takes the keys out of those that were given.
    pub(super) fn take(given: &mut SubOptions<'_>) -> Result<Self, ConfigError> {
        let taps = given
            .optional("taps", "a whole number", "16", |s| s.parse().ok())?
            .unwrap_or(16);
        let oversampling = given.optional(
            "oversampling",
            "M/N from 1/1 to 16/1, with whole numbers",
            "32/27",
            |s| s.parse().ok(),
        )?;
        let oversampling = oversampling.unwrap_or(Oversampling::NONE);
        let window_function =
            given.optional("window_function", "hann, rect or kaiser", "hann", choice)?;
        // Katgpucbf's, but for banks that it has not.
        let window_function = window_function.unwrap_or(match oversampling.is_none() {
            true => WindowFunction::Hann,
            false => WindowFunction::Kaiser,
        });
        let w_cutoff = given.optional("w_cutoff", "a number", "1.0", |s| s.parse().ok())?;
        Ok(Self {
            taps,
            w_cutoff: w_cutoff.unwrap_or_else(|| window_function.cutoff(taps, oversampling)),
            window_function,
            oversampling,
        })
    }
}

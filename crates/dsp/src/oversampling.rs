//! Oversampled filter banks: channels that come faster than they are wide.
//!
//! A bank of `step` points whose spectra are `hop` samples apart, hop = step·N/M, has channels that
//! are sampled M/N times as fast as their centres are apart. What folds onto a channel then comes
//! from beyond M/N − ½ of a channel's width from its centre, where the filter can have stopped.

use std::fmt;
use std::str::FromStr;

/// M/N in lowest terms: samples of a channel for each of its width. 1 is critical sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Oversampling {
    /// M.
    numerator: usize,
    /// N, M at most.
    denominator: usize,
}

/// A ratio that no bank has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be M/N with whole numbers, N at least 1 and M/N from 1 to {}",
    Oversampling::MOST
)]
pub struct OversamplingError;

impl Oversampling {
    /// Critical sampling.
    pub const NONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// The largest ratio.
    pub const MOST: usize = 16;

    /// M/N, brought to lowest terms.
    pub fn new(numerator: usize, denominator: usize) -> Result<Self, OversamplingError> {
        let most = denominator.saturating_mul(Self::MOST);
        if denominator == 0 || numerator < denominator || numerator > most {
            return Err(OversamplingError);
        }
        let mut common = (numerator, denominator);
        while common.1 > 0 {
            common = (common.1, common.0 % common.1);
        }
        Ok(Self {
            numerator: numerator / common.0,
            denominator: denominator / common.0,
        })
    }

    /// M.
    pub fn numerator(self) -> usize {
        self.numerator
    }

    /// N.
    pub fn denominator(self) -> usize {
        self.denominator
    }

    /// Whether spectra are a transform's length apart.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// M/N.
    pub fn ratio(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Samples from spectrum to spectrum of a bank of `step` points, rounded down where M does not
    /// divide them.
    pub fn hop(self, step: usize) -> usize {
        match self.is_none() {
            true => step,
            false => step / self.numerator * self.denominator,
        }
    }

    /// Where in the transform of `step` points the first sample of spectrum `number` (counted from
    /// time 0) belongs: number·hop mod step. Sample n of time goes to element n mod step, so that
    /// phases are those of a transform that began at time 0.
    pub fn rotation(self, step: usize, number: u64) -> usize {
        let m = self.numerator as u64;
        let turns = number % m * (self.denominator as u64 % m) % m;
        turns as usize * (step / self.numerator)
    }

    /// Distance from a channel's centre, in its widths, from which on what there is folds onto the
    /// channel: M/N − ½. Of critical sampling, whose channels fold at their edges, the next
    /// channel's centre.
    pub fn stop(self) -> f64 {
        match self.is_none() {
            true => 1.0,
            false => self.ratio() - 0.5,
        }
    }
}

impl Default for Oversampling {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for Oversampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

impl FromStr for Oversampling {
    type Err = OversamplingError;

    fn from_str(text: &str) -> Result<Self, OversamplingError> {
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let number = |text: &str| text.trim().parse().map_err(|_| OversamplingError);
        Self::new(number(numerator)?, number(denominator)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_in_lowest_terms_and_what_is_none_is_refused() {
        assert_eq!("64/54".parse(), Oversampling::new(32, 27));
        assert_eq!("2".parse(), Oversampling::new(2, 1));
        assert_eq!("5/5".parse(), Ok(Oversampling::NONE));
        for text in ["", "1/0", "27/32", "0/0", "17", "1.5", "-4/3", "4/3/2", "x"] {
            assert_eq!(
                text.parse::<Oversampling>(),
                Err(OversamplingError),
                "{text}"
            );
        }
        assert_eq!(
            Oversampling::new(32, 27).map(|o| o.to_string()),
            Ok("32/27".to_owned())
        );
    }

    #[test]
    fn rotations_are_times_modulo_the_transform() {
        for (m, n) in [(1, 1), (32, 27), (4, 3), (8, 7), (2, 1)] {
            let of = Oversampling::new(m, n).unwrap();
            for step in [64, 8192] {
                assert_eq!(of.hop(step), step * n / m);
                for number in [0, 1, 5, 31, 32, 1 << 40, (1 << 50) + 77] {
                    let time = u128::from(number) * of.hop(step) as u128;
                    assert_eq!(of.rotation(step, number) as u128, time % step as u128);
                }
            }
        }
    }
}

//! Ratios of sample rates.

use std::fmt;
use std::str::FromStr;

use num_integer::gcd;
use serde::{Deserialize, Serialize};

/// A positive ratio in lowest terms: samples for each sample of the base rate.
///
/// Terms are at most 2³², so a product of two fits `u128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ratio {
    num: u64,
    den: u64,
}

const MAX_TERM: u128 = 1 << 32;

impl Ratio {
    /// The base rate.
    pub const ONE: Ratio = Ratio { num: 1, den: 1 };

    /// `num / den` in lowest terms, if both are positive and in range.
    pub fn new(num: u64, den: u64) -> Option<Ratio> {
        Ratio::reduced(num.into(), den.into())
    }

    fn reduced(num: u128, den: u128) -> Option<Ratio> {
        if num == 0 || den == 0 {
            return None;
        }
        let divisor = gcd(num, den);
        let (num, den) = (num / divisor, den / divisor);
        (num <= MAX_TERM && den <= MAX_TERM).then_some(Ratio {
            num: num as u64,
            den: den as u64,
        })
    }

    /// The numerator.
    pub fn num(self) -> u64 {
        self.num
    }

    /// The denominator.
    pub fn den(self) -> u64 {
        self.den
    }

    /// The product, unless its terms are too large.
    pub fn times(self, other: Ratio) -> Option<Ratio> {
        Ratio::reduced(
            u128::from(self.num) * u128::from(other.num),
            u128::from(self.den) * u128::from(other.den),
        )
    }

    /// The inverse.
    pub fn inverse(self) -> Ratio {
        Ratio {
            num: self.den,
            den: self.num,
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.den == 1 {
            write!(f, "{}", self.num)
        } else {
            write!(f, "{}/{}", self.num, self.den)
        }
    }
}

impl FromStr for Ratio {
    type Err = String;
    fn from_str(text: &str) -> Result<Ratio, String> {
        let (num, den) = text.split_once('/').unwrap_or((text, "1"));
        num.parse()
            .ok()
            .zip(den.parse().ok())
            .and_then(|(num, den)| Ratio::new(num, den))
            .ok_or_else(|| format!("`{text}` is no rate: write for example `1`, `4` or `1/4`"))
    }
}

impl TryFrom<String> for Ratio {
    type Error = String;
    fn try_from(text: String) -> Result<Ratio, String> {
        text.parse()
    }
}

impl From<Ratio> for String {
    fn from(value: Ratio) -> String {
        value.to_string()
    }
}

//! Formats of samples: what digitisers send, and what an output sends.

use std::str::FromStr;

use ground::N_POL;

/// Digitiser bits per sample: 2 to 16, two's complement, packed most significant bit first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SampleBits(u32);

impl SampleBits {
    /// Accepts 2 to 16.
    pub fn new(bits: u32) -> Option<Self> {
        (2..=16).contains(&bits).then_some(Self(bits))
    }

    /// Bits per sample.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Bytes of `samples` packed samples, rounded up.
    pub fn bytes(self, samples: usize) -> usize {
        (samples * self.0 as usize).div_ceil(8)
    }
}

/// Not a number of bits that samples may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number from 2 to 16")]
pub struct SampleBitsError;

impl FromStr for SampleBits {
    type Err = SampleBitsError;

    fn from_str(text: &str) -> Result<Self, SampleBitsError> {
        let bits = text.parse().ok().and_then(Self::new);
        bits.ok_or(SampleBitsError)
    }
}

/// Bits of each real and imaginary part that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "u32")]
pub enum OutputBits {
    /// Two's complement nibbles, a complex sample a byte: the real part in its high nibble.
    Four,
    /// A complex sample is two signed bytes, real and imaginary.
    #[default]
    Eight,
}

impl OutputBits {
    /// Accepts 4 and 8.
    pub fn new(bits: u32) -> Option<Self> {
        match bits {
            4 => Some(Self::Four),
            8 => Some(Self::Eight),
            _ => None,
        }
    }

    /// Bits per real or imaginary part.
    pub fn get(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// Largest magnitude of a part: 7 or 127. The most negative code is never produced.
    pub fn limit(self) -> f32 {
        match self {
            Self::Four => 7.0,
            Self::Eight => 127.0,
        }
    }

    /// Bytes of one Jones vector: a complex sample of each polarisation.
    pub fn jones_bytes(self) -> usize {
        N_POL * 2 * self.get() as usize / 8
    }
}

impl From<OutputBits> for u32 {
    fn from(bits: OutputBits) -> Self {
        bits.get()
    }
}

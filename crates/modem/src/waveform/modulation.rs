//! The modulations of a body.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{BODY_SYMBOLS, CHECK_BYTES};

/// How bits of a body become points. Preamble and header are BPSK in every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Modulation {
    /// One bit per symbol.
    Bpsk,
    /// Two bits per symbol.
    Qpsk,
    /// Four bits per symbol.
    Qam16,
    /// Six bits per symbol. Not of the original: only this crate's receiver knows it.
    Qam64,
    /// Eight bits per symbol.
    Qam256,
}

impl Modulation {
    /// All, the one with the fewest bits first.
    pub const ALL: [Modulation; 5] = [
        Modulation::Bpsk,
        Modulation::Qpsk,
        Modulation::Qam16,
        Modulation::Qam64,
        Modulation::Qam256,
    ];

    /// The modulations that the original has.
    pub const CYCLOPS: [Modulation; 4] = [
        Modulation::Bpsk,
        Modulation::Qpsk,
        Modulation::Qam16,
        Modulation::Qam256,
    ];

    /// Bits per symbol.
    pub const fn bits(self) -> usize {
        match self {
            Modulation::Bpsk => 1,
            Modulation::Qpsk => 2,
            Modulation::Qam16 => 4,
            Modulation::Qam64 => 6,
            Modulation::Qam256 => 8,
        }
    }

    /// Points of the constellation.
    pub const fn order(self) -> usize {
        1 << self.bits()
    }

    /// Bytes of payload and check field together.
    pub const fn body_bytes(self) -> usize {
        BODY_SYMBOLS * self.bits() / 8
    }

    /// Bytes of payload.
    pub const fn payload_bytes(self) -> usize {
        self.body_bytes() - CHECK_BYTES
    }

    /// First byte of a header: each bit of the original's code three times, in bits 0–1, 2–3, 4–5.
    ///
    /// 64-QAM has 0xf0: it differs in at least four bits from the others, which differ in three or
    /// six among each other.
    pub const fn mode_byte(self) -> u8 {
        match self {
            Modulation::Bpsk => 0x00,
            Modulation::Qpsk => 0x15,
            Modulation::Qam16 => 0x2a,
            Modulation::Qam64 => 0xf0,
            Modulation::Qam256 => 0x3f,
        }
    }

    /// Name as on a command line, such as `qam16`.
    pub const fn name(self) -> &'static str {
        match self {
            Modulation::Bpsk => "bpsk",
            Modulation::Qpsk => "qpsk",
            Modulation::Qam16 => "qam16",
            Modulation::Qam64 => "qam64",
            Modulation::Qam256 => "qam256",
        }
    }
}

impl fmt::Display for Modulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no modulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a modulation: there are bpsk, qpsk, qam16, qam64 and qam256")]
pub struct UnknownModulation(String);

impl FromStr for Modulation {
    type Err = UnknownModulation;

    fn from_str(text: &str) -> Result<Modulation, UnknownModulation> {
        let named = |modulation: &Modulation| modulation.name() == text;
        let found = Modulation::ALL.into_iter().find(named);
        found.ok_or_else(|| UnknownModulation(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_sizes_are_those_of_the_original() {
        let bytes = Modulation::CYCLOPS.map(Modulation::payload_bytes);
        assert_eq!(bytes, [1528, 3060, 6124, 12_252]);
        assert_eq!(Modulation::Qam64.payload_bytes(), 9188);
    }

    #[test]
    fn mode_bytes_have_each_bit_three_times() {
        for (code, modulation) in (0u8..).zip(Modulation::CYCLOPS) {
            assert_eq!(modulation.mode_byte(), code + 4 * code + 16 * code);
        }
        let ours = Modulation::Qam64.mode_byte();
        for modulation in Modulation::CYCLOPS {
            assert!((modulation.mode_byte() ^ ours).count_ones() >= 4);
        }
    }

    #[test]
    fn names_are_read_back() {
        for modulation in Modulation::ALL {
            assert_eq!(modulation.to_string().parse(), Ok(modulation));
        }
        let error = "qam32".parse::<Modulation>().unwrap_err().to_string();
        assert!(
            error.contains("qam32") && error.contains("qam64"),
            "{error}"
        );
    }
}

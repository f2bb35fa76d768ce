//! The header: eight bytes, BPSK, unprotected but for the modulation.

use serde::{Deserialize, Serialize};

use super::{HEADER_BYTES, Modulation};

/// What the header of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Modulation of the body.
    pub modulation: Modulation,
    /// Type: 0 for a standard frame.
    pub kind: u8,
    /// Source, free for the user.
    pub source: u8,
    /// Destination, free for the user.
    pub destination: u8,
    /// Network, free for the user.
    pub network: u16,
    /// Bytes of the payload that are used. The number of symbols does not depend on it.
    pub length: u16,
}

impl Header {
    /// A standard frame whose whole payload is used, from and to 0.
    pub const fn new(modulation: Modulation) -> Header {
        Header {
            modulation,
            kind: 0,
            source: 0,
            destination: 0,
            network: 0,
            // At most 12 252.
            length: modulation.payload_bytes() as u16,
        }
    }

    /// As on the air: modulation, type, source, destination; network and length little endian.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [network_low, network_high] = self.network.to_le_bytes();
        let [length_low, length_high] = self.length.to_le_bytes();
        [
            self.modulation.mode_byte(),
            self.kind,
            self.source,
            self.destination,
            network_low,
            network_high,
            length_low,
            length_high,
        ]
    }

    /// The fields of received bytes, with the modulation that was decided for them by
    /// [`mode_by_majority`] or [`mode_by_soft_values`]. Their length may be too large:
    /// [`Header::length_fits`] says so.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES], modulation: Modulation) -> Header {
        Header {
            modulation,
            kind: bytes[1],
            source: bytes[2],
            destination: bytes[3],
            network: u16::from_le_bytes([bytes[4], bytes[5]]),
            length: u16::from_le_bytes([bytes[6], bytes[7]]),
        }
    }

    /// The header with a frame's number, in turn from 0 to 63, as source, destination and network
    /// alike: the original's demo numbers its frames so.
    pub fn with_sequence(self, number: u8) -> Header {
        let number = number % SEQUENCE_NUMBERS;
        Header {
            source: number,
            destination: number,
            network: number.into(),
            ..self
        }
    }

    /// The number of [`Header::with_sequence`]: of each bit the majority of its three copies.
    pub fn sequence(&self) -> u8 {
        let [a, b, c] = [self.source, self.destination, self.network.to_le_bytes()[0]];
        (a & b | a & c | b & c) % SEQUENCE_NUMBERS
    }

    /// Whether the length is at most what the modulation's payload has.
    pub fn length_fits(&self) -> bool {
        usize::from(self.length) <= self.modulation.payload_bytes()
    }
}

/// Numbers that frames have in turn.
pub const SEQUENCE_NUMBERS: u8 = 64;

/// Modulations that a receiver expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeSet {
    /// The modulations of the original.
    Cyclops,
    /// The modulations of the original, and 64-QAM.
    #[default]
    WithQam64,
}

impl ModeSet {
    fn modulations(self) -> &'static [Modulation] {
        match self {
            ModeSet::Cyclops => &Modulation::CYCLOPS,
            ModeSet::WithQam64 => &Modulation::ALL,
        }
    }
}

/// The modulation of a received mode byte: of each bit the majority of its three copies. 64-QAM is
/// taken for what differs from its byte in at most one bit; each of these differs from the others'
/// bytes in at least three.
pub fn mode_by_majority(byte: u8, modes: ModeSet) -> Modulation {
    let ours = (byte ^ Modulation::Qam64.mode_byte()).count_ones() <= 1;
    if modes == ModeSet::WithQam64 && ours {
        return Modulation::Qam64;
    }
    let majority = |mask: u8| (byte & mask).count_ones() >= 2;
    match (majority(0b10_1010), majority(0b01_0101)) {
        (false, false) => Modulation::Bpsk,
        (false, true) => Modulation::Qpsk,
        (true, false) => Modulation::Qam16,
        (true, true) => Modulation::Qam256,
    }
}

/// The modulation of the first eight header symbols before any decision (their real parts; positive
/// is bit 0): the one whose byte correlates best with them. For the original's modulations that is
/// the sign of each bit's three values added up.
///
/// Among the original's modulations it fails with probability 1 − (1 − Q(√(6 Es/N0)))², where the
/// majority fails with 1 − (1 − 3p² + 2p³)², p = Q(√(2 Es/N0)); with 64-QAM among them
/// [`mode_error_rate`](crate::theory::mode_error_rate) says how often.
pub fn mode_by_soft_values(values: &[f64; 8], modes: ModeSet) -> Modulation {
    let correlation = |modulation: Modulation| -> f64 {
        let sign = |place: usize| 1.0 - 2.0 * f64::from(modulation.mode_byte() >> place & 1);
        values.iter().enumerate().map(|(i, v)| v * sign(i)).sum()
    };
    let mut best = (Modulation::Bpsk, f64::NEG_INFINITY);
    for &modulation in modes.modulations() {
        let correlation = correlation(modulation);
        if correlation > best.1 {
            best = (modulation, correlation);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_is_the_majority_of_three_copies() {
        let header = Header::new(Modulation::Qpsk).with_sequence(64 + 37);
        assert_eq!(
            (header.source, header.destination, header.network),
            (37, 37, 37)
        );
        assert_eq!(header.sequence(), 37);
        for bit in 0..8 {
            let wrong = 1 << bit;
            let headers = [
                Header {
                    source: 37 ^ wrong,
                    ..header
                },
                Header {
                    destination: 37 ^ wrong,
                    ..header
                },
                Header {
                    network: 37 ^ u16::from(wrong),
                    ..header
                },
            ];
            assert!(headers.iter().all(|header| header.sequence() == 37));
        }
    }

    #[test]
    fn a_header_has_the_golden_bytes() {
        let header = |modulation| Header {
            source: 5,
            destination: 5,
            network: 5,
            ..Header::new(modulation)
        };
        let bytes = Modulation::CYCLOPS.map(|modulation| header(modulation).to_bytes());
        assert_eq!(bytes[0], [0x00, 0, 5, 5, 5, 0, 0xf8, 0x05]);
        assert_eq!(bytes[1], [0x15, 0, 5, 5, 5, 0, 0xf4, 0x0b]);
        assert_eq!(bytes[2], [0x2a, 0, 5, 5, 5, 0, 0xec, 0x17]);
        assert_eq!(bytes[3], [0x3f, 0, 5, 5, 5, 0, 0xdc, 0x2f]);
    }

    #[test]
    fn one_wrong_bit_leaves_every_modulation_as_it_is() {
        for modes in [ModeSet::Cyclops, ModeSet::WithQam64] {
            for &modulation in modes.modulations() {
                let byte = modulation.mode_byte();
                assert_eq!(mode_by_majority(byte, modes), modulation);
                for bit in 0..8 {
                    assert_eq!(mode_by_majority(byte ^ 1 << bit, modes), modulation);
                    let mut values = [0; 8].map(f64::from);
                    for (i, value) in values.iter_mut().enumerate() {
                        *value = 1.0 - 2.0 * f64::from(byte >> i & 1);
                    }
                    values[bit] = -values[bit];
                    assert_eq!(mode_by_soft_values(&values, modes), modulation);
                }
            }
        }
    }

    #[test]
    fn of_the_original_soft_values_are_added_for_each_bit() {
        // Two copies weakly wrong, one strongly right: the majority is wrong.
        let values = [1.0, 1.0, -0.2, 1.0, -0.2, 1.0, 1.0, 1.0];
        let soft = mode_by_soft_values(&values, ModeSet::Cyclops);
        assert_eq!(soft, Modulation::Bpsk);
        assert_eq!(
            mode_by_majority(0b01_0100, ModeSet::Cyclops),
            Modulation::Qpsk
        );
    }

    #[test]
    fn values_that_are_no_numbers_give_some_modulation() {
        mode_by_soft_values(&[f64::NAN; 8], ModeSet::WithQam64);
        mode_by_soft_values(&[f64::INFINITY; 8], ModeSet::WithQam64);
    }

    proptest! {
        #[test]
        fn fields_come_back(bytes: [u8; 8], index in 0usize..5) {
            let modulation = Modulation::ALL[index];
            let header = Header::from_bytes(&bytes, modulation);
            prop_assert_eq!(header.to_bytes()[1..].to_vec(), bytes[1..].to_vec());
            prop_assert_eq!(Header::from_bytes(&header.to_bytes(), modulation), header);
        }
    }
}

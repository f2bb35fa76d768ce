//! The check field: four bytes behind the payload.

use serde::{Deserialize, Serialize};

use super::{CHECK_BYTES, HEADER_BYTES, Modulation};

/// What the check field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckField {
    /// CRC-32/JAMCRC of header and payload, as in the original's simulations.
    #[default]
    Crc,
    /// Four bytes of padding, as in the original's demo. A receiver can check nothing.
    Pad,
}

impl CheckField {
    /// The field's bytes for a frame.
    pub fn bytes(
        self,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        modulation: Modulation,
    ) -> [u8; CHECK_BYTES] {
        match self {
            CheckField::Crc => jamcrc([header.as_slice(), payload]).to_le_bytes(),
            CheckField::Pad => [pad_byte(modulation); CHECK_BYTES],
        }
    }
}

/// CRC-32/JAMCRC of bytes in several parts: polynomial 0x04C11DB7, reflected, initial value all
/// ones, no final inversion.
pub fn jamcrc<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    !hasher.finalize()
}

/// The byte of the demo's check field.
const fn pad_byte(modulation: Modulation) -> u8 {
    match modulation {
        Modulation::Qpsk => 0x33,
        Modulation::Qam16 => 0x28,
        Modulation::Bpsk | Modulation::Qam64 | Modulation::Qam256 => 0x55,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_jamcrc() {
        assert_eq!(jamcrc([b"123456789".as_slice()]), 0x340b_c6d9);
        assert_eq!(jamcrc([b"1234".as_slice(), b"56789"]), 0x340b_c6d9);
    }

    /// The definition: bits in transmission order through a shift register, the register's highest
    /// coefficient sent first.
    #[test]
    fn the_checksum_is_the_register_of_its_definition() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i) as u8).collect();
        let mut register = u32::MAX;
        for bit in bytes
            .iter()
            .flat_map(|b| (0..8).map(move |i| u32::from(b >> i & 1)))
        {
            let feedback = register >> 31 ^ bit;
            register = register << 1 ^ (feedback * 0x04c1_1db7);
        }
        let sent = (0..32)
            .map(|i| (register >> (31 - i) & 1) << i)
            .sum::<u32>();
        assert_eq!(jamcrc([bytes.as_slice()]), sent);
    }
}

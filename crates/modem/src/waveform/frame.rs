//! A frame as symbols.

use num_complex::Complex64;

use super::{
    CheckField, FRAME_SYMBOLS, HEADER_BYTES, HEADER_SYMBOLS, Header, Modulation, PREAMBLE_SYMBOLS,
    point, preamble, unpack_bits,
};

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A payload of another size.
    #[error(
        "a payload of {found} bytes: with {modulation} it has {wanted}; pad it with pad_message"
    )]
    PayloadSize {
        /// Modulation of the header.
        modulation: Modulation,
        /// Bytes that are there.
        found: usize,
        /// Bytes that a payload has.
        wanted: usize,
    },
    /// A header that says more than there is.
    #[error("a length of {found} bytes in the header: with {modulation} at most {most}")]
    Length {
        /// Modulation of the header.
        modulation: Modulation,
        /// The header's length.
        found: u16,
        /// Bytes that a payload has.
        most: usize,
    },
}

/// A frame: header and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    header: Header,
    header_bytes: [u8; HEADER_BYTES],
    body: Vec<u8>,
}

impl Frame {
    /// A frame with `payload`, which has exactly the bytes of the header's modulation, and a check
    /// field made for it.
    pub fn new(header: Header, payload: &[u8], check: CheckField) -> Result<Frame, FrameError> {
        let modulation = header.modulation;
        let wanted = modulation.payload_bytes();
        if payload.len() != wanted {
            let found = payload.len();
            return Err(FrameError::PayloadSize {
                modulation,
                found,
                wanted,
            });
        }
        if !header.length_fits() {
            return Err(FrameError::Length {
                modulation,
                found: header.length,
                most: wanted,
            });
        }
        let header_bytes = header.to_bytes();
        let mut body = payload.to_vec();
        body.extend(check.bytes(&header_bytes, payload, modulation));
        Ok(Frame {
            header,
            header_bytes,
            body,
        })
    }

    /// What the header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Payload and check field.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Appends the frame's [`FRAME_SYMBOLS`] integers: preamble and header of one bit each, then
    /// the body's.
    pub fn symbols_into(&self, symbols: &mut Vec<u8>) {
        symbols.reserve(FRAME_SYMBOLS);
        symbols.extend(preamble().iter().map(|&sign| u8::from(sign < 0)));
        unpack_bits(&self.header_bytes, 1, symbols);
        unpack_bits(&self.body, self.header.modulation.bits(), symbols);
    }

    /// The frame's [`FRAME_SYMBOLS`] integers.
    pub fn symbols(&self) -> Vec<u8> {
        let mut symbols = Vec::new();
        self.symbols_into(&mut symbols);
        symbols
    }

    /// Modulation of symbol `k` of the frame.
    pub fn modulation_at(&self, k: usize) -> Modulation {
        if k < PREAMBLE_SYMBOLS + HEADER_SYMBOLS {
            Modulation::Bpsk
        } else {
            self.header.modulation
        }
    }

    /// The frame's points.
    pub fn points(&self) -> Vec<Complex64> {
        let symbols = self.symbols().into_iter().enumerate();
        symbols
            .map(|(k, symbol)| point(self.modulation_at(k), symbol))
            .collect()
    }
}

#[cfg(test)]
impl Frame {
    /// The frame of which golden values are known.
    pub(crate) fn golden(modulation: Modulation) -> Frame {
        let payload: Vec<u8> = (0..modulation.payload_bytes())
            .map(|i| (7 * i + 3) as u8)
            .collect();
        let header = Header {
            source: 5,
            destination: 5,
            network: 5,
            ..Header::new(modulation)
        };
        Frame::new(header, &payload, CheckField::Crc).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_golden_symbols() {
        let rows: [(Modulation, u32, u32, [u8; 8]); 4] = [
            (
                Modulation::Bpsk,
                0x72b3_9caf,
                0xd552_1559,
                [1, 1, 0, 0, 0, 0, 0, 0],
            ),
            (
                Modulation::Qpsk,
                0x336d_473a,
                0xb7d0_a8ed,
                [3, 0, 0, 0, 2, 2, 0, 0],
            ),
            (
                Modulation::Qam16,
                0xb315_9e82,
                0x1235_9188,
                [3, 0, 10, 0, 1, 1, 8, 1],
            ),
            (
                Modulation::Qam256,
                0x7039_0e40,
                0xf97c_e6b6,
                [3, 10, 17, 24, 31, 38, 45, 52],
            ),
        ];
        for (modulation, check, checksum, first) in rows {
            let frame = Frame::golden(modulation);
            let body = frame.body();
            let found = &body[body.len() - 4..];
            assert_eq!(found, check.to_be_bytes(), "{modulation}");
            let symbols = frame.symbols();
            assert_eq!(symbols.len(), FRAME_SYMBOLS);
            assert_eq!(crc32fast::hash(&symbols), checksum, "{modulation}");
            assert_eq!(symbols[3840..3848], first);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let header = Header::new(Modulation::Bpsk);
        let error = Frame::new(header, &[0; 3], CheckField::Crc).unwrap_err();
        assert!(error.to_string().contains("1528"), "{error}");
        let header = Header {
            length: 1529,
            ..header
        };
        let error = Frame::new(header, &[0; 1528], CheckField::Pad).unwrap_err();
        assert!(error.to_string().contains("1529"), "{error}");
    }
}

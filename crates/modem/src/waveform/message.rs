//! Messages as payloads: the demo's padding and scrambler.

use std::sync::LazyLock;

use super::{CheckField, Frame, Header, Modulation};

/// A frame of `message`, cut to what fits, padded and, with a scrambler, scrambled. The header's
/// length becomes the second value: how many bytes of the message fit.
pub fn frame_message(
    message: &[u8],
    header: Header,
    check: CheckField,
    scrambler: Option<&Scrambler>,
) -> (Frame, usize) {
    let (mut payload, used) = pad_message(message, header.modulation);
    if let Some(scrambler) = scrambler {
        scrambler.apply(&mut payload);
    }
    let header = Header {
        // A payload has at most 12 252 bytes.
        length: used as u16,
        ..header
    };
    let frame = Frame::new(header, &payload, check)
        .unwrap_or_else(|_| unreachable!("a padded payload has the right size"));
    (frame, used)
}

/// A payload of `message`, cut to what fits, and padding. The second value is how many bytes of
/// the message fit.
///
/// Padding makes symbols that alternate between opposite corners: `U`, `3` or `(`, or in 256-QAM
/// 0x88 and 0x00 in turns, 0x88 first. 64-QAM has 0x24, 0x40, 0x02 by the place in the payload.
pub fn pad_message(message: &[u8], modulation: Modulation) -> (Vec<u8>, usize) {
    let used = message.len().min(modulation.payload_bytes());
    let pad = |place: usize| match modulation {
        Modulation::Bpsk => b'U',
        Modulation::Qpsk => b'3',
        Modulation::Qam16 => b'(',
        Modulation::Qam64 => [0x24, 0x40, 0x02][place % 3],
        Modulation::Qam256 => [0x88, 0x00][(place - used) % 2],
    };
    let mut payload = message[..used].to_vec();
    payload.extend((used..modulation.payload_bytes()).map(pad));
    (payload, used)
}

/// A fixed stream of bytes that payloads are XORed with. Applied twice, it leaves bytes as they
/// were.
#[derive(Clone, Debug)]
pub struct Scrambler {
    stream: Vec<u8>,
}

static DEMO: LazyLock<Scrambler> = LazyLock::new(|| Scrambler::with_seed(999));

impl Scrambler {
    /// The stream of the original's demo: that of seed 999.
    pub fn demo() -> &'static Scrambler {
        &DEMO
    }

    /// The low bytes of glibc's `rand()` after `srand(seed)`, as many as the largest payload has.
    /// As in glibc, seed 0 is seed 1.
    ///
    /// r₀ = seed; rᵢ = 16807 rᵢ₋₁ mod (2³¹ − 1) for i = 1…30; rᵢ = rᵢ₋₃₁ for i = 31…33;
    /// rᵢ = (rᵢ₋₃ + rᵢ₋₃₁) mod 2³² beyond; output o is r₃₄₄₊ₒ >> 1.
    pub fn with_seed(seed: u32) -> Scrambler {
        let length = Modulation::Qam256.payload_bytes();
        let mut r: Vec<u32> = Vec::with_capacity(344 + length);
        r.push(seed.max(1));
        for i in 1..31 {
            // The seed is a signed number there.
            let before = i64::from(r[i - 1] as i32);
            r.push((16_807 * before).rem_euclid((1 << 31) - 1) as u32);
        }
        for i in 31..34 {
            r.push(r[i - 31]);
        }
        for i in 34..344 + length {
            r.push(r[i - 3].wrapping_add(r[i - 31]));
        }
        let stream = r[344..].iter().map(|r| (r >> 1) as u8).collect();
        Scrambler { stream }
    }

    /// Scrambles a payload, or takes its scrambling back. The stream begins anew with each payload.
    pub fn apply(&self, payload: &mut [u8]) {
        for (byte, mask) in payload.iter_mut().zip(&self.stream) {
            *byte ^= mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::{CHECK_BYTES, point, unpack_bits};

    #[test]
    fn the_stream_has_the_golden_bytes() {
        let golden = [
            0x8e, 0xa3, 0x58, 0xcc, 0x8d, 0x20, 0x10, 0xbb, 0x57, 0x3d, 0x1e, 0x67, 0x55, 0x09,
            0x59, 0x1d,
        ];
        let mut payload = [0; 16];
        Scrambler::demo().apply(&mut payload);
        assert_eq!(payload, golden);
        Scrambler::demo().apply(&mut payload);
        assert_eq!(payload, [0; 16]);
    }

    #[test]
    fn padding_alternates_between_opposite_corners() {
        for modulation in Modulation::ALL {
            let (payload, used) = pad_message(b"", modulation);
            assert_eq!((payload.len(), used), (modulation.payload_bytes(), 0));
            let mut symbols = Vec::new();
            unpack_bits(&payload, modulation.bits(), &mut symbols);
            for pair in symbols.windows(2) {
                let [a, b] = [pair[0], pair[1]].map(|s| point(modulation, s));
                assert!((a + b).norm() < 1e-12 && a.re.abs() >= a.im.abs() - 1e-12);
            }
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_cut() {
        let long = vec![7; 4000];
        let (payload, used) = pad_message(&long, Modulation::Qpsk);
        assert_eq!((payload.len(), used), (3060, 3060));
        let (payload, used) = pad_message(b"abc", Modulation::Qam256);
        assert_eq!((&payload[..6], used), (b"abc\x88\x00\x88".as_slice(), 3));
    }

    #[test]
    fn a_framed_message_keeps_the_header_but_for_its_length() {
        for modulation in Modulation::ALL {
            let header = Header {
                source: 7,
                network: 300,
                ..Header::new(modulation)
            };
            let scrambler = Scrambler::demo();
            let (frame, used) = frame_message(b"hello", header, CheckField::Pad, Some(scrambler));
            assert_eq!(used, 5);
            assert_eq!(
                *frame.header(),
                Header {
                    length: 5,
                    ..header
                }
            );
            let mut payload = frame.body()[..modulation.payload_bytes()].to_vec();
            scrambler.apply(&mut payload);
            assert_eq!(payload, pad_message(b"hello", modulation).0);
            assert_eq!(frame.body().len(), payload.len() + CHECK_BYTES);
        }
        let long = vec![7; 4000];
        let (frame, used) =
            frame_message(&long, Header::new(Modulation::Qpsk), CheckField::Crc, None);
        assert_eq!((frame.header().length, used), (3060, 3060));
    }
}

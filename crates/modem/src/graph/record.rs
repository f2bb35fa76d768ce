//! What became of a frame, as bytes of a fixed number.

use num_complex::Complex32;

use super::bytes::{Put, Take, complexes};
use crate::rx::{Missed, Outcome, ReceivedFrame};
use crate::waveform::{BODY_SYMBOLS, HEADER_BYTES, Header, Modulation};

/// Bytes ahead of the body: eleven numbers, and the header.
const HEAD: usize = 8 * 11 + HEADER_BYTES;
/// Bytes of the largest body.
const BODY: usize = Modulation::Qam256.body_bytes();
/// The most taps.
const TAPS: usize = 128;

/// Bytes of a record, with or without taps and points.
pub(super) const fn bytes(points: bool) -> usize {
    match points {
        false => HEAD + BODY,
        true => HEAD + BODY + 8 * (TAPS + BODY_SYMBOLS),
    }
}

/// What the node `modem_decode` puts out for each tick.
///
/// As bytes, little-endian: five integers of 64 bits, namely what it is (0 nothing, 1 not acquired,
/// 2 a frame, 3 a frame whose equaliser's taps ran away), its outcome (0 delivered, 1 mode, 2
/// length, 3 check), its start, and how many taps and points there are; six floats of 64 bits,
/// namely fraction of the start, Es/N0 in dB, EVM, frequency, clock and amplitude; the header's 8
/// bytes; the body in 12 256 bytes. With points, 128 taps and 12 256 points follow, pairs of floats
/// of 32 bits. What is not used is zero.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameRecord {
    /// No frame.
    Nothing,
    /// What was found, and could not be decoded.
    Missed(Missed),
    /// A frame.
    Frame(Box<ReceivedFrame>),
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are not a record of a frame: give the output `frames` of modem_decode")]
pub struct RecordError(usize);

const OUTCOMES: [Outcome; 4] = [
    Outcome::Delivered,
    Outcome::Mode,
    Outcome::Length,
    Outcome::Check,
];

impl FrameRecord {
    /// Writes the record over all of `bytes`.
    pub(super) fn put(&self, bytes: &mut [u8]) {
        let mut all = Put(bytes);
        let frame = match self {
            FrameRecord::Nothing => return all.rest(),
            FrameRecord::Missed(missed) => {
                all.u64(match missed {
                    Missed::NotAcquired => 1,
                    Missed::Equaliser => 3,
                });
                return all.rest();
            }
            FrameRecord::Frame(frame) => frame,
        };
        let outcome = OUTCOMES.iter().position(|known| *known == frame.outcome);
        all.u64(2);
        all.u64(outcome.unwrap_or(0) as u64);
        all.u64(frame.start);
        all.u64(frame.taps.len() as u64);
        all.u64(frame.points.len() as u64);
        for number in [
            frame.start_fraction,
            frame.snr_db,
            frame.evm,
            frame.frequency,
            frame.clock_ppm,
            frame.amplitude,
        ] {
            all.f64(number);
        }
        all.bytes(&frame.header.to_bytes());
        let Put(rest) = all;
        let (body, rest) = rest.split_at_mut(BODY.min(rest.len()));
        let (taps, points) = rest.split_at_mut((8 * TAPS).min(rest.len()));
        fill(body, &frame.body);
        fill(taps, bytemuck::cast_slice(&frame.taps));
        fill(points, bytemuck::cast_slice(&frame.points));
    }

    /// Reads a record.
    pub fn read(bytes: &[u8]) -> Result<FrameRecord, RecordError> {
        FrameRecord::parse(bytes).ok_or(RecordError(bytes.len()))
    }

    fn parse(bytes: &[u8]) -> Option<FrameRecord> {
        let mut all = Take(bytes);
        match all.u64()? {
            0 => return Some(FrameRecord::Nothing),
            1 => return Some(FrameRecord::Missed(Missed::NotAcquired)),
            2 => {}
            3 => return Some(FrameRecord::Missed(Missed::Equaliser)),
            _ => return None,
        }
        let outcome = *OUTCOMES.get(usize::try_from(all.u64()?).ok()?)?;
        let start = all.u64()?;
        let (taps, points) = (all.u64()? as usize, all.u64()? as usize);
        let [start_fraction, snr_db, evm, frequency, clock_ppm] =
            [all.f64()?, all.f64()?, all.f64()?, all.f64()?, all.f64()?];
        let amplitude = all.f64()?;
        let header: [u8; HEADER_BYTES] = all.bytes(HEADER_BYTES)?.try_into().ok()?;
        let known = |modulation: &Modulation| modulation.mode_byte() == header[0];
        let modulation = Modulation::ALL.into_iter().find(known)?;
        let body = &all.bytes(BODY)?[..modulation.body_bytes()];
        let mut several = |count: usize, most: usize| -> Option<Vec<Complex32>> {
            match count {
                0 => Some(Vec::new()),
                _ => Some(complexes(all.bytes(8 * most)?).get(..count)?.to_vec()),
            }
        };
        Some(FrameRecord::Frame(Box::new(ReceivedFrame {
            start,
            start_fraction,
            outcome,
            header: Header::from_bytes(&header, modulation),
            body: body.to_vec(),
            snr_db,
            evm,
            frequency,
            clock_ppm,
            amplitude,
            taps: several(taps, TAPS)?,
            points: several(points, BODY_SYMBOLS)?,
            soft: Vec::new(),
        })))
    }
}

/// Fills a place with bytes, and zeros behind them. What does not fit is left out.
fn fill(place: &mut [u8], bytes: &[u8]) {
    let count = bytes.len().min(place.len());
    let (begin, rest) = place.split_at_mut(count);
    begin.copy_from_slice(&bytes[..count]);
    rest.fill(0);
}

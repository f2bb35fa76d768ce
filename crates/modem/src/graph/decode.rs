//! The node that decodes frames.

use std::f64::consts::TAU;

use karoo_flow::{ByBytes, ByteStep, Mismatch, Node, Step, Type};
use serde::{Deserialize, Serialize};

use super::bytes::{Take, floats};
use super::expect;
use super::record::{self, FrameRecord};
use super::search::{FOUND, HEAD};
use crate::rx::{Decoder, Equaliser, LIMIT, ModeVote, RxConfig, Samples, Start};
use crate::waveform::{CheckField, ModeSet};

pub(super) const KIND: &str = "modem_decode";

/// Upper bound for the position of a frame in a stream: no stream is longer, leading blanks
/// included.
const FARTHEST: u64 = 1 << 60;

/// Decodes the frames that [`SearchFrames`](super::SearchFrames) finds. The output is a
/// [`FrameRecord`] as bytes. Fields are those of [`RxConfig`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeFrames {
    /// Taps of the equaliser.
    pub taps: usize,
    /// How the taps are found.
    pub equaliser: Equaliser,
    /// Step of least mean squares behind the header.
    pub step: f32,
    /// How the modulation is read.
    pub vote: ModeVote,
    /// Modulations that are expected.
    pub modes: ModeSet,
    /// What the check field has.
    pub check: CheckField,
    /// Whether records have equalised points and taps.
    pub points: bool,
}

impl Default for DecodeFrames {
    fn default() -> DecodeFrames {
        DecodeFrames::from(&RxConfig::default())
    }
}

impl From<&RxConfig> for DecodeFrames {
    fn from(config: &RxConfig) -> DecodeFrames {
        DecodeFrames {
            taps: config.taps,
            equaliser: config.equaliser,
            step: config.step,
            vote: config.vote,
            modes: config.modes,
            check: config.check,
            points: config.points,
        }
    }
}

impl DecodeFrames {
    fn config(&self) -> RxConfig {
        RxConfig {
            taps: self.taps,
            equaliser: self.equaliser,
            step: self.step,
            vote: self.vote,
            modes: self.modes,
            check: self.check,
            points: self.points,
            ..RxConfig::default()
        }
    }

    fn running(&self) -> Decode {
        Decode {
            decoder: Decoder::new(&self.config()),
        }
    }
}

impl Node for DecodeFrames {
    fn kind(&self) -> &str {
        KIND
    }
    fn inputs(&self) -> usize {
        1
    }
    fn check(&self) -> Result<(), String> {
        self.config().check().map_err(|error| error.to_string())
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        expect(KIND, inputs, &[Type::U8.vector(FOUND)])?;
        Ok(vec![Type::U8.vector(record::bytes(self.points))])
    }
    fn declared(&self) -> Option<Vec<Type>> {
        Some(vec![Type::U8.vector(record::bytes(self.points))])
    }
    fn stateless(&self) -> bool {
        true
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(ByBytes(self.running()))
    }
    fn start_bytes(&self, _: &[Type], _: &[Type]) -> Option<Box<dyn ByteStep>> {
        Some(Box::new(self.running()))
    }
    fn parameters(&self) -> Option<toml::Table> {
        karoo_flow::table(self)
    }
}

/// A decoder. What it keeps is memory, no state: each frame is decoded by itself.
struct Decode {
    decoder: Decoder,
}

impl Decode {
    /// What became of a frame that was found.
    fn decode(&mut self, found: &[u8]) -> Option<FrameRecord> {
        let (head, values) = found.split_at_checked(HEAD)?;
        let mut head = Take(head);
        let count = head.u64()? as usize;
        if count == 0 {
            return Some(FrameRecord::Nothing);
        }
        let first = head.i64()?;
        let start = Start {
            sample: head.i64()?,
            fraction: head.f64()?,
            frequency: head.f64()?,
            strength: head.f64()?,
            origin: head.i64()?,
        };
        let values = floats(values.get(..count.checked_mul(8)?)?);
        if !may_be(first, &start, &values) {
            return None;
        }
        let samples = Samples {
            values: &values,
            first,
        };
        Some(match self.decoder.decode(samples, &start) {
            Ok(frame) => FrameRecord::Frame(Box::new(frame)),
            Err(missed) => FrameRecord::Missed(missed),
        })
    }
}

/// Whether a search can have found this: a file's graph can give a decoder anything.
fn may_be(first: i64, start: &Start, values: &[f32]) -> bool {
    let places = [first, start.sample, start.origin];
    let is_number = start.strength.is_finite() && start.frequency.abs() <= TAU;
    is_number
        && start.fraction.abs() <= 1.0
        && places.iter().all(|place| place.unsigned_abs() <= FARTHEST)
        && values
            .iter()
            .fold(true, |good, x| good & (x.abs() <= LIMIT))
}

impl ByteStep for Decode {
    fn compute(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let record = self.decode(inputs[0]).unwrap_or(FrameRecord::Nothing);
        record.put(outputs[0]);
    }
}

//! The node that finds frames.

use std::collections::VecDeque;

use karoo_flow::{ByBytes, ByteStep, Mismatch, Node, Step, Type};
use serde::{Deserialize, Serialize};

use super::bytes::{Put, complexes, put_floats};
use super::expect;
use crate::rx::{Acquirer, Correction, FRAME_AFTER, FRAME_BEFORE, Level, Samples, Start};
use crate::waveform::FRAME_SYMBOLS;

pub(super) const KIND: &str = "modem_search";

/// Samples of a tick: so few that in the mean at most one frame is complete with each, and frames
/// that wait never become many.
///
/// Frames that follow one another are at least 48 288 samples apart, but for the clock's error.
/// Frames over one another may be found 44 300 samples apart: the search goes on behind a frame,
/// and a third of a field is enough to find one that began before that end.
pub const BLOCK: usize = 44_000;

/// Bytes of what is known of a frame ahead of its samples.
pub(super) const HEAD: usize = 64;
/// Samples of a frame, with those around it that its decoder may read.
pub(super) const SAMPLES: usize =
    (FRAME_BEFORE + 3 * (FRAME_SYMBOLS as i64 - 1) + FRAME_AFTER) as usize;
/// Bytes of a frame that was found.
pub(super) const FOUND: usize = HEAD + 8 * SAMPLES;
/// Numbers of the output of counts.
pub(super) const COUNTS: usize = 5;
/// Numbers of the output of what is taken off.
pub(super) const CORRECTION: usize = 4;

/// Finds frames in samples. Inputs: a block of [`BLOCK`] samples, real and imaginary parts in turn;
/// how many of them there are, fewer of which end the stream. Outputs: a frame with its samples, or
/// zeros; counts of samples, bad samples, fields detected, of these not acquired, of these cut; DC
/// and image of the [`Correction`](crate::rx::Correction) that is taken off samples now, real and
/// imaginary parts in turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchFrames {
    /// Whether DC and IQ imbalance of the front end are found blindly and taken off.
    pub correct: bool,
}

impl SearchFrames {
    fn running(&self) -> Search {
        Search {
            acquirer: Acquirer::new(Level::detect(), self.correct),
            waiting: VecDeque::new(),
            ended: false,
        }
    }
}

impl Node for SearchFrames {
    fn kind(&self) -> &str {
        KIND
    }
    fn inputs(&self) -> usize {
        2
    }
    fn outputs(&self) -> usize {
        3
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        expect(KIND, inputs, &[Type::F32.vector(2 * BLOCK), Type::U32])?;
        Ok(outputs())
    }
    fn declared(&self) -> Option<Vec<Type>> {
        Some(outputs())
    }
    fn state_bytes(&self, _: &[Type], _: &[Type]) -> u64 {
        (8 * SAMPLES) as u64
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

fn outputs() -> Vec<Type> {
    vec![
        Type::U8.vector(FOUND),
        Type::U64.vector(COUNTS),
        Type::F64.vector(CORRECTION),
    ]
}

struct Search {
    acquirer: Acquirer,
    /// Frames that were found in the same tick as others.
    waiting: VecDeque<Vec<u8>>,
    ended: bool,
}

/// Writes a frame that begins at `start`.
fn put(samples: Samples, start: &Start, found: &mut [u8]) {
    let first = (start.sample - FRAME_BEFORE).max(samples.first);
    let values = samples
        .range(first, start.last() + FRAME_AFTER)
        .unwrap_or(&[]);
    let (head, rest) = found.split_at_mut(HEAD);
    let mut head = Put(head);
    head.u64(values.len() as u64 / 2);
    head.i64(first);
    head.i64(start.sample);
    head.f64(start.fraction);
    head.f64(start.frequency);
    head.f64(start.strength);
    head.i64(start.origin);
    head.rest();
    let (place, rest) = rest.split_at_mut((4 * values.len()).min(8 * SAMPLES));
    put_floats(&values[..place.len() / 4], place);
    rest.fill(0);
}

impl ByteStep for Search {
    fn compute(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let [found, counts, correction] = outputs else {
            return;
        };
        let mut free = match self.waiting.pop_front() {
            Some(earlier) => {
                found.copy_from_slice(&earlier);
                false
            }
            None => true,
        };
        let waiting = &mut self.waiting;
        let mut emit = |samples: Samples, start: &Start| {
            if std::mem::replace(&mut free, false) {
                put(samples, start, found);
            } else {
                let mut bytes = vec![0; FOUND];
                put(samples, start, &mut bytes);
                waiting.push_back(bytes);
            }
        };
        if !self.ended {
            let samples = complexes(inputs[0]);
            let used = inputs[1]
                .first_chunk()
                .map_or(0, |four| u32::from_le_bytes(*four));
            let used = (used as usize).min(samples.len());
            self.acquirer.push(&samples[..used], &mut emit);
            if used < samples.len() {
                self.acquirer.finish(&mut emit);
                self.ended = true;
            }
        }
        if free {
            found.fill(0);
        }
        let seen = self.acquirer.counts;
        let mut counts = Put(counts);
        for count in [
            seen.samples,
            seen.bad_samples,
            seen.detected,
            seen.not_acquired,
            seen.cut,
        ] {
            counts.u64(count);
        }
        let Correction { dc, image } = self.acquirer.correction().unwrap_or_default();
        let mut correction = Put(correction);
        for part in [dc.re, dc.im, image.re, image.im] {
            correction.f64(part);
        }
    }
}

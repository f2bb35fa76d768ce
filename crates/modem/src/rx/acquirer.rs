//! The part of the receiver that sees the whole stream: it finds frames and counts them off.
//!
//! ```text
//! searching ─ hit ─► found ─ end of the STF ─► claimed ─ all its samples are there ─► searching
//!     ▲                │ none                                                            │
//!     └────────────────┴──── behind the frame's last symbol, which its fixed length says ┘
//! ```
//!
//! What a decoder makes of a frame never comes back here. So a frame that follows at once is found
//! like any other, and frames can be decoded elsewhere. All decisions are made at positions that
//! depend on samples alone, not on how the stream was cut when it came in.

use num_complex::Complex32;

use super::acquire::{LOOK_AHEAD, Start, find_end};
use super::bank::Bank;
use super::correct::{Correction, Corrector};
use super::decoder::FRAME_AFTER;
use super::frame::Counts;
use super::samples::Samples;
use super::search::{CHUNK, Hit, PERIOD, REACH, Search};
use super::simd::{self, Level};
use crate::waveform::{FRAME_SYMBOLS, SAMPLES_PER_SYMBOL, STF_REPETITIONS};

/// Zeros that the stream is taken to begin with, so that filters have something before it.
const AHEAD: usize = 128;
/// Repetitions that the search may be ahead of a hit: 16 in which it looks for the largest value,
/// and some to spare.
const SEARCH_AHEAD: i64 = 40;
/// Samples before the search that a frame may begin at: a field before its hit, and what the search
/// is ahead of the hit.
const BACK: i64 = PERIOD * (STF_REPETITIONS as i64 + SEARCH_AHEAD) + 2 * CHUNK as i64;
/// Samples behind a hit without a frame where the search goes on: less than a field, so that one
/// that begins at the hit is found.
const SKIP: i64 = 32 * PERIOD;
/// Samples that are no longer needed at which the rest moves to the front.
const TRIM: i64 = 1 << 16;
/// Samples larger than this count as bad: squares of sums of smaller ones are finite.
pub(crate) const LIMIT: f32 = 1e6;

enum State {
    Searching,
    Found(Hit),
    Claimed(Start),
}

pub(crate) struct Acquirer {
    level: Level,
    bank: Bank,
    search: Search,
    state: State,
    corrector: Option<Corrector>,
    values: Vec<f32>,
    first: i64,
    /// Where the stream has ended.
    end: Option<i64>,
    pub counts: Counts,
}

impl Acquirer {
    /// One that takes off DC and IQ imbalance first, or not.
    pub fn new(level: Level, correct: bool) -> Acquirer {
        let mut search = Search::new(level);
        search.restart(0);
        Acquirer {
            level,
            bank: Bank::new(),
            search,
            state: State::Searching,
            corrector: correct.then(|| Corrector::new(level)),
            values: vec![0.0; 2 * AHEAD],
            first: -(AHEAD as i64),
            end: None,
            counts: Counts::default(),
        }
    }

    /// Takes samples in and hands on each frame that is complete.
    pub fn push(&mut self, samples: &[Complex32], emit: impl FnMut(Samples, &Start)) {
        self.counts.samples += samples.len() as u64;
        self.counts.bad_samples += match &mut self.corrector {
            Some(corrector) => corrector.push(samples, &mut self.values),
            None => simd::take_in(self.level, LIMIT, samples, &mut self.values),
        };
        self.advance(emit);
    }

    /// Ends the stream: hands on a frame whose last symbol has come, and counts what is cut.
    pub fn finish(&mut self, emit: impl FnMut(Samples, &Start)) {
        if self.end.is_some() {
            return;
        }
        if let Some(corrector) = &mut self.corrector {
            corrector.finish(&mut self.values);
        }
        self.end = Some(self.behind());
        let frame = SAMPLES_PER_SYMBOL * FRAME_SYMBOLS + LOOK_AHEAD as usize + BACK as usize;
        self.values.resize(self.values.len() + 2 * frame, 0.0);
        self.advance(emit);
    }

    /// What is taken off samples, if anything.
    pub fn correction(&self) -> Option<Correction> {
        self.corrector.as_ref().map(Corrector::correction)
    }

    /// The position behind the last sample.
    fn behind(&self) -> i64 {
        self.first + (self.values.len() / 2) as i64
    }

    /// Whether the stream has ended before `position`.
    fn ended_before(&self, position: i64) -> bool {
        self.end.is_some_and(|end| end <= position)
    }

    fn advance(&mut self, mut emit: impl FnMut(Samples, &Start)) {
        loop {
            let samples = Samples {
                values: &self.values,
                first: self.first,
            };
            match &self.state {
                State::Searching => {
                    let (from, to) = self.search.needs();
                    if self.ended_before(from + REACH as i64) {
                        break;
                    }
                    let Some(chunk) = samples.range(from, to) else {
                        break;
                    };
                    if let Some(hit) = self.search.chunk(chunk) {
                        self.counts.detected += 1;
                        self.state = State::Found(hit);
                    }
                }
                State::Found(hit) => {
                    if self.behind() < hit.peak + LOOK_AHEAD {
                        break;
                    }
                    let origin = self.search.origin();
                    match find_end(self.level, &self.bank, samples, hit, origin) {
                        Some(start) => self.state = State::Claimed(start),
                        None => {
                            if self.ended_before(hit.peak + LOOK_AHEAD) {
                                self.counts.cut += 1;
                            } else {
                                self.counts.not_acquired += 1;
                            }
                            self.search.restart(hit.peak + SKIP);
                            self.state = State::Searching;
                        }
                    }
                }
                State::Claimed(start) => {
                    let last = start.last();
                    if self.behind() < last + FRAME_AFTER {
                        break;
                    }
                    if self.ended_before(last) {
                        self.counts.cut += 1;
                    } else {
                        emit(samples, start);
                    }
                    self.search.restart(last + 1);
                    self.state = State::Searching;
                }
            }
        }
        self.trim();
    }

    /// Forgets samples that nothing can need any more.
    fn trim(&mut self) {
        let needed = match &self.state {
            State::Searching => self.search.needs().0 - BACK,
            State::Found(hit) => hit.peak - BACK,
            State::Claimed(start) => start.sample - AHEAD as i64,
        };
        if needed - self.first > TRIM {
            let unneeded = (needed - self.first).min((self.values.len() / 2) as i64);
            self.values.drain(..2 * unneeded as usize);
            self.first += unneeded;
        }
    }
}

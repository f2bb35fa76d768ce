//! Known values in place of an output's own, for who looks at what comes behind an engine.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use dsp::OutputBits;
use ground::{N_POL, Timestamp};

use super::OutputChunk;
use crate::config::OutputConfig;

/// What is sent in place of an output's own values.
///
/// Components count −127 to 127, or −7 to 7 of 4 bits; of n, component c(n) is n modulo 255 (15)
/// less 127 (7). `S` is the number of the spectrum: its timestamp over the samples from spectrum to
/// spectrum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestPattern {
    /// Where and when a value belongs: polarisation 0 of channel k has c(k) and c(k/255), that of
    /// spectrum S polarisation 1 c(S) and c(S/255); of 4 bits 15 in place of 255.
    Ramp,
    /// A quarter of full scale, 32 or 2: polarisation 0 real, polarisation 1 imaginary. The
    /// polarisations' product x·y* is −1024j, or −4j.
    Constant,
    /// Who sent it: polarisation 0 has c(F) and c(F/255) of the engine's number F (`--feng-id`),
    /// polarisation 1 the same in the other order.
    Feng,
}

/// There is no such pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be ramp, constant, feng or off")]
pub struct UnknownPattern;

impl TestPattern {
    /// All.
    pub const ALL: [Self; 3] = [Self::Ramp, Self::Constant, Self::Feng];

    /// As requests have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ramp => "ramp",
            Self::Constant => "constant",
            Self::Feng => "feng",
        }
    }

    /// Both parts of both polarisations of a channel and spectrum.
    pub fn jones(self, bits: OutputBits, feng_id: u64, channel: usize, spectrum: u64) -> [i8; 4] {
        let limit = bits.limit() as i64;
        let count = 2 * limit as u64 + 1;
        let part = |n: u64| ((n % count) as i64 - limit) as i8;
        match self {
            Self::Ramp => {
                let k = channel as u64;
                [k, k / count, spectrum, spectrum / count].map(part)
            }
            Self::Constant => {
                let quarter = ((limit + 1) / 4) as i8;
                [quarter, 0, 0, quarter]
            }
            Self::Feng => {
                let [low, high] = [feng_id, feng_id / count].map(part);
                [low, high, high, low]
            }
        }
    }

    /// Writes it over a batch of a chunk of `output`, none of whose samples is clamped.
    fn fill(self, chunk: &mut OutputChunk, batch: usize, output: &OutputConfig, feng_id: u64) {
        match output.sample_bits {
            OutputBits::Eight => self.rows(chunk, batch, output, feng_id, |parts| {
                parts.map(|part| part as u8)
            }),
            OutputBits::Four => self.rows(chunk, batch, output, feng_id, |parts| {
                let [a, b, c, d] = parts.map(|part| part as u8 & 0xF);
                [a << 4 | b, c << 4 | d]
            }),
        }
    }

    /// The same for values of `N` bytes each. Polarisation 0 depends on the channel alone and
    /// polarisation 1 on the spectrum alone, so that each value is put together of two: this has
    /// to keep up with the engine.
    fn rows<const N: usize>(
        self,
        chunk: &mut OutputChunk,
        batch: usize,
        output: &OutputConfig,
        feng_id: u64,
        pack: impl Fn([i8; 4]) -> [u8; N],
    ) {
        let value =
            |channel, spectrum| pack(self.jones(output.sample_bits, feng_id, channel, spectrum));
        let spectra = output.spectra_per_heap();
        let first = chunk.start().0 / output.spectrum_samples() as u64 + (batch * spectra) as u64;
        let span = chunk.writer().span();
        span.stats[batch].clipped = [0; N_POL];
        let bytes = output.batch_bytes();
        let data = &mut span.data[batch * bytes..][..bytes];
        let of_spectra = (first..).take(spectra).map(|spectrum| {
            let mut of = value(0, spectrum);
            of[..N / 2].fill(0);
            of
        });
        let of_spectra: Vec<_> = of_spectra.collect();
        let rows = data.as_chunks_mut::<N>().0.chunks_exact_mut(spectra);
        for (channel, row) in rows.take(output.channels).enumerate() {
            let mut of_channel = value(channel, 0);
            of_channel[N / 2..].fill(0);
            for (to, of_spectrum) in row.iter_mut().zip(&of_spectra) {
                *to = std::array::from_fn(|byte| of_channel[byte] | of_spectrum[byte]);
            }
        }
    }
}

impl fmt::Display for TestPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TestPattern {
    type Err = UnknownPattern;

    fn from_str(name: &str) -> Result<Self, UnknownPattern> {
        let found = Self::ALL.into_iter().find(|pattern| pattern.name() == name);
        found.ok_or(UnknownPattern)
    }
}

/// A pattern, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRequest {
    /// What to send.
    pub pattern: TestPattern,
    /// Samples after which the output's own values are sent again.
    pub samples: u64,
}

/// Which batches of an output have a pattern.
#[derive(Debug, Default)]
pub(super) struct TestSchedule {
    /// From which timestamp on what was asked for, in order.
    asked: VecDeque<(Timestamp, Option<TestRequest>)>,
    /// At work, until the timestamp.
    active: Option<(TestPattern, Timestamp)>,
}

impl TestSchedule {
    /// Batches from here on are to have this, or their own values.
    pub fn ask(&mut self, from: Timestamp, request: Option<TestRequest>) {
        // Without input no chunk takes what was asked for before.
        while self.asked.back().is_some_and(|(before, _)| *before >= from) {
            self.asked.pop_back();
        }
        self.asked.push_back((from, request));
    }

    /// Writes over the batches of the next chunk what they should have, and tells from which batch
    /// on that changes; `None` is told where an output's own values are sent again.
    ///
    /// A pattern begins with a batch that is sent: which that is does not depend on where chunks
    /// begin. It ends also where none is sent.
    pub fn apply(
        &mut self,
        chunk: &mut OutputChunk,
        output: &OutputConfig,
        feng_id: u64,
        mut tell: impl FnMut(Timestamp, Option<TestPattern>),
    ) {
        let step = output.batch_samples() as u64;
        for batch in 0..chunk.batches() {
            let is_sent = chunk.present(batch);
            let at = chunk.start() + batch as u64 * step;
            let before = self.active.map(|(pattern, _)| pattern);
            while let Some((from, request)) = self.asked.front().copied() {
                if from > at || request.is_some() && !is_sent {
                    break;
                }
                self.asked.pop_front();
                // Without input the first batch may come long after `from`.
                self.active = request.map(|request| (request.pattern, at + request.samples));
            }
            self.active = self.active.filter(|(_, until)| at < *until);
            let now = self.active.map(|(pattern, _)| pattern);
            if let Some(pattern) = now
                && is_sent
            {
                pattern.fill(chunk, batch, output, feng_id);
            }
            if now != before {
                tell(at, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HostAllocator, OutputMemory};

    #[test]
    fn patterns_are_as_they_are_told() {
        let eight = |pattern: TestPattern, k, s| pattern.jones(OutputBits::Eight, 300, k, s);
        assert_eq!(eight(TestPattern::Ramp, 0, 0), [-127, -127, -127, -127]);
        assert_eq!(eight(TestPattern::Ramp, 254, 255), [127, -127, -127, -126]);
        assert_eq!(eight(TestPattern::Ramp, 300, 0), [-82, -126, -127, -127]);
        assert_eq!(eight(TestPattern::Constant, 9, 9), [32, 0, 0, 32]);
        assert_eq!(eight(TestPattern::Feng, 9, 9), [-82, -126, -126, -82]);
        let four = |pattern: TestPattern, k, s| pattern.jones(OutputBits::Four, 16, k, s);
        assert_eq!(four(TestPattern::Ramp, 14, 15), [7, -7, -7, -6]);
        assert_eq!(four(TestPattern::Constant, 0, 0), [2, 0, 0, 2]);
        assert_eq!(four(TestPattern::Feng, 0, 0), [-6, -6, -6, -6]);
    }

    #[test]
    fn names_are_read_back() {
        for pattern in TestPattern::ALL {
            assert_eq!(pattern.name().parse(), Ok(pattern));
        }
        assert_eq!("off".parse::<TestPattern>(), Err(UnknownPattern));
    }

    /// Of 8 and of 4 bits, every value is where the wire has it; the pattern ends by itself, or
    /// when another is asked for.
    #[test]
    fn chunks_have_patterns_while_they_are_asked_for() {
        let wideband = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
        for bits in [OutputBits::Eight, OutputBits::Four] {
            let mut config = crate::config::tests::engine(wideband, |_| {});
            config.outputs[0].sample_bits = bits;
            let output = &config.outputs[0];
            let step = 2 * output.batch_samples() as u64;
            let memory = OutputMemory::new(2, output.batch_bytes(), &HostAllocator::default());
            let mut chunk = OutputChunk::lone(memory.unwrap());
            let mut schedule = TestSchedule::default();
            let ask = |pattern, samples| Some(TestRequest { pattern, samples });
            schedule.ask(Timestamp(step), ask(TestPattern::Ramp, 2 * step));
            schedule.ask(Timestamp(5 * step), ask(TestPattern::Feng, 9 * step));
            schedule.ask(Timestamp(6 * step), ask(TestPattern::Constant, 9 * step));
            schedule.ask(Timestamp(7 * step), None);
            let (ramp, feng, constant) =
                (TestPattern::Ramp, TestPattern::Feng, TestPattern::Constant);
            let expected = [
                (None, None),
                (Some(Some(ramp)), Some(ramp)),
                (None, Some(ramp)),
                (Some(None), None),
                (None, None),
                (Some(Some(feng)), Some(feng)),
                (Some(Some(constant)), Some(constant)),
                (Some(None), None),
            ];
            for (i, (change, pattern)) in expected.into_iter().enumerate() {
                let start = Timestamp(i as u64 * step);
                chunk.writer().begin(start);
                chunk.writer().span().data.fill(0x55);
                chunk.writer().span().stats[1].clipped = [9, 9];
                let changes = changes(&mut schedule, &mut chunk, output);
                let change = change.map(|pattern| (start.0, pattern));
                assert_eq!(changes, Vec::from_iter(change), "chunk {i}");
                let clamped = chunk.stats(1).clipped;
                let Some(pattern) = pattern else {
                    assert!(chunk.batch(1).iter().all(|byte| *byte == 0x55), "chunk {i}");
                    assert_eq!(clamped, [9, 9], "chunk {i}");
                    continue;
                };
                assert_eq!(clamped, [0, 0], "chunk {i}");
                let size = output.sample_bits.jones_bytes();
                for at in 0..64 * 32 {
                    let (channel, spectrum) = (at / 32, at % 32);
                    let number = (2 * i + 1) * 32 + spectrum;
                    let parts = pattern.jones(output.sample_bits, 3, channel, number as u64);
                    let bytes = &chunk.batch(1)[at * size..][..size];
                    match bits {
                        OutputBits::Eight => assert_eq!(*bytes, parts.map(|part| part as u8)),
                        OutputBits::Four => {
                            let pols = [0, 1].map(|pol| dsp::quantise::nibbles(bytes[pol]));
                            assert_eq!(pols.concat(), parts);
                        }
                    }
                }
            }
        }
    }

    /// What changes with a chunk.
    fn changes(
        schedule: &mut TestSchedule,
        chunk: &mut OutputChunk,
        output: &OutputConfig,
    ) -> Vec<(u64, Option<TestPattern>)> {
        let mut changes = Vec::new();
        schedule.apply(chunk, output, 3, |at, pattern| {
            changes.push((at.0, pattern))
        });
        changes
    }

    /// A pattern that was asked for before there was input lasts as long as any other, and wherever
    /// chunks begin it is in the same batches.
    #[test]
    fn a_pattern_begins_with_the_first_batch_that_is_sent() {
        let wideband = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
        let config = crate::config::tests::engine(wideband, |_| {});
        let output = &config.outputs[0];
        let step = output.batch_samples() as u64;
        let request = TestRequest {
            pattern: TestPattern::Ramp,
            samples: 3 * step,
        };
        let (begin, end) = ((101 * step, Some(TestPattern::Ramp)), (104 * step, None));
        for batches in 1..=8 {
            let memory =
                OutputMemory::new(batches, output.batch_bytes(), &HostAllocator::default());
            let mut chunk = OutputChunk::lone(memory.unwrap());
            let mut schedule = TestSchedule::default();
            schedule.ask(Timestamp(0), Some(request));
            let (mut told, mut with) = (Vec::new(), Vec::new());
            for first in (98..106).step_by(batches) {
                chunk.writer().begin(Timestamp(first * step));
                chunk.writer().span().data.fill(0x55);
                for batch in 0..batches {
                    // Some lack input, and so do all from one on.
                    if matches!(first + batch as u64, ..101 | 103..) {
                        chunk.writer().mark_absent(batch);
                    }
                }
                told.extend(changes(&mut schedule, &mut chunk, output));
                let has = |batch: &usize| chunk.batch(*batch).iter().any(|byte| *byte != 0x55);
                with.extend((0..batches).filter(has).map(|batch| first + batch as u64));
            }
            assert_eq!(told, [begin, end], "{batches}");
            assert_eq!(with, [101, 102], "{batches}");
        }
    }
}

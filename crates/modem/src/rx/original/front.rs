//! The parts put together: samples to the symbols of frames.

use std::collections::VecDeque;

use num_complex::Complex32;

use super::{
    CoarseCarrier, EarlyLate, GainControl, PacketControl, PacketEvent, PeakDetector, Timing,
    TimingState, VariableDelay,
};
use crate::rx::acquirer::LIMIT;
use crate::rx::config::RxConfig;
use crate::rx::correct::{Correction, Corrector};
use crate::rx::frame::Counts;
use crate::rx::search::{CHUNK, REACH};
use crate::rx::simd::{self, Level};
use crate::rx::solve::Planar;
use crate::waveform::{BODY_SYMBOLS, CEF_SYMBOLS, HEADER_SYMBOLS, rrc_taps};

/// Samples after which timing hears of the end of a frame, and the gain control of its begin and
/// its end: 13 blocks of 120 samples in a loop over several cores, and 360 symbols by which signals
/// are brought into line. Of a field that follows at once, 33 repetitions of 60 are left then.
pub const FEEDBACK: u32 = 13 * 120 + 3 * 360;
/// Samples by which the early-late loop comes late: 4 blocks.
const LOOP_LATE: usize = 4 * 120;
/// Samples by which a signal is late that came where its first peak was.
const MIDDLE: u64 = 22;
/// Symbols behind the short training field.
const BEHIND: usize = CEF_SYMBOLS + HEADER_SYMBOLS + BODY_SYMBOLS;

/// The symbols of a frame.
pub(crate) struct Packet<'a> {
    /// From half the taps before the channel estimation field to half of them behind the body.
    pub symbols: Planar<'a>,
    /// Centre of the field's first symbol, in samples of the stream.
    pub sample: f64,
    /// Part by which the transmitter's samples are longer than the receiver's.
    pub clock: f64,
    /// What was taken off, in radians per symbol.
    pub frequency: f64,
    /// Amplitude of a symbol at the matched filter's output.
    pub amplitude: f64,
}

/// A packet of which symbols still come.
struct Begun {
    symbols: [Vec<f32>; 2],
    /// Sample behind the delay of the last symbol before the field, and the delay there.
    at: (u64, f32),
    gain: f32,
    frequency: f64,
}

/// The original's receiver up to the equaliser.
pub(crate) struct Front {
    level: Level,
    taps: usize,
    filter: Vec<f32>,
    corrector: Option<Corrector>,
    /// Samples that are to be filtered, from [`REACH`] before the next one on.
    values: Vec<f32>,
    filtered: Vec<f32>,
    /// The number of the next sample.
    next: u64,
    parts: Parts,
    /// The sample's number modulo 3 at which there are symbols.
    third: u64,
    velocities: VecDeque<f32>,
    feedback: Feedback,
    /// The last symbols, half as many as taps.
    recent: VecDeque<Complex32>,
    begun: Option<Begun>,
    training: bool,
    ended: bool,
    pub counts: Counts,
}

#[derive(Default)]
struct Parts {
    gain: GainControl,
    peaks: PeakDetector,
    timing: Timing,
    delay: VariableDelay,
    early_late: EarlyLate,
    packets: PacketControl,
    carrier: CoarseCarrier,
}

/// Signals that come late: the samples at which they arrive.
#[derive(Default)]
struct Feedback {
    late: u64,
    resets: VecDeque<u64>,
    freezes: VecDeque<(u64, bool)>,
    frozen: bool,
}

impl Feedback {
    /// Whether timing is reset at a sample; the gain is frozen or freed then.
    fn arrives(&mut self, now: u64) -> bool {
        if self.freezes.front().is_some_and(|(at, _)| *at <= now) {
            self.frozen = self.freezes.pop_front().is_some_and(|(_, frozen)| frozen);
        }
        let reset = self.resets.front().is_some_and(|at| *at <= now);
        if reset {
            self.resets.pop_front();
        }
        reset
    }
}

impl Front {
    /// For an equaliser as in `config`, with so many samples of feedback.
    pub fn new(config: &RxConfig, feedback: u32) -> Front {
        Front {
            level: config.level,
            taps: config.taps,
            filter: rrc_taps().iter().map(|&tap| tap as f32).collect(),
            corrector: config.correct.then(|| Corrector::new(config.level)),
            values: vec![0.0; 2 * REACH],
            filtered: vec![0.0; 2 * CHUNK],
            next: 0,
            parts: Parts::default(),
            third: 0,
            velocities: VecDeque::from([0.0; LOOP_LATE]),
            feedback: Feedback {
                late: feedback.into(),
                ..Feedback::default()
            },
            recent: vec![Complex32::ZERO; config.taps / 2].into(),
            begun: None,
            training: false,
            ended: false,
            counts: Counts::default(),
        }
    }

    /// What is taken off samples, if anything.
    pub fn correction(&self) -> Option<Correction> {
        self.corrector.as_ref().map(Corrector::correction)
    }

    /// Takes samples in and hands on each frame whose symbols are complete.
    pub fn push(&mut self, samples: &[Complex32], mut emit: impl FnMut(&Packet)) {
        self.counts.samples += samples.len() as u64;
        self.counts.bad_samples += match &mut self.corrector {
            Some(corrector) => corrector.push(samples, &mut self.values),
            None => simd::take_in(self.level, LIMIT, samples, &mut self.values),
        };
        self.advance(&mut emit);
    }

    /// Ends the stream: hands on a frame whose last symbol has come, and counts what is cut.
    pub fn finish(&mut self, mut emit: impl FnMut(&Packet)) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some(corrector) = &mut self.corrector {
            corrector.finish(&mut self.values);
        }
        // Filter, delays and the equaliser's window behind the last symbol, and a whole chunk.
        let behind = 2 * REACH + 100 + 3 * self.taps + CHUNK;
        self.values.resize(self.values.len() + 2 * behind, 0.0);
        self.advance(&mut emit);
        if self.begun.take().is_some() || self.training {
            self.counts.cut += 1;
        }
    }

    fn advance(&mut self, emit: &mut impl FnMut(&Packet)) {
        let whole = 2 * (CHUNK + 2 * REACH);
        let mut done = 0;
        while self.values.len() - done >= whole {
            let mut filtered = std::mem::take(&mut self.filtered);
            let chunk = &self.values[done..done + whole];
            simd::filter(self.level, chunk, &self.filter, &mut filtered);
            for x in filtered.as_chunks::<2>().0 {
                self.sample(Complex32::new(x[0], x[1]), emit);
            }
            self.filtered = filtered;
            done += 2 * CHUNK;
        }
        self.values.drain(..done);
    }

    /// A sample of the matched filter.
    fn sample(&mut self, x: Complex32, emit: &mut impl FnMut(&Packet)) {
        let now = self.next;
        self.next += 1;
        let parts = &mut self.parts;
        if self.feedback.arrives(now) {
            parts.timing.reset();
            parts.early_late.reset();
        }
        let x = parts.gain.next(x, self.feedback.frozen);
        let seen = parts.peaks.next(x);
        let velocity = self.velocities.pop_front().unwrap_or(0.0);
        if parts.timing.next(&seen, velocity) {
            self.third = (now + MIDDLE - PeakDetector::LATE as u64) % 3;
        }
        let y = parts.delay.next(x, parts.timing.delay());
        let velocity = parts.early_late.next(y, (now + 2) % 3 == self.third);
        let follows = parts.timing.state() == TimingState::Done;
        self.velocities
            .push_back(if follows { velocity } else { 0.0 });
        if now % 3 == self.third {
            self.symbol(now, y, emit);
        }
    }

    /// A symbol, at a sample behind the delay.
    fn symbol(&mut self, now: u64, y: Complex32, emit: &mut impl FnMut(&Packet)) {
        let parts = &mut self.parts;
        let (event, correlation) = parts.packets.next(y);
        if event == PacketEvent::Estimation {
            parts.carrier.freeze();
        }
        parts.carrier.take(correlation);
        let z = parts.carrier.turn(y);
        self.recent.push_back(z);
        self.recent.pop_front();
        if let Some(begun) = &mut self.begun {
            begun.symbols[0].push(z.re);
            begun.symbols[1].push(z.im);
            if begun.symbols[0].len() == BEHIND + self.taps {
                self.complete(now, emit);
            }
        }
        self.follow(event, now);
    }

    fn follow(&mut self, event: PacketEvent, now: u64) {
        let parts = &mut self.parts;
        let arrives = now + self.feedback.late;
        match event {
            PacketEvent::Nothing => {}
            PacketEvent::Training => {
                self.training = true;
                self.counts.detected += 1;
                parts.carrier.begin();
            }
            PacketEvent::Estimation => {
                self.training = false;
                let part = |part: fn(&Complex32) -> f32| self.recent.iter().map(part).collect();
                self.begun = Some(Begun {
                    symbols: [part(|z| z.re), part(|z| z.im)],
                    at: (now, parts.timing.delay()),
                    gain: parts.gain.gain(),
                    frequency: parts.carrier.frequency(),
                });
                self.feedback.freezes.push_back((arrives, true));
            }
            PacketEvent::Lost => {
                self.training = false;
                self.counts.not_acquired += 1;
                parts.carrier.reset();
                self.feedback.resets.push_back(arrives);
            }
            PacketEvent::Over => {
                parts.carrier.reset();
                self.feedback.resets.push_back(arrives);
                self.feedback.freezes.push_back((arrives, false));
            }
        }
    }

    /// Hands on the frame whose last symbol is that at `now`.
    fn complete(&mut self, now: u64, emit: &mut impl FnMut(&Packet)) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        let (at, delay) = begun.at;
        let grown = f64::from(self.parts.timing.delay() - delay);
        let clock = -grown / (now - at) as f64;
        let sample = at as f64 - f64::from(delay) + 3.0 * (1.0 + clock);
        let last = sample + 3.0 * (BEHIND - 1) as f64;
        if self.ended && last >= self.counts.samples as f64 {
            self.counts.cut += 1;
            return;
        }
        let [re, im] = &begun.symbols;
        let field = re.iter().zip(im).skip(self.taps / 2).take(CEF_SYMBOLS);
        let power: f64 = field.map(|(a, b)| f64::from(a * a + b * b)).sum();
        emit(&Packet {
            symbols: (re, im),
            sample,
            clock,
            frequency: begun.frequency,
            amplitude: (power / CEF_SYMBOLS as f64).sqrt() / f64::from(begun.gain),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::tests::{frame, stream};
    use crate::waveform::{
        BLANK_SYMBOLS, FRAME_SYMBOLS, GOLAY_LENGTH, Modulation, STF_REPETITIONS,
    };

    #[test]
    fn feedback_leaves_as_much_of_the_next_field_as_the_reference_says() {
        let frames = [frame(Modulation::Qpsk, 1), frame(Modulation::Qpsk, 2)];
        let samples = stream(&frames, 1000, BLANK_SYMBOLS);
        let repetitions = STF_REPETITIONS * GOLAY_LENGTH;
        let end = 24 + 3 * (1000 + FRAME_SYMBOLS + BLANK_SYMBOLS + repetitions);
        let mut front = Front::new(&RxConfig::default(), FEEDBACK);
        let values: Vec<f32> = samples.iter().flat_map(|x| [x.re, x.im]).collect();
        front.values.extend(values);
        front.values.extend([0.0; 8 * CHUNK]);
        let (mut states, mut packets) = (Vec::new(), 0);
        let whole = 2 * (CHUNK + 2 * REACH);
        for from in (0..front.values.len() - whole).step_by(2 * CHUNK) {
            let mut filtered = vec![0.0; 2 * CHUNK];
            let chunk = &front.values[from..from + whole];
            simd::filter(front.level, chunk, &front.filter, &mut filtered);
            for x in filtered.as_chunks::<2>().0 {
                front.sample(Complex32::new(x[0], x[1]), &mut |_: &Packet| packets += 1);
                states.push(front.parts.timing.state());
            }
        }
        assert_eq!(packets, 2);
        let freed = states
            .windows(2)
            .position(|pair| pair[0] == TimingState::Done && pair[1] != TimingState::Done);
        let left = (end - freed.unwrap()) as f64 / 96.0;
        assert!((left - 33.0).abs() < 0.5, "{left}");
    }
}

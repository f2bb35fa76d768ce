//! What a receiver lets its page see: gathered only as often as the page asks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use karoo_fft::Fft;
use karoo_modem::rx::{Correction, Counts, Metered, Outcome, ReceivedFrame};
use karoo_modem::waveform::{FRAME_SYMBOLS, Modulation, SAMPLES_PER_SYMBOL};
use num_complex::Complex32;

use super::eye::eye;
use super::intake::IntakeCounts;
use crate::report::modem::{Corrected, InputLevel, InputMeter};

/// Samples of one spectrum, and spectra of which a mean is taken.
pub(super) const BINS: usize = 512;
const SPECTRA: usize = 32;
/// Points of a constellation.
const POINTS: usize = 3000;
/// Samples of a frame.
const FRAME: usize = FRAME_SYMBOLS * SAMPLES_PER_SYMBOL;
/// Frames that the page's log has.
const LINES: usize = 20;
const SECOND: Duration = Duration::from_secs(1);

/// What is to be seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub counts: Counts,
    /// Numbers that are missing between delivered frames, if frames have numbers.
    pub missing: Option<u64>,
    pub packets: Option<IntakeCounts>,
    pub bytes: u64,
    pub sample_rate: Option<f64>,
    /// Level of about the last second, and parts at full scale since the begin, where one is known.
    pub level: InputLevel,
    pub clipped: Option<u64>,
    /// What is taken off the input, if that is asked for.
    pub correction: Option<Corrected>,
    /// Powers, negative frequencies first, and of how many spectra.
    pub spectrum: Vec<f64>,
    pub spectra: u64,
    pub modulation: Option<Modulation>,
    pub points: Vec<Complex32>,
    pub eye: Vec<[f32; 2]>,
    pub taps: Vec<Complex32>,
    pub last: Option<LastFrame>,
    /// The newest frames, the newest first.
    pub lines: VecDeque<FrameLine>,
    pub ended: bool,
}

/// What is known of the newest frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastFrame {
    pub evm: f64,
    pub snr_db: f64,
    pub frequency: f64,
    pub clock_ppm: f64,
}

/// A frame as a line.
#[derive(Clone, Debug)]
pub(super) struct FrameLine {
    pub time: f64,
    pub modulation: Modulation,
    pub outcome: Outcome,
    pub text: String,
}

/// Shared by the receiver and its page.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub wanted: AtomicBool,
    /// Whether the sender, if it is known, has had nothing to send yet.
    pub unsent: AtomicBool,
    seen: Mutex<Seen>,
}

impl Shared {
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        ground::lock(&self.seen)
    }
}

/// The sender's side, where it is known: tells once that a frame is sent.
pub struct FirstSent(Arc<Shared>);

impl FirstSent {
    /// Tells that the first frame is sent.
    pub fn tell(self) {
        self.0.unsent.store(false, Ordering::Relaxed);
    }
}

/// The receiver's side.
pub struct Watcher {
    pub(super) shared: Arc<Shared>,
    fft: Arc<dyn Fft<f32>>,
    window: Vec<f32>,
    kept: Vec<Complex32>,
    /// How many samples are kept for the eye.
    most: usize,
    /// Place of the first sample that is kept.
    first: u64,
    /// How many of the newest are still to come into a spectrum: blocks may be shorter than one.
    fresh: usize,
    /// What the input's meter had seen when the level was told, and when that was.
    metered: (Metered, Option<Instant>),
}

impl Watcher {
    /// One beside a receiver that decodes on so many threads: each of these has up to three frames,
    /// whose samples are looked at when they come back.
    pub fn new(threads: usize) -> Self {
        let turn = std::f64::consts::TAU / BINS as f64;
        Self {
            shared: Arc::default(),
            fft: karoo_fft::forward_f32(BINS),
            // Hann.
            window: (0..BINS)
                .map(|n| (0.5 - 0.5 * (turn * n as f64).cos()) as f32)
                .collect(),
            kept: Vec::new(),
            most: (6 + 3 * threads) * FRAME,
            first: 0,
            fresh: 0,
            metered: (Metered::default(), None),
        }
    }

    /// What the sender of these samples has to tell when it sends its first frame: until then none
    /// is missed.
    pub fn first_sent(&self) -> FirstSent {
        self.shared.unsent.store(true, Ordering::Relaxed);
        FirstSent(self.shared.clone())
    }

    /// The stream begins anew.
    pub fn restart(&mut self) {
        self.kept.clear();
        (self.first, self.fresh) = (0, 0);
    }

    /// Takes the samples that the receiver is given.
    pub fn samples(&mut self, block: &[Complex32]) {
        // Twice as many are kept before half of them go, so that they are seldom moved.
        if self.kept.len() + block.len() > 2 * self.most {
            let surplus = (self.kept.len() + block.len() - self.most).min(self.kept.len());
            self.kept.drain(..surplus);
            self.first += surplus as u64;
        }
        self.kept.extend_from_slice(block);
        let fresh = (self.fresh + block.len()).min(self.kept.len());
        self.fresh = fresh % BINS;
        let mut seen = self.shared.seen();
        // With each document they begin anew.
        if seen.spectra >= SPECTRA as u64 || fresh < BINS {
            return;
        }
        seen.spectrum.resize(BINS, 0.0);
        let from = self.kept.len() - fresh;
        for samples in self.kept[from..].chunks_exact(BINS) {
            if seen.spectra >= SPECTRA as u64 || !samples.iter().all(|x| x.is_finite()) {
                break;
            }
            let windowed = samples.iter().zip(&self.window);
            let mut bins: Vec<Complex32> = windowed.map(|(x, window)| x * window).collect();
            self.fft.process(&mut bins);
            for (i, bin) in bins.iter().enumerate() {
                seen.spectrum[(i + BINS / 2) % BINS] += f64::from(bin.norm_sqr());
            }
            seen.spectra += 1;
        }
    }

    /// Takes the level of the input, once a second.
    pub fn level(&mut self, meter: &InputMeter, now: Instant) {
        let told = self.metered.1;
        if told.is_none_or(|told| now.saturating_duration_since(told) >= SECOND) {
            self.tell_level(meter);
            self.metered.1 = Some(now);
        }
    }

    fn tell_level(&mut self, meter: &InputMeter) {
        let all = meter.seen();
        let before = std::mem::replace(&mut self.metered.0, all);
        let mut seen = self.shared.seen();
        seen.level = meter.of(&all.since(&before));
        seen.clipped = meter.of(&all).clipped;
    }

    /// Takes a frame, whose payload is readable.
    pub fn frame(&mut self, frame: &ReceivedFrame, time: f64) {
        let line = FrameLine {
            time,
            modulation: frame.modulation(),
            outcome: frame.outcome,
            text: readable(frame.payload()),
        };
        // One frame for each document is enough.
        let wanted = self.shared.wanted.swap(false, Ordering::Relaxed);
        let eye = wanted.then(|| eye(&self.kept, self.first, frame));
        let mut seen = self.shared.seen();
        seen.lines.push_front(line);
        seen.lines.truncate(LINES);
        seen.last = Some(LastFrame {
            evm: frame.evm,
            snr_db: frame.snr_db,
            frequency: frame.frequency,
            clock_ppm: frame.clock_ppm,
        });
        let Some(eye) = eye else { return };
        let each = frame.points.len().div_ceil(POINTS).max(1);
        seen.modulation = Some(frame.modulation());
        seen.points = frame.points.iter().step_by(each).copied().collect();
        seen.taps.clone_from(&frame.taps);
        seen.eye = eye;
    }

    /// Tells how many numbers are missing between delivered frames, if frames have numbers.
    pub fn missing(&self, missing: Option<u64>) {
        self.shared.seen().missing = missing;
    }

    /// Tells what is taken off the input.
    pub fn correction(&self, correction: Option<Correction>) {
        self.shared.seen().correction = correction.map(Corrected::from);
    }

    /// Tells what was counted.
    pub fn counts(
        &self,
        counts: Counts,
        bytes: u64,
        packets: Option<IntakeCounts>,
        sample_rate: Option<f64>,
    ) {
        let mut seen = self.shared.seen();
        seen.counts = counts;
        seen.bytes = bytes;
        seen.packets = packets;
        seen.sample_rate = sample_rate;
    }

    /// Tells that no more comes.
    pub fn end(&mut self, meter: &InputMeter) {
        // The last level stays.
        if meter.seen().samples > self.metered.0.samples {
            self.tell_level(meter);
        }
        self.shared.seen().ended = true;
    }
}

/// The begin of a payload, if it is text.
fn readable(payload: &[u8]) -> String {
    const MOST: usize = 160;
    let begin = &payload[..payload.len().min(MOST)];
    let text = String::from_utf8_lossy(begin);
    let other = |c: char| c.is_control() && !c.is_whitespace() || c == char::REPLACEMENT_CHARACTER;
    // A character may be cut at the end.
    match text.trim_end_matches(char::REPLACEMENT_CHARACTER) {
        text if text.contains(other) => format!("{} bytes", payload.len()),
        text => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet has 360 samples, and each may be a block where they come slowly.
    #[test]
    fn short_blocks_have_the_spectrum_of_long_ones() {
        let tone = |n: usize| Complex32::cis(0.7 * n as f32);
        let samples: Vec<Complex32> = (0..40 * BINS).map(tone).collect();
        let spectrum = |block: usize| {
            let mut watcher = Watcher::new(0);
            samples
                .chunks(block)
                .for_each(|block| watcher.samples(block));
            let seen = watcher.shared.seen();
            (seen.spectra, seen.spectrum.clone())
        };
        let long = spectrum(samples.len());
        assert_eq!(long.0, SPECTRA as u64);
        assert_eq!(spectrum(360), long);
        assert_eq!(spectrum(1), long);
    }
}

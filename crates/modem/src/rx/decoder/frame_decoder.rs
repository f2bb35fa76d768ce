//! One frame: symbols, training, header, body, and the loops that follow carrier and timing.

use std::f64::consts::{FRAC_PI_2, TAU};

use num_complex::{Complex32, Complex64};

use super::{BLOCK, Block, Decoder, RUN};
use crate::rx::bank::{LEAD, TAPS};
use crate::rx::config::{Equaliser, ModeVote};
use crate::rx::decide::{SoftBits, decide, pack};
use crate::rx::fit::Fit;
use crate::rx::frame::{Missed, Outcome, ReceivedFrame};
use crate::rx::original;
use crate::rx::samples::Samples;
use crate::rx::search::PERIOD;
use crate::rx::simd;
use crate::rx::solve::least_squares;
use crate::waveform::{
    BODY_SYMBOLS, CEF_SYMBOLS, HEADER_BYTES, HEADER_SYMBOLS, Header, Modulation,
    SAMPLES_PER_SYMBOL, STF_REPETITIONS, decide as nearest, mode_by_majority, mode_by_soft_values,
    point,
};

/// Samples per symbol.
const RATE: f64 = SAMPLES_PER_SYMBOL as f64;
/// Proportional and integral part of the carrier loop, per block: a decision-directed phase-locked
/// loop (PLL) of second order.
const CARRIER: (f64, f64) = (0.125, 0.004);
/// Proportional and integral part of the timing loop, per block.
const TIMING: (f64, f64) = (0.05, 0.0006);
/// Slope of the timing error per symbol: 2 |g′(1)| = π/2 for the raised cosine with roll-off ½.
const TIMING_SLOPE: f64 = FRAC_PI_2;
/// Largest timing error of a block that is believed, in symbols.
const TIMING_LIMIT: f64 = 0.2;

/// The largest step of least mean squares that taps take from a block of `count` symbols: one over
/// Σₖ Σᵢ |y[k + i]|². No eigenvalue of the block's Σ y yᴴ is above that sum, so that no update
/// makes an error of the block larger than it was, whatever the payload: the sum is the eigenvalue
/// where the payload is a tone, as padding is.
fn largest_step(y: (&[f32], &[f32]), count: usize, taps: usize) -> f32 {
    let power = |k: usize| y.0[k] * y.0[k] + y.1[k] * y.1[k];
    let mut of_tap: f32 = (0..count).map(power).sum();
    let mut all = 0.0;
    for tap in 0..taps {
        all += of_tap;
        of_tap += power(tap + count) - power(tap);
    }
    1.0 / all.max(f32::MIN_POSITIVE)
}

/// Where a frame's symbols come from.
pub(super) enum SymbolSource<'a> {
    /// From samples, by interpolation as they are needed.
    Samples(Samples<'a>),
    /// All are there already, with a timing that nothing here can change.
    Given,
}

/// Where the symbols of a frame are, as the loops have it.
struct Track {
    /// Position of the next symbol, in samples after the start of the CEF.
    at: f64,
    /// How much longer a symbol is than three samples, relative.
    clock: f64,
    /// Symbols that are interpolated.
    made: usize,
    /// Rotation of the next symbol, divided by the amplitude.
    turn: Complex64,
    /// Rotation of each symbol of a run, from the first one's on.
    rotation: [[f32; RUN]; 2],
    /// Rotation from one run to the next.
    run: Complex64,
    /// What the carrier loop adds to the frequency, in radians per symbol.
    frequency: f64,
}

impl Track {
    /// From `before` symbols before the CEF on.
    fn new(fit: &Fit, before: usize) -> Track {
        let step = |symbols: f64| Complex64::cis(-fit.frequency * symbols);
        let before = before as f64;
        Track {
            at: fit.fraction - RATE * (1.0 + fit.clock) * before,
            clock: fit.clock,
            made: 0,
            turn: step(-before) / fit.amplitude,
            rotation: [
                std::array::from_fn(|k| step(k as f64).re as f32),
                std::array::from_fn(|k| step(k as f64).im as f32),
            ],
            run: step(RUN as f64),
            frequency: 0.0,
        }
    }
}

/// Decodes one frame, with the settings and the memory of a [`Decoder`].
pub(super) struct FrameDecoder<'a> {
    decoder: &'a mut Decoder,
    source: SymbolSource<'a>,
    fit: Fit,
    track: Track,
}

impl<'a> FrameDecoder<'a> {
    /// For the frame that `fit` describes.
    pub fn new(decoder: &'a mut Decoder, source: SymbolSource<'a>, fit: Fit) -> FrameDecoder<'a> {
        let track = Track::new(&fit, decoder.taps_before());
        FrameDecoder {
            decoder,
            source,
            fit,
            track,
        }
    }

    /// Decodes the frame, if there are taps for it and they do not run away.
    pub fn decode(mut self) -> Result<ReceivedFrame, Missed> {
        let ratio = self.train()?;
        let (header, distance) = self.decide_header();
        let mut frame = ReceivedFrame {
            start: 0,
            start_fraction: 0.0,
            outcome: Outcome::Delivered,
            header,
            body: Vec::new(),
            snr_db: 10.0 * ratio.log10(),
            evm: 0.0,
            frequency: 0.0,
            clock_ppm: 0.0,
            amplitude: self.fit.amplitude,
            taps: Vec::new(),
            points: Vec::new(),
            soft: Vec::new(),
        };
        let error = self.decide_body(header.modulation, ratio, &mut frame);
        if !error.is_finite() {
            return Err(Missed::Equaliser);
        }
        frame.evm = (error / BODY_SYMBOLS as f64).sqrt();
        frame.body = pack(header.modulation, &self.decoder.decided[HEADER_SYMBOLS..]);
        frame.outcome = self.decoder.outcome(&header, distance, &frame.body);
        frame.frequency = (self.fit.frequency + self.track.frequency) / (TAU * RATE);
        frame.clock_ppm = 1e6 * self.track.clock;
        let preamble = PERIOD * (STF_REPETITIONS as i64 + 2);
        let begin = self.fit.fraction - preamble as f64 * self.fit.clock;
        let whole = begin.round();
        let start = self.fit.cef - preamble - LEAD as i64 + whole as i64;
        if let Ok(start) = u64::try_from(start) {
            (frame.start, frame.start_fraction) = (start, begin - whole);
        }
        if self.decoder.config.points {
            if let Some(equaliser) = &self.decoder.lms {
                let taps = equaliser.taps();
                self.set_taps(&taps);
            }
            let [re, im] = &self.decoder.taps;
            let taps = re.iter().zip(im);
            frame.taps = taps.map(|(&re, &im)| Complex32::new(re, im)).collect();
        }
        Ok(frame)
    }

    /// Filters and interpolates until `until` symbols are there.
    fn interpolate_to(&mut self, until: usize) {
        let SymbolSource::Samples(samples) = &self.source else {
            return;
        };
        let track = &mut self.track;
        let [re, im] = &mut self.decoder.filtered;
        while track.made < until && track.made + RUN <= re.len() {
            // The row is that of the middle of the run.
            let half = RATE / 2.0 * (RUN as f64 - 1.0);
            let (n, row) = self.decoder.bank.at(track.at + half * track.clock);
            let from = self.fit.cef + n - LEAD as i64;
            let to = from + (SAMPLES_PER_SYMBOL * (RUN - 1) + TAPS) as i64;
            let run = track.made..track.made + RUN;
            let (re, im) = (&mut re[run.clone()], &mut im[run]);
            match samples.range(from, to) {
                Some(x) => {
                    let turn = [track.turn.re as f32, track.turn.im as f32];
                    let level = self.decoder.config.level;
                    let [a, b] = &track.rotation;
                    simd::interpolate(level, x, row, turn, (a, b), (re, im));
                }
                None => {
                    re.fill(0.0);
                    im.fill(0.0);
                }
            }
            track.made += RUN;
            track.at += RATE * RUN as f64 * (1.0 + track.clock);
            track.turn *= track.run;
        }
    }

    /// Finds the taps by the CEF; tells the ratio of signal to noise.
    fn train(&mut self) -> Result<f64, Missed> {
        let taps = self.decoder.config.taps;
        self.interpolate_to(CEF_SYMBOLS + taps);
        let Decoder {
            config,
            known,
            filtered: [re, im],
            lms,
            ..
        } = &mut *self.decoder;
        let y = (re.as_slice(), im.as_slice());
        let solution = match config.equaliser {
            Equaliser::LeastSquares => {
                let solution = least_squares(config.level, y, known, taps);
                solution.ok_or(Missed::NotAcquired)?
            }
            Equaliser::Lms => {
                let gain = match self.source {
                    // Given symbols have the original's gain.
                    SymbolSource::Given => 1.0,
                    SymbolSource::Samples(_) => original::level(y, known, taps),
                };
                if !gain.is_finite() {
                    return Err(Missed::NotAcquired);
                }
                let trained = original::train(y, known, taps, gain);
                let (solution, equaliser) = trained.ok_or(Missed::Equaliser)?;
                *lms = Some(equaliser);
                solution
            }
        };
        self.set_taps(&solution.taps);
        Ok(solution.ratio)
    }

    fn set_taps(&mut self, taps: &[Complex64]) {
        let [re, im] = &mut self.decoder.taps;
        for ((re, im), tap) in re.iter_mut().zip(im).zip(taps) {
            (*re, *im) = (tap.re as f32, tap.im as f32);
        }
    }

    /// Equalises and decides `count` symbols from `first` symbols after the start of the CEF on;
    /// tells the squared error.
    fn decide_block(&mut self, modulation: Modulation, first: usize, count: usize) -> f64 {
        let taps = self.decoder.config.taps;
        self.interpolate_to(first + count + taps);
        let Decoder {
            config,
            filtered,
            taps: [gr, gi],
            lms,
            block,
            decided,
            ..
        } = &mut *self.decoder;
        let level = config.level;
        let seen = first..first + count + taps;
        let y = (&filtered[0][seen.clone()], &filtered[1][seen]);
        let Block {
            equalised: [zr, zi],
            decisions: [dr, di],
            errors: [er, ei],
        } = block;
        for values in [&mut *zr, &mut *zi, &mut *dr, &mut *di] {
            values[0] = values[BLOCK.min(values.len() - 1)];
        }
        let now = 1..1 + count;
        let from = first - CEF_SYMBOLS;
        let integers = &mut decided[from..from + count];
        match lms {
            Some(equaliser) => {
                equaliser.follow(y, 0, count, |i, z| {
                    integers[i] = nearest(modulation, z);
                    let d = point(modulation, integers[i]);
                    (zr[1 + i], zi[1 + i]) = (z.re as f32, z.im as f32);
                    (dr[1 + i], di[1 + i]) = (d.re as f32, d.im as f32);
                    d
                });
            }
            None => {
                let g = (gr.as_slice(), gi.as_slice());
                simd::equalise(level, g, y, (&mut zr[now.clone()], &mut zi[now.clone()]));
                let d = (&mut dr[now.clone()], &mut di[now.clone()]);
                decide(level, modulation, (&zr[now.clone()], &zi[now]), d, integers);
            }
        }
        let step = match config.equaliser {
            Equaliser::LeastSquares if config.step > 0.0 => {
                config.step.min(largest_step(y, count, taps))
            }
            Equaliser::LeastSquares | Equaliser::Lms => 0.0,
        };
        let e = (&mut er[..count], &mut ei[..count]);
        let all = 0..1 + count;
        let z = (&zr[all.clone()], &zi[all.clone()]);
        let sums = simd::block_sums(level, step, z, (&dr[all.clone()], &di[all]), e);
        if step > 0.0 {
            simd::adapt(level, (gr, gi), (&er[..count], &ei[..count]), y);
        }
        self.follow(count, &sums);
        f64::from(sums.error)
    }

    /// Carries the loops on by a block of `count` symbols.
    fn follow(&mut self, count: usize, sums: &simd::BlockSums) {
        let [re, im] = sums.product.map(f64::from);
        let (power, timing) = (f64::from(sums.power), f64::from(sums.timing));
        let finite = re.is_finite() && im.is_finite() && timing.is_finite() && power > 0.0;
        if !finite {
            return;
        }
        let count = count as f64;
        let track = &mut self.track;
        if matches!(self.source, SymbolSource::Samples(_)) {
            let late = -timing / (TIMING_SLOPE * power);
            let late = late.clamp(-TIMING_LIMIT, TIMING_LIMIT);
            track.at -= RATE * TIMING.0 * late;
            track.clock -= TIMING.1 * late / count;
        }
        if self.decoder.config.equaliser == Equaliser::Lms {
            return;
        }
        let phase = im.atan2(re);
        track.frequency += CARRIER.1 * phase / count;
        let turn = Complex64::cis(-CARRIER.0 * phase - track.frequency * count);
        let [re, im] = &mut self.decoder.taps;
        for (re, im) in re.iter_mut().zip(im) {
            let tap = Complex64::new(f64::from(*re), f64::from(*im)) * turn;
            (*re, *im) = (tap.re as f32, tap.im as f32);
        }
    }

    /// Decides the header; tells also by how many bits its mode byte differs from that of its
    /// modulation.
    fn decide_header(&mut self) -> (Header, u32) {
        const { assert!(HEADER_SYMBOLS == BLOCK) };
        let block = &mut self.decoder.block;
        for values in block.equalised.iter_mut().chain(&mut block.decisions) {
            values.fill(0.0);
        }
        self.decide_block(Modulation::Bpsk, CEF_SYMBOLS, HEADER_SYMBOLS);
        let Decoder {
            config,
            block,
            decided,
            ..
        } = &*self.decoder;
        let packed = pack(Modulation::Bpsk, &decided[..HEADER_SYMBOLS]);
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&packed);
        let modulation = match config.vote {
            ModeVote::Majority => mode_by_majority(bytes[0], config.modes),
            ModeVote::Soft => {
                let values = &block.equalised[0][1..];
                let soft: [f64; 8] = std::array::from_fn(|i| f64::from(values[i]));
                mode_by_soft_values(&soft, config.modes)
            }
        };
        let distance = (bytes[0] ^ modulation.mode_byte()).count_ones();
        (Header::from_bytes(&bytes, modulation), distance)
    }

    /// Decides the body, and adds soft values and points to `frame` if they are wanted; tells the
    /// squared error.
    fn decide_body(
        &mut self,
        modulation: Modulation,
        ratio: f64,
        frame: &mut ReceivedFrame,
    ) -> f64 {
        let soft = self.decoder.config.soft.then(|| SoftBits::new(modulation));
        let (mut done, mut error) = (0, 0.0);
        while done < BODY_SYMBOLS {
            let count = BLOCK.min(BODY_SYMBOLS - done);
            error += self.decide_block(modulation, CEF_SYMBOLS + HEADER_SYMBOLS + done, count);
            done += count;
            let [re, im] = &self.decoder.block.equalised;
            let z = (&re[1..=count], &im[1..=count]);
            let config = &self.decoder.config;
            if let Some(soft) = &soft {
                soft.append(config.level, ratio as f32, z, &mut frame.soft);
            }
            if config.points {
                let points = z.0.iter().zip(z.1);
                frame
                    .points
                    .extend(points.map(|(&re, &im)| Complex32::new(re, im)));
            }
        }
        error
    }
}

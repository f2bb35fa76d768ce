//! Decoding of one frame whose start is known: nothing of another frame goes into it.

use std::f64::consts::TAU;

use num_complex::{Complex32, Complex64};

use super::acquire::Start;
use super::bank::{Bank, LEAD, TAPS};
use super::blocks::Samples;
use super::config::{Equaliser, ModeVote, RxConfig};
use super::decide::{SoftBits, decide, pack};
use super::fit::{Fit, Fitter};
use super::frame::{Outcome, ReceivedFrame};
use super::original::{self, BlockLms, Packet};
use super::search::PERIOD;
use super::simd;
use super::solve::least_squares;
use crate::waveform::{
    BODY_SYMBOLS, CEF_SYMBOLS, CheckField, HEADER_BYTES, HEADER_SYMBOLS, Header, Modulation,
    STF_REPETITIONS, cef, decide as nearest, jamcrc, mode_by_majority, mode_by_soft_values, point,
};

/// Symbols that are interpolated with one row.
const RUN: usize = 16;
/// Symbols between updates of the loops.
const BLOCK: usize = 64;
/// Proportional and integral part of the carrier loop, per block.
const CARRIER: (f64, f64) = (0.125, 0.004);
/// Proportional and integral part of the timing loop, per block.
const TIMING: (f64, f64) = (0.05, 0.0006);
/// Slope of the timing error per symbol: 2 |g′(1)| = π/2 for the raised cosine with roll-off ½.
const TIMING_SLOPE: f64 = std::f64::consts::FRAC_PI_2;
/// Largest timing error of a block that is believed, in symbols.
const TIMING_LIMIT: f64 = 0.2;
/// Bits of a mode byte that may differ from that of the modulation taken.
const MODE_DISTANCE: u32 = 3;
/// Samples behind the centre of a frame's last symbol that decoding may read, for 128 taps.
pub(crate) const BEHIND: i64 = 3 * 64 + 3 * BLOCK as i64 + TAPS as i64;

/// Equalised symbols and decisions of a block, behind the last ones of the block before.
struct Block {
    z: [Vec<f32>; 2],
    d: [Vec<f32>; 2],
    e: [Vec<f32>; 2],
}

/// Where the symbols of a frame are, as the loops have it.
struct Track {
    /// Position of the next symbol, in samples behind the start of the CEF.
    at: f64,
    clock: f64,
    /// Symbols that are there.
    made: usize,
    /// Whether all were there at once, with a timing that nothing here can change.
    given: bool,
    /// Rotation of the next symbol.
    turn: Complex64,
    rotation: [[f32; RUN]; 2],
    /// Rotation from one run to the next.
    run: Complex64,
    /// What the carrier loop adds to the frequency, in radians per symbol.
    frequency: f64,
}

/// Decodes frames, one after the other.
pub(crate) struct Decoder {
    config: RxConfig,
    bank: Bank,
    fitter: Fitter,
    known: Vec<f32>,
    /// Symbols from half the taps before the CEF on, filtered, at the frame's timing and frequency.
    y: [Vec<f32>; 2],
    taps: [Vec<f32>; 2],
    /// The original's equaliser, if the configuration says so.
    mean_squares: Option<BlockLms>,
    block: Block,
    symbols: Vec<u8>,
}

impl Decoder {
    pub fn new(config: &RxConfig) -> Decoder {
        let all = CEF_SYMBOLS + HEADER_SYMBOLS + BODY_SYMBOLS + config.taps + 2 * RUN;
        let planar = |len: usize| [vec![0.0; len], vec![0.0; len]];
        Decoder {
            config: config.clone(),
            bank: Bank::new(),
            fitter: Fitter::new(config.level),
            known: cef().iter().map(|&sign| f32::from(sign)).collect(),
            y: planar(all.next_multiple_of(RUN)),
            taps: planar(config.taps),
            mean_squares: None,
            block: Block {
                z: planar(1 + BLOCK),
                d: planar(1 + BLOCK),
                e: planar(BLOCK),
            },
            symbols: vec![0; HEADER_SYMBOLS + BODY_SYMBOLS],
        }
    }

    /// Decodes the frame at `start`. `None` if there is no preamble.
    pub fn decode(&mut self, samples: Samples, start: &Start) -> Option<ReceivedFrame> {
        let fit = self.fitter.fit(&self.bank, samples, start)?;
        let track = self.begin(&fit);
        self.frame(samples, &fit, track)
    }

    /// Decodes the symbols that the original's receiver has made of a frame.
    pub fn decode_packet(&mut self, packet: &Packet) -> Option<ReceivedFrame> {
        let (re, im) = packet.symbols;
        for (y, symbols) in self.y.iter_mut().zip([re, im]) {
            y.fill(0.0);
            y[..symbols.len()].copy_from_slice(symbols);
        }
        let whole = packet.sample.round();
        let fit = Fit {
            cef: whole as i64,
            fraction: packet.sample - whole,
            clock: packet.clock,
            frequency: packet.frequency,
            amplitude: packet.amplitude,
        };
        let track = Track {
            made: self.y[0].len(),
            given: true,
            ..self.begin(&fit)
        };
        let none = Samples {
            values: &[],
            first: 0,
        };
        self.frame(none, &fit, track)
    }

    /// Decodes the frame that `fit` describes.
    fn frame(&mut self, samples: Samples, fit: &Fit, mut track: Track) -> Option<ReceivedFrame> {
        self.make(samples, fit, &mut track, CEF_SYMBOLS + self.config.taps);
        let ratio = self.train(&track)?;
        let (values, _) = self.header(samples, fit, &mut track);
        let (header, far) = self.read_header(&values);
        let modulation = header.modulation;
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
            amplitude: fit.amplitude,
            taps: Vec::new(),
            points: Vec::new(),
            soft: Vec::new(),
        };
        let error = self.body(samples, fit, &mut track, modulation, ratio, &mut frame);
        if !error.is_finite() {
            // The equaliser's taps ran away.
            return None;
        }
        frame.evm = (error / BODY_SYMBOLS as f64).sqrt();
        frame.body = pack(modulation, &self.symbols[HEADER_SYMBOLS..]);
        frame.outcome = self.judge(&header, far, &frame.body);
        frame.frequency = (fit.frequency + track.frequency) / (TAU * 3.0);
        frame.clock_ppm = 1e6 * track.clock;
        let preamble = PERIOD * (STF_REPETITIONS as i64 + 2);
        let begin = fit.fraction - preamble as f64 * fit.clock;
        let whole = begin.round();
        let start = fit.cef - preamble - LEAD as i64 + whole as i64;
        if let Ok(start) = u64::try_from(start) {
            (frame.start, frame.start_fraction) = (start, begin - whole);
        }
        if self.config.points {
            if let Some(equaliser) = &self.mean_squares {
                self.set_taps(&equaliser.taps());
            }
            let taps = self.taps[0].iter().zip(&self.taps[1]);
            frame.taps = taps.map(|(&re, &im)| Complex32::new(re, im)).collect();
        }
        Some(frame)
    }

    /// Taps before the one that is the centre.
    fn before(&self) -> usize {
        self.config.taps / 2
    }

    fn begin(&self, fit: &Fit) -> Track {
        let step = |symbols: f64| Complex64::cis(-fit.frequency * symbols);
        let before = self.before() as f64;
        Track {
            at: fit.fraction - 3.0 * (1.0 + fit.clock) * before,
            clock: fit.clock,
            made: 0,
            given: false,
            turn: step(-before) / fit.amplitude,
            rotation: [
                std::array::from_fn(|k| step(k as f64).re as f32),
                std::array::from_fn(|k| step(k as f64).im as f32),
            ],
            run: step(RUN as f64),
            frequency: 0.0,
        }
    }

    /// Filters and interpolates until `until` symbols are there.
    fn make(&mut self, samples: Samples, fit: &Fit, track: &mut Track, until: usize) {
        let [re, im] = &mut self.y;
        while track.made < until && track.made + RUN <= re.len() {
            // The row is that of the middle of the run.
            let half = 1.5 * (RUN as f64 - 1.0);
            let (n, row) = self.bank.at(track.at + half * track.clock);
            let from = fit.cef + n - LEAD as i64;
            let to = from + 3 * (RUN as i64 - 1) + TAPS as i64;
            let run = track.made..track.made + RUN;
            let (re, im) = (&mut re[run.clone()], &mut im[run]);
            match samples.range(from, to) {
                Some(x) => {
                    let turn = [track.turn.re as f32, track.turn.im as f32];
                    let level = self.config.level;
                    let [a, b] = &track.rotation;
                    simd::interpolate(level, x, row, turn, (a, b), (re, im));
                }
                None => {
                    re.fill(0.0);
                    im.fill(0.0);
                }
            }
            track.made += RUN;
            track.at += 3.0 * RUN as f64 * (1.0 + track.clock);
            track.turn *= track.run;
        }
    }

    /// Finds the taps; tells the ratio of signal to noise.
    fn train(&mut self, track: &Track) -> Option<f64> {
        let (level, taps) = (self.config.level, self.config.taps);
        let y = (self.y[0].as_slice(), self.y[1].as_slice());
        let solution = match self.config.equaliser {
            Equaliser::LeastSquares => least_squares(level, y, &self.known, taps)?,
            Equaliser::MeanSquares => {
                // Given symbols have the original's gain.
                let gain = match track.given {
                    true => 1.0,
                    false => original::level(y, &self.known, taps),
                };
                let (solution, equaliser) = original::train(y, &self.known, taps, gain)?;
                self.mean_squares = Some(equaliser);
                solution
            }
        };
        self.set_taps(&solution.taps);
        Some(solution.ratio)
    }

    fn set_taps(&mut self, taps: &[Complex64]) {
        for (i, tap) in taps.iter().enumerate() {
            (self.taps[0][i], self.taps[1][i]) = (tap.re as f32, tap.im as f32);
        }
    }

    /// Equalises and decides `count` symbols from `k` behind the start of the CEF on; tells the
    /// squared error.
    fn symbols(
        &mut self,
        samples: Samples,
        fit: &Fit,
        track: &mut Track,
        modulation: Modulation,
        k: usize,
        count: usize,
    ) -> f64 {
        let (level, taps) = (self.config.level, self.config.taps);
        self.make(samples, fit, track, k + count + taps);
        let y = (
            &self.y[0][k..k + count + taps],
            &self.y[1][k..k + count + taps],
        );
        let Block {
            z: [zr, zi],
            d: [dr, di],
            e: [er, ei],
        } = &mut self.block;
        for values in [&mut *zr, &mut *zi, &mut *dr, &mut *di] {
            values[0] = values[BLOCK.min(values.len() - 1)];
        }
        let now = 1..1 + count;
        let from = k - CEF_SYMBOLS;
        let integers = &mut self.symbols[from..from + count];
        match &mut self.mean_squares {
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
                let g = (self.taps[0].as_slice(), self.taps[1].as_slice());
                simd::equalise(level, g, y, (&mut zr[now.clone()], &mut zi[now.clone()]));
                let d = (&mut dr[now.clone()], &mut di[now.clone()]);
                decide(level, modulation, (&zr[now.clone()], &zi[now]), d, integers);
            }
        }
        let step = match self.config.equaliser {
            Equaliser::LeastSquares => self.config.step,
            Equaliser::MeanSquares => 0.0,
        };
        let e = (&mut er[..count], &mut ei[..count]);
        let all = 0..1 + count;
        let z = (&zr[all.clone()], &zi[all.clone()]);
        let sums = simd::block_sums(level, step, z, (&dr[all.clone()], &di[all]), e);
        if step > 0.0 {
            let [re, im] = &mut self.taps;
            simd::adapt(level, (re, im), (&er[..count], &ei[..count]), y);
        }
        self.follow(track, count, &sums);
        f64::from(sums.error)
    }

    /// Carries the loops on by a block.
    fn follow(&mut self, track: &mut Track, count: usize, sums: &simd::BlockSums) {
        let [re, im] = sums.product.map(f64::from);
        let (power, timing) = (f64::from(sums.power), f64::from(sums.timing));
        let finite = re.is_finite() && im.is_finite() && timing.is_finite() && power > 0.0;
        if !finite {
            return;
        }
        let count = count as f64;
        let late = -timing / (TIMING_SLOPE * power);
        let late = late.clamp(-TIMING_LIMIT, TIMING_LIMIT);
        if !track.given {
            track.at -= 3.0 * TIMING.0 * late;
            track.clock -= TIMING.1 * late / count;
        }
        if self.config.equaliser == Equaliser::MeanSquares {
            return;
        }
        let phase = im.atan2(re);
        track.frequency += CARRIER.1 * phase / count;
        let turn = Complex64::cis(-CARRIER.0 * phase - track.frequency * count);
        let [re, im] = &mut self.taps;
        for (re, im) in re.iter_mut().zip(im) {
            let tap = Complex64::new(f64::from(*re), f64::from(*im)) * turn;
            (*re, *im) = (tap.re as f32, tap.im as f32);
        }
    }

    /// The header's symbols: real parts, as equalised.
    fn header(&mut self, samples: Samples, fit: &Fit, track: &mut Track) -> (Vec<f32>, f64) {
        const { assert!(HEADER_SYMBOLS == BLOCK) };
        for values in self.block.z.iter_mut().chain(&mut self.block.d) {
            values.fill(0.0);
        }
        let error = self.symbols(
            samples,
            fit,
            track,
            Modulation::Bpsk,
            CEF_SYMBOLS,
            HEADER_SYMBOLS,
        );
        (self.block.z[0][1..=HEADER_SYMBOLS].to_vec(), error)
    }

    /// The header, and by how many bits its mode byte differs from that of its modulation.
    fn read_header(&self, values: &[f32]) -> (Header, u32) {
        let packed = pack(Modulation::Bpsk, &self.symbols[..HEADER_SYMBOLS]);
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&packed);
        let modulation = match self.config.vote {
            ModeVote::Majority => mode_by_majority(bytes[0], self.config.modes),
            ModeVote::Soft => {
                let soft: [f64; 8] = std::array::from_fn(|i| f64::from(values[i]));
                mode_by_soft_values(&soft, self.config.modes)
            }
        };
        let distance = (bytes[0] ^ modulation.mode_byte()).count_ones();
        (Header::from_bytes(&bytes, modulation), distance)
    }

    /// Decides the body; tells the squared error.
    fn body(
        &mut self,
        samples: Samples,
        fit: &Fit,
        track: &mut Track,
        modulation: Modulation,
        ratio: f64,
        frame: &mut ReceivedFrame,
    ) -> f64 {
        let soft = self.config.soft.then(|| SoftBits::new(modulation));
        let (mut done, mut error) = (0, 0.0);
        while done < BODY_SYMBOLS {
            let count = BLOCK.min(BODY_SYMBOLS - done);
            let k = CEF_SYMBOLS + HEADER_SYMBOLS + done;
            error += self.symbols(samples, fit, track, modulation, k, count);
            done += count;
            let [re, im] = &self.block.z;
            let z = (&re[1..=count], &im[1..=count]);
            if let Some(soft) = &soft {
                soft.append(self.config.level, ratio as f32, z, &mut frame.soft);
            }
            if self.config.points {
                let points = z.0.iter().zip(z.1);
                frame
                    .points
                    .extend(points.map(|(&re, &im)| Complex32::new(re, im)));
            }
        }
        error
    }

    fn judge(&self, header: &Header, far: u32, body: &[u8]) -> Outcome {
        let (payload, field) = body.split_at(header.modulation.payload_bytes().min(body.len()));
        if far > MODE_DISTANCE {
            return Outcome::Mode;
        }
        if !header.length_fits() {
            return Outcome::Length;
        }
        // The header's bytes as they came: with a corrected mode byte, which the transmitter meant.
        let bytes = header.to_bytes();
        let sum = jamcrc([bytes.as_slice(), payload]).to_le_bytes();
        match self.config.check {
            CheckField::Crc if sum != field => Outcome::Check,
            _ => Outcome::Delivered,
        }
    }
}

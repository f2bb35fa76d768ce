//! One frame after the other through a channel, each with noise, delay and phase of its own.

use num_complex::{Complex32, Complex64};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::unequalised::Unequalised;
use crate::channel::{Channel, ChannelSettings, Path, SettingError};
use crate::rx::{Outcome, ReceivedFrame, Receiver, RxConfig, RxConfigError};
use crate::theory::{Interval, bit_error_rate, clopper_pearson, ideal_evm};
use crate::tx::Transmitter;
use crate::waveform::{
    CheckField, Frame, HEADER_SYMBOLS, Header, Modulation, PREAMBLE_SYMBOLS, SAMPLES_PER_SYMBOL,
};

/// Blank symbols ahead of a frame.
const LEAD: usize = 1000;
/// Blank symbols behind it.
const TAIL: usize = 200;
/// Confidence of intervals.
pub(super) const CONFIDENCE: f64 = 0.95;
/// Samples by which a frame may be off its place and still be the one that was sent.
const NEAR: f64 = 40.0;

/// What is tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Bit energy by noise density, in dB.
    pub eb_n0_db: f64,
    /// The channel; noise, phase, seed and the fraction of its delay come from the trial.
    pub channel: ChannelSettings,
    /// The receiver.
    pub receiver: RxConfig,
    /// Frames at most.
    pub frames: u64,
    /// Errors after which no further frame is sent.
    pub errors: u64,
    /// Seed of payloads, delays, phases and noise.
    pub seed: u64,
}

/// Settings that cannot be tried.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrialError {
    /// Settings of the channel.
    #[error(transparent)]
    Channel(#[from] SettingError),
    /// Settings of the receiver.
    #[error(transparent)]
    Receiver(#[from] RxConfigError),
}

/// What came of a trial.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialResult {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that did not come out at their place at all.
    pub lost: u64,
    /// Frames elsewhere.
    pub false_frames: u64,
    /// Frames with the wrong modulation.
    pub wrong_mode: u64,
    /// Frames with the right one, by what became of them: a mode byte that is too far from it,
    pub mode: u64,
    /// a length that is too large,
    pub length: u64,
    /// a check field that is wrong,
    pub check: u64,
    /// and those that were delivered.
    pub delivered: u64,
    /// Share of frames that were lost: its interval with 95 % confidence.
    pub lost_interval: Interval,
    /// The same of frames with the wrong modulation, of those that were found.
    pub wrong_mode_interval: Interval,
    /// Bits of bodies that were compared: of frames with the right modulation.
    pub bits: u64,
    /// Bits that are wrong.
    pub errors: u64,
    /// Rate of wrong bits, and what theory says.
    pub rate: f64,
    /// Its interval with 95 % confidence, were errors independent.
    pub interval: Option<Interval>,
    /// Rate that theory has.
    pub theory: f64,
    /// Mean of the error vector's magnitude, behind the equaliser.
    pub evm: f64,
    /// The same ahead of it, where all that was taken off is a gain for each 64 symbols, fitted to
    /// what was sent.
    pub evm_unequalised: f64,
    /// What it is in white noise without a loss.
    pub evm_ideal: f64,
    /// Mean of Es/N0 as the receiver tells it, in dB.
    pub snr_db: f64,
    /// Root mean square of the clock's error, in parts per million.
    pub clock_error_ppm: f64,
    /// Root mean square of the frequency's error, in cycles per sample.
    pub frequency_error: f64,
}

impl Trial {
    /// Sends frames until there are enough errors, or enough frames.
    pub fn run(&self) -> Result<TrialResult, TrialError> {
        let mut result = TrialResult {
            theory: bit_error_rate(self.modulation, self.eb_n0_db),
            evm_ideal: ideal_evm(self.es_n0_db()),
            ..TrialResult::default()
        };
        let unequalised = Unequalised::new();
        let mut number = 0;
        while result.sent < self.frames && result.errors < self.errors {
            self.frame(number, &unequalised, &mut result)?;
            number += 1;
        }
        let compared = result.bits / (8 * self.modulation.body_bytes() as u64);
        let mean = |sum: f64| {
            if compared > 0 {
                sum / compared as f64
            } else {
                0.0
            }
        };
        result.evm = mean(result.evm);
        result.evm_unequalised = mean(result.evm_unequalised);
        result.snr_db = mean(result.snr_db);
        result.clock_error_ppm = mean(result.clock_error_ppm).sqrt();
        result.frequency_error = mean(result.frequency_error).sqrt();
        if result.bits > 0 {
            result.rate = result.errors as f64 / result.bits as f64;
            result.interval = Some(clopper_pearson(result.errors, result.bits, CONFIDENCE));
        }
        let found = result.sent - result.lost;
        result.lost_interval = clopper_pearson(result.lost, result.sent, CONFIDENCE);
        result.wrong_mode_interval = clopper_pearson(result.wrong_mode, found, CONFIDENCE);
        Ok(result)
    }

    /// Symbol energy by noise density, in dB.
    pub fn es_n0_db(&self) -> f64 {
        self.eb_n0_db + 10.0 * (self.modulation.bits() as f64).log10()
    }

    fn frame(
        &self,
        number: u64,
        unequalised: &Unequalised,
        result: &mut TrialResult,
    ) -> Result<(), TrialError> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(number);
        let mut payload = vec![0; self.modulation.payload_bytes()];
        random.fill(payload.as_mut_slice());
        let header = Header {
            source: number as u8,
            ..Header::new(self.modulation)
        };
        // A payload of the right size, and a length that fits.
        let Ok(frame) = Frame::new(header, &payload, CheckField::Crc) else {
            return Ok(());
        };
        let mut sent = Vec::new();
        let mut transmitter = Transmitter::new(1.0);
        transmitter.blanks(LEAD, &mut sent);
        transmitter.frame(&frame, &mut sent);
        transmitter.blanks(TAIL, &mut sent);
        transmitter.finish(&mut sent);
        let settings = ChannelSettings {
            delay: self.channel.delay + random.random_range(0.0..3.0),
            phase: random.random_range(0.0..1.0),
            snr_db: Some(self.es_n0_db() - 10.0 * (SAMPLES_PER_SYMBOL as f64).log10()),
            seed: random.random(),
            ..self.channel.clone()
        };
        let mut channel = Channel::new(&settings)?;
        let mut samples: Vec<Complex32> = Vec::new();
        channel.push(&sent, &mut samples);
        channel.finish(&mut samples);
        let mut receiver = Receiver::new(&RxConfig {
            points: true,
            ..self.receiver.clone()
        })?;
        let mut frames = Vec::new();
        receiver.push(&samples, &mut frames);
        receiver.finish(&mut frames);
        let begin = (SAMPLES_PER_SYMBOL * LEAD) as f64 * (1.0 + 1e-6 * settings.clock_ppm);
        let begins = begins(begin + settings.delay, &settings);
        let Some(received) = self.find(&begins, &frames, result) else {
            return Ok(());
        };
        self.compare(&frame, &settings, received, result);
        result.evm_unequalised += unequalised.evm(&samples, &frame, received);
        Ok(())
    }

    /// The frame at its place, if it is there with its modulation; counts what is not so.
    fn find<'a>(
        &self,
        begins: &[f64],
        frames: &'a [ReceivedFrame],
        result: &mut TrialResult,
    ) -> Option<&'a ReceivedFrame> {
        result.sent += 1;
        let near = |frame: &&ReceivedFrame| {
            let start = frame.start as f64;
            begins.iter().any(|begin| (start - begin).abs() < NEAR)
        };
        result.false_frames += frames.iter().filter(|frame| !near(frame)).count() as u64;
        let Some(frame) = frames.iter().find(near) else {
            result.lost += 1;
            return None;
        };
        if frame.modulation() != self.modulation {
            result.wrong_mode += 1;
            return None;
        }
        Some(frame)
    }

    fn compare(
        &self,
        sent: &Frame,
        channel: &ChannelSettings,
        frame: &ReceivedFrame,
        result: &mut TrialResult,
    ) {
        *match frame.outcome {
            Outcome::Mode => &mut result.mode,
            Outcome::Length => &mut result.length,
            Outcome::Check => &mut result.check,
            Outcome::Delivered => &mut result.delivered,
        } += 1;
        result.bits += 8 * sent.body().len() as u64;
        let wrong = sent
            .body()
            .iter()
            .zip(&frame.body)
            .map(|(a, b)| u64::from((a ^ b).count_ones()));
        result.errors += wrong.sum::<u64>();
        result.evm += error_vector(sent, frame);
        result.snr_db += frame.snr_db;
        result.clock_error_ppm += (frame.clock_ppm - channel.clock_ppm).powi(2);
        result.frequency_error += (frame.frequency - channel.frequency).powi(2);
    }
}

/// Where a frame may stand that begins at `begin` without paths: where the strongest path puts it,
/// which while paths fade may be each of them.
fn begins(begin: f64, settings: &ChannelSettings) -> Vec<f64> {
    let of = |path: &Path| begin + f64::from(path.delay);
    let strongest = |a: &&Path, b: &&Path| a.gain.norm_sqr().total_cmp(&b.gain.norm_sqr());
    match settings.paths.iter().max_by(strongest) {
        None => vec![begin],
        Some(_) if settings.fading.is_some() => settings.paths.iter().map(of).collect(),
        Some(path) => vec![of(path)],
    }
}

/// The error vector's magnitude behind the equaliser, to the points that were sent. To the nearest
/// ones, as a receiver alone has to take it, it is too small where decisions are wrong.
fn error_vector(sent: &Frame, frame: &ReceivedFrame) -> f64 {
    let points = sent.points();
    let body = points
        .get(PREAMBLE_SYMBOLS + HEADER_SYMBOLS..)
        .unwrap_or(&[]);
    let (mut error, mut power) = (0.0, 0.0);
    for (d, z) in body.iter().zip(&frame.points) {
        let z = Complex64::new(f64::from(z.re), f64::from(z.im));
        error += (z - d).norm_sqr();
        power += d.norm_sqr();
    }
    (error / power.max(f64::MIN_POSITIVE)).sqrt()
}

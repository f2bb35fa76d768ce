//! What the receiver makes: frames, and counts of what is none.

use num_complex::Complex32;
use serde::Serialize;

use crate::waveform::{Header, Modulation};

/// What became of a frame that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Its payload is good, as far as its check field can tell.
    Delivered,
    /// Its mode byte is too far from that of any modulation.
    Mode,
    /// Its header's length is larger than its payload.
    Length,
    /// Its check field is not that of header and payload.
    Check,
}

/// Why nothing could be decoded where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// There is no preamble: it is no frame.
    NotAcquired,
    /// There is a preamble, and the equaliser's taps ran away, in it or behind it.
    Equaliser,
}

/// A frame that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedFrame {
    /// Sample at which it begins: the centre of its first symbol is 24 samples later, as in the
    /// transmitter's output. 0 for a frame that begins before the stream does.
    pub start: u64,
    /// What is left to the exact begin, from −½ to ½ of a sample. 0 for a frame that begins before
    /// the stream does.
    pub start_fraction: f64,
    /// What became of it.
    pub outcome: Outcome,
    /// Header of the frame, as received.
    pub header: Header,
    /// Payload and check field, as received; for [`Outcome::Mode`] as the nearest modulation says.
    pub body: Vec<u8>,
    /// Energy of a symbol by noise density, behind the equaliser, in dB: Es/N0, over the preamble.
    pub snr_db: f64,
    /// Root of the mean squared error of the body's points to those that were decided, the
    /// constellation's own being 1: too small where many decisions are wrong.
    pub evm: f64,
    /// Carrier offset in cycles per sample; positive if the signal is too high.
    pub frequency: f64,
    /// How much longer the transmitter's sample is than the receiver's, in parts per million.
    pub clock_ppm: f64,
    /// Amplitude of a symbol at the matched filter's output.
    pub amplitude: f64,
    /// The equaliser's taps at the end, the oldest symbol's first, if asked for.
    pub taps: Vec<Complex32>,
    /// Equalised points of the body, if asked for.
    pub points: Vec<Complex32>,
    /// Log-likelihood ratios of the body's bits in transmission order, positive for 0, if asked
    /// for: ln P(0) / P(1), by the nearest point of each.
    pub soft: Vec<f32>,
}

impl ReceivedFrame {
    /// Modulation of the body.
    pub fn modulation(&self) -> Modulation {
        self.header.modulation
    }

    /// Whether the check field is that of header and payload, or says nothing.
    pub fn check_passed(&self) -> bool {
        self.outcome == Outcome::Delivered
    }

    /// The part of the payload that the header says is used; of a length that is too large, all.
    pub fn payload(&self) -> &[u8] {
        let whole = self.modulation().payload_bytes().min(self.body.len());
        &self.body[..usize::from(self.header.length).min(whole)]
    }
}

/// Counts of samples, frames, and of what was lost, each by its cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Samples that came in.
    pub samples: u64,
    /// Samples that were infinite, larger than 10⁶ or not numbers; each became 0.
    pub bad_samples: u64,
    /// Places that look like a short training field.
    pub detected: u64,
    /// Of these: no end of the field was found, or no preamble after it. They are no frames.
    pub not_acquired: u64,
    /// Of these: the samples end within the frame.
    pub cut: u64,
    /// Of these: delivered.
    pub delivered: u64,
    /// Of these: not delivered, see [`Outcome::Mode`].
    pub mode: u64,
    /// Of these: not delivered, see [`Outcome::Length`].
    pub length: u64,
    /// Of these: delivered as failed, see [`Outcome::Check`].
    pub check: u64,
    /// Of these: not delivered, see [`Missed::Equaliser`].
    pub equaliser: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        let Counts {
            samples,
            bad_samples,
            detected,
            not_acquired,
            cut,
            delivered,
            mode,
            length,
            check,
            equaliser,
        } = more;
        self.samples += samples;
        self.bad_samples += bad_samples;
        self.detected += detected;
        self.not_acquired += not_acquired;
        self.cut += cut;
        self.delivered += delivered;
        self.mode += mode;
        self.length += length;
        self.check += check;
        self.equaliser += equaliser;
    }
}

impl Counts {
    /// Frames that were found: those of which a preamble came. What looks like the begin of one
    /// alone is none, for noise and other signals make it too.
    pub fn frames(&self) -> u64 {
        self.delivered + self.not_delivered()
    }

    /// Frames that were found and not delivered, whatever the cause.
    pub fn not_delivered(&self) -> u64 {
        self.mode + self.length + self.check + self.equaliser + self.cut
    }

    /// Counts what became of a frame.
    pub fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Delivered => &mut self.delivered,
            Outcome::Mode => &mut self.mode,
            Outcome::Length => &mut self.length,
            Outcome::Check => &mut self.check,
        } += 1;
    }

    /// Counts what nothing could be decoded of.
    pub fn miss(&mut self, missed: Missed) {
        *match missed {
            Missed::NotAcquired => &mut self.not_acquired,
            Missed::Equaliser => &mut self.equaliser,
        } += 1;
    }
}

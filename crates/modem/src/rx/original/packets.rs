//! The controller at the symbol rate: where the fields of a frame begin.

use num_complex::Complex32;

use super::peaks::{Correlator, in_range};
use crate::waveform::{BODY_SYMBOLS, CEF_SYMBOLS, HEADER_SYMBOLS};

/// Symbols behind the short training field.
const BEHIND: u32 = (CEF_SYMBOLS + HEADER_SYMBOLS + BODY_SYMBOLS) as u32;
/// Symbols behind the last one of a frame with which it is over.
const OVER: u32 = 9;
/// Symbols since the last accepted peak at which there is to be one: one may be missing.
const WINDOW: [u32; 2] = [31, 63];
/// Symbols without a peak behind which the field is lost.
const LOST: u32 = 64;
/// Repetitions that must have been counted at the field's end.
const PEAKS: std::ops::Range<u32> = 3..61;

/// What a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// Nothing that matters.
    Nothing,
    /// The end of the first repetition of a short training field.
    Training,
    /// The end of the short training field.
    Estimation,
    /// The field was none, or its peaks were lost.
    Lost,
    /// Nine symbols behind the end of a frame.
    Over,
}

/// The original's packet controller.
#[derive(Clone, Debug)]
pub struct PacketControl {
    correlator: Correlator,
    training: bool,
    /// Symbols since the last accepted peak.
    count: u32,
    peaks: u32,
    /// Symbols since the end of the short training field, until the frame is over: peaks do not
    /// count meanwhile.
    within: Option<u32>,
}

impl Default for PacketControl {
    fn default() -> PacketControl {
        PacketControl {
            correlator: Correlator::new(1),
            training: false,
            count: LOST,
            peaks: 0,
            within: None,
        }
    }
}

impl PacketControl {
    /// Takes a symbol in. The second value is its correlation with Gb.
    pub fn next(&mut self, z: Complex32) -> (PacketEvent, Complex32) {
        let (a, b) = self.correlator.next(z);
        let event = match &mut self.within {
            None => self.judge(in_range(a.norm_sqr()), in_range(b.norm_sqr())),
            Some(within) => {
                *within += 1;
                if *within < BEHIND + OVER {
                    PacketEvent::Nothing
                } else {
                    (self.within, self.count) = (None, LOST);
                    PacketEvent::Over
                }
            }
        };
        (event, b)
    }

    fn judge(&mut self, a: bool, b: bool) -> PacketEvent {
        let in_window = WINDOW.contains(&self.count);
        let saturated = self.count >= LOST;
        let accepted = b && !a && (!self.training || in_window);
        let event = if !self.training && b {
            (self.training, self.peaks) = (true, 0);
            PacketEvent::Training
        } else if self.training && a && !b && in_window && PEAKS.contains(&self.peaks) {
            (self.training, self.within) = (false, Some(0));
            PacketEvent::Estimation
        } else if self.training && (saturated || (a && b && !in_window)) {
            self.training = false;
            PacketEvent::Lost
        } else {
            self.peaks += u32::from(self.training && b && in_window);
            PacketEvent::Nothing
        };
        self.count = if accepted {
            0
        } else {
            (self.count + 1).min(LOST)
        };
        event
    }
}

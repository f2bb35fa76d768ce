//! Decoding of one frame whose start is known: nothing of another frame goes into it.

mod frame_decoder;

use super::acquire::Start;
use super::bank::{Bank, TAPS};
use super::config::RxConfig;
use super::fit::{Fit, Fitter};
use super::frame::{Missed, Outcome, ReceivedFrame};
use super::original::{BlockLms, Packet};
use super::samples::Samples;
use crate::waveform::{
    BODY_SYMBOLS, CEF_SYMBOLS, CheckField, HEADER_SYMBOLS, Header, SAMPLES_PER_SYMBOL, cef, jamcrc,
};
use frame_decoder::{FrameDecoder, SymbolSource};

/// Symbols that are interpolated with one row.
const RUN: usize = 16;
/// Symbols between updates of the loops.
const BLOCK: usize = 64;
/// Half of the taps that an equaliser can have.
const MOST_HALF: usize = 64;
/// Bits of a mode byte that may differ from that of the modulation taken.
const MODE_DISTANCE: u32 = 3;
/// Samples after the centre of a frame's last symbol that decoding may read, for 128 taps.
pub(crate) const FRAME_AFTER: i64 = (SAMPLES_PER_SYMBOL * (MOST_HALF + BLOCK) + TAPS) as i64;

/// Symbols of a block: real and imaginary parts, in a constellation with a mean power of 1. The
/// first two begin with the last symbol of the block before.
struct Block {
    /// Equalised symbols z.
    equalised: [Vec<f32>; 2],
    /// Decisions d: the nearest points.
    decisions: [Vec<f32>; 2],
    /// Errors d − z, multiplied by the step.
    errors: [Vec<f32>; 2],
}

/// Decodes frames, one after the other: the settings, tables and memory of all of them.
pub(crate) struct Decoder {
    config: RxConfig,
    bank: Bank,
    fitter: Fitter,
    /// Signs of the CEF.
    known: Vec<f32>,
    /// Symbols y from half the taps before the CEF on: real and imaginary parts as they come out of
    /// the matched filter at the frame's timing and frequency, divided by the frame's amplitude.
    filtered: [Vec<f32>; 2],
    /// Taps g of the equaliser, one a symbol: real and imaginary parts.
    taps: [Vec<f32>; 2],
    /// The original's equaliser, if the configuration says so.
    lms: Option<BlockLms>,
    block: Block,
    /// Integers of the decided symbols, from the header on.
    decided: Vec<u8>,
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
            filtered: planar(all.next_multiple_of(RUN)),
            taps: planar(config.taps),
            lms: None,
            block: Block {
                equalised: planar(1 + BLOCK),
                decisions: planar(1 + BLOCK),
                errors: planar(BLOCK),
            },
            decided: vec![0; HEADER_SYMBOLS + BODY_SYMBOLS],
        }
    }

    /// Decodes the frame at `start`.
    pub fn decode(&mut self, samples: Samples, start: &Start) -> Result<ReceivedFrame, Missed> {
        let fit = self.fitter.fit(&self.bank, samples, start);
        let fit = fit.ok_or(Missed::NotAcquired)?;
        FrameDecoder::new(self, SymbolSource::Samples(samples), fit).decode()
    }

    /// Decodes the symbols that the original's receiver has made of a frame.
    pub fn decode_packet(&mut self, packet: &Packet) -> Result<ReceivedFrame, Missed> {
        let (re, im) = packet.symbols;
        for (filtered, symbols) in self.filtered.iter_mut().zip([re, im]) {
            filtered.fill(0.0);
            filtered[..symbols.len()].copy_from_slice(symbols);
        }
        let whole = packet.sample.round();
        let fit = Fit {
            cef: whole as i64,
            fraction: packet.sample - whole,
            clock: packet.clock,
            frequency: packet.frequency,
            amplitude: packet.amplitude,
        };
        FrameDecoder::new(self, SymbolSource::Given, fit).decode()
    }

    /// Taps before the one that is the centre.
    fn taps_before(&self) -> usize {
        self.config.taps / 2
    }

    /// What became of a frame whose mode byte differs by `distance` bits from that of its
    /// modulation.
    fn outcome(&self, header: &Header, distance: u32, body: &[u8]) -> Outcome {
        let (payload, field) = body.split_at(header.modulation.payload_bytes().min(body.len()));
        if distance > MODE_DISTANCE {
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

//! The node that makes a frame's samples.

use karoo_flow::{ByBytes, ByteStep, Mismatch, Node, Step, Type};
use num_complex::Complex32;
use serde::{Deserialize, Serialize};

use super::bytes::put_floats;
use super::expect;
use crate::tx::Transmitter;
use crate::waveform::{
    BLANK_SYMBOLS, CheckField, FRAME_SYMBOLS, Frame, Header, Modulation, SAMPLES_PER_SYMBOL,
    Scrambler, frame_message,
};

pub(super) const KIND: &str = "modem_send";

/// Samples of a frame with the 24 blank symbols behind it, in which its last pulse ends: nothing of
/// it reaches the next frame.
pub(super) const SAMPLES: usize = SAMPLES_PER_SYMBOL * (FRAME_SYMBOLS + BLANK_SYMBOLS);

/// Makes frames of payloads. Inputs: a payload, as many bytes as the modulation has; how many of
/// them are used, of which 0 give no frame. Output: samples, real and imaginary parts in turn, of
/// the frame and 24 blank symbols.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendFrames {
    /// Modulation of the body.
    pub modulation: Modulation,
    /// What the check field has.
    #[serde(default)]
    pub check: CheckField,
    /// Whether payloads are scrambled as in the original's demo.
    #[serde(default)]
    pub scramble: bool,
    /// Source in the header.
    #[serde(default)]
    pub source: u8,
    /// Destination in the header.
    #[serde(default)]
    pub destination: u8,
    /// Network in the header.
    #[serde(default)]
    pub network: u16,
    /// Amplitude: a frame's mean power is its square.
    #[serde(default = "one")]
    pub gain: f32,
}

fn one() -> f32 {
    1.0
}

impl SendFrames {
    /// Frames from and to 0 with a mean power of 1.
    pub fn new(modulation: Modulation) -> SendFrames {
        SendFrames {
            modulation,
            check: CheckField::default(),
            scramble: false,
            source: 0,
            destination: 0,
            network: 0,
            gain: 1.0,
        }
    }

    /// The frame with a message of at most a payload; it is padded.
    pub fn frame(&self, message: &[u8]) -> Frame {
        let header = Header {
            source: self.source,
            destination: self.destination,
            network: self.network,
            ..Header::new(self.modulation)
        };
        let scrambler = self.scramble.then(Scrambler::demo);
        frame_message(message, header, self.check, scrambler).0
    }

    fn running(&self) -> Send {
        Send {
            node: self.clone(),
            transmitter: Transmitter::new(self.gain),
            samples: Vec::with_capacity(SAMPLES),
        }
    }

    fn inputs_are(&self) -> [Type; 2] {
        [Type::U8.vector(self.modulation.payload_bytes()), Type::U32]
    }
}

impl Node for SendFrames {
    fn kind(&self) -> &str {
        KIND
    }
    fn inputs(&self) -> usize {
        2
    }
    fn check(&self) -> Result<(), String> {
        match self.gain.is_finite() {
            true => Ok(()),
            false => Err(format!(
                "a gain of {}: it must be a number such as 1",
                self.gain
            )),
        }
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        expect(KIND, inputs, &self.inputs_are())?;
        Ok(vec![Type::F32.vector(2 * SAMPLES)])
    }
    fn declared(&self) -> Option<Vec<Type>> {
        Some(vec![Type::F32.vector(2 * SAMPLES)])
    }
    fn stateless(&self) -> bool {
        true
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(ByBytes(self.running()))
    }
    fn start_bytes(&self, _: &[Type], _: &[Type]) -> Option<Box<dyn ByteStep>> {
        Some(Box::new(self.running()))
    }
    fn parameters(&self) -> Option<toml::Table> {
        karoo_flow::table(self)
    }
}

/// A transmitter. What it keeps is memory, no state: the blank symbols let each pulse end.
struct Send {
    node: SendFrames,
    transmitter: Transmitter,
    samples: Vec<Complex32>,
}

impl ByteStep for Send {
    fn compute(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let used = inputs[1]
            .first_chunk()
            .map_or(0, |four| u32::from_le_bytes(*four));
        let message = &inputs[0][..(used as usize).min(inputs[0].len())];
        self.samples.clear();
        if !message.is_empty() {
            let frame = self.node.frame(message);
            self.transmitter.frame(&frame, &mut self.samples);
            self.transmitter.blanks(BLANK_SYMBOLS, &mut self.samples);
        }
        self.samples.resize(SAMPLES, Complex32::ZERO);
        put_floats(bytemuck::cast_slice(&self.samples), outputs[0]);
    }
}

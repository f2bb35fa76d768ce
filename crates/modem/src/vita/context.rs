//! Context packets: what samples are.

use super::packet::{HEADER_BYTES, Packet, PacketKind};
use super::time::{PLACES, PacketTime, SampleRate};

/// Bytes of a context packet as DIFI has it: 27 words.
pub const CONTEXT_BYTES: usize = 108;
/// Fields that it has, behind the mark that something changed.
const FIELDS: u32 = 0x7bb9_8000;
const CHANGED: u32 = 1 << 31;
/// Samples as they are read and written: complex, signed, 16 bits in 16, packed densely.
const COMPLEX_16: u64 = 0xa000_03cf_0000_0000;
/// Class of a context packet: DIFI's basic data plane, packet class 1.
const CLASS: u32 = 0x0000_0001;

/// Why a context cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ContextError {
    /// Other fields than DIFI has.
    #[error("context fields {0:08x}: DIFI has 7bb98000, with or without its highest bit")]
    Fields(u32),
    /// Another size.
    #[error("{0} bytes of context fields: DIFI has 80")]
    Size(usize),
    /// Samples that are not read.
    #[error("samples of format {0:016x}: complex integers of 16 bits (a00003cf00000000) are read")]
    Format(u64),
    /// A rate that no stream can have.
    #[error("a sample rate of {0} Hz: it must be 1 Hz to 1 THz")]
    Rate(f64),
}

/// What the samples of a stream are. Of DIFI's fields, those that nothing here uses are written as
/// 0 and not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Context {
    /// Samples per second.
    pub sample_rate: SampleRate,
    /// Bandwidth in Hz.
    pub bandwidth: f64,
    /// Frequency of the carrier in Hz.
    pub frequency: f64,
    /// Whether something is other than in the context before.
    pub changed: bool,
}

/// Hz to units of 2⁻²⁰ Hz; beyond what 64 bits hold, the nearest that they do.
fn fixed(hertz: f64) -> u64 {
    ((hertz * f64::from(1u32 << PLACES)).round() as i64) as u64
}

fn hertz(bits: u64) -> f64 {
    bits as i64 as f64 / f64::from(1u32 << PLACES)
}

impl Context {
    /// Reads the body of a context packet.
    pub fn from_body(body: &[u8]) -> Result<Context, ContextError> {
        if body.len() != CONTEXT_BYTES - HEADER_BYTES {
            return Err(ContextError::Size(body.len()));
        }
        let mut rest = body;
        let mut take = |words: usize| {
            let (now, later) = rest.split_at(4 * words);
            rest = later;
            now.iter()
                .fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        let fields = take(1) as u32;
        if fields & !CHANGED != FIELDS {
            return Err(ContextError::Fields(fields));
        }
        let _reference_point = take(1);
        let bandwidth = hertz(take(2));
        let _intermediate_frequency = take(2);
        let frequency = hertz(take(2));
        let _band_offset = take(2);
        let _reference_level = take(1);
        let _gain = take(1);
        let rate = hertz(take(2));
        let sample_rate = SampleRate::new(rate).map_err(|_| ContextError::Rate(rate))?;
        let _time_adjustment = take(2);
        let _calibration_time = take(1);
        let _states = take(1);
        let format = take(2);
        if format != COMPLEX_16 {
            return Err(ContextError::Format(format));
        }
        Ok(Context {
            sample_rate,
            bandwidth,
            frequency,
            changed: fields & CHANGED != 0,
        })
    }

    /// Appends a context packet.
    pub fn write(&self, stream: u32, count: u8, time: PacketTime, bytes: &mut Vec<u8>) {
        let fields = FIELDS | if self.changed { CHANGED } else { 0 };
        let one = |bytes: &mut Vec<u8>, word: u32| bytes.extend(word.to_be_bytes());
        let two = |bytes: &mut Vec<u8>, words: u64| bytes.extend(words.to_be_bytes());
        let mut body = Vec::with_capacity(CONTEXT_BYTES - HEADER_BYTES);
        one(&mut body, fields);
        // DIFI's reference point 0x64: the intermediate frequency.
        one(&mut body, 0x64);
        two(&mut body, fixed(self.bandwidth));
        two(&mut body, 0);
        two(&mut body, fixed(self.frequency));
        two(&mut body, 0);
        one(&mut body, 0);
        one(&mut body, 0);
        two(&mut body, self.sample_rate.bits());
        two(&mut body, 0);
        one(&mut body, 0);
        one(&mut body, 0);
        two(&mut body, COMPLEX_16);
        let packet = Packet {
            kind: PacketKind::Context,
            count,
            stream,
            class: CLASS,
            time,
            body: &body,
        };
        packet.write(bytes);
    }
}

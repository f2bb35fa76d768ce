//! Samples to packets.

use num_complex::Complex32;

use super::context::Context;
use super::packet::{HEADER_BYTES, Packet, PacketKind};
use super::time::PacketTime;
use crate::formats::{FullScale, quantised};

/// Samples of a packet that fits into Ethernet's usual 1500 bytes.
pub const PACKET_SAMPLES: usize = 360;
/// Class of a data packet: DIFI's basic data plane, packet class 0.
const CLASS: u32 = 0;
/// The most samples of a packet, whose size is a number of words in 16 bits.
const MOST_SAMPLES: usize = 0xffff - HEADER_BYTES / 4;

/// Samples of a data packet of at most so many bytes: a multiple of 8, or none if there is no room
/// for 8.
pub fn samples_within(bytes: usize) -> Option<usize> {
    let samples = bytes.saturating_sub(HEADER_BYTES) / 4;
    let whole = samples.min(MOST_SAMPLES) / 8 * 8;
    (whole > 0).then_some(whole)
}

/// A packet on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutPacket<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Place in the stream of its first sample, or of the first behind a context.
    pub first: u64,
    /// Samples of the packet; a context has none.
    pub samples: usize,
}

/// Cuts a stream of samples into packets of the same size.
#[derive(Debug)]
pub struct StreamWriter {
    stream: u32,
    context: Context,
    start: PacketTime,
    full_scale: FullScale,
    /// Data packets from one context packet to the next.
    context_every: u64,
    packet_samples: usize,
    counts: [u8; 2],
    packets: u64,
    sent: u64,
    clipped: u64,
    held: Vec<Complex32>,
    integers: Vec<u8>,
    bytes: Vec<u8>,
}

impl StreamWriter {
    /// A stream whose sample 0 is at `start`, with a context packet before every `context_every`
    /// data packets.
    pub fn new(
        stream: u32,
        context: Context,
        start: PacketTime,
        full_scale: FullScale,
        context_every: u64,
    ) -> StreamWriter {
        StreamWriter {
            stream,
            context,
            start,
            full_scale,
            context_every: context_every.max(1),
            packet_samples: PACKET_SAMPLES,
            counts: [0; 2],
            packets: 0,
            sent: 0,
            clipped: 0,
            held: Vec::new(),
            integers: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// The same with packets of so many samples, of which there is at least one. Samples that were
    /// pushed and not sent yet go in such packets, too.
    pub fn with_packet_samples(mut self, samples: usize) -> StreamWriter {
        self.packet_samples = samples.clamp(1, MOST_SAMPLES);
        self
    }

    /// Takes samples, and gives packets that are whole to `send`, which may fail.
    pub fn push<E>(
        &mut self,
        mut samples: &[Complex32],
        mut send: impl FnMut(OutPacket) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            // More than one if packets have become smaller.
            while self.held.len() >= self.packet_samples {
                self.packet(&mut send)?;
            }
            if samples.is_empty() {
                return Ok(());
            }
            let room = self.packet_samples - self.held.len();
            let (now, later) = samples.split_at(room.min(samples.len()));
            self.held.extend_from_slice(now);
            samples = later;
        }
    }

    /// Sends what is left, the last of it in a shorter packet.
    pub fn finish<E>(&mut self, mut send: impl FnMut(OutPacket) -> Result<(), E>) -> Result<(), E> {
        while !self.held.is_empty() {
            self.packet(&mut send)?;
        }
        Ok(())
    }

    /// Real and imaginary parts that were clipped.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }

    /// Data packets that were sent.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    fn packet<E>(&mut self, send: &mut impl FnMut(OutPacket) -> Result<(), E>) -> Result<(), E> {
        let time = self.start.after(self.sent, self.context.sample_rate);
        if self.packets.is_multiple_of(self.context_every) {
            let context = Context {
                changed: self.packets == 0,
                ..self.context
            };
            self.bytes.clear();
            let count = &mut self.counts[1];
            context.write(self.stream, *count, time, &mut self.bytes);
            *count = (*count + 1) % 16;
            send(OutPacket {
                bytes: &self.bytes,
                first: self.sent,
                samples: 0,
            })?;
        }
        let samples = self.held.len().min(self.packet_samples);
        self.integers.resize(4 * samples, 0);
        let steps = f32::from(i16::MAX) / self.full_scale.value();
        let mut clipped = 0;
        for (bytes, sample) in self.integers.chunks_exact_mut(4).zip(&self.held) {
            let (re, im) = (quantised(sample.re, steps), quantised(sample.im, steps));
            clipped += u64::from(re.1) + u64::from(im.1);
            bytes[..2].copy_from_slice(&re.0.to_be_bytes());
            bytes[2..].copy_from_slice(&im.0.to_be_bytes());
        }
        self.clipped += clipped;
        self.bytes.clear();
        let packet = Packet {
            kind: PacketKind::Data,
            count: self.counts[0],
            stream: self.stream,
            class: CLASS,
            time,
            body: &self.integers,
        };
        packet.write(&mut self.bytes);
        self.counts[0] = (self.counts[0] + 1) % 16;
        let first = self.sent;
        self.packets += 1;
        self.sent += samples as u64;
        self.held.drain(..samples);
        send(OutPacket {
            bytes: &self.bytes,
            first,
            samples,
        })
    }
}

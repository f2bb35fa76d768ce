//! Samples to packets.

use num_complex::Complex32;

use super::context::Context;
use super::packet::{Packet, PacketKind};
use super::time::PacketTime;
use crate::formats::{FullScale, SampleFormat, SampleWriter};

/// Samples of a packet that fits into Ethernet's usual 1500 bytes.
pub const PACKET_SAMPLES: usize = 360;
/// Class of a data packet: DIFI's basic data plane, packet class 0.
const CLASS: u32 = 0;

/// Cuts a stream of samples into packets of the same size.
#[derive(Debug)]
pub struct StreamWriter {
    stream: u32,
    context: Context,
    start: PacketTime,
    full_scale: FullScale,
    /// Data packets from one context packet to the next.
    context_every: u64,
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
            counts: [0; 2],
            packets: 0,
            sent: 0,
            clipped: 0,
            held: Vec::new(),
            integers: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Takes samples, and gives packets that are whole to `send`, which may fail.
    pub fn push<E>(
        &mut self,
        mut samples: &[Complex32],
        mut send: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !samples.is_empty() {
            let room = PACKET_SAMPLES - self.held.len();
            let (now, later) = samples.split_at(room.min(samples.len()));
            self.held.extend_from_slice(now);
            samples = later;
            if self.held.len() == PACKET_SAMPLES {
                self.packet(&mut send)?;
            }
        }
        Ok(())
    }

    /// Sends what is left, in a shorter packet.
    pub fn finish<E>(&mut self, mut send: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self.held.is_empty() {
            true => Ok(()),
            false => self.packet(&mut send),
        }
    }

    /// Real and imaginary parts that were clipped.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }

    /// Data packets that were sent.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    fn packet<E>(&mut self, send: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
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
            send(&self.bytes)?;
        }
        self.integers.clear();
        let mut writer = SampleWriter::new(&mut self.integers, SampleFormat::Ci16, self.full_scale);
        // Writing into memory does not fail.
        let _ = writer.write(&self.held);
        self.clipped += writer.counts().clipped;
        // Files are little endian, packets big.
        self.integers.chunks_exact_mut(2).for_each(<[u8]>::reverse);
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
        self.packets += 1;
        self.sent += self.held.len() as u64;
        self.held.clear();
        send(&self.bytes)
    }
}

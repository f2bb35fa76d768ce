//! Packets to samples, each at its time.

use num_complex::Complex32;
use serde::Serialize;

use super::context::{Context, ContextError};
use super::packet::{Packet, PacketError, PacketKind};
use super::time::{PacketTime, SampleRate};
use crate::formats::FullScale;

/// Packets in a row, each wholly late, whose counts follow one another and that begin the stream
/// anew: a sender whose time is behind what was given, as after one packet whose time was ahead.
const MOST_LATE: u32 = 4;

/// What has become of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamCounts {
    /// Data packets whose samples were placed.
    pub packets: u64,
    /// Context packets that were read.
    pub contexts: u64,
    /// Samples that came.
    pub samples: u64,
    /// Samples in gaps: zeros stand for them.
    pub lost_samples: u64,
    /// Gaps.
    pub gaps: u64,
    /// Packets whose number is not the one after the last.
    pub out_of_sequence: u64,
    /// Packets whose time is before what was already given: late, twice, or of a clock that was
    /// set back. They are left out.
    pub late: u64,
    /// Times at which the stream began anew, since a packet was too far away for zeros.
    pub restarts: u64,
    /// Packets of other streams.
    pub other_streams: u64,
    /// Data packets that came before any context, if no rate was given.
    pub without_rate: u64,
    /// Bytes that are no packet.
    pub refused: u64,
    /// Context packets that cannot be used.
    pub contexts_refused: u64,
}

/// What a packet did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece {
    /// Its samples were appended, behind `lost` zeros for those that are missing.
    Samples {
        /// Place of its first sample in the stream; the first packet's is 0.
        first: u64,
        /// Zeros before it.
        lost: u64,
    },
    /// Its samples were appended as the begin of another stream, at place 0.
    Restart,
    /// It was a context.
    Context(Context),
    /// It was left out, and counted.
    Nothing,
}

/// A packet whose place is known, and whose samples are still to be appended.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// What it did. Where zeros are lacking, they go before its samples.
    pub piece: Piece,
    body: &'a [u8],
    scale: f32,
}

impl Placed<'_> {
    fn nothing(piece: Piece) -> Self {
        Placed {
            piece,
            body: &[],
            scale: 0.0,
        }
    }

    /// Zeros that go before its samples.
    pub fn lost(&self) -> u64 {
        match self.piece {
            Piece::Samples { lost, .. } => lost,
            Piece::Restart | Piece::Context(_) | Piece::Nothing => 0,
        }
    }

    /// Its samples, of which only one that was placed has any.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Complex32> {
        let scale = self.scale;
        self.body.chunks_exact(4).map(move |bytes| {
            let part = |at: usize| f32::from(i16::from_be_bytes([bytes[at], bytes[at + 1]]));
            Complex32::new(part(0), part(2)) * scale
        })
    }
}

/// Why a packet was left out.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StreamError {
    /// No packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// No context that can be used.
    #[error(transparent)]
    Context(#[from] ContextError),
}

/// Puts the samples of one stream where the times of its packets say.
#[derive(Clone, Debug)]
pub struct StreamReader {
    stream: Option<u32>,
    rate: Option<SampleRate>,
    scale: f32,
    most_lost: u64,
    /// Time of place 0, and the place behind the last sample.
    start: Option<PacketTime>,
    next: u64,
    count: Option<u8>,
    /// Packets that were wholly late since the last that was placed, as far back as their counts
    /// follow one another, and the count of the newest.
    late: (u32, u8),
    /// Number of the stream of the newest packet of another.
    other: Option<u32>,
    counts: StreamCounts,
}

impl StreamReader {
    /// A reader of a stream, or of the first that comes. A rate that is given holds until a context
    /// says another one. A gap of more than `most_lost` samples begins the stream anew, and so do
    /// four packets in a row that lie before what was given, if their counts follow one another.
    pub fn new(
        stream: Option<u32>,
        rate: Option<SampleRate>,
        full_scale: FullScale,
        most_lost: u64,
    ) -> StreamReader {
        StreamReader {
            stream,
            rate,
            scale: full_scale.value() / f32::from(i16::MAX),
            most_lost,
            start: None,
            next: 0,
            count: None,
            late: (0, 0),
            other: None,
            counts: StreamCounts::default(),
        }
    }

    /// What has become of packets so far.
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    /// Number of the stream of the newest packet of another stream.
    pub fn other_stream(&self) -> Option<u32> {
        self.other
    }

    /// Takes a packet, and appends samples. An error says why it was left out; it is counted, and
    /// the stream goes on.
    pub fn push(
        &mut self,
        bytes: &[u8],
        samples: &mut Vec<Complex32>,
    ) -> Result<Piece, StreamError> {
        let placed = self.place(bytes)?;
        let zeros = samples.len() + placed.lost() as usize;
        samples.resize(zeros, Complex32::default());
        samples.extend(placed.samples());
        Ok(placed.piece)
    }

    /// Takes a packet as [`push`](Self::push) does, but leaves it to the caller to append zeros and
    /// samples: a gap may be longer than what the caller has room for at once.
    pub fn place<'a>(&mut self, bytes: &'a [u8]) -> Result<Placed<'a>, StreamError> {
        let packet = Packet::new_checked(bytes).inspect_err(|_| self.counts.refused += 1)?;
        if *self.stream.get_or_insert(packet.stream) != packet.stream {
            self.counts.other_streams += 1;
            self.other = Some(packet.stream);
            return Ok(Placed::nothing(Piece::Nothing));
        }
        match packet.kind {
            PacketKind::Data => Ok(self.data(&packet)),
            PacketKind::Context => {
                let refused = &mut self.counts.contexts_refused;
                let context = Context::from_body(packet.body).inspect_err(|_| *refused += 1)?;
                self.counts.contexts += 1;
                if self.rate.replace(context.sample_rate) != Some(context.sample_rate) {
                    // Places of another rate are no places of this one.
                    self.start = None;
                }
                Ok(Placed::nothing(Piece::Context(context)))
            }
        }
    }

    fn data<'a>(&mut self, packet: &Packet<'a>) -> Placed<'a> {
        let Some(rate) = self.rate else {
            self.counts.without_rate += 1;
            return Placed::nothing(Piece::Nothing);
        };
        let expected = self.count.map(|count| (count + 1) % 16);
        let in_sequence = expected.is_none_or(|expected| expected == packet.count);
        self.counts.out_of_sequence += u64::from(!in_sequence);
        let place = self
            .start
            .map(|start| rate.samples(packet.time.since(start)));
        let mut body = packet.body;
        let lost = match place.map(|place| place - i128::from(self.next)) {
            None => None,
            Some(lost) if lost < 0 && lost.unsigned_abs() <= u128::from(self.most_lost) => {
                // Samples that were given already, by a packet or as zeros, are not given again.
                let given = usize::try_from(lost.unsigned_abs()).unwrap_or(usize::MAX);
                match body.get(given.saturating_mul(4)..) {
                    Some(rest) if rest.len() >= 4 => {
                        body = rest;
                        Some(0)
                    }
                    _ if self.once_more_late(packet.count) => None,
                    _ => {
                        self.counts.late += 1;
                        return Placed::nothing(Piece::Nothing);
                    }
                }
            }
            Some(lost) => u64::try_from(lost)
                .ok()
                .filter(|lost| *lost <= self.most_lost),
        };
        self.count = Some(packet.count);
        self.late = (0, 0);
        let piece = match lost {
            Some(lost) => {
                self.counts.lost_samples += lost;
                self.counts.gaps += u64::from(lost > 0);
                self.next += lost;
                Piece::Samples {
                    first: self.next,
                    lost,
                }
            }
            None => {
                let again = self.counts.packets > 0;
                self.counts.restarts += u64::from(again);
                (self.start, self.next) = (Some(packet.time), 0);
                match again {
                    true => Piece::Restart,
                    false => Piece::Samples { first: 0, lost: 0 },
                }
            }
        };
        let placed = Placed {
            piece,
            body,
            scale: self.scale,
        };
        let count = placed.samples().len() as u64;
        self.next += count;
        self.counts.samples += count;
        self.counts.packets += 1;
        placed
    }

    /// Counts a packet that is wholly late; whether it is one too many.
    fn once_more_late(&mut self, count: u8) -> bool {
        let (number, last) = self.late;
        let follows = number > 0 && count == (last + 1) % 16;
        self.late = (if follows { number + 1 } else { 1 }, count);
        self.late.0 >= MOST_LATE
    }
}

//! Samples in packets: VITA 49.2, as DIFI (IEEE-ISTO 4900) narrows it.
//!
//! A stream has two kinds of packets. *Signal data* packets have samples and the time of the first
//! of them. *Context* packets say what samples are: their rate, the carrier's frequency, their
//! format. All numbers are big endian.
//!
//! ```text
//! word 0    type, what is there, kinds of time, count modulo 16, size in words
//! word 1    stream
//! words 2–3 class: DIFI's OUI 6A-62-1E
//! word 4    seconds (UTC)
//! words 5–6 picoseconds
//! words 7…  samples, or context fields
//! ```
//!
//! A lost packet is a gap in time: [`StreamReader`] puts each sample where its packet's time says,
//! and zeros where none came, so that what comes later is not shifted.
//!
//! Sources: ANSI/VITA 49.2-2017; IEEE-ISTO Std 4900-2021, *Digital IF Interoperability Standard*.

mod context;
mod packet;
mod reader;
mod time;
mod writer;

#[cfg(test)]
mod tests;

pub use context::{CONTEXT_BYTES, Context, ContextError};
pub use packet::{DIFI_OUI, HEADER_BYTES, Packet, PacketError, PacketKind};
pub use reader::{Piece, Placed, StreamCounts, StreamError, StreamReader};
pub use time::{PICOSECONDS, PacketTime, SampleRate, SampleRateError};
pub use writer::{OutPacket, PACKET_SAMPLES, StreamWriter, samples_within};

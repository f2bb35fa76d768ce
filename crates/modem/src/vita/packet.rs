//! A packet as a checked view over bytes.

use super::time::{PICOSECONDS, PacketTime};

/// Bytes before samples or context fields, in packets as DIFI has them.
pub const HEADER_BYTES: usize = 28;
/// DIFI's number among organisations, which classes of its packets have.
pub const DIFI_OUI: u32 = 0x6a_621e;

/// Where fields of the first word are.
mod field {
    pub const KIND: u32 = 28;
    pub const HAS_CLASS: u32 = 1 << 27;
    pub const HAS_TRAILER: u32 = 1 << 26;
    /// Of a context, that its time is not that of one sample; DIFI wants it.
    pub const GENERAL_TIME: u32 = 1 << 24;
    pub const SECONDS_KIND: u32 = 22;
    pub const FRACTION_KIND: u32 = 20;
    pub const COUNT: u32 = 16;
}

/// What a packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Samples.
    Data,
    /// What samples are.
    Context,
}

impl PacketKind {
    fn code(self) -> u32 {
        match self {
            PacketKind::Data => 1,
            PacketKind::Context => 4,
        }
    }
}

/// Why bytes are no packet that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Fewer bytes than the packet says, or than any packet has.
    #[error("{found} bytes of a packet that has {wanted}")]
    Cut {
        /// Bytes that are there.
        found: usize,
        /// Bytes that there must be.
        wanted: usize,
    },
    /// Another kind of packet.
    #[error("packet type {0}: only signal data (1) and context (4) with a stream are read")]
    Kind(u32),
    /// Without a class, or with one of other bits than samples need.
    #[error("no class of DIFI (OUI 6A-62-1E): found {0:06x}")]
    Class(u32),
    /// Without a time by which samples can be placed.
    #[error(
        "times of kinds {seconds} and {fraction}: seconds (1 UTC, 2 GPS, 3 others) and picoseconds (2) are read"
    )]
    Time {
        /// Kind of the seconds.
        seconds: u32,
        /// Kind of the fraction.
        fraction: u32,
    },
    /// A fraction of a second that is none.
    #[error("{0} ps within a second: they are fewer than 10^12")]
    Fraction(u64),
}

/// A packet with stream, class and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it has.
    pub kind: PacketKind,
    /// Its number modulo 16, among those of its kind.
    pub count: u8,
    /// Number of the stream.
    pub stream: u32,
    /// Class of its information and of the packet, 16 bits each.
    pub class: u32,
    /// Time of its first sample, or from which on a context holds.
    pub time: PacketTime,
    /// Samples or context fields.
    pub body: &'a [u8],
}

fn word(bytes: &[u8], number: usize) -> u32 {
    let at = 4 * number;
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_be_bytes)
}

impl<'a> Packet<'a> {
    /// Checks bytes. Nothing of the packet can lie outside of them; bytes behind its end are left
    /// out.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Packet<'a>, PacketError> {
        let cut = |wanted| PacketError::Cut {
            found: bytes.len(),
            wanted,
        };
        if bytes.len() < 4 {
            return Err(cut(4));
        }
        let head = word(bytes, 0);
        let kind = match head >> field::KIND {
            1 => PacketKind::Data,
            4 => PacketKind::Context,
            other => return Err(PacketError::Kind(other)),
        };
        let size = 4 * (head & 0xffff) as usize;
        let has_trailer = kind == PacketKind::Data && head & field::HAS_TRAILER != 0;
        let trailer = if has_trailer { 4 } else { 0 };
        if size < HEADER_BYTES + trailer || bytes.len() < size {
            return Err(cut(size.max(HEADER_BYTES + trailer)));
        }
        let organisation = word(bytes, 2) & 0xff_ffff;
        if head & field::HAS_CLASS == 0 || organisation != DIFI_OUI {
            return Err(PacketError::Class(organisation));
        }
        let seconds = head >> field::SECONDS_KIND & 3;
        let fraction = head >> field::FRACTION_KIND & 3;
        // Whatever seconds count from: samples are placed by differences.
        if seconds == 0 || fraction != 2 {
            return Err(PacketError::Time { seconds, fraction });
        }
        let picoseconds = u64::from(word(bytes, 5)) << 32 | u64::from(word(bytes, 6));
        if picoseconds >= PICOSECONDS {
            return Err(PacketError::Fraction(picoseconds));
        }
        Ok(Packet {
            kind,
            count: (head >> field::COUNT & 15) as u8,
            stream: word(bytes, 1),
            class: word(bytes, 3),
            time: PacketTime {
                seconds: word(bytes, 4),
                picoseconds,
            },
            body: &bytes[HEADER_BYTES..size - trailer],
        })
    }

    /// Appends the packet's bytes. Bodies are of whole words, and of fewer than 2¹⁶ with the head;
    /// of others nothing is written.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let size = HEADER_BYTES + self.body.len();
        let Ok(words) = u16::try_from(size / 4) else {
            return;
        };
        if !size.is_multiple_of(4) {
            return;
        }
        let time = match self.kind {
            PacketKind::Data => 0,
            PacketKind::Context => field::GENERAL_TIME,
        };
        let head = self.kind.code() << field::KIND
            | field::HAS_CLASS
            | time
            | 1 << field::SECONDS_KIND
            | 2 << field::FRACTION_KIND
            | u32::from(self.count & 15) << field::COUNT
            | u32::from(words);
        let [high, low] = [32, 0].map(|shift| (self.time.picoseconds >> shift) as u32);
        let head = [
            head,
            self.stream,
            DIFI_OUI,
            self.class,
            self.time.seconds,
            high,
            low,
        ];
        bytes.extend(head.into_iter().flat_map(u32::to_be_bytes));
        bytes.extend_from_slice(self.body);
    }
}

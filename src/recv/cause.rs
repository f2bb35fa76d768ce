//! Why a datagram was not placed, and how often.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};

use ground::stats::counter::add;
use spead::PacketError;

use super::dropped::DroppedPackets;
use crate::net::flow_table::SteerError;
use crate::net::frame::FrameError;

macro_rules! drop_causes {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// Why a datagram was not placed. Each datagram has one cause at the most.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropCause {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropCause {
            /// All causes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Stable name for counters and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The cause of this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|cause| cause.name() == name)
            }
        }
    };
}

drop_causes! {
    /// The frame ends before its headers or lengths say.
    FrameCut => "frame-cut",
    /// Another protocol than UDP over IPv4.
    NotIpv4Udp => "not-ipv4-udp",
    /// Contradictory IPv4 header.
    BadIpv4Header => "bad-ipv4-header",
    /// IPv4 options.
    Ipv4Options => "ipv4-options",
    /// A fragment.
    Ipv4Fragment => "ipv4-fragment",
    /// UDP length and IPv4 length disagree.
    BadUdpLength => "bad-udp-length",
    /// A checksum that the NIC found wrong.
    BadChecksum => "bad-checksum",
    /// A destination that no flow rule takes.
    NotOurs => "not-ours",
    /// Fewer bytes than a SPEAD header.
    PacketTooShort => "packet-too-short",
    /// More bytes than a receiver takes.
    PacketTooLong => "packet-too-long",
    /// Not SPEAD.
    BadMagic => "bad-magic",
    /// Another SPEAD version.
    BadVersion => "bad-version",
    /// Item pointer widths that do not make 64 bits.
    BadWidths => "bad-widths",
    /// More item pointers than fit the packet.
    ItemsPastEnd => "items-past-end",
    /// No heap count.
    NoHeapCount => "no-heap-count",
    /// No payload offset.
    NoPayloadOffset => "no-payload-offset",
    /// No payload length.
    NoPayloadLength => "no-payload-length",
    /// Payload runs past the packet's end.
    PayloadPastEnd => "payload-past-end",
    /// Payload runs past the heap's end.
    PayloadPastHeap => "payload-past-heap",
    /// No heap length.
    NoHeapLength => "no-heap-length",
    /// A part of a heap; digitiser heaps are one packet.
    HeapSpansPackets => "heap-spans-packets",
    /// A heap of another length: descriptors, stop heaps, or the wrong sample width.
    WrongHeapLength => "wrong-heap-length",
    /// No timestamp.
    NoTimestamp => "no-timestamp",
    /// A timestamp that is not a multiple of the heap's samples.
    BadTimestamp => "bad-timestamp",
    /// Far ahead of all other heaps, and alone with it.
    StrayTime => "stray-time",
    /// Older than the oldest chunk still open.
    TooOld => "too-old",
    /// A heap that was received before.
    Duplicate => "duplicate",
    /// No chunk was free: the engine is too slow.
    NoFreeChunk => "no-free-chunk",
}

impl From<&PacketError> for DropCause {
    fn from(error: &PacketError) -> Self {
        match error {
            PacketError::TooShort { .. } => Self::PacketTooShort,
            PacketError::TooLong { .. } => Self::PacketTooLong,
            PacketError::BadMagic(_) => Self::BadMagic,
            PacketError::BadVersion(_) => Self::BadVersion,
            PacketError::BadWidths { .. } => Self::BadWidths,
            PacketError::ItemsPastEnd { .. } => Self::ItemsPastEnd,
            PacketError::NoHeapCount => Self::NoHeapCount,
            PacketError::NoPayloadOffset => Self::NoPayloadOffset,
            PacketError::NoPayloadLength => Self::NoPayloadLength,
            PacketError::PayloadPastEnd { .. } => Self::PayloadPastEnd,
            PacketError::PayloadPastHeap { .. } => Self::PayloadPastHeap,
            PacketError::NoHeapLength => Self::NoHeapLength,
            PacketError::SpansPackets { .. } => Self::HeapSpansPackets,
        }
    }
}

impl From<&FrameError> for DropCause {
    fn from(error: &FrameError) -> Self {
        match error {
            FrameError::Cut { .. } => Self::FrameCut,
            FrameError::NotIpv4(_) | FrameError::NotUdp(_) => Self::NotIpv4Udp,
            FrameError::BadIpv4 => Self::BadIpv4Header,
            FrameError::Ipv4Options => Self::Ipv4Options,
            FrameError::Fragment => Self::Ipv4Fragment,
            FrameError::UdpLength { .. } => Self::BadUdpLength,
        }
    }
}

impl From<&SteerError> for DropCause {
    fn from(error: &SteerError) -> Self {
        match error {
            SteerError::NotOurs(_) => Self::NotOurs,
            SteerError::Frame(error) => error.into(),
        }
    }
}

/// Counters of one thread that looks at datagrams: written by it alone, read by anyone.
#[derive(Debug)]
pub struct RxStats {
    datagrams: AtomicU64,
    placed: AtomicU64,
    drops: Box<[AtomicU64]>,
    metadata: AtomicU64,
    last: LastDropped<AtomicU64>,
    port: String,
    copies: DroppedPackets,
}

/// What the last datagrams that were dropped for some causes had. It tells which option is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastDropped<T = Option<u64>, A = T> {
    /// Bytes of the last heap of [`DropCause::WrongHeapLength`].
    pub heap_length: T,
    /// Timestamp of the last heap of [`DropCause::BadTimestamp`].
    pub timestamp: T,
    /// Samples that the last heap of [`DropCause::TooOld`] was behind the newest.
    pub behind: T,
    /// Samples that the last heap which may become one of [`DropCause::StrayTime`] was ahead of the
    /// newest.
    pub ahead: T,
    /// Destination of the last datagram of [`DropCause::NotOurs`].
    pub destination: A,
}

/// No datagram of a cause has been dropped.
const NONE: u64 = u64::MAX;

impl Default for RxStats {
    fn default() -> Self {
        let none = || AtomicU64::new(NONE);
        Self {
            datagrams: AtomicU64::new(0),
            placed: AtomicU64::new(0),
            drops: DropCause::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            metadata: AtomicU64::new(0),
            last: LastDropped {
                heap_length: none(),
                timestamp: none(),
                behind: none(),
                ahead: none(),
                destination: none(),
            },
            port: String::new(),
            copies: DroppedPackets::default(),
        }
    }
}

impl RxStats {
    /// Zeros of a thread that has its datagrams from this port.
    pub fn of_port(port: impl Into<String>) -> Self {
        Self {
            port: port.into(),
            ..Self::default()
        }
    }

    /// The port that the datagrams come from, as its user calls it; empty where that does not
    /// matter.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Copies of the latest datagrams of each drop cause.
    pub fn copies(&self) -> &DroppedPackets {
        &self.copies
    }

    /// Counts a burst: `datagrams` looked at, `placed` of them placed.
    #[inline]
    pub fn note_burst(&self, datagrams: u64, placed: u64) {
        add(&self.datagrams, datagrams);
        add(&self.placed, placed);
    }

    /// Counts one datagram that was not placed.
    #[inline]
    pub fn note_drop(&self, cause: DropCause) {
        add(&self.drops[cause as usize], 1);
    }

    /// Counts one datagram of `length` bytes that was not placed, and may keep a copy of its
    /// `frame`, which arrived at a UNIX time in nanoseconds.
    pub(crate) fn note_dropped(&self, cause: DropCause, arrived: u64, frame: &[u8], length: usize) {
        self.copies.keep(cause, arrived, frame, length);
        // Last, so that who sees the count finds the copy.
        self.note_drop(cause);
    }

    /// Counts a heap of [`DropCause::WrongHeapLength`] as one that senders of data send as well: a
    /// descriptor or stop heap.
    pub(super) fn note_metadata(&self) {
        add(&self.metadata, 1);
    }

    /// Keeps the length of a heap of [`DropCause::WrongHeapLength`].
    pub(super) fn note_heap_length(&self, bytes: u64) {
        self.last.heap_length.store(bytes, Ordering::Relaxed);
    }

    /// Keeps the timestamp of a heap of [`DropCause::BadTimestamp`].
    pub(super) fn note_timestamp(&self, timestamp: u64) {
        self.last.timestamp.store(timestamp, Ordering::Relaxed);
    }

    /// Keeps how many samples a heap of [`DropCause::TooOld`] was behind the newest.
    pub(super) fn note_behind(&self, samples: u64) {
        self.last.behind.store(samples, Ordering::Relaxed);
    }

    /// Keeps how many samples a heap far ahead was ahead of the newest.
    pub(super) fn note_ahead(&self, samples: u64) {
        self.last.ahead.store(samples, Ordering::Relaxed);
    }

    /// Keeps the destination of a datagram of [`DropCause::NotOurs`].
    pub(super) fn note_destination(&self, to: SocketAddrV4) {
        let bits = u64::from(to.ip().to_bits()) << 16 | u64::from(to.port());
        self.last.destination.store(bits, Ordering::Relaxed);
    }

    /// Heaps of [`DropCause::WrongHeapLength`] without a timestamp: descriptors and stop heaps.
    pub fn metadata(&self) -> u64 {
        self.metadata.load(Ordering::Relaxed)
    }

    /// What the last datagrams dropped had.
    pub fn last_dropped(&self) -> LastDropped<Option<u64>, Option<SocketAddrV4>> {
        let load = |value: &AtomicU64| Some(value.load(Ordering::Relaxed)).filter(|v| *v != NONE);
        let address = |bits: u64| SocketAddrV4::new(((bits >> 16) as u32).into(), bits as u16);
        LastDropped {
            heap_length: load(&self.last.heap_length),
            timestamp: load(&self.last.timestamp),
            behind: load(&self.last.behind),
            ahead: load(&self.last.ahead),
            destination: load(&self.last.destination).map(address),
        }
    }

    /// Datagrams looked at.
    pub fn datagrams(&self) -> u64 {
        self.datagrams.load(Ordering::Relaxed)
    }

    /// Heaps placed.
    pub fn placed(&self) -> u64 {
        self.placed.load(Ordering::Relaxed)
    }

    /// Datagrams dropped for one cause.
    pub fn drops(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize].load(Ordering::Relaxed)
    }

    /// Adds the causes that occurred to `totals`.
    pub fn add_drops(&self, totals: &mut BTreeMap<String, u64>) {
        for &cause in DropCause::ALL {
            let count = self.drops(cause);
            if count > 0 {
                *totals.entry(cause.name().to_owned()).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `spead` names its rules by itself, because it knows no receiver.
    #[test]
    fn rules_of_spead_have_the_names_of_their_causes() {
        let [offset, length, heap] = [0, 8, 16];
        let errors = [
            PacketError::TooShort { len: 7 },
            PacketError::TooLong { len: 70_000 },
            PacketError::BadMagic(0),
            PacketError::BadVersion(0),
            PacketError::BadWidths {
                item: 0,
                address: 0,
            },
            PacketError::ItemsPastEnd { items: 2, len: 8 },
            PacketError::NoHeapCount,
            PacketError::NoPayloadOffset,
            PacketError::NoPayloadLength,
            PacketError::PayloadPastEnd { length, room: 0 },
            PacketError::PayloadPastHeap {
                offset,
                length,
                heap,
            },
            PacketError::NoHeapLength,
            PacketError::SpansPackets {
                offset,
                length,
                heap,
            },
        ];
        let names = errors.each_ref().map(PacketError::cause);
        assert_eq!(errors.map(|error| DropCause::from(&error).name()), names);
        let all = DropCause::ALL.iter().map(|cause| cause.name());
        let of_spead = all
            .skip_while(|name| *name != "packet-too-short")
            .take(names.len());
        assert_eq!(of_spead.collect::<Vec<_>>(), names);
    }
}

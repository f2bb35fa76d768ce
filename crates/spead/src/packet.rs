//! Packets: header, item pointers, payload.

use std::ops::Range;

use crate::item;

/// Byte ranges of the packet header.
mod field {
    use std::ops::{Range, RangeFrom};

    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const ITEM_WIDTH: usize = 2;
    pub const ADDRESS_WIDTH: usize = 3;
    pub const ITEMS: Range<usize> = 6..8;
    pub const POINTERS: RangeFrom<usize> = 8..;
}

/// Bytes of the fixed packet header.
pub const HEADER_LEN: usize = field::POINTERS.start;
/// Bytes of one item pointer.
pub const POINTER_LEN: usize = 8;
/// Bytes of the largest packet that is accepted, as a UDP payload: a jumbo frame's, with room to
/// spare.
pub const MAX_PACKET: usize = 9200;

const MAGIC: u8 = 0x53;
const VERSION: u8 = 0x04;
/// Bytes of an item identifier with its mode bit, as written.
const ITEM_WIDTH: u8 = 2;
/// Bytes of a heap address, as written.
const ADDRESS_WIDTH: u8 = 6;

/// Reason for which a packet is rejected: one variant per rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Packet without room for the header.
    #[error("packet of {len} bytes is shorter than the {HEADER_LEN}-byte header")]
    TooShort {
        /// Bytes in the packet.
        len: usize,
    },
    /// Packet of more than [`MAX_PACKET`] bytes.
    #[error("packet of {len} bytes is longer than {MAX_PACKET} bytes")]
    TooLong {
        /// Bytes in the packet.
        len: usize,
    },
    /// Wrong first byte.
    #[error("magic byte is {0:#04x}, not 0x53")]
    BadMagic(u8),
    /// Wrong second byte.
    #[error("version is {0}, not 4")]
    BadVersion(u8),
    /// Wrong third or fourth byte.
    #[error("item width {item} and address width {address} must both be positive and add up to 8")]
    BadWidths {
        /// Bytes of an item identifier.
        item: u8,
        /// Bytes of a heap address.
        address: u8,
    },
    /// Count of item pointers that is too large for the packet.
    #[error("{items} item pointers do not fit in a packet of {len} bytes")]
    ItemsPastEnd {
        /// Item pointers announced.
        items: usize,
        /// Bytes in the packet.
        len: usize,
    },
    /// Packet without immediate item 0x0001.
    #[error("packet has no heap count")]
    NoHeapCount,
    /// Packet without immediate item 0x0003.
    #[error("packet has no payload offset")]
    NoPayloadOffset,
    /// Packet without immediate item 0x0004.
    #[error("packet has no payload length")]
    NoPayloadLength,
    /// Payload that is cut off.
    #[error("payload of {length} bytes runs past the end of the packet, which holds {room}")]
    PayloadPastEnd {
        /// Payload bytes announced.
        length: u64,
        /// Bytes after the item pointers.
        room: usize,
    },
    /// Payload outside of its heap.
    #[error("payload at {offset} of {length} bytes runs past the end of its heap of {heap} bytes")]
    PayloadPastHeap {
        /// Offset of the payload in the heap.
        offset: u64,
        /// Payload bytes.
        length: u64,
        /// Bytes in the heap.
        heap: u64,
    },
    /// Packet without immediate item 0x0002, where that is needed.
    #[error("packet has no heap length")]
    NoHeapLength,
    /// Packet with a part of its heap, where the whole heap is needed.
    #[error("heap of {heap} bytes spans several packets; this one has {length} bytes at {offset}")]
    SpansPackets {
        /// Offset of the payload in the heap.
        offset: u64,
        /// Payload bytes.
        length: u64,
        /// Bytes in the heap.
        heap: u64,
    },
}

impl PacketError {
    /// Stable name of the rule, for counters.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "packet-too-short",
            Self::TooLong { .. } => "packet-too-long",
            Self::BadMagic(_) => "bad-magic",
            Self::BadVersion(_) => "bad-version",
            Self::BadWidths { .. } => "bad-widths",
            Self::ItemsPastEnd { .. } => "items-past-end",
            Self::NoHeapCount => "no-heap-count",
            Self::NoPayloadOffset => "no-payload-offset",
            Self::NoPayloadLength => "no-payload-length",
            Self::PayloadPastEnd { .. } => "payload-past-end",
            Self::PayloadPastHeap { .. } => "payload-past-heap",
            Self::NoHeapLength => "no-heap-length",
            Self::SpansPackets { .. } => "heap-spans-packets",
        }
    }
}

/// Kind of an item pointer's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemMode {
    /// The pointer has the value itself.
    Immediate,
    /// The pointer has a byte offset into the heap's payload.
    Addressed,
}

/// One item pointer: where an item's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPointer {
    /// Kind of `value`.
    pub mode: ItemMode,
    /// Item identifier: 15 bits in SPEAD-64-48.
    pub id: u64,
    /// Value or offset: 48 bits in SPEAD-64-48.
    pub value: u64,
}

impl ItemPointer {
    /// Pointer of an immediate item.
    #[inline]
    pub const fn immediate(id: u64, value: u64) -> Self {
        Self {
            mode: ItemMode::Immediate,
            id,
            value,
        }
    }

    /// Pointer of an addressed item.
    #[inline]
    pub const fn addressed(id: u64, offset: u64) -> Self {
        Self {
            mode: ItemMode::Addressed,
            id,
            value: offset,
        }
    }

    fn decode(word: u64, address_bits: u32) -> Self {
        Self {
            mode: if word >> 63 == 1 {
                ItemMode::Immediate
            } else {
                ItemMode::Addressed
            },
            id: (word << 1) >> 1 >> address_bits,
            value: word & ((1 << address_bits) - 1),
        }
    }

    /// Word of the pointer in SPEAD-64-48. Identifier and value are cut to 15 and 48 bits.
    #[inline]
    pub const fn word(self) -> u64 {
        let mode = match self.mode {
            ItemMode::Immediate => 1 << 63,
            ItemMode::Addressed => 0,
        };
        mode | (self.id & 0x7fff) << 48 | self.value & crate::IMMEDIATE_MASK
    }
}

/// Reads the big-endian word at `at`. Past the end of `bytes` it is zero.
#[inline]
pub(super) fn word_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8).and_then(|b| b.first_chunk()) {
        Some(word) => u64::from_be_bytes(*word),
        None => 0,
    }
}

/// Checked view of a packet: header, item pointers and payload are sound.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pointers: &'a [u8],
    payload: &'a [u8],
    address_bits: u32,
    heap_count: u64,
    heap_length: Option<u64>,
    payload_offset: u64,
}

impl<'a> Packet<'a> {
    /// Checks a UDP payload.
    ///
    /// Bytes after the packet's payload are tolerated. The last one of a repeated control item
    /// counts.
    ///
    /// # Errors
    ///
    /// Each rule of the format has a variant of [`PacketError`].
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let len = bytes.len();
        if len < HEADER_LEN {
            return Err(PacketError::TooShort { len });
        }
        if len > MAX_PACKET {
            return Err(PacketError::TooLong { len });
        }
        if bytes[field::MAGIC] != MAGIC {
            return Err(PacketError::BadMagic(bytes[field::MAGIC]));
        }
        if bytes[field::VERSION] != VERSION {
            return Err(PacketError::BadVersion(bytes[field::VERSION]));
        }
        let (item, address) = (bytes[field::ITEM_WIDTH], bytes[field::ADDRESS_WIDTH]);
        if item == 0 || address == 0 || u32::from(item) + u32::from(address) != 8 {
            return Err(PacketError::BadWidths { item, address });
        }
        let items = u16::from_be_bytes([bytes[field::ITEMS.start], bytes[field::ITEMS.start + 1]]);
        let items = usize::from(items);
        let rest = &bytes[field::POINTERS];
        let Some((pointers, rest)) = rest.split_at_checked(items * POINTER_LEN) else {
            return Err(PacketError::ItemsPastEnd { items, len });
        };
        let mut packet = Self {
            pointers,
            payload: rest,
            address_bits: 8 * u32::from(address),
            heap_count: 0,
            heap_length: None,
            payload_offset: 0,
        };
        let (mut count, mut offset, mut length) = (None, None, None);
        for it in packet
            .pointers()
            .filter(|it| it.mode == ItemMode::Immediate)
        {
            match it.id {
                item::HEAP_COUNT => count = Some(it.value),
                item::HEAP_LENGTH => packet.heap_length = Some(it.value),
                item::PAYLOAD_OFFSET => offset = Some(it.value),
                item::PAYLOAD_LENGTH => length = Some(it.value),
                _ => {}
            }
        }
        packet.heap_count = count.ok_or(PacketError::NoHeapCount)?;
        packet.payload_offset = offset.ok_or(PacketError::NoPayloadOffset)?;
        let length = length.ok_or(PacketError::NoPayloadLength)?;
        let room = rest.len();
        if length > room as u64 {
            return Err(PacketError::PayloadPastEnd { length, room });
        }
        packet.payload = &rest[..length as usize];
        match packet.heap_length {
            Some(heap) if packet.payload_offset + length > heap => {
                Err(PacketError::PayloadPastHeap {
                    offset: packet.payload_offset,
                    length,
                    heap,
                })
            }
            _ => Ok(packet),
        }
    }

    /// Heap count: the number of the heap in its stream.
    pub fn heap_count(&self) -> u64 {
        self.heap_count
    }

    /// Bytes of the whole heap, if the packet says so.
    pub fn heap_length(&self) -> Option<u64> {
        self.heap_length
    }

    /// Offset of the packet's payload in the heap, in bytes.
    pub fn payload_offset(&self) -> u64 {
        self.payload_offset
    }

    /// Payload of the packet: a part of the heap.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Item pointers in the order sent, with those of control items.
    pub fn pointers(&self) -> impl DoubleEndedIterator<Item = ItemPointer> + Clone + use<'a> {
        let bits = self.address_bits;
        let (words, _) = self.pointers.as_chunks::<POINTER_LEN>();
        words
            .iter()
            .map(move |word| ItemPointer::decode(u64::from_be_bytes(*word), bits))
    }

    /// Bits of a heap address, and of an immediate value: 48 in SPEAD-64-48.
    pub fn address_bits(&self) -> u32 {
        self.address_bits
    }

    /// Value of an immediate item; of a repeated item, the last value.
    pub fn immediate(&self, id: u64) -> Option<u64> {
        self.pointers()
            .rev()
            .find(|it| it.mode == ItemMode::Immediate && it.id == id)
            .map(|it| it.value)
    }

    /// Identifiers and bytes of addressed items, in the order sent.
    ///
    /// An item ends where the next one by offset begins, or with the payload. An item has only the
    /// bytes that are in this packet; none, if its offset is outside of the packet's payload.
    pub fn addressed(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        let mut order: Vec<(u64, usize, u64)> = self
            .pointers()
            .enumerate()
            .filter(|(_, it)| it.mode == ItemMode::Addressed)
            .map(|(place, it)| (it.value, place, it.id))
            .collect();
        order.sort_unstable();
        let end = self.payload_offset + self.payload.len() as u64;
        let mut spans: Vec<(usize, u64, Range<u64>)> = order
            .iter()
            .enumerate()
            .map(|(i, &(start, place, id))| {
                let next = order.get(i + 1).map_or(end, |next| next.0);
                (place, id, start..next)
            })
            .collect();
        spans.sort_unstable_by_key(|span| span.0);
        let (base, payload) = (self.payload_offset, self.payload);
        spans.into_iter().map(move |(_, id, span)| {
            let start = span.start.saturating_sub(base).min(payload.len() as u64);
            let stop = span.end.saturating_sub(base).min(payload.len() as u64);
            (id, &payload[start as usize..stop.max(start) as usize])
        })
    }

    /// Length of the heap, if this packet has all of the heap.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoHeapLength`] and [`PacketError::SpansPackets`].
    pub fn whole_heap(&self) -> Result<u64, PacketError> {
        let heap = self.heap_length.ok_or(PacketError::NoHeapLength)?;
        let length = self.payload.len() as u64;
        if self.payload_offset != 0 || length != heap {
            return Err(PacketError::SpansPackets {
                offset: self.payload_offset,
                length,
                heap,
            });
        }
        Ok(heap)
    }
}

/// Control items of a packet: what stands before the payload, but for the application's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Heap count, cut to 48 bits.
    pub heap_count: u64,
    /// Bytes of the whole heap.
    pub heap_length: u64,
    /// Offset of the payload in the heap, in bytes.
    pub payload_offset: u64,
    /// Payload bytes in this packet.
    pub payload_length: u64,
}

impl PacketHeader {
    /// Bytes before the payload of a packet with `items` items of the application.
    #[inline]
    pub const fn len(items: usize) -> usize {
        HEADER_LEN + POINTER_LEN * (4 + items)
    }

    /// Reads the control items of a packet.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoHeapLength`].
    pub fn parse(packet: &Packet<'_>) -> Result<Self, PacketError> {
        Ok(Self {
            heap_count: packet.heap_count,
            heap_length: packet.heap_length.ok_or(PacketError::NoHeapLength)?,
            payload_offset: packet.payload_offset,
            payload_length: packet.payload.len() as u64,
        })
    }

    /// Writes header, control items and the pointers `items` to the first [`PacketHeader::len`]
    /// bytes of `buffer`.
    ///
    /// # Panics
    ///
    /// If the buffer is shorter than that, or if there are more than 65531 pointers.
    #[inline]
    pub fn emit(&self, items: &[ItemPointer], buffer: &mut [u8]) {
        let buffer = &mut buffer[..Self::len(items.len())];
        buffer[field::MAGIC] = MAGIC;
        buffer[field::VERSION] = VERSION;
        buffer[field::ITEM_WIDTH] = ITEM_WIDTH;
        buffer[field::ADDRESS_WIDTH] = ADDRESS_WIDTH;
        buffer[4..6].fill(0);
        let pointers = u16::try_from(4 + items.len()).expect("a count of 16 bits");
        buffer[field::ITEMS].copy_from_slice(&pointers.to_be_bytes());
        let control = [
            ItemPointer::immediate(item::HEAP_COUNT, self.heap_count),
            ItemPointer::immediate(item::HEAP_LENGTH, self.heap_length),
            ItemPointer::immediate(item::PAYLOAD_OFFSET, self.payload_offset),
            ItemPointer::immediate(item::PAYLOAD_LENGTH, self.payload_length),
        ];
        let words = control.iter().chain(items);
        for (pointer, it) in buffer[field::POINTERS]
            .chunks_exact_mut(POINTER_LEN)
            .zip(words)
        {
            pointer.copy_from_slice(&it.word().to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;

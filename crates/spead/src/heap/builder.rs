//! Heaps cut into packets.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::descriptor::{Descriptor, ElementType};
use crate::packet::{ItemPointer, MAX_PACKET, POINTER_LEN, PacketHeader};
use crate::{IMMEDIATE_MASK, STREAM_STOP, item};

/// Largest item identifier of SPEAD-64-48.
const MAX_ID: u64 = 0x7fff;

/// Reason for which a heap cannot be cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeapError {
    /// Heap count of more than 48 bits.
    #[error("heap count {heap_count} has more than 48 bits; begin again at 1")]
    HeapCountTooLarge {
        /// Heap count given.
        heap_count: u64,
    },
    /// Identifier of more than 15 bits.
    #[error("item identifier {id:#x} has more than 15 bits; take one up to 0x7fff")]
    IdTooLarge {
        /// Identifier given.
        id: u64,
    },
    /// Identifier of padding, of a control item of packets, or of descriptors.
    #[error(
        "item identifier {id:#x} is the protocol's own; take one from 0x1000, and give descriptors \
         to HeapBuilder::descriptor"
    )]
    IdReserved {
        /// Identifier given.
        id: u64,
    },
    /// Identifier of two items.
    #[error("item {id:#x} is in the heap twice; take two identifiers, or send two heaps")]
    IdRepeated {
        /// Identifier given.
        id: u64,
    },
    /// Descriptor of numpy's type with an axis of variable length, which numpy has not.
    #[error(
        "descriptor of item {id:#x} has an axis of variable length and a type of numpy's, which go \
         together in no header of numpy's; take ElementType::Format"
    )]
    VariableAxis {
        /// Identifier of the described item.
        id: u64,
    },
    /// Axis of 2⁴⁸ elements or more.
    #[error(
        "descriptor of item {id:#x} has an axis of {length} elements, whose number has more than 48 \
         bits; divide the item"
    )]
    AxisTooLong {
        /// Identifier of the described item.
        id: u64,
        /// Elements given.
        length: u64,
    },
    /// Descriptor of more bytes than a packet has.
    #[error(
        "descriptor of item {id:#x} has {bytes} bytes, and descriptors have at most {MAX_PACKET}; \
         shorten its description"
    )]
    DescriptorTooLong {
        /// Identifier of the described item.
        id: u64,
        /// Bytes that it has as a packet.
        bytes: usize,
    },
    /// Descriptor that would be read as another, or not at all.
    #[error(
        "descriptor of item {id:#x} has a type that receivers cannot read; give a format at least \
         one field and fields types of one byte, and a type of numpy's no quotes"
    )]
    ElementType {
        /// Identifier of the described item.
        id: u64,
    },
    /// Immediate value of more than 48 bits.
    #[error("value {value:#x} of item {id:#x} has more than 48 bits; send it as an addressed item")]
    ValueTooLarge {
        /// Identifier of the item.
        id: u64,
        /// Value given.
        value: u64,
    },
    /// Payload of 2⁴⁸ bytes or more.
    #[error("items of {bytes} bytes in all do not fit in a heap; send several heaps")]
    PayloadTooLarge {
        /// Bytes of the addressed items.
        bytes: u64,
    },
    /// Packet size that leaves no room, or that no receiver accepts.
    #[error(
        "packets of {packet} bytes are not possible: item pointers and payload need from {least} \
         to {MAX_PACKET} bytes; choose another packet size{}",
        if *.repeats { ", or do not repeat item pointers" } else { "" }
    )]
    PacketSize {
        /// Bytes of the longest packet that the given size means.
        packet: usize,
        /// Bytes of the shortest packet that would do.
        least: usize,
        /// Whether every packet must have all item pointers.
        repeats: bool,
    },
}

/// Size of the packets of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketSize {
    /// Bytes that a whole packet has at most, as a UDP payload: 1472 for Ethernet frames of 1500
    /// bytes, 8972 for jumbo frames. spead2's `max_packet_size` is the same.
    Whole(usize),
    /// Bytes of payload in each packet but the last one. The packet's header is not counted.
    Payload(usize),
}

/// Heap to be sent, in SPEAD-64-48.
///
/// Items are sent in the order in which they are added. Nothing is checked before
/// [`packets`](Self::packets).
///
/// ```
/// use spead::{HeapBuilder, PacketSize};
///
/// let samples: Vec<u8> = (0..5000).map(|n| n as u8).collect();
/// let heap = HeapBuilder::new(1)
///     .immediate(0x1600, 123_456)
///     .addressed(0x4300, &samples);
/// let packets: Vec<Vec<u8>> = heap.packets(PacketSize::Whole(1472))?.collect();
/// assert_eq!(packets.len(), 4);
/// assert!(packets.iter().all(|packet| packet.len() <= 1472));
/// # Ok::<(), spead::HeapError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeapBuilder<'a> {
    heap_count: u64,
    items: Vec<BuilderItem<'a>>,
    repeats: bool,
    /// The first descriptor that cannot be written.
    refused: Option<HeapError>,
}

#[derive(Clone, Debug)]
struct BuilderItem<'a> {
    id: u64,
    content: BuilderContent<'a>,
}

#[derive(Clone, Debug)]
enum BuilderContent<'a> {
    Immediate(u64),
    Addressed(Cow<'a, [u8]>),
}

impl<'a> HeapBuilder<'a> {
    /// Begins a heap without items.
    ///
    /// Heaps that are on their way at the same time must have different heap counts. Streams
    /// usually count from 1.
    pub fn new(heap_count: u64) -> Self {
        Self {
            heap_count,
            items: Vec::new(),
            repeats: false,
            refused: None,
        }
    }

    /// Adds an item of at most 48 bits, whose value stands in its pointer.
    pub fn immediate(self, id: u64, value: u64) -> Self {
        self.with(id, BuilderContent::Immediate(value))
    }

    /// Adds an item whose bytes stand in the payload.
    pub fn addressed<B: AsRef<[u8]> + ?Sized>(self, id: u64, bytes: &'a B) -> Self {
        self.with(id, BuilderContent::Addressed(Cow::Borrowed(bytes.as_ref())))
    }

    /// Adds an item whose bytes stand in the payload, and keeps the bytes.
    pub fn addressed_owned(self, id: u64, bytes: Vec<u8>) -> Self {
        self.with(id, BuilderContent::Addressed(Cow::Owned(bytes)))
    }

    /// Adds a descriptor, by which receivers interpret the item that it describes.
    ///
    /// A stream usually has all descriptors in its first heap, and again every few seconds for
    /// receivers that join later.
    pub fn descriptor(mut self, descriptor: &Descriptor) -> Self {
        let bytes = descriptor.emit();
        let refused = check(descriptor, &bytes).err();
        self.refused = self.refused.or(refused);
        self.addressed_owned(item::DESCRIPTOR, bytes)
    }

    /// Adds the item that ends the stream.
    pub fn stream_stop(self) -> Self {
        self.immediate(item::STREAM_CONTROL, STREAM_STOP)
    }

    /// Chooses whether each packet has the pointers of all items. Otherwise each pointer stands in
    /// one packet, the first that has room.
    ///
    /// Repeated pointers let receivers use single packets of incomplete heaps. They cost 8 bytes
    /// for each item and packet.
    pub fn repeat_pointers(mut self, repeats: bool) -> Self {
        self.repeats = repeats;
        self
    }

    fn with(mut self, id: u64, content: BuilderContent<'a>) -> Self {
        self.items.push(BuilderItem { id, content });
        self
    }

    /// Cuts the heap into packets, each the payload of a UDP datagram.
    ///
    /// Each packet has at least one byte of payload. A heap that has fewer bytes than packets is
    /// padded, as spead2 does it.
    ///
    /// # Errors
    ///
    /// [`HeapError`] has a variant for each rule that heap count, items and packet size must keep.
    pub fn packets(&self, size: PacketSize) -> Result<HeapPackets<'_>, HeapError> {
        let (mut pointers, payload_length) = self.pointers()?;
        let room = self.pointer_room(size, pointers.len())?;
        let mut heap_length = payload_length;
        let packets_for = |pointers: usize| {
            if self.repeats {
                1
            } else {
                pointers.div_ceil(room).max(1) as u64
            }
        };
        if heap_length < packets_for(pointers.len()) {
            pointers.push(ItemPointer::addressed(item::NULL, payload_length));
            self.pointer_room(size, pointers.len())?;
            heap_length = packets_for(pointers.len());
        }
        Ok(HeapPackets {
            heap_count: self.heap_count,
            heap_length,
            pointers,
            pointer_room: room,
            repeats: self.repeats,
            size,
            next_pointer: 0,
            offset: 0,
            parts: self.items.iter().filter_map(BuilderItem::bytes).collect(),
            part: 0,
            part_offset: 0,
        })
    }

    /// Checks heap count and items. Returns the pointers, and the bytes of all addressed items.
    fn pointers(&self) -> Result<(Vec<ItemPointer>, u64), HeapError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if self.heap_count > IMMEDIATE_MASK {
            return Err(HeapError::HeapCountTooLarge {
                heap_count: self.heap_count,
            });
        }
        let mut ids = BTreeSet::new();
        let mut length = 0;
        let mut pointers = Vec::with_capacity(self.items.len() + 1);
        for item in &self.items {
            item.check()?;
            if item.id != item::DESCRIPTOR && !ids.insert(item.id) {
                return Err(HeapError::IdRepeated { id: item.id });
            }
            pointers.push(match &item.content {
                BuilderContent::Immediate(value) => ItemPointer::immediate(item.id, *value),
                BuilderContent::Addressed(bytes) => {
                    let pointer = ItemPointer::addressed(item.id, length);
                    length += bytes.len() as u64;
                    pointer
                }
            });
        }
        if length > IMMEDIATE_MASK {
            return Err(HeapError::PayloadTooLarge { bytes: length });
        }
        Ok((pointers, length))
    }

    /// Returns how many of the heap's `count` pointers a packet can have.
    fn pointer_room(&self, size: PacketSize, count: usize) -> Result<usize, HeapError> {
        let needed = if self.repeats { count } else { count.min(1) };
        let (payload, least_payload) = match size {
            PacketSize::Whole(_) => (1, 1),
            PacketSize::Payload(payload) => (payload, payload.max(1)),
        };
        let least = PacketHeader::len(needed).saturating_add(least_payload);
        let packet = match size {
            PacketSize::Whole(packet) => packet,
            PacketSize::Payload(_) => PacketHeader::len(needed).saturating_add(payload),
        };
        if packet < least || packet > MAX_PACKET {
            return Err(HeapError::PacketSize {
                packet,
                least,
                repeats: self.repeats && count > 1,
            });
        }
        let longest = match size {
            PacketSize::Whole(packet) => packet,
            PacketSize::Payload(_) => MAX_PACKET,
        };
        Ok(((longest - PacketHeader::len(0) - payload) / POINTER_LEN).max(1))
    }
}

/// Checks that receivers read a descriptor as it is, when these are its bytes.
fn check(descriptor: &Descriptor, bytes: &[u8]) -> Result<(), HeapError> {
    let id = descriptor.id;
    if id > MAX_ID {
        return Err(HeapError::IdTooLarge { id });
    }
    let is_numpys = matches!(descriptor.element, ElementType::Numpy { .. });
    if is_numpys && descriptor.shape.contains(&None) {
        return Err(HeapError::VariableAxis { id });
    }
    let mut lengths = descriptor.shape.iter().copied().flatten();
    if let Some(length) = lengths.find(|&length| length > IMMEDIATE_MASK) {
        return Err(HeapError::AxisTooLong { id, length });
    }
    if bytes.len() > MAX_PACKET {
        let bytes = bytes.len();
        return Err(HeapError::DescriptorTooLong { id, bytes });
    }
    match Descriptor::parse(bytes) {
        Ok(read) if read == *descriptor => Ok(()),
        _ => Err(HeapError::ElementType { id }),
    }
}

impl BuilderItem<'_> {
    /// Checks identifier and value.
    fn check(&self) -> Result<(), HeapError> {
        let id = self.id;
        if id > MAX_ID {
            return Err(HeapError::IdTooLarge { id });
        }
        match &self.content {
            BuilderContent::Addressed(_) if id == item::DESCRIPTOR => Ok(()),
            _ if id <= item::DESCRIPTOR => Err(HeapError::IdReserved { id }),
            BuilderContent::Immediate(value) if *value > IMMEDIATE_MASK => {
                Err(HeapError::ValueTooLarge { id, value: *value })
            }
            _ => Ok(()),
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            BuilderContent::Immediate(_) => None,
            BuilderContent::Addressed(bytes) => Some(bytes),
        }
    }
}

/// Packets of a heap, one after another. [`HeapBuilder::packets`] makes them.
#[derive(Clone, Debug)]
pub struct HeapPackets<'a> {
    heap_count: u64,
    heap_length: u64,
    pointers: Vec<ItemPointer>,
    /// Most pointers in a packet.
    pointer_room: usize,
    repeats: bool,
    size: PacketSize,
    /// First pointer of the next packet.
    next_pointer: usize,
    /// First byte of the next packet's payload.
    offset: u64,
    /// Bytes of the addressed items.
    parts: Vec<&'a [u8]>,
    /// Part that has the byte at `offset`, and the place of that byte in it.
    part: usize,
    part_offset: usize,
}

impl HeapPackets<'_> {
    /// Appends the next `length` bytes of the payload. Past the parts there is padding.
    fn append_payload(&mut self, length: usize, packet: &mut Vec<u8>) {
        let end = packet.len() + length;
        while packet.len() < end {
            let Some(part) = self.parts.get(self.part) else {
                packet.resize(end, 0);
                return;
            };
            let rest = &part[self.part_offset..];
            let taken = rest.len().min(end - packet.len());
            packet.extend_from_slice(&rest[..taken]);
            self.part_offset += taken;
            if taken == rest.len() {
                self.part += 1;
                self.part_offset = 0;
            }
        }
    }
}

impl Iterator for HeapPackets<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let left = self.heap_length - self.offset;
        if left == 0 {
            return None;
        }
        let first = if self.repeats { 0 } else { self.next_pointer };
        let count = (self.pointers.len() - first).min(self.pointer_room);
        self.next_pointer = first + count;
        // Packets with the other pointers get a byte of payload each.
        let later = match self.repeats {
            true => 0,
            false => (self.pointers.len() - self.next_pointer).div_ceil(self.pointer_room),
        };
        let header_length = PacketHeader::len(count);
        let room = match self.size {
            PacketSize::Whole(packet) => packet - header_length,
            PacketSize::Payload(payload) => payload,
        };
        let length = (room as u64).min(left - later as u64);
        let header = PacketHeader {
            heap_count: self.heap_count,
            heap_length: self.heap_length,
            payload_offset: self.offset,
            payload_length: length,
        };
        let mut packet = vec![0; header_length];
        header.emit(&self.pointers[first..first + count], &mut packet);
        packet.reserve_exact(length as usize);
        self.append_payload(length as usize, &mut packet);
        self.offset += length;
        Some(packet)
    }
}

#[cfg(test)]
mod tests;

//! Heaps: built and cut into packets, put together from packets, read.
//!
//! A heap is one message: a count, and items. The bytes of all addressed items, one after another,
//! are the heap's payload. [`HeapBuilder`] makes the packets of a heap, [`HeapAssembler`] makes a
//! [`Heap`] of packets.

use std::ops::Range;

use crate::descriptor::{Descriptor, DescriptorError};
use crate::packet::{ItemMode, ItemPointer};
use crate::{STREAM_STOP, item};

mod assembler;
mod builder;

pub use assembler::{AssemblerCounts, AssemblerLimits, AssemblyError, HeapAssembler};
pub use builder::{HeapBuilder, HeapError, HeapPackets, PacketSize};

/// Content of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemContent<'a> {
    /// Value of an immediate item.
    Immediate(u64),
    /// Bytes of an addressed item.
    Addressed(&'a [u8]),
}

/// Item of a heap.
///
/// [`Descriptor::interpret`] makes numbers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Identifier.
    pub id: u64,
    /// Value or bytes.
    pub content: ItemContent<'a>,
    /// Bits that an immediate value has.
    pub(crate) immediate_bits: u32,
}

/// Complete heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heap {
    heap_count: u64,
    items: Vec<StoredItem>,
    payload: Vec<u8>,
    address_bits: u32,
}

/// Item of a heap, whose bytes are in the heap's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredItem {
    id: u64,
    content: StoredContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StoredContent {
    Immediate(u64),
    Addressed(Range<usize>),
}

/// Whether an item is the packet's own business: padding, or one of the four control items.
fn is_control(id: u64) -> bool {
    id <= item::PAYLOAD_LENGTH
}

impl Heap {
    /// Makes a heap of its pointers, in the order in which the sender wrote them.
    ///
    /// No pointer may have an offset past the end of the payload.
    fn new(heap_count: u64, pointers: &[ItemPointer], payload: Vec<u8>, address_bits: u32) -> Self {
        // An item ends where the next one begins. Of several items with the same offset, the last
        // one has the bytes, and the others are empty.
        let mut starts: Vec<(u64, usize)> = pointers
            .iter()
            .enumerate()
            .filter(|(_, pointer)| pointer.mode == ItemMode::Addressed)
            .map(|(place, pointer)| (pointer.value, place))
            .collect();
        starts.sort_unstable();
        let end = payload.len();
        let mut spans = vec![0..0; pointers.len()];
        for (i, &(start, place)) in starts.iter().enumerate() {
            let next = starts.get(i + 1).map_or(end, |next| next.0 as usize);
            spans[place] = start as usize..next;
        }
        let items = pointers
            .iter()
            .zip(spans)
            .filter(|(pointer, _)| !is_control(pointer.id))
            .map(|(pointer, span)| StoredItem {
                id: pointer.id,
                content: match pointer.mode {
                    ItemMode::Immediate => StoredContent::Immediate(pointer.value),
                    ItemMode::Addressed => StoredContent::Addressed(span),
                },
            })
            .collect();
        Self {
            heap_count,
            items,
            payload,
            address_bits,
        }
    }

    /// Heap count: the number of the heap in its stream.
    pub fn heap_count(&self) -> u64 {
        self.heap_count
    }

    /// Items in the order sent, without padding and without the control items of packets.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = Item<'_>> + Clone {
        self.items.iter().map(|item| Item {
            id: item.id,
            content: match &item.content {
                StoredContent::Immediate(value) => ItemContent::Immediate(*value),
                StoredContent::Addressed(span) => {
                    ItemContent::Addressed(&self.payload[span.clone()])
                }
            },
            immediate_bits: self.address_bits,
        })
    }

    /// Item with the identifier `id`; of several, the last one.
    pub fn item(&self, id: u64) -> Option<Item<'_>> {
        self.items().rev().find(|item| item.id == id)
    }

    /// Value of an immediate item; `None` if the item is missing or addressed.
    pub fn immediate(&self, id: u64) -> Option<u64> {
        match self.item(id)?.content {
            ItemContent::Immediate(value) => Some(value),
            ItemContent::Addressed(_) => None,
        }
    }

    /// Bytes of an addressed item; `None` if the item is missing or immediate.
    pub fn addressed(&self, id: u64) -> Option<&[u8]> {
        match self.item(id)?.content {
            ItemContent::Addressed(bytes) => Some(bytes),
            ItemContent::Immediate(_) => None,
        }
    }

    /// Payload: the bytes of all addressed items, and padding.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether the heap ends its stream.
    pub fn is_stream_stop(&self) -> bool {
        let stop = ItemContent::Immediate(STREAM_STOP);
        self.items()
            .any(|item| item.id == item::STREAM_CONTROL && item.content == stop)
    }

    /// Descriptors that the heap carries.
    ///
    /// # Errors
    ///
    /// A descriptor that breaks a rule of the format is a [`DescriptorError`], and does not keep
    /// the others from being read.
    pub fn descriptors(&self) -> impl Iterator<Item = Result<Descriptor, DescriptorError>> {
        self.items().filter_map(|item| match item.content {
            ItemContent::Addressed(bytes) if item.id == item::DESCRIPTOR => {
                Some(Descriptor::parse(bytes))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;

//! Heaps put together from packets.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::{Heap, is_control};
use crate::packet::{ItemMode, ItemPointer, Packet, PacketError, PacketHeader};
use crate::stop::StopRepr;

/// Most separate pieces that an incomplete heap may consist of. Each costs some 50 bytes.
const MAX_PIECES: usize = 1 << 16;

/// Reason for which a packet cannot be a part of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// Bytes that are no packet, or a packet without heap length.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// Heap of more bytes than the limit.
    #[error(
        "heap {heap_count} has {bytes} bytes, more than the {limit} of AssemblerLimits::heap_bytes"
    )]
    HeapTooLarge {
        /// Heap count.
        heap_count: u64,
        /// Bytes in the heap.
        bytes: u64,
        /// Limit that holds.
        limit: usize,
    },
    /// Heap of more items than the limit.
    #[error("heap {heap_count} has more items than the {limit} of AssemblerLimits::items")]
    TooManyItems {
        /// Heap count.
        heap_count: u64,
        /// Limit that holds.
        limit: usize,
    },
    /// Packet whose heap length is not that of the heap's other packets.
    #[error(
        "packet says that heap {heap_count} has {bytes} bytes, others said {expected}; do two \
         senders count alike?"
    )]
    LengthDiffers {
        /// Heap count.
        heap_count: u64,
        /// Length in this packet.
        bytes: u64,
        /// Length in the heap's first packet.
        expected: u64,
    },
    /// Packet whose flavour is not that of the heap's other packets.
    #[error(
        "packet of heap {heap_count} has addresses of {bits} bits, others had {expected}; do two \
         senders count alike?"
    )]
    FlavourDiffers {
        /// Heap count.
        heap_count: u64,
        /// Bits of an address in this packet.
        bits: u32,
        /// Bits of an address in the heap's first packet.
        expected: u32,
    },
    /// Payload that came in part before.
    #[error(
        "packet of heap {heap_count} has {length} bytes at {offset}, of which some came before; \
         do two senders count alike?"
    )]
    Overlaps {
        /// Heap count.
        heap_count: u64,
        /// Offset of the payload in the heap.
        offset: u64,
        /// Bytes of the payload.
        length: u64,
    },
    /// Packets that leave too many gaps in a heap.
    #[error("heap {heap_count} is in more than {MAX_PIECES} pieces; send larger packets")]
    TooManyPieces {
        /// Heap count.
        heap_count: u64,
    },
    /// Item whose offset is past the end of the heap.
    #[error("item {id:#x} of heap {heap_count} begins at {offset}, past the heap's {bytes} bytes")]
    ItemPastHeap {
        /// Heap count.
        heap_count: u64,
        /// Identifier of the item.
        id: u64,
        /// Offset of the item.
        offset: u64,
        /// Bytes in the heap.
        bytes: u64,
    },
}

impl AssemblyError {
    /// Stable name of the rule, for counters.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Packet(error) => error.cause(),
            Self::HeapTooLarge { .. } => "heap-too-large",
            Self::TooManyItems { .. } => "too-many-items",
            Self::LengthDiffers { .. } => "heap-length-differs",
            Self::FlavourDiffers { .. } => "flavour-differs",
            Self::Overlaps { .. } => "payload-overlaps",
            Self::TooManyPieces { .. } => "too-many-pieces",
            Self::ItemPastHeap { .. } => "item-past-heap",
        }
    }
}

/// Bounds of what a [`HeapAssembler`] keeps.
///
/// Whatever comes, an assembler has at most `open_heaps` heaps of `heap_bytes` bytes and `items`
/// items, and `remembered_heaps` heap counts. Each item costs some 100 bytes, and each gap in a
/// heap 50.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblerLimits {
    /// Incomplete heaps at a time, at least one. If another one begins, the oldest one is given up.
    /// Senders that interleave heaps, and networks that reorder packets, need several.
    pub open_heaps: usize,
    /// Bytes of a heap.
    pub heap_bytes: usize,
    /// Items of a heap, padding counted.
    pub items: usize,
    /// Heaps that are remembered when they are complete or given up, so that packets that come once
    /// more, or late, do not begin them again. A sender that begins again without a stop heap, and
    /// counts as before, loses the heaps that are still remembered.
    pub remembered_heaps: usize,
}

impl Default for AssemblerLimits {
    /// 8 open heaps of 64 MiB and 16384 items; 32 remembered heaps.
    fn default() -> Self {
        Self {
            open_heaps: 8,
            heap_bytes: 64 << 20,
            items: 1 << 14,
            remembered_heaps: 32,
        }
    }
}

/// Counts of what came to a [`HeapAssembler`], and of what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerCounts {
    /// Datagrams that came.
    pub packets: u64,
    /// Heaps that became complete.
    pub heaps: u64,
    /// Packets that came once more.
    pub duplicate_packets: u64,
    /// Packets of heaps that were already given up.
    pub late_packets: u64,
    /// Datagrams that were rejected with an [`AssemblyError`].
    pub rejected_packets: u64,
    /// Heaps that were given up, because packets of them are missing.
    pub incomplete_heaps: u64,
    /// Bytes of payload that had come of these heaps.
    pub incomplete_bytes: u64,
}

/// Receiver's end of a stream: makes heaps of packets.
///
/// Packets come in any order. Lost packets cost their heap; packets that come twice cost nothing.
/// Whatever comes, memory stays within [`AssemblerLimits`], and nothing panics.
///
/// A stop heap ends the stream: the assembler returns it as any other heap, and forgets all heaps
/// ([`forget_heaps`](Self::forget_heaps)), since the next stream may count from 1 again.
///
/// ```
/// use spead::{HeapAssembler, HeapBuilder, PacketSize};
///
/// let sent = HeapBuilder::new(7).addressed(0x4300, b"sixteen samples.");
/// let mut packets: Vec<Vec<u8>> = sent.packets(PacketSize::Payload(4))?.collect();
/// packets.reverse();
///
/// let mut assembler = HeapAssembler::default();
/// let mut heaps = Vec::new();
/// for packet in &packets {
///     heaps.extend(assembler.add_packet(packet)?);
/// }
/// assert_eq!(heaps.len(), 1);
/// assert_eq!(heaps[0].addressed(0x4300), Some(&b"sixteen samples."[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct HeapAssembler {
    limits: AssemblerLimits,
    /// The oldest first.
    open: VecDeque<OpenHeap>,
    /// The oldest first.
    remembered: VecDeque<RememberedHeap>,
    /// Heap count of the newest stop heap, until a heap of the next stream is complete.
    stopped: Option<u64>,
    counts: AssemblerCounts,
}

#[derive(Clone, Copy, Debug)]
struct RememberedHeap {
    heap_count: u64,
    is_complete: bool,
}

/// What became of a sound packet.
enum Outcome {
    Kept,
    Completed(Heap),
    Duplicate,
    Late,
}

impl HeapAssembler {
    /// Makes an assembler without heaps.
    pub fn new(limits: AssemblerLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Takes a packet, the payload of a UDP datagram, and returns the heap that it completes.
    ///
    /// # Errors
    ///
    /// A packet that breaks a rule is rejected, counted, and changes nothing else: a receiver may
    /// ignore the error, and go on.
    pub fn add_packet(&mut self, bytes: &[u8]) -> Result<Option<Heap>, AssemblyError> {
        self.counts.packets += 1;
        match self.place(bytes) {
            Ok(Outcome::Kept) => Ok(None),
            Ok(Outcome::Completed(heap)) => {
                self.counts.heaps += 1;
                Ok(Some(heap))
            }
            Ok(Outcome::Duplicate) => {
                self.counts.duplicate_packets += 1;
                Ok(None)
            }
            Ok(Outcome::Late) => {
                self.counts.late_packets += 1;
                Ok(None)
            }
            Err(error) => {
                self.counts.rejected_packets += 1;
                Err(error)
            }
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> AssemblerCounts {
        self.counts
    }

    /// Number of incomplete heaps.
    pub fn open_heaps(&self) -> usize {
        self.open.len()
    }

    /// Gives up all incomplete heaps, such as at the end of a stream, and forgets all heap counts,
    /// so that a stream may begin again.
    pub fn forget_heaps(&mut self) {
        while self.give_up_oldest() {}
        self.remembered.clear();
        self.stopped = None;
    }

    fn place(&mut self, bytes: &[u8]) -> Result<Outcome, AssemblyError> {
        let packet = Packet::new_checked(bytes)?;
        let header = PacketHeader::parse(&packet)?;
        let heap_count = header.heap_count;
        let known = |heap: &&RememberedHeap| heap.heap_count == heap_count;
        if let Some(heap) = self.remembered.iter().find(known) {
            return Ok(match heap.is_complete {
                true => Outcome::Duplicate,
                false => Outcome::Late,
            });
        }
        // Of a stop heap that comes twice, the second would end the next stream.
        let is_stop = StopRepr::parse(&packet).is_some();
        if is_stop && self.stopped == Some(heap_count) {
            return Ok(Outcome::Duplicate);
        }
        let found = self.open.iter().position(|it| it.heap_count == heap_count);
        let place = match found {
            Some(place) => {
                if !self.open[place].check(&packet, &header, &self.limits)? {
                    return Ok(Outcome::Duplicate);
                }
                place
            }
            None => {
                let heap = OpenHeap::new(&packet, &header, &self.limits)?;
                heap.check(&packet, &header, &self.limits)?;
                while self.open.len() >= self.limits.open_heaps.max(1) {
                    self.give_up_oldest();
                }
                self.open.push_back(heap.with_payload());
                self.open.len() - 1
            }
        };
        let heap = &mut self.open[place];
        heap.add(&packet, &header);
        if heap.received < heap.length {
            return Ok(Outcome::Kept);
        }
        let heap = self.open.remove(place).expect("an open heap").finish();
        if heap.is_stream_stop() {
            self.forget_heaps();
            self.stopped = Some(heap_count);
        } else {
            self.stopped = None;
            self.remember(heap_count, true);
        }
        Ok(Outcome::Completed(heap))
    }

    /// Gives up the oldest incomplete heap. Returns whether there was one.
    fn give_up_oldest(&mut self) -> bool {
        let Some(heap) = self.open.pop_front() else {
            return false;
        };
        self.counts.incomplete_heaps += 1;
        self.counts.incomplete_bytes += heap.received as u64;
        self.remember(heap.heap_count, false);
        true
    }

    fn remember(&mut self, heap_count: u64, is_complete: bool) {
        self.remembered.push_back(RememberedHeap {
            heap_count,
            is_complete,
        });
        while self.remembered.len() > self.limits.remembered_heaps {
            self.remembered.pop_front();
        }
    }
}

/// Heap of which packets are missing.
#[derive(Clone, Debug)]
struct OpenHeap {
    heap_count: u64,
    length: usize,
    address_bits: u32,
    payload: Vec<u8>,
    /// Bytes that have come.
    received: usize,
    /// First byte of each piece that has come, and the byte after its last one. Pieces do not
    /// touch.
    pieces: BTreeMap<usize, usize>,
    /// Pointers, each with the payload offset of its packet and its place there: their order in the
    /// heap.
    pointers: Vec<(u64, usize, ItemPointer)>,
    known_pointers: HashSet<(ItemMode, u64, u64)>,
}

/// Pointers of a packet that are about the heap, each with its place in the packet.
fn heap_pointers<'a>(packet: &Packet<'a>) -> impl Iterator<Item = (usize, ItemPointer)> + use<'a> {
    // Padding ends the item before it.
    let is_kept = |pointer: &ItemPointer| match pointer.mode {
        ItemMode::Immediate => !is_control(pointer.id),
        ItemMode::Addressed => true,
    };
    let pointers = packet.pointers().enumerate();
    pointers.filter(move |(_, pointer)| is_kept(pointer))
}

fn pointer_key(pointer: &ItemPointer) -> (ItemMode, u64, u64) {
    (pointer.mode, pointer.id, pointer.value)
}

impl OpenHeap {
    /// Begins the packet's heap, yet without memory for its payload.
    fn new(
        packet: &Packet<'_>,
        header: &PacketHeader,
        limits: &AssemblerLimits,
    ) -> Result<Self, AssemblyError> {
        let length = usize::try_from(header.heap_length).ok();
        let Some(length) = length.filter(|length| *length <= limits.heap_bytes) else {
            return Err(AssemblyError::HeapTooLarge {
                heap_count: header.heap_count,
                bytes: header.heap_length,
                limit: limits.heap_bytes,
            });
        };
        Ok(Self {
            heap_count: header.heap_count,
            length,
            address_bits: packet.address_bits(),
            payload: Vec::new(),
            received: 0,
            pieces: BTreeMap::new(),
            pointers: Vec::new(),
            known_pointers: HashSet::new(),
        })
    }

    fn with_payload(mut self) -> Self {
        self.payload = vec![0; self.length];
        self
    }

    /// Checks that the packet can be a part of this heap. Returns whether it brings something new.
    fn check(
        &self,
        packet: &Packet<'_>,
        header: &PacketHeader,
        limits: &AssemblerLimits,
    ) -> Result<bool, AssemblyError> {
        let heap_count = self.heap_count;
        let expected = self.length as u64;
        if header.heap_length != expected {
            return Err(AssemblyError::LengthDiffers {
                heap_count,
                bytes: header.heap_length,
                expected,
            });
        }
        if packet.address_bits() != self.address_bits {
            return Err(AssemblyError::FlavourDiffers {
                heap_count,
                bits: packet.address_bits(),
                expected: self.address_bits,
            });
        }
        let mut new_pointers = 0;
        for (_, pointer) in heap_pointers(packet) {
            if pointer.mode == ItemMode::Addressed && pointer.value > expected {
                return Err(AssemblyError::ItemPastHeap {
                    heap_count,
                    id: pointer.id,
                    offset: pointer.value,
                    bytes: expected,
                });
            }
            new_pointers += usize::from(!self.known_pointers.contains(&pointer_key(&pointer)));
        }
        if self.pointers.len() + new_pointers > limits.items {
            return Err(AssemblyError::TooManyItems {
                heap_count,
                limit: limits.items,
            });
        }
        Ok(self.check_payload(packet, header)? || new_pointers > 0)
    }

    /// Checks the place of the packet's payload. Returns whether the payload is new.
    fn check_payload(
        &self,
        packet: &Packet<'_>,
        header: &PacketHeader,
    ) -> Result<bool, AssemblyError> {
        let heap_count = self.heap_count;
        // Within the heap, since the view is checked.
        let start = header.payload_offset as usize;
        let end = start + packet.payload().len();
        if start == end {
            return Ok(self.length == 0);
        }
        match self.pieces.range(..end).next_back() {
            Some((&first, &last)) if first <= start && end <= last => Ok(false),
            Some((_, &last)) if last > start => Err(AssemblyError::Overlaps {
                heap_count,
                offset: header.payload_offset,
                length: header.payload_length,
            }),
            _ if self.pieces.len() >= MAX_PIECES && !self.touches(start, end) => {
                Err(AssemblyError::TooManyPieces { heap_count })
            }
            _ => Ok(true),
        }
    }

    fn touches(&self, start: usize, end: usize) -> bool {
        let before = self.pieces.range(..start).next_back();
        before.is_some_and(|(_, last)| *last == start) || self.pieces.contains_key(&end)
    }

    /// Adds a packet that was checked.
    fn add(&mut self, packet: &Packet<'_>, header: &PacketHeader) {
        for (place, pointer) in heap_pointers(packet) {
            if self.known_pointers.insert(pointer_key(&pointer)) {
                self.pointers.push((header.payload_offset, place, pointer));
            }
        }
        let mut start = header.payload_offset as usize;
        let mut end = start + packet.payload().len();
        if !self.check_payload(packet, header).unwrap_or(false) {
            return;
        }
        self.payload[start..end].copy_from_slice(packet.payload());
        self.received += end - start;
        if let Some((&first, &last)) = self.pieces.range(..start).next_back()
            && last == start
        {
            start = first;
        }
        if let Some(last) = self.pieces.remove(&end) {
            end = last;
        }
        self.pieces.insert(start, end);
    }

    fn finish(mut self) -> Heap {
        self.pointers
            .sort_unstable_by_key(|(offset, place, _)| (*offset, *place));
        let pointers: Vec<ItemPointer> = self.pointers.iter().map(|entry| entry.2).collect();
        Heap::new(self.heap_count, &pointers, self.payload, self.address_bits)
    }
}

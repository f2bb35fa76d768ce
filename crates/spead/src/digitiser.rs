//! Heaps of digitisers, which have one packet each.

use crate::packet::{ItemPointer, Packet, PacketError, PacketHeader, word_at};
use crate::{IMMEDIATE_MASK, item};

/// Byte offsets of the words of the layout that digitisers send.
mod field {
    pub const HEADER: usize = 0;
    pub const HEAP_COUNT: usize = 8;
    pub const HEAP_LENGTH: usize = 16;
    pub const PAYLOAD_OFFSET: usize = 24;
    pub const PAYLOAD_LENGTH: usize = 32;
    pub const TIMESTAMP: usize = 40;
    pub const DIGITISER_ID: usize = 48;
    pub const DIGITISER_STATUS: usize = 56;
    pub const ADC_SAMPLES: usize = 64;
    pub const PAYLOAD: usize = 72;
}

/// Bytes before the samples.
pub const PREAMBLE_LEN: usize = field::PAYLOAD;

/// Header word of a packet with eight item pointers.
const EIGHT_ITEMS: u64 = 0x5304_0206_0000_0008;

/// Checked view of a heap in one packet, with the items that a receiver of digitiser data looks at.
///
/// Descriptor heaps and stop heaps pass the check as well: they have no timestamp, or another
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigitiserHeap<'a> {
    heap_count: u64,
    timestamp: Option<u64>,
    digitiser_id: Option<u64>,
    status: Option<u64>,
    stream_control: Option<u64>,
    payload: &'a [u8],
}

impl<'a> DigitiserHeap<'a> {
    /// Checks a UDP payload. The layout of [`DigitiserRepr`] takes a handful of loads; any other
    /// layout is parsed.
    ///
    /// # Errors
    ///
    /// Those of [`Packet::new_checked`] and [`Packet::whole_heap`].
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, PacketError> {
        match Self::fixed_layout(bytes) {
            Some(heap) => Ok(heap),
            None => Self::parse(bytes),
        }
    }

    /// Reads the layout of [`DigitiserRepr`], with nothing after the payload.
    #[inline]
    fn fixed_layout(bytes: &'a [u8]) -> Option<Self> {
        let (head, payload) = bytes.split_first_chunk::<PREAMBLE_LEN>()?;
        let word = |at| word_at(head, at);
        let length = payload.len() as u64;
        // One comparison per word that must have one value, and the upper 16 bits of the others.
        let wrong = (word(field::HEADER) ^ EIGHT_ITEMS)
            | (word(field::HEAP_LENGTH) ^ ItemPointer::immediate(item::HEAP_LENGTH, length).word())
            | (word(field::PAYLOAD_OFFSET)
                ^ ItemPointer::immediate(item::PAYLOAD_OFFSET, 0).word())
            | (word(field::PAYLOAD_LENGTH)
                ^ ItemPointer::immediate(item::PAYLOAD_LENGTH, length).word())
            | (word(field::ADC_SAMPLES) ^ ItemPointer::addressed(item::ADC_SAMPLES, 0).word())
            | (word(field::HEAP_COUNT) ^ ItemPointer::immediate(item::HEAP_COUNT, 0).word()) >> 48
            | (word(field::TIMESTAMP) ^ ItemPointer::immediate(item::TIMESTAMP, 0).word()) >> 48
            | (word(field::DIGITISER_ID) ^ ItemPointer::immediate(item::DIGITISER_ID, 0).word())
                >> 48
            | (word(field::DIGITISER_STATUS)
                ^ ItemPointer::immediate(item::DIGITISER_STATUS, 0).word())
                >> 48;
        if wrong != 0 || bytes.len() > crate::packet::MAX_PACKET {
            return None;
        }
        Some(Self {
            heap_count: word(field::HEAP_COUNT) & IMMEDIATE_MASK,
            timestamp: Some(word(field::TIMESTAMP) & IMMEDIATE_MASK),
            digitiser_id: Some(word(field::DIGITISER_ID) & IMMEDIATE_MASK),
            status: Some(word(field::DIGITISER_STATUS) & IMMEDIATE_MASK),
            stream_control: None,
            payload,
        })
    }

    /// Reads items in any order, among any further items.
    #[cold]
    fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let packet = Packet::new_checked(bytes)?;
        packet.whole_heap()?;
        Ok(Self {
            heap_count: packet.heap_count(),
            timestamp: packet.immediate(item::TIMESTAMP),
            digitiser_id: packet.immediate(item::DIGITISER_ID),
            status: packet.immediate(item::DIGITISER_STATUS),
            stream_control: packet.immediate(item::STREAM_CONTROL),
            payload: packet.payload(),
        })
    }

    /// Heap count.
    #[inline]
    pub fn heap_count(&self) -> u64 {
        self.heap_count
    }

    /// ADC sample count of the first sample, of which the packet has the low 48 bits.
    #[inline]
    pub fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    /// Digitiser number.
    #[inline]
    pub fn digitiser_id(&self) -> Option<u64> {
        self.digitiser_id
    }

    /// Polarisation: the low bit of the digitiser number. A missing number counts as −1, as in
    /// katgpucbf, which gives polarisation 1.
    #[inline]
    pub fn pol(&self) -> usize {
        self.digitiser_id.map_or(1, |id| (id & 1) as usize)
    }

    /// Digitiser status.
    #[inline]
    pub fn status(&self) -> Option<u64> {
        self.status
    }

    /// Number of saturated samples in the heap. A missing status counts as −1, as in katgpucbf,
    /// which gives 65535 samples.
    #[inline]
    pub fn saturated(&self) -> u16 {
        self.status.map_or(u16::MAX, |status| (status >> 32) as u16)
    }

    /// Stream control item: [`crate::STREAM_STOP`] ends the stream.
    #[inline]
    pub fn stream_control(&self) -> Option<u64> {
        self.stream_control
    }

    /// Payload bytes of the heap.
    #[inline]
    pub fn heap_length(&self) -> usize {
        self.payload.len()
    }

    /// Packed samples.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Preamble of a digitiser's packet: all that stands before the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigitiserRepr {
    /// Heap count.
    pub heap_count: u64,
    /// ADC sample count of the first sample, cut to 48 bits.
    pub timestamp: u64,
    /// Digitiser number.
    pub digitiser_id: u64,
    /// Number of saturated samples in the heap.
    pub saturated: u16,
    /// Bytes of packed samples.
    pub payload_length: usize,
}

impl DigitiserRepr {
    /// Writes the 72 bytes before the samples.
    #[inline]
    pub fn emit(&self, preamble: &mut [u8; PREAMBLE_LEN]) {
        let flag = u64::from(self.saturated != 0) << 1;
        let length = self.payload_length as u64;
        let header = PacketHeader {
            heap_count: self.heap_count,
            heap_length: length,
            payload_offset: 0,
            payload_length: length,
        };
        let items = [
            ItemPointer::immediate(item::TIMESTAMP, self.timestamp),
            ItemPointer::immediate(item::DIGITISER_ID, self.digitiser_id),
            ItemPointer::immediate(
                item::DIGITISER_STATUS,
                u64::from(self.saturated) << 32 | flag,
            ),
            ItemPointer::addressed(item::ADC_SAMPLES, 0),
        ];
        header.emit(&items, preamble);
    }

    /// Reads a heap back. Without timestamp or digitiser number, the result is `None`; a missing
    /// status is what [`DigitiserHeap`] makes of it.
    #[inline]
    pub fn parse(heap: &DigitiserHeap<'_>) -> Option<Self> {
        Some(Self {
            heap_count: heap.heap_count(),
            timestamp: heap.timestamp()?,
            digitiser_id: heap.digitiser_id()?,
            saturated: heap.saturated(),
            payload_length: heap.heap_length(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Preamble of a simulated digitiser's second heap, polarisation 1, five samples saturated.
    const GOLDEN: [u64; 9] = [
        0x5304_0206_0000_0008,
        0x8001_0000_0000_0002,
        0x8002_0000_0000_1400,
        0x8003_0000_0000_0000,
        0x8004_0000_0000_1400,
        0x9600_0000_0000_1000,
        0xb101_0000_0000_0001,
        0xb102_0005_0000_0002,
        0x3300_0000_0000_0000,
    ];

    fn packet(words: &[u64], payload: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        bytes.resize(bytes.len() + payload, 0x5a);
        bytes
    }

    #[test]
    fn golden_heap_is_read_and_written() {
        let bytes = packet(&GOLDEN, 5120);
        assert_eq!(bytes.len(), 5192);
        let heap = DigitiserHeap::fixed_layout(&bytes).expect("the layout digitisers send");
        assert_eq!(heap.heap_count(), 2);
        assert_eq!(heap.timestamp(), Some(4096));
        assert_eq!(heap.digitiser_id(), Some(1));
        assert_eq!(heap.pol(), 1);
        assert_eq!(heap.saturated(), 5);
        assert_eq!(heap.stream_control(), None);
        assert_eq!(heap.heap_length(), 5120);
        assert_eq!(heap.payload(), [0x5a; 5120]);

        let mut preamble = [0xff; PREAMBLE_LEN];
        DigitiserRepr {
            heap_count: 2,
            timestamp: 4096,
            digitiser_id: 1,
            saturated: 5,
            payload_length: 5120,
        }
        .emit(&mut preamble);
        assert_eq!(preamble[..], bytes[..PREAMBLE_LEN]);
    }

    #[test]
    fn other_layouts_give_the_same_heap() {
        let golden = packet(&GOLDEN, 5120);
        let expected = DigitiserHeap::new_checked(&golden).unwrap();
        let mut shuffled = GOLDEN;
        shuffled[1..].reverse();
        let bytes = packet(&shuffled, 5120);
        assert_eq!(DigitiserHeap::fixed_layout(&bytes), None);
        assert_eq!(DigitiserHeap::new_checked(&bytes), Ok(expected));

        let mut further = GOLDEN.to_vec();
        further.insert(5, 0xb1ff_0000_0000_0001);
        further[0] += 1;
        let bytes = packet(&further, 5120);
        assert_eq!(DigitiserHeap::new_checked(&bytes), Ok(expected));

        let mut trailing = golden.clone();
        trailing.extend([0; 3]);
        assert_eq!(DigitiserHeap::new_checked(&trailing), Ok(expected));
    }

    #[test]
    fn missing_items_read_as_minus_one() {
        for (missing, word) in [(5, 0x9600), (6, 0xb101), (7, 0xb102)] {
            for replacement in [0, (word & 0x7fff) << 48] {
                let mut words = GOLDEN;
                words[6] = 0xb101_0000_0000_0000;
                words[missing] = replacement;
                let bytes = packet(&words, 5120);
                let heap = DigitiserHeap::new_checked(&bytes).unwrap();
                assert_eq!(heap.timestamp(), (missing != 5).then_some(4096));
                assert_eq!(heap.pol(), usize::from(missing == 6));
                assert_eq!(heap.saturated(), if missing == 7 { 65535 } else { 5 });
            }
        }
    }

    #[test]
    fn a_heap_in_several_packets_is_refused() {
        let mut words = GOLDEN;
        words[2] = 0x8002_0000_0000_2800;
        let error = DigitiserHeap::new_checked(&packet(&words, 5120)).unwrap_err();
        assert_eq!(error.cause(), "heap-spans-packets");
        words[3] = 0x8003_0000_0000_1400;
        let error = DigitiserHeap::new_checked(&packet(&words, 5120)).unwrap_err();
        assert_eq!(error.cause(), "heap-spans-packets");
        words[2] = 0;
        let error = DigitiserHeap::new_checked(&packet(&words, 5120)).unwrap_err();
        assert_eq!(error, PacketError::NoHeapLength);
    }

    proptest! {
        #[test]
        fn emit_then_parse_is_identity(
            heap_count in 0..1u64 << 48,
            timestamp in 0..1u64 << 48,
            digitiser_id in 0..1u64 << 48,
            saturated: u16,
            payload_length in 0..64usize,
        ) {
            let repr = DigitiserRepr {
                heap_count, timestamp, digitiser_id, saturated, payload_length,
            };
            let mut bytes = vec![0; PREAMBLE_LEN + payload_length];
            repr.emit(bytes.first_chunk_mut().unwrap());
            let heap = DigitiserHeap::new_checked(&bytes).unwrap();
            prop_assert_eq!(DigitiserRepr::parse(&heap), Some(repr));
        }

        /// The fast path accepts nothing that the general parse reads otherwise.
        #[test]
        fn fast_path_agrees_with_the_general_parse(
            word in 0..9usize,
            bit in 0..64u32,
            cut in 0..80usize,
        ) {
            let mut words = GOLDEN;
            words[word] ^= 1 << bit;
            let mut bytes = packet(&words, 5120);
            bytes.truncate(5192 + 40 - cut);
            prop_assert_eq!(DigitiserHeap::new_checked(&bytes), DigitiserHeap::parse(&bytes));
        }
    }
}

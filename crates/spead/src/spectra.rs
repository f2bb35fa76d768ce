//! Heaps of spectra, which an F-engine sends: quantised voltages of frequency channels.

use crate::item;
use crate::packet::{ItemPointer, Packet, PacketError, PacketHeader};

/// Bytes before the spectra. Every packet of a heap has all item pointers.
pub const PREAMBLE_LEN: usize = PacketHeader::len(4);

/// Preamble of one packet of a heap of spectra: all that stands before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpectraRepr {
    /// Heap count, cut to 48 bits.
    pub heap_count: u64,
    /// Bytes of the whole heap.
    pub heap_length: u64,
    /// Offset of the packet's payload in the heap, in bytes.
    pub payload_offset: u64,
    /// Payload bytes in this packet.
    pub payload_length: u64,
    /// ADC sample count at the first spectrum, cut to 48 bits.
    pub timestamp: u64,
    /// F-engine number.
    pub feng_id: u64,
    /// Channel number of the first channel in the heap.
    pub first_channel: u64,
}

impl SpectraRepr {
    /// Writes the preamble.
    #[inline]
    pub fn emit(&self, preamble: &mut [u8; PREAMBLE_LEN]) {
        let header = PacketHeader {
            heap_count: self.heap_count,
            heap_length: self.heap_length,
            payload_offset: self.payload_offset,
            payload_length: self.payload_length,
        };
        let items = [
            ItemPointer::immediate(item::TIMESTAMP, self.timestamp),
            ItemPointer::immediate(item::FENG_ID, self.feng_id),
            ItemPointer::immediate(item::FREQUENCY, self.first_channel),
            ItemPointer::addressed(item::FENG_RAW, 0),
        ];
        header.emit(&items, preamble);
    }

    /// Reads a packet back. Without one of the items of a heap of spectra, as in descriptor and
    /// stop heaps, the result is `Ok(None)`.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoHeapLength`].
    pub fn parse(packet: &Packet<'_>) -> Result<Option<Self>, PacketError> {
        let header = PacketHeader::parse(packet)?;
        let found = (
            packet.immediate(item::TIMESTAMP),
            packet.immediate(item::FENG_ID),
            packet.immediate(item::FREQUENCY),
        );
        let has_spectra = packet
            .pointers()
            .any(|it| it == ItemPointer::addressed(item::FENG_RAW, 0));
        let (Some(timestamp), Some(feng_id), Some(first_channel), true) =
            (found.0, found.1, found.2, has_spectra)
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            heap_count: header.heap_count,
            heap_length: header.heap_length,
            payload_offset: header.payload_offset,
            payload_length: header.payload_length,
            timestamp,
            feng_id,
            first_channel,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packet 0 of a heap of 64 channels by 256 spectra.
    const GOLDEN: [u64; 9] = [
        0x5304_0206_0000_0008,
        0x8001_0000_0000_002a,
        0x8002_0000_0001_0000,
        0x8003_0000_0000_0000,
        0x8004_0000_0000_2000,
        0x9600_1234_5678_9abc,
        0xc101_0000_0000_002a,
        0xc103_0000_0000_0080,
        0x4300_0000_0000_0000,
    ];

    /// Preamble of the golden packet.
    const FIRST: SpectraRepr = SpectraRepr {
        heap_count: 42,
        heap_length: 65536,
        payload_offset: 0,
        payload_length: 8192,
        timestamp: 0x1234_5678_9abc,
        feng_id: 42,
        first_channel: 128,
    };

    #[test]
    fn golden_packet() {
        let repr = FIRST;
        let mut bytes = vec![0xff; 8264];
        repr.emit(bytes.first_chunk_mut().unwrap());
        let golden: Vec<u8> = GOLDEN.iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(bytes[..PREAMBLE_LEN], golden);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(SpectraRepr::parse(&packet), Ok(Some(repr)));
    }

    #[test]
    fn the_other_packets_differ_in_their_offset_alone() {
        let mut repr = FIRST;
        for n in 1..8u64 {
            repr.payload_offset = 8192 * n;
            let mut bytes = [0; PREAMBLE_LEN];
            repr.emit(&mut bytes);
            let mut golden = GOLDEN;
            golden[3] += 8192 * n;
            let golden: Vec<u8> = golden.iter().flat_map(|w| w.to_be_bytes()).collect();
            assert_eq!(bytes[..], golden);
        }
    }

    proptest! {
        #[test]
        fn emit_then_parse_is_identity(
            heap_count in 0..1u64 << 48,
            payload_offset in 0..1u64 << 32,
            payload_length in 0..64u64,
            rest in 0..1u64 << 32,
            timestamp in 0..1u64 << 48,
            feng_id in 0..1u64 << 48,
            first_channel in 0..1u64 << 48,
        ) {
            let heap_length = payload_offset + payload_length + rest;
            let repr = SpectraRepr {
                heap_count, heap_length, payload_offset, payload_length,
                timestamp, feng_id, first_channel,
            };
            let mut bytes = vec![0; PREAMBLE_LEN + payload_length as usize];
            repr.emit(bytes.first_chunk_mut().unwrap());
            let packet = Packet::new_checked(&bytes).unwrap();
            prop_assert_eq!(SpectraRepr::parse(&packet), Ok(Some(repr)));
        }
    }
}

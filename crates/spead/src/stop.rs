//! Stop heaps: the last heap of a stream.

use crate::packet::{ItemPointer, Packet, PacketHeader};
use crate::{STREAM_STOP, item};

/// Bytes of a stop heap's only packet. No heap is sent empty: a padding item has one byte of
/// payload.
pub const STOP_LEN: usize = PacketHeader::len(2) + 1;

/// Stop heap, which has nothing but its heap count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRepr {
    /// Heap count, cut to 48 bits.
    pub heap_count: u64,
}

impl StopRepr {
    /// Writes the packet.
    pub fn emit(&self, packet: &mut [u8; STOP_LEN]) {
        let header = PacketHeader {
            heap_count: self.heap_count,
            heap_length: 1,
            payload_offset: 0,
            payload_length: 1,
        };
        let items = [
            ItemPointer::immediate(item::STREAM_CONTROL, STREAM_STOP),
            ItemPointer::addressed(item::NULL, 0),
        ];
        header.emit(&items, packet);
        packet[STOP_LEN - 1] = 0;
    }

    /// Reads a packet back. Without the item that ends a stream, the result is `None`.
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        (packet.immediate(item::STREAM_CONTROL) == Some(STREAM_STOP)).then(|| Self {
            heap_count: packet.heap_count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_packet() {
        let golden: [u64; 7] = [
            0x5304_0206_0000_0006,
            0x8001_0000_0000_01aa,
            0x8002_0000_0000_0001,
            0x8003_0000_0000_0000,
            0x8004_0000_0000_0001,
            0x8006_0000_0000_0002,
            0x0000_0000_0000_0000,
        ];
        let mut golden: Vec<u8> = golden.iter().flat_map(|w| w.to_be_bytes()).collect();
        golden.push(0);
        let mut bytes = [0xff; STOP_LEN];
        let repr = StopRepr { heap_count: 0x1aa };
        repr.emit(&mut bytes);
        assert_eq!(bytes.len(), 57);
        assert_eq!(bytes[..], golden);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(StopRepr::parse(&packet), Some(repr));
    }
}

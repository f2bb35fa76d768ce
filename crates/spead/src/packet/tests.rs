use proptest::prelude::*;

use super::*;

/// Two application items, one immediate and one addressed, and four payload bytes.
fn sample() -> Vec<u8> {
    let words: [u64; 7] = [
        0x5304_0206_0000_0006,
        0x8001_0000_0000_002a,
        0x8002_0000_0000_000c,
        0x8003_0000_0000_0004,
        0x8004_0000_0000_0004,
        0x9600_1234_5678_9abc,
        0x4300_0000_0000_0006,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    bytes.extend([1, 2, 3, 4]);
    bytes
}

fn error(bytes: &[u8]) -> PacketError {
    Packet::new_checked(bytes).unwrap_err()
}

fn with_word(index: usize, word: u64) -> Vec<u8> {
    let mut bytes = sample();
    bytes[8 * index..8 * index + 8].copy_from_slice(&word.to_be_bytes());
    bytes
}

#[test]
fn reads_a_packet() {
    let bytes = sample();
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(packet.heap_count(), 42);
    assert_eq!(packet.heap_length(), Some(12));
    assert_eq!(packet.payload_offset(), 4);
    assert_eq!(packet.payload(), [1, 2, 3, 4]);
    assert_eq!(packet.immediate(item::TIMESTAMP), Some(0x1234_5678_9abc));
    assert_eq!(packet.immediate(item::FENG_RAW), None);
    assert_eq!(packet.pointers().count(), 6);
    assert_eq!(
        packet.addressed().collect::<Vec<_>>(),
        [(0x4300, &[3u8, 4][..])]
    );
    assert_eq!(
        packet.whole_heap().unwrap_err().cause(),
        "heap-spans-packets"
    );
}

#[test]
fn trailing_bytes_are_tolerated() {
    let mut bytes = sample();
    bytes.extend([9; 5]);
    assert_eq!(Packet::new_checked(&bytes).unwrap().payload(), [1, 2, 3, 4]);
}

#[test]
fn every_rule_has_its_cause() {
    assert_eq!(error(&sample()[..7]), PacketError::TooShort { len: 7 });
    assert_eq!(error(&[0x53; MAX_PACKET + 1]).cause(), "packet-too-long");
    assert_eq!(
        error(&with_word(0, 0x5404_0206_0000_0006)),
        PacketError::BadMagic(0x54)
    );
    assert_eq!(
        error(&with_word(0, 0x5303_0206_0000_0006)),
        PacketError::BadVersion(3)
    );
    for widths in [0x0008, 0x0800, 0x0205, 0x0306, 0xff09] {
        let bytes = with_word(0, 0x5304_0000_0000_0006 | widths << 32);
        assert_eq!(error(&bytes).cause(), "bad-widths", "{widths:#06x}");
    }
    assert_eq!(
        error(&with_word(0, 0x5304_0206_0000_0007)),
        PacketError::ItemsPastEnd { items: 7, len: 60 }
    );
    assert_eq!(error(&with_word(1, 0)), PacketError::NoHeapCount);
    assert_eq!(error(&with_word(3, 0)), PacketError::NoPayloadOffset);
    assert_eq!(error(&with_word(4, 0)), PacketError::NoPayloadLength);
    // An addressed control item is not seen.
    assert_eq!(
        error(&with_word(4, 0x0004_0000_0000_0004)),
        PacketError::NoPayloadLength
    );
    assert_eq!(
        error(&with_word(4, 0x8004_0000_0000_0005)),
        PacketError::PayloadPastEnd { length: 5, room: 4 }
    );
    assert_eq!(
        error(&with_word(3, 0x8003_0000_0000_0009)),
        PacketError::PayloadPastHeap {
            offset: 9,
            length: 4,
            heap: 12
        }
    );
    let bytes = with_word(2, 0);
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(packet.whole_heap(), Err(PacketError::NoHeapLength));
}

#[test]
fn other_widths_are_understood() {
    // SPEAD-64-40: 24 bits of mode and identifier, 40 bits of value.
    let words: [u64; 5] = [
        0x5304_0305_0000_0004,
        0x8000_0100_0000_0007,
        0x8000_0300_0000_0000,
        0x8000_0400_0000_0000,
        0x8123_4500_0000_0001,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(packet.heap_count(), 7);
    assert_eq!(packet.immediate(0x12345), Some(1));
}

#[test]
fn the_last_of_repeated_items_counts() {
    let bytes = with_word(6, 0x8001_0000_0000_0063);
    assert_eq!(Packet::new_checked(&bytes).unwrap().heap_count(), 99);
}

proptest! {
    #[test]
    fn emit_then_parse_is_identity(
        heap_count in 0..1u64 << 48,
        offset in 0..1u64 << 47,
        extra in 0..1u64 << 40,
        payload in proptest::collection::vec(any::<u8>(), 0..64),
        items in proptest::collection::vec((any::<bool>(), 0x20..0x8000u64, 0..1u64 << 48), 0..8),
    ) {
        let header = PacketHeader {
            heap_count,
            heap_length: offset + payload.len() as u64 + extra,
            payload_offset: offset,
            payload_length: payload.len() as u64,
        };
        let items: Vec<ItemPointer> = items
            .into_iter()
            .map(|(immediate, id, value)| match immediate {
                true => ItemPointer::immediate(id, value),
                false => ItemPointer::addressed(id, value),
            })
            .collect();
        let mut bytes = vec![0xaa; PacketHeader::len(items.len())];
        header.emit(&items, &mut bytes);
        bytes.extend(&payload);
        let packet = Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!(PacketHeader::parse(&packet).unwrap(), header);
        prop_assert_eq!(packet.pointers().skip(4).collect::<Vec<_>>(), items);
        prop_assert_eq!(packet.payload(), payload);
    }
}

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::packet::{MAX_PACKET, Packet, PacketError, PacketHeader};
use crate::stop::{STOP_LEN, StopRepr};

fn packets(heap: &HeapBuilder<'_>, size: PacketSize) -> Vec<Vec<u8>> {
    heap.packets(size)
        .expect("a heap that can be sent")
        .collect()
}

/// A heap of 100 bytes in ten packets.
fn ten_packets(heap_count: u64) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = (0..100).map(|n| n ^ heap_count as u8).collect();
    let heap = HeapBuilder::new(heap_count)
        .immediate(item::TIMESTAMP, heap_count)
        .addressed(item::FENG_RAW, &bytes);
    packets(&heap, PacketSize::Payload(10))
}

fn small_limits() -> AssemblerLimits {
    AssemblerLimits {
        open_heaps: 2,
        heap_bytes: 1000,
        items: 8,
        remembered_heaps: 2,
    }
}

/// Adds packets of which none completes a heap.
fn add_all(assembler: &mut HeapAssembler, packets: &[Vec<u8>]) {
    for packet in packets {
        assert_eq!(assembler.add_packet(packet), Ok(None));
    }
}

#[test]
fn empty_items_keep_their_place() {
    let heap = HeapBuilder::new(1)
        .addressed(0x2001, b"")
        .addressed(0x2002, b"two")
        .addressed(0x2003, b"")
        .addressed(0x2004, b"")
        .addressed(0x2005, b"five")
        .addressed(0x2006, b"");
    // Each packet has one pointer, so that the pointers with one offset are in different packets.
    let packets = packets(&heap, PacketSize::Whole(49));
    for order in [false, true] {
        let mut assembler = HeapAssembler::default();
        let mut packets = packets.clone();
        if order {
            packets.reverse();
        }
        let (last, others) = packets.split_last().unwrap();
        add_all(&mut assembler, others);
        let heap = assembler.add_packet(last).unwrap().expect("a heap");
        let items: Vec<_> = heap.items().map(|item| (item.id, item.content)).collect();
        let expected: [(u64, &[u8]); 6] = [
            (0x2001, b""),
            (0x2002, b"two"),
            (0x2003, b""),
            (0x2004, b""),
            (0x2005, b"five"),
            (0x2006, b""),
        ];
        assert_eq!(
            items,
            expected.map(|(id, it)| (id, ItemContent::Addressed(it)))
        );
    }
}

#[test]
fn items_are_found_by_identifier() {
    let heap = HeapBuilder::new(5)
        .immediate(0x1600, 77)
        .addressed(0x3300, b"samples")
        .descriptor(&Descriptor::immediate(0x1600, "timestamp", ""));
    let packet = &packets(&heap, PacketSize::Whole(1472))[0];
    let heap = HeapAssembler::default()
        .add_packet(packet)
        .unwrap()
        .unwrap();
    assert_eq!(heap.heap_count(), 5);
    assert_eq!(heap.immediate(0x1600), Some(77));
    assert_eq!(heap.addressed(0x1600), None);
    assert_eq!(heap.addressed(0x3300), Some(&b"samples"[..]));
    assert_eq!(heap.immediate(0x3300), None);
    assert_eq!(heap.item(0x3301), None);
    assert!(!heap.is_stream_stop());
    let names: Vec<_> = heap.descriptors().map(|it| it.unwrap().name).collect();
    assert_eq!(names, ["timestamp"]);
}

#[test]
fn the_oldest_heap_is_given_up_when_too_many_are_open() {
    let mut assembler = HeapAssembler::new(small_limits());
    for heap_count in 1..=3 {
        add_all(&mut assembler, &ten_packets(heap_count)[..4]);
    }
    assert_eq!(assembler.open_heaps(), 2);
    // What still comes of the first heap is late, and pushes no other heap out.
    add_all(&mut assembler, &ten_packets(1)[4..]);
    for heap_count in 2..=3 {
        let packets = &ten_packets(heap_count)[4..];
        add_all(&mut assembler, &packets[..5]);
        let heap = assembler.add_packet(&packets[5]).unwrap().expect("a heap");
        assert_eq!(heap.immediate(item::TIMESTAMP), Some(heap_count));
    }
    assert_eq!(
        assembler.counts(),
        AssemblerCounts {
            packets: 30,
            heaps: 2,
            late_packets: 6,
            incomplete_heaps: 1,
            incomplete_bytes: 40,
            ..AssemblerCounts::default()
        }
    );
}

#[test]
fn packets_that_come_twice_are_counted() {
    let mut assembler = HeapAssembler::new(small_limits());
    let packets = ten_packets(1);
    add_all(&mut assembler, &packets[..3]);
    add_all(&mut assembler, &packets[..3]);
    add_all(&mut assembler, &packets[3..9]);
    assert!(assembler.add_packet(&packets[9]).unwrap().is_some());
    add_all(&mut assembler, &packets);
    let counts = assembler.counts();
    assert_eq!((counts.heaps, counts.duplicate_packets), (1, 13));
    assert_eq!(assembler.open_heaps(), 0);
}

#[test]
fn a_heap_count_may_come_again_when_it_is_forgotten() {
    let mut assembler = HeapAssembler::new(small_limits());
    let mut complete = |heap_count| {
        let mut heaps = 0;
        for packet in ten_packets(heap_count) {
            heaps += usize::from(assembler.add_packet(&packet).unwrap().is_some());
        }
        heaps
    };
    assert_eq!([1, 1, 2, 1, 3, 1].map(&mut complete), [1, 0, 1, 0, 1, 1]);
}

#[test]
fn a_stop_heap_ends_what_came_before() {
    let mut assembler = HeapAssembler::new(small_limits());
    let packets = ten_packets(1);
    add_all(&mut assembler, &packets[..9]);
    let mut stop = [0; STOP_LEN];
    StopRepr { heap_count: 2 }.emit(&mut stop);
    let heap = assembler.add_packet(&stop).unwrap().expect("a heap");
    assert!(heap.is_stream_stop());
    assert_eq!(heap.items().count(), 1);
    assert_eq!(assembler.counts().incomplete_heaps, 1);
    // The next stream begins with the same heap count.
    add_all(&mut assembler, &packets[..9]);
    assert!(assembler.add_packet(&packets[9]).unwrap().is_some());
    assert_eq!(assembler.counts().incomplete_bytes, 90);
}

#[test]
fn a_stop_heap_that_comes_twice_does_not_end_the_next_stream() {
    let mut assembler = HeapAssembler::new(small_limits());
    let packets = ten_packets(1);
    let mut stop = [0; STOP_LEN];
    StopRepr { heap_count: 2 }.emit(&mut stop);
    assert!(assembler.add_packet(&stop).unwrap().is_some());
    add_all(&mut assembler, &packets[..9]);
    assert!(assembler.add_packet(&stop).unwrap().is_none());
    assert!(assembler.add_packet(&packets[9]).unwrap().is_some());
    let counts = assembler.counts();
    assert_eq!((counts.duplicate_packets, counts.incomplete_heaps), (1, 0));
    // That of the next stream has the same heap count.
    assert!(assembler.add_packet(&stop).unwrap().is_some());
    // One that is asked to forget may hear it again.
    assembler.forget_heaps();
    assert!(assembler.add_packet(&stop).unwrap().is_some());
}

/// A packet of four bytes at `offset` of heap 1, which has `heap_length` bytes.
fn part(heap_length: u64, offset: u64, items: &[ItemPointer]) -> Vec<u8> {
    let header = PacketHeader {
        heap_count: 1,
        heap_length,
        payload_offset: offset,
        payload_length: 4,
    };
    let mut packet = vec![0; PacketHeader::len(items.len())];
    header.emit(items, &mut packet);
    packet.extend([1, 2, 3, 4]);
    packet
}

#[test]
fn every_rule_of_assembly_has_its_error() {
    let mut assembler = HeapAssembler::new(small_limits());
    let mut reject = |packet: &[u8]| assembler.add_packet(packet).expect_err("a rule").cause();
    assert_eq!(reject(b"nonsense"), "bad-magic");
    assert_eq!(reject(&part(1001, 0, &[])), "heap-too-large");
    let items: Vec<_> = (0..9)
        .map(|n| ItemPointer::immediate(0x2000 + n, n))
        .collect();
    assert_eq!(reject(&part(100, 0, &items)), "too-many-items");
    let past = [ItemPointer::addressed(0x2000, 101)];
    assert_eq!(reject(&part(100, 0, &past)), "item-past-heap");
    // Nothing of all that has begun a heap.
    assert_eq!(assembler.open_heaps(), 0);
    add_all(&mut assembler, &[part(100, 10, &items[..5])]);
    let mut reject = |packet: &[u8]| assembler.add_packet(packet).expect_err("a rule").cause();
    assert_eq!(reject(&part(104, 0, &[])), "heap-length-differs");
    assert_eq!(reject(&part(100, 12, &[])), "payload-overlaps");
    assert_eq!(reject(&part(100, 8, &[])), "payload-overlaps");
    assert_eq!(reject(&part(100, 0, &items[5..])), "too-many-items");
    // SPEAD-64-40 of the same heap.
    let words: [u64; 5] = [
        0x5304_0305_0000_0004,
        0x8000_0100_0000_0001,
        0x8000_0200_0000_0064,
        0x8000_0300_0000_0000,
        0x8000_0400_0000_0000,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(reject(&bytes), "flavour-differs");
    let mut without_length = part(100, 14, &[]);
    without_length[17] = 0x7f;
    assert_eq!(
        assembler.add_packet(&without_length),
        Err(AssemblyError::Packet(PacketError::NoHeapLength))
    );
    assert_eq!(assembler.counts().rejected_packets, 10);
    assert_eq!(assembler.open_heaps(), 1);
}

#[test]
fn the_pieces_of_a_heap_are_bounded() {
    const PIECES: u64 = 1 << 16;
    let limits = AssemblerLimits {
        heap_bytes: 1 << 20,
        ..AssemblerLimits::default()
    };
    let mut assembler = HeapAssembler::new(limits);
    for n in 0..PIECES {
        assert_eq!(assembler.add_packet(&part(1 << 20, 8 * n, &[])), Ok(None));
    }
    let error = assembler.add_packet(&part(1 << 20, 8 * PIECES, &[]));
    assert_eq!(error, Err(AssemblyError::TooManyPieces { heap_count: 1 }));
    // A packet that joins pieces still has its place, and makes room for another piece.
    assert_eq!(assembler.add_packet(&part(1 << 20, 4, &[])), Ok(None));
    assert_eq!(
        assembler.add_packet(&part(1 << 20, 8 * PIECES, &[])),
        Ok(None)
    );
}

#[test]
fn heaps_of_other_flavours_are_read() {
    // SPEAD-64-40: 24 bits of mode and identifier, 40 bits of value.
    let words: [u64; 7] = [
        0x5304_0305_0000_0006,
        0x8000_0100_0000_0007,
        0x8000_0200_0000_0002,
        0x8000_0300_0000_0000,
        0x8000_0400_0000_0002,
        0x8123_4500_0000_0001,
        0x0111_1100_0000_0000,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend([8, 9]);
    let heap = HeapAssembler::default()
        .add_packet(&bytes)
        .unwrap()
        .unwrap();
    assert_eq!(heap.immediate(0x12345), Some(1));
    assert_eq!(heap.addressed(0x11111), Some(&[8, 9][..]));
}

/// Items to be sent: identifiers differ, but for descriptors.
fn any_items() -> impl Strategy<Value = Vec<(u64, Result<u64, Vec<u8>>)>> {
    let content = prop_oneof![
        (0..1u64 << 48).prop_map(Ok),
        vec(any::<u8>(), 0..200).prop_map(Err),
        Just(Err(Vec::new())),
    ];
    vec(content, 0..12).prop_map(|contents| {
        let id = |n: usize| 0x1000 + 0x123 * n as u64;
        let numbered = contents.into_iter().enumerate();
        numbered.map(|(n, content)| (id(n), content)).collect()
    })
}

fn build(heap_count: u64, items: &[(u64, Result<u64, Vec<u8>>)]) -> HeapBuilder<'_> {
    let heap = HeapBuilder::new(heap_count);
    items
        .iter()
        .fold(heap, |heap, (id, content)| match content {
            Ok(value) => heap.immediate(*id, *value),
            Err(bytes) => heap.addressed(*id, bytes),
        })
}

fn any_size() -> impl Strategy<Value = PacketSize> {
    prop_oneof![
        (49..400usize).prop_map(PacketSize::Whole),
        (1..400usize).prop_map(PacketSize::Payload),
    ]
}

proptest! {
    /// Two heaps at a time, all their packets shuffled, some of them twice.
    #[test]
    fn heaps_come_back_from_shuffled_and_repeated_packets(
        first in any_items(),
        second in any_items(),
        size in any_size(),
        repeats: bool,
        seed in vec(any::<u32>(), 64),
        copies in vec(1..3usize, 16),
    ) {
        let size = match size {
            PacketSize::Whole(packet) if repeats => PacketSize::Whole(packet + 8 * 13),
            size => size,
        };
        let sent = [(1, &first), (2, &second)];
        let mut packets = Vec::new();
        for (heap_count, items) in sent {
            let heap = build(heap_count, items).repeat_pointers(repeats);
            let cut: Vec<Vec<u8>> = heap.packets(size).unwrap().collect();
            for (n, packet) in cut.into_iter().enumerate() {
                match size {
                    PacketSize::Whole(most) => prop_assert!(packet.len() <= most),
                    PacketSize::Payload(most) => {
                        let payload = Packet::new_checked(&packet).unwrap().payload().len();
                        prop_assert!((1..=most).contains(&payload));
                        prop_assert!(packet.len() <= MAX_PACKET);
                    }
                }
                packets.extend(vec![packet; copies[n % copies.len()]]);
            }
        }
        // A place for each packet, from the seed.
        let mut order: Vec<_> = (0..packets.len())
            .map(|n| (seed[n % seed.len()].wrapping_mul(n as u32 + 1), n))
            .collect();
        order.sort_unstable();

        let mut assembler = HeapAssembler::default();
        let mut heaps = Vec::new();
        for (_, n) in order {
            heaps.extend(assembler.add_packet(&packets[n]).unwrap());
        }
        heaps.sort_by_key(Heap::heap_count);
        prop_assert_eq!(heaps.len(), 2);
        for ((heap_count, items), heap) in sent.into_iter().zip(&heaps) {
            prop_assert_eq!(heap.heap_count(), heap_count);
            let came: Vec<_> = heap
                .items()
                .map(|item| match item.content {
                    ItemContent::Immediate(value) => (item.id, Ok(value)),
                    ItemContent::Addressed(bytes) => (item.id, Err(bytes.to_vec())),
                })
                .collect();
            prop_assert_eq!(&came, items);
        }
        let counts = assembler.counts();
        prop_assert_eq!((counts.heaps, counts.rejected_packets), (2, 0));
        prop_assert_eq!(counts.packets as usize, packets.len());
        prop_assert_eq!((assembler.open_heaps(), counts.incomplete_heaps), (0, 0));
    }

    /// A lost packet costs its heap, and no other.
    #[test]
    fn a_heap_without_one_of_its_packets_never_comes(
        items in any_items(),
        size in any_size(),
        lost: prop::sample::Index,
    ) {
        let mut packets: Vec<Vec<u8>> = build(1, &items).packets(size).unwrap().collect();
        packets.remove(lost.index(packets.len()));
        let mut assembler = HeapAssembler::default();
        for packet in &packets {
            prop_assert_eq!(assembler.add_packet(packet), Ok(None));
        }
        assembler.forget_heaps();
        let counts = assembler.counts();
        prop_assert_eq!(counts.heaps, 0);
        prop_assert_eq!(counts.incomplete_heaps, u64::from(!packets.is_empty()));
    }
}

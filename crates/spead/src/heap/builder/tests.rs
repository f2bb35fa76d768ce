use super::*;
use crate::descriptor::emit_heap;
use crate::heap::HeapAssembler;
use crate::spectra::{self, SpectraRepr};
use crate::stop::{STOP_LEN, StopRepr};

fn packets(heap: &HeapBuilder<'_>, size: PacketSize) -> Vec<Vec<u8>> {
    heap.packets(size)
        .expect("a heap that can be sent")
        .collect()
}

fn error(heap: &HeapBuilder<'_>, size: PacketSize) -> HeapError {
    heap.packets(size).expect_err("a rule that is broken")
}

#[test]
fn a_stop_heap_has_the_bytes_of_a_real_one() {
    let mut expected = [0; STOP_LEN];
    StopRepr { heap_count: 0x1aa }.emit(&mut expected);
    let heap = HeapBuilder::new(0x1aa).stream_stop();
    assert_eq!(packets(&heap, PacketSize::Whole(1472)), [expected]);
}

#[test]
fn a_descriptor_heap_has_the_bytes_of_a_real_one() {
    let descriptors = Descriptor::spectra(64, 256, 8);
    let heap = descriptors
        .iter()
        .fold(HeapBuilder::new(0x6a), HeapBuilder::descriptor);
    let expected = emit_heap(0x6a, &descriptors);
    assert_eq!(packets(&heap, PacketSize::Whole(1472)), [expected]);
}

#[test]
fn repeated_pointers_make_the_packets_of_an_f_engine() {
    let bytes: Vec<u8> = (0..65536u32).map(|n| (n % 251) as u8).collect();
    let heap = HeapBuilder::new(42)
        .immediate(item::TIMESTAMP, 0x1234_5678_9abc)
        .immediate(item::FENG_ID, 7)
        .immediate(item::FREQUENCY, 128)
        .addressed(item::FENG_RAW, &bytes)
        .repeat_pointers(true);
    let packets = packets(&heap, PacketSize::Payload(8192));
    assert_eq!(packets.len(), 8);
    for (n, packet) in packets.iter().enumerate() {
        let mut expected = [0; spectra::PREAMBLE_LEN];
        SpectraRepr {
            heap_count: 42,
            heap_length: 65536,
            payload_offset: 8192 * n as u64,
            payload_length: 8192,
            timestamp: 0x1234_5678_9abc,
            feng_id: 7,
            first_channel: 128,
        }
        .emit(&mut expected);
        let (preamble, payload) = packet.split_at(spectra::PREAMBLE_LEN);
        assert_eq!(preamble, expected);
        assert_eq!(payload, &bytes[8192 * n..8192 * (n + 1)]);
    }
}

#[test]
fn pointers_that_do_not_fit_stand_in_later_packets() {
    let heap = (0..1000).fold(HeapBuilder::new(1), |heap, n| heap.immediate(0x2000 + n, n));
    let packets = packets(&heap, PacketSize::Whole(1472));
    // 178 pointers fit beside the header and a byte: 1001 with that of the padding need six
    // packets.
    assert_eq!(packets.len(), 6);
    let mut assembler = HeapAssembler::default();
    let mut heaps = Vec::new();
    for packet in packets.iter().rev() {
        assert!(packet.len() <= 1472);
        heaps.extend(assembler.add_packet(packet).expect("a sound packet"));
    }
    let [heap] = &heaps[..] else {
        panic!("{} heaps", heaps.len())
    };
    assert!(heap.items().map(|item| item.id).eq(0x2000..0x2000 + 1000));
    assert_eq!(heap.immediate(0x2000 + 777), Some(777));
}

#[test]
fn every_rule_of_a_heap_has_its_error() {
    let size = PacketSize::Whole(1472);
    let new = HeapBuilder::new;
    assert_eq!(
        error(&new(1 << 48), size),
        HeapError::HeapCountTooLarge {
            heap_count: 1 << 48
        }
    );
    assert_eq!(
        error(&new(1).immediate(0x8000, 0), size),
        HeapError::IdTooLarge { id: 0x8000 }
    );
    for id in 0..=5 {
        assert_eq!(
            error(&new(1).immediate(id, 0), size),
            HeapError::IdReserved { id }
        );
    }
    assert_eq!(
        error(&new(1).addressed(item::NULL, b"padding"), size),
        HeapError::IdReserved { id: 0 }
    );
    assert_eq!(
        error(&new(1).immediate(0x1600, 0).addressed(0x1600, b"0"), size),
        HeapError::IdRepeated { id: 0x1600 }
    );
    assert_eq!(
        error(&new(1).immediate(0x1600, 1 << 48), size),
        HeapError::ValueTooLarge {
            id: 0x1600,
            value: 1 << 48
        }
    );
}

/// numpy's arrays have a length: receivers would take 0 for it.
#[test]
fn a_type_of_numpys_has_no_axis_of_variable_length() {
    let id = 0x1700;
    let mut descriptor = Descriptor::array(id, "power", "", &[2], "<f4");
    descriptor.shape.push(None);
    let refused = error(
        &HeapBuilder::new(1).descriptor(&descriptor),
        PacketSize::Whole(1472),
    );
    assert_eq!(refused, HeapError::VariableAxis { id });
    descriptor.element = crate::descriptor::ElementType::Format(vec![('f', 32)]);
    let heap = HeapBuilder::new(1).descriptor(&descriptor);
    assert_eq!(packets(&heap, PacketSize::Whole(1472)).len(), 1);
}

/// Each descriptor is read as it was given, or refused.
#[test]
fn descriptors_that_would_be_read_otherwise_are_refused() {
    use crate::descriptor::ElementType;
    let id = 0x1700;
    let refused = |change: fn(&mut Descriptor)| {
        let mut descriptor = Descriptor::array(id, "power", "", &[2], "<f4");
        change(&mut descriptor);
        let heap = HeapBuilder::new(1).descriptor(&descriptor);
        heap.packets(PacketSize::Whole(1472)).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|it| it.shape = vec![Some((1 << 48) - 1)]), None);
    assert_eq!(
        refused(|it| it.shape = vec![Some(1 << 48)]),
        Some(HeapError::AxisTooLong {
            id,
            length: 1 << 48
        })
    );
    assert_eq!(
        refused(|it| it.id = 0x8000),
        Some(HeapError::IdTooLarge { id: 0x8000 })
    );
    assert_eq!(refused(|it| it.description = "x".repeat(8000)), None);
    let long = refused(|it| it.description = "x".repeat(10_000));
    assert!(
        matches!(
            long,
            Some(HeapError::DescriptorTooLong {
                bytes: 10_001..,
                ..
            })
        ),
        "{long:?}"
    );
    let unreadable = Some(HeapError::ElementType { id });
    assert_eq!(
        refused(|it| it.element = ElementType::Format(vec![('u', 8)])),
        None
    );
    assert_eq!(
        refused(|it| it.element = ElementType::Format(vec![('\u{175}', 8)])),
        unreadable
    );
    assert_eq!(
        refused(|it| it.element = ElementType::Format(Vec::new())),
        unreadable
    );
    let quoted = |it: &mut Descriptor| {
        it.element = ElementType::Numpy {
            descr: "<f4', 'fortran_order': True, 'x': '".to_owned(),
            fortran_order: false,
        };
    };
    assert_eq!(refused(quoted), unreadable);
}

#[test]
fn packet_sizes_leave_room_for_pointers_and_payload() {
    let one = HeapBuilder::new(1).addressed(0x1600, b"bytes");
    let too_small = |packet, least, repeats| HeapError::PacketSize {
        packet,
        least,
        repeats,
    };
    assert_eq!(error(&one, PacketSize::Whole(48)), too_small(48, 49, false));
    // One byte beside the pointer, then the other four.
    assert_eq!(packets(&one, PacketSize::Whole(49)).len(), 2);
    assert_eq!(
        error(&one, PacketSize::Payload(0)),
        too_small(48, 49, false)
    );
    assert_eq!(packets(&one, PacketSize::Payload(1)).len(), 5);
    for size in [PacketSize::Whole(9201), PacketSize::Payload(9153)] {
        assert!(matches!(
            error(&one, size),
            HeapError::PacketSize { packet: 9201, .. }
        ));
    }
    assert_eq!(packets(&one, PacketSize::Payload(9152)).len(), 1);
    assert!(matches!(
        error(&one, PacketSize::Payload(usize::MAX)),
        HeapError::PacketSize {
            packet: usize::MAX,
            ..
        }
    ));

    let two = HeapBuilder::new(1)
        .immediate(0x1600, 1)
        .repeat_pointers(true);
    // The byte of padding needs a pointer as well.
    let repeated = error(&two, PacketSize::Whole(56));
    assert_eq!(repeated, too_small(56, 57, true));
    assert!(
        repeated
            .to_string()
            .ends_with("or do not repeat item pointers")
    );
    assert_eq!(packets(&two, PacketSize::Whole(57)).len(), 1);
}

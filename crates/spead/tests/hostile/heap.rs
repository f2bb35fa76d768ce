//! Packets that nobody should send, put together to heaps: for the fuzz target, for the test of its
//! corpus, and for generated packets.

use spead::{AssemblerLimits, DescriptorTable, Heap, HeapAssembler, ItemContent};

/// Bounds that a few packets reach.
const LIMITS: AssemblerLimits = AssemblerLimits {
    open_heaps: 3,
    heap_bytes: 4096,
    items: 64,
    remembered_heaps: 4,
};

/// Reads bytes as packets, each behind its length in two bytes, and interprets the heaps that they
/// make.
///
/// # Panics
///
/// If a bound or a count does not hold.
pub fn read(bytes: &[u8]) {
    let (mut assembler, mut table) = (HeapAssembler::new(LIMITS), DescriptorTable::default());
    let mut rest = bytes;
    while let Some((length, more)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(more.len());
        let (packet, after) = more.split_at(length);
        rest = after;
        match assembler.add_packet(packet) {
            Ok(heap) => heap.iter().for_each(|heap| interpret(heap, &mut table)),
            Err(error) => assert!(!error.cause().is_empty() && !error.to_string().is_empty()),
        }
        assert!(assembler.open_heaps() <= LIMITS.open_heaps);
    }
    assembler.forget_heaps();
    let counts = assembler.counts();
    let single = counts.duplicate_packets + counts.late_packets + counts.rejected_packets;
    assert!(single + counts.heaps + counts.incomplete_heaps <= counts.packets);
}

fn interpret(heap: &Heap, table: &mut DescriptorTable) {
    assert!(heap.payload().len() <= LIMITS.heap_bytes);
    if let Err(error) = table.learn(heap) {
        assert!(!error.cause().is_empty());
    }
    let mut bytes = 0;
    for item in heap.items() {
        if let ItemContent::Addressed(content) = item.content {
            bytes += content.len();
        }
        match table.interpret(&item) {
            Ok(array) => assert_eq!(array.values().count(), array.len()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    // Items share no bytes.
    assert!(bytes <= heap.payload().len());
}

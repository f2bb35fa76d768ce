//! Everything that can be asked of bytes from the network, asked: the body of the fuzz target and
//! of its corpus test.

use crate::descriptor::parse_heap;
use crate::packet::{Header, Packet};
use crate::{DigitiserHeap, DigitiserRepr, SpectraRepr, StopRepr};

/// Reads bytes as a packet, as a digitiser heap, as spectra and as descriptors.
///
/// # Panics
///
/// Where two ways of reading the same bytes disagree.
pub fn packet(bytes: &[u8]) {
    let packet = Packet::new_checked(bytes);
    let heap = DigitiserHeap::new_checked(bytes);
    if let Ok(heap) = &heap {
        let packet = packet.as_ref().expect("a heap is a packet");
        assert_eq!(packet.payload(), heap.payload());
        assert_eq!(packet.heap_length(), Some(heap.heap_length() as u64));
        assert!(heap.pol() < 2);
        let _ = (heap.heap_count(), heap.saturated(), heap.stream_control());
        let _ = DigitiserRepr::parse(heap);
    }
    let Ok(packet) = packet else {
        let _ = heap.map_err(|error| (error.cause(), error.to_string()));
        return;
    };
    let items: usize = packet.items().count();
    let spans: Vec<_> = packet.addressed().collect();
    assert!(spans.len() <= items);
    assert!(
        spans
            .iter()
            .all(|(_, bytes)| bytes.len() <= packet.payload().len())
    );
    let _ = (
        Header::parse(&packet),
        SpectraRepr::parse(&packet),
        StopRepr::parse(&packet),
    );
    for descriptor in parse_heap(&packet).flatten() {
        let _ = descriptor.emit();
    }
}

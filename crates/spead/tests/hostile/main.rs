//! Bytes that nobody should send.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use spead::{Descriptor, HeapBuilder, PacketSize};

mod heap;
mod packet;

/// Packets of two heaps with descriptors, one of them in several packets.
fn packets() -> Vec<Vec<u8>> {
    let bytes = [0x5a; 700];
    let first = Descriptor::digitiser(400, 12)
        .iter()
        .fold(HeapBuilder::new(1), HeapBuilder::descriptor)
        .immediate(0x1600, 4096)
        .immediate(0x3101, 1)
        .addressed(0x3300, &bytes);
    let second = HeapBuilder::new(2)
        .descriptor(&Descriptor::array(0x1700, "power", "", &[2, 8], "<f4"))
        .addressed(0x1700, &bytes[..64]);
    let cut = |heap: &HeapBuilder<'_>| -> Vec<Vec<u8>> {
        heap.packets(PacketSize::Whole(600))
            .expect("a heap")
            .collect()
    };
    [cut(&first), cut(&second)].concat()
}

/// The packets as bytes, each behind its length.
fn framed<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let frame = |packet: &Vec<u8>| [&(packet.len() as u16).to_be_bytes(), &packet[..]].concat();
    packets.into_iter().flat_map(frame).collect()
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..256)) {
        packet::read(&bytes);
        heap::read(&bytes);
    }

    #[test]
    fn arbitrary_pointers_never_panic(words in vec(any::<u64>(), 0..16), tail in 0..64usize) {
        let mut bytes = (0x5304_0206_0000_0000 | words.len() as u64).to_be_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes.resize(bytes.len() + tail, 0x5a);
        packet::read(&bytes);
        heap::read(&framed([&bytes]));
    }

    /// Real packets, of which some have other bytes, come in any order, twice or not at all.
    #[test]
    fn damaged_packets_never_panic(
        order in vec(any::<Index>(), 1..24),
        damage in vec((any::<Index>(), any::<Index>(), any::<u8>()), 0..12),
    ) {
        let whole = packets();
        let mut sent: Vec<Vec<u8>> = order.iter().map(|n| n.get(&whole).clone()).collect();
        for (packet, byte, value) in damage {
            let place = packet.index(sent.len());
            // Half of the damage is in the first 80 bytes: header, pointers, descriptors.
            let reach = sent[place].len().min(if value & 1 == 0 { 80 } else { usize::MAX });
            sent[place][byte.index(reach)] = value;
        }
        sent.iter().for_each(|bytes| packet::read(bytes));
        heap::read(&framed(&sent));
    }
}

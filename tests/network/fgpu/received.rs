//! What an engine has multicast, heap by heap.

use std::collections::{BTreeMap, BTreeSet};

use spead::{Packet, SpectraRepr, StopRepr, descriptor};

use super::rig::BATCH;

/// What came out of the engine.
#[derive(Default)]
pub struct Received {
    /// Bytes of each heap, by timestamp and first channel.
    heaps: BTreeMap<(u64, u64), Vec<Option<i8>>>,
    pub heap_counts: BTreeSet<u64>,
    /// Number of the interface that each substream comes from, by its first channel.
    pub interfaces: BTreeMap<u64, usize>,
    /// Bytes of all datagrams with parts of them.
    pub heap_bytes: u64,
    pub descriptors: u64,
    pub stops: u64,
    /// All datagrams, with the UDP port that they came from.
    pub datagrams: BTreeSet<(u16, Vec<u8>)>,
}

impl Received {
    /// Takes a datagram that came through interface k0 or k1.
    pub fn packet(&mut self, interface: usize, bytes: &[u8]) {
        let packet = Packet::new_checked(bytes).expect("SPEAD");
        self.heap_counts.insert(packet.heap_count());
        if let Some(repr) = SpectraRepr::parse(&packet).expect("consistent") {
            assert_eq!(repr.feng_id, 3);
            self.heap_bytes += bytes.len() as u64;
            let channel = repr.first_channel;
            assert_eq!(
                *self.interfaces.entry(channel).or_insert(interface),
                interface
            );
            let heap = self.heaps.entry((repr.timestamp, repr.first_channel));
            let heap = heap.or_insert_with(|| vec![None; repr.heap_length as usize]);
            let room = &mut heap[repr.payload_offset as usize..];
            for (byte, &value) in room.iter_mut().zip(packet.payload()) {
                assert!(byte.replace(value as i8).is_none(), "sent twice");
            }
        } else if StopRepr::parse(&packet).is_some() {
            self.stops += 1;
        } else {
            assert_eq!(
                descriptor::parse_heap(&packet)
                    .filter(Result::is_ok)
                    .count(),
                4
            );
            self.descriptors += 1;
        }
    }

    /// The batches that are whole, in wire layout.
    pub fn batches(&self) -> BTreeMap<u64, Vec<i8>> {
        let mut batches: BTreeMap<u64, Vec<i8>> = BTreeMap::new();
        for ((timestamp, _), heap) in &self.heaps {
            let bytes: Option<Vec<i8>> = heap.iter().copied().collect();
            batches
                .entry(*timestamp)
                .or_default()
                .extend(bytes.unwrap_or_default());
        }
        batches.retain(|_, batch| batch.len() as u64 == BATCH / 2 * 4);
        batches
    }

    /// Timestamp behind the last whole batch.
    pub fn end(&self) -> Option<u64> {
        self.batches().keys().last().map(|last| last + BATCH)
    }
}

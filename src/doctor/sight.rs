//! Sorts frames: what is in them, from where, to where.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use spead::{DigitiserHeap, Packet, SpectraRepr};

use super::evidence::{Flow, FlowKey, Wire};
use crate::net::igmp::Message;
use crate::net::{Datagram, FrameError};
use crate::recv::DropCause;

/// Flows that there is room for: what more come from somewhere are no digitisers. As many senders
/// of fragments, and queriers.
const FLOWS: usize = 4096;
/// Bytes of Ethernet and IPv4 headers without tag and options.
const HEADERS: usize = 34;

/// The group that the doctor asks for itself, to see whether IGMP gets through. This host is no
/// member of it, and so has no answer.
pub(super) const PROBED: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 254);

/// Takes in frames.
#[derive(Debug, Default)]
pub struct Sight {
    wire: Wire,
    flows: BTreeMap<FlowKey, usize>,
    /// Digitisers' destinations. Of heaps to others the number is enough: timestamps of all that a
    /// busy interface sees would fill the memory.
    expected: BTreeSet<SocketAddrV4>,
}

impl Sight {
    /// None yet, of an engine whose heaps should come to `expected`.
    pub fn of(expected: &[SocketAddrV4]) -> Self {
        Self {
            expected: expected.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Takes in a frame that came to `interface` at a UNIX time, its tag taken off by the kernel.
    pub fn note(&mut self, interface: &str, vlan: Option<u16>, frame: &[u8], unix: f64) {
        self.wire.frames += 1;
        let datagram = match Datagram::new_checked(frame) {
            Ok(datagram) => datagram,
            Err(FrameError::Fragment) => return self.note_fragment(interface, frame),
            // What is tagged for a VLAN is not for this interface's own address; a tag of VLAN 0
            // has a priority alone.
            Err(FrameError::NotUdp(_)) if matches!(vlan, None | Some(0)) => {
                return self.note_igmp(interface, frame);
            }
            Err(_) => return,
        };
        let key = FlowKey {
            interface: interface.to_owned(),
            vlan,
            src: *datagram.src().ip(),
            dst: datagram.dst(),
        };
        let index = match self.flows.get(&key) {
            Some(&index) => index,
            None if self.flows.len() == FLOWS => {
                self.wire.further += 1;
                return;
            }
            None => {
                self.flows.insert(key.clone(), self.wire.flows.len());
                self.wire.flows.push(Flow::new(key));
                self.wire.flows.len() - 1
            }
        };
        let is_expected = self.expected.contains(&datagram.dst());
        let flow = &mut self.wire.flows[index];
        sort(flow, datagram.payload(), unix, is_expected);
    }

    fn note_fragment(&mut self, interface: &str, frame: &[u8]) {
        if let Some((src, dst)) = addresses(frame) {
            let key = (interface.to_owned(), src, dst);
            let known = count(&mut self.wire.fragments, key);
            self.wire.further += u64::from(!known);
        }
    }

    /// Takes in questions about all groups, which every host is to hear. Others are sent to their
    /// group, for its members: switches may show them to hosts that are not members.
    fn note_igmp(&mut self, interface: &str, frame: &[u8]) {
        if let (Ok(Message::Query { group: None, .. }), Some((src, _))) =
            (Message::parse(frame), addresses(frame))
        {
            let key = (interface.to_owned(), src);
            count(&mut self.wire.queries, key);
        }
    }

    /// All that was taken in.
    pub fn into_wire(self) -> Wire {
        self.wire
    }
}

/// Counts one of a kind, if there is room for that kind.
fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) -> bool {
    let room = counts.len() < FLOWS;
    match counts.entry(key) {
        Entry::Occupied(mut entry) => *entry.get_mut() += 1,
        Entry::Vacant(entry) if room => _ = entry.insert(1),
        Entry::Vacant(_) => return false,
    }
    true
}

/// Source and destination of an IPv4 packet in an untagged frame.
fn addresses(frame: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let header = frame.get(..HEADERS)?;
    let address = |at: usize| {
        let octets: [u8; 4] = header[at..at + 4].try_into().ok()?;
        Some(Ipv4Addr::from(octets))
    };
    Some((address(HEADERS - 8)?, address(HEADERS - 4)?))
}

/// Finds out what a datagram is.
fn sort(flow: &mut Flow, payload: &[u8], unix: f64, is_expected: bool) {
    flow.datagrams += 1;
    let packet = match Packet::new_checked(payload) {
        Ok(packet) => packet,
        Err(error) => {
            *flow.foreign.entry(DropCause::from(&error)).or_default() += 1;
            return;
        }
    };
    if let Ok(Some(_)) = SpectraRepr::parse(&packet) {
        flow.spectra += 1;
        return;
    }
    match DigitiserHeap::new_checked(payload) {
        Ok(heap) => match heap.timestamp() {
            Some(timestamp) if heap.heap_length() > 0 => {
                let pol = &mut flow.pols[heap.pol()];
                match is_expected {
                    true => pol.note(timestamp, heap.heap_length(), unix),
                    false => pol.count += 1,
                }
            }
            _ => flow.metadata += 1,
        },
        Err(_) => flow.parts += 1,
    }
}

#[cfg(test)]
mod tests {
    use spead::digitiser::PREAMBLE_LEN;
    use spead::stop::STOP_LEN;
    use spead::{DigitiserRepr, StopRepr};

    use super::*;
    use crate::net::frame::HEADERS_LEN;
    use crate::net::igmp::{Version, query};
    use crate::net::{HeaderTemplate, MacAddr};

    fn frame(dst: &str, payload: &[u8]) -> Vec<u8> {
        let src = "10.0.0.1:5000".parse().unwrap();
        let dst: SocketAddrV4 = dst.parse().unwrap();
        let mac = MacAddr::default();
        let mut frame = vec![0; HEADERS_LEN];
        let headers = frame.first_chunk_mut().unwrap();
        HeaderTemplate::new(mac, mac, src, dst, 4).emit(payload.len(), headers);
        frame.extend_from_slice(payload);
        frame
    }

    fn heap(timestamp: u64, pol: u64, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; PREAMBLE_LEN + bytes];
        DigitiserRepr {
            heap_count: 7,
            timestamp,
            digitiser_id: pol,
            saturated: 0,
            payload_length: bytes,
        }
        .emit(packet.first_chunk_mut().unwrap());
        packet
    }

    #[test]
    fn frames_are_sorted_by_what_is_in_them() {
        let mut sight = Sight::of(&["239.1.0.1:7148".parse().unwrap()]);
        let mut note = |dst: &str, payload: &[u8], unix: f64| {
            sight.note("k0", None, &frame(dst, payload), unix);
        };
        note("239.1.0.1:7148", &heap(4096, 0, 5120), 10.0);
        note("239.1.0.1:7148", &heap(8192, 0, 5120), 10.5);
        note("239.1.0.1:7148", &heap(8192, 0, 4096), 10.6);
        note("239.1.0.1:7148", &heap(8192, 1, 5120), 10.6);
        let mut stop = [0; STOP_LEN];
        StopRepr { heap_count: 9 }.emit(&mut stop);
        note("239.1.0.1:7148", &stop, 11.0);
        note("239.1.0.1:7148", b"no SPEAD at all", 11.0);
        note("239.1.0.2:7148", &heap(0, 0, 16), 11.0);
        let mut fragment = frame("239.1.0.3:7148", b"half");
        fragment[20] = 0x20;
        sight.note("k0", None, &fragment, 11.0);
        sight.note("k0", Some(5), &frame("239.1.0.2:7148", b""), 11.0);
        sight.note("k0", None, &[0; 60], 11.0);
        let wire = sight.into_wire();
        assert_eq!((wire.frames, wire.flows.len()), (10, 3));
        let flow = &wire.flows[0];
        assert_eq!((flow.datagrams, flow.heaps(), flow.metadata), (6, 4, 1));
        assert_eq!(flow.foreign.values().sum::<u64>(), 1);
        let [pol0, pol1] = &flow.pols;
        assert_eq!((pol0.count, pol1.count, pol0.repeats), (3, 1, 1));
        assert_eq!(pol0.sizes, BTreeMap::from([(4096, 1), (5120, 2)]));
        assert_eq!(pol0.span, Some([(4096, 10.0), (8192, 10.6)]));
        assert_eq!(wire.flows[2].key.vlan, Some(5));
        let fragments: Vec<_> = wire.fragments.into_iter().collect();
        let from = Ipv4Addr::new(10, 0, 0, 1);
        let to = Ipv4Addr::new(239, 1, 0, 3);
        assert_eq!(fragments, [(("k0".to_owned(), from, to), 1)]);
    }

    #[test]
    fn what_this_host_need_not_hear_is_no_querier() {
        let mut sight = Sight::default();
        let from = |last| (MacAddr::default(), Ipv4Addr::new(10, 0, 0, last));
        let another = Ipv4Addr::new(239, 1, 2, 3);
        for (vlan, group, last) in [
            (None, Some(PROBED), 1),
            (None, Some(another), 2),
            (Some(20), None, 3),
            (None, None, 4),
            (Some(0), None, 4),
        ] {
            let frame = query(Version::V3, group, 100, from(last));
            sight.note("k0", vlan, &frame, 1.0);
        }
        let queries = sight.into_wire().queries;
        assert_eq!(queries, [(("k0".to_owned(), from(4).1), 2)].into());
    }

    /// As those of all antennas on a busy interface.
    #[test]
    fn heaps_that_are_sent_to_others_are_counted_alone() {
        let mut sight = Sight::of(&["239.1.0.1:7148".parse().unwrap()]);
        for timestamp in 1..100 {
            let heap = heap(4096 * timestamp, 1, 5120);
            for dst in ["239.1.0.1:7148", "239.1.0.1:7149", "239.1.0.2:7148"] {
                sight.note("k0", None, &frame(dst, &heap), timestamp as f64);
            }
        }
        let wire = sight.into_wire();
        let kept = wire.flows.iter().map(|flow| {
            let pol = &flow.pols[1];
            (pol.count, pol.timestamps.len(), pol.sizes.len())
        });
        let kept: Vec<_> = kept.collect();
        assert_eq!(kept, [(99, 99, 1), (99, 0, 0), (99, 0, 0)]);
    }

    #[test]
    fn no_number_of_senders_fills_the_memory() {
        let mut sight = Sight::default();
        for number in 0..FLOWS + 10 {
            let port = 1000 + number % 60000;
            sight.note("k0", None, &frame(&format!("239.1.0.1:{port}"), b"x"), 1.0);
        }
        let wire = sight.into_wire();
        assert_eq!((wire.flows.len(), wire.further), (FLOWS, 10));
    }

    #[test]
    fn no_number_of_fragments_and_queriers_fills_the_memory() {
        let mut sight = Sight::default();
        // A query of IGMPv2 for all groups.
        let query = [0x11, 100, 0xee, 0x9b, 0, 0, 0, 0];
        for number in 0..FLOWS as u32 + 10 {
            let mut fragment = frame("239.1.0.3:7148", b"half");
            fragment[20] = 0x20;
            fragment[26..30].copy_from_slice(&number.to_be_bytes());
            sight.note("k0", None, &fragment, 1.0);
            let mut asked = fragment[..HEADERS].to_vec();
            asked[16..18].copy_from_slice(&28u16.to_be_bytes());
            (asked[20], asked[23]) = (0, 2);
            asked.extend_from_slice(&query);
            sight.note("k0", None, &asked, 1.0);
        }
        let wire = sight.into_wire();
        assert_eq!((wire.fragments.len(), wire.queries.len()), (FLOWS, FLOWS));
        assert_eq!(wire.further, 10);
        assert!(wire.fragments.values().all(|count| *count == 1));
    }
}

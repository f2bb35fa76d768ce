//! What one output stream sends, packet by packet.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use ground::Timestamp;
use spead::spectra::PREAMBLE_LEN;
use spead::stop::STOP_LEN;
use spead::{Descriptor, IMMEDIATE_MASK, SpectraRepr, StopRepr, descriptor, item};

use crate::config::{EngineConfig, OutputConfig};
use crate::net::frame::{HEADERS_LEN, HeaderTemplate, MacAddr};

/// Seconds between descriptors, per F-engine of the array.
const DESCRIPTOR_INTERVAL: f64 = 5.0;

/// Bytes in front of a data packet's payload.
pub const HEADER_BYTES: usize = HEADERS_LEN + PREAMBLE_LEN;

/// Timestamp in the headers of a data packet that a [`Packetiser`] made; `None` for its other
/// packets.
pub fn data_timestamp(headers: &[u8]) -> Option<Timestamp> {
    const TIMESTAMP: usize = HEADERS_LEN + 40;
    if headers.len() != HEADER_BYTES {
        return None;
    }
    let word = u64::from_be_bytes(headers.get(TIMESTAMP..)?.first_chunk().copied()?);
    (word >> 48 == 0x8000 | item::TIMESTAMP).then_some(Timestamp(word & IMMEDIATE_MASK))
}

/// Where packets say that they come from.
#[derive(Clone, Copy, Debug)]
pub struct SourceAddress {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IPv4 address.
    pub ip: Ipv4Addr,
    /// UDP port of the first output; each output has its own.
    pub port: u16,
}

/// Heap counts of one stream: they start at the F-engine's number and step by the size of the
/// array, so that engines never collide. Every heap takes one, in the order in which heaps are
/// handed out.
#[derive(Clone, Debug)]
pub struct HeapCounts {
    next: u64,
    step: u64,
}

impl HeapCounts {
    const MASK: u64 = (1 << 48) - 1;

    /// Counts of F-engine `feng_id` in an array of `array_size`, through its `interface`th send
    /// interface.
    pub fn new(feng_id: u64, array_size: u64, interface: usize) -> Self {
        Self {
            next: ((interface as u64) << 40).wrapping_add(feng_id) & Self::MASK,
            step: array_size,
        }
    }

    /// The count of the `ahead`th heap from here.
    fn peek(&self, ahead: usize) -> u64 {
        self.next.wrapping_add(self.step.wrapping_mul(ahead as u64)) & Self::MASK
    }

    /// Takes `heaps` counts.
    fn take(&mut self, heaps: usize) {
        self.next = self.peek(heaps);
    }
}

/// One output stream's packets.
#[derive(Clone, Debug)]
pub struct Packetiser {
    config: OutputConfig,
    feng_id: u64,
    packet_payload: usize,
    counts: HeapCounts,
    /// One per substream.
    templates: Vec<HeaderTemplate>,
    /// Substreams whose data heaps take counts: those of the interface.
    block: Range<usize>,
    /// Substreams whose descriptors and stop heaps take counts: all, through the first interface.
    control: Range<usize>,
    /// Which substreams of `block` and `control` are sent: the first, and the step to the next.
    share: (usize, usize),
    /// Bytes of UDP payload per second, all substreams.
    rate: f64,
    /// ADC samples from the first batch to the second descriptors, and from then on.
    descriptor_steps: [f64; 2],
    /// Timestamp from which the next descriptors are due; `None` before the first batch.
    descriptors_at: Option<f64>,
    descriptors: Vec<Descriptor>,
}

impl Packetiser {
    /// The packets of output `index` of an engine.
    pub fn new(config: &EngineConfig, index: usize, source: SourceAddress) -> Self {
        let output = config.outputs[index].clone();
        let from = SocketAddrV4::new(source.ip, source.port.wrapping_add(index as u16));
        let template = |dst: SocketAddrV4| {
            HeaderTemplate::multicast(source.mac, from, dst, config.send.ttl)
                .expect("destinations are multicast groups, or the configuration is refused")
        };
        let interval = DESCRIPTOR_INTERVAL * config.clock.adc_sample_rate;
        let (channels, spectra) = (output.channels_per_substream(), output.spectra_per_heap());
        let bits = output.sample_bits.get() as u16;
        let all = 0..output.dst.len();
        Self {
            rate: rate(config, &output),
            feng_id: config.feng_id,
            packet_payload: config.send.packet_payload,
            counts: HeapCounts::new(config.feng_id, config.array_size, 0),
            templates: output.dst.iter().map(|&dst| template(dst)).collect(),
            descriptor_steps: [config.feng_id + 1, config.array_size].map(|n| n as f64 * interval),
            descriptors_at: None,
            block: all.clone(),
            control: all,
            share: (0, 1),
            descriptors: Descriptor::spectra(channels as u64, spectra as u64, bits),
            config: output,
        }
    }

    /// The packets that go through the `index`th of `of` interfaces: data of a contiguous block of
    /// substreams, and through the first all descriptors and stop heaps. Each interface counts its
    /// own heaps. For a packetiser of all substreams.
    pub fn through(&self, index: usize, of: usize) -> Self {
        let all = self.templates.len();
        let mut through = self.clone();
        through.block = index * all / of..(index + 1) * all / of;
        if index > 0 {
            through.control = 0..0;
            through.counts.next =
                self.counts.next.wrapping_add((index as u64) << 40) & HeapCounts::MASK;
        }
        through
    }

    /// The packets of every `of`th substream from `index` on. Heap counts are those of the whole
    /// stream, so that `of` shares together send what one packetiser would.
    pub fn share(&self, index: usize, of: usize) -> Self {
        Self {
            share: (index, of),
            ..self.clone()
        }
    }

    /// Positions, within `substreams`, of the substreams that this packetiser sends.
    fn shared(&self, substreams: &Range<usize>) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (first, step) = self.share;
        (first..substreams.len()).step_by(step)
    }

    /// Bytes of UDP payload per second that keep up with real time.
    pub fn rate(&self) -> f64 {
        self.rate * self.shared(&self.block).len() as f64 / self.templates.len() as f64
    }

    /// The stream's configuration.
    pub fn config(&self) -> &OutputConfig {
        &self.config
    }

    /// Whether descriptors are to be repeated before the batch at `timestamp`: F + 1 intervals
    /// after the first batch, then every A intervals, in sample time.
    pub fn descriptors_due(&mut self, timestamp: Timestamp) -> bool {
        if self.control.is_empty() {
            return false;
        }
        let now = timestamp.0 as f64;
        let [first, repeat] = self.descriptor_steps;
        let at = self.descriptors_at.get_or_insert(now + first);
        let due = now >= *at;
        if due {
            // After a gap, once for all the times that fell into it.
            *at += repeat * ((now - *at) / repeat).floor() + repeat;
        }
        due
    }

    /// Frames of a descriptor heap for every substream that is sent.
    pub fn descriptor_frames(&mut self) -> Vec<Vec<u8>> {
        let heaps: Vec<_> = self
            .shared(&self.control)
            .map(|i| descriptor::emit_heap(self.counts.peek(i), &self.descriptors))
            .collect();
        self.control_frames(&heaps)
    }

    /// Frames of a stop heap for every substream that is sent.
    pub fn stop_frames(&mut self) -> Vec<Vec<u8>> {
        let heaps: Vec<_> = self
            .shared(&self.control)
            .map(|i| {
                let mut packet = [0; STOP_LEN];
                StopRepr {
                    heap_count: self.counts.peek(i),
                }
                .emit(&mut packet);
                packet.to_vec()
            })
            .collect();
        self.control_frames(&heaps)
    }

    /// One-packet heaps, one per substream.
    fn control_frames(&mut self, heaps: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.counts.take(self.control.len());
        self.shared(&self.control)
            .zip(heaps)
            .map(|(substream, heap)| {
                let template = &self.templates[substream];
                let mut headers = [0; HEADERS_LEN];
                template.emit(heap.len(), &mut headers);
                [&headers[..], heap].concat()
            })
            .collect()
    }

    /// Packets in a batch, all substreams that are sent.
    pub fn batch_packets(&self) -> usize {
        self.packets_per_heap() * self.shared(&self.block).len()
    }

    fn packets_per_heap(&self) -> usize {
        self.config.heap_bytes().div_ceil(self.packet_payload)
    }

    /// The `index`th packet of the current batch: packet 0 of every substream that is sent, then
    /// packet 1, …
    ///
    /// Writes the headers and returns which bytes of the batch follow them.
    pub fn packet(
        &self,
        timestamp: Timestamp,
        index: usize,
        header: &mut [u8; HEADER_BYTES],
    ) -> Range<usize> {
        let substreams = self.shared(&self.block).len();
        let (packet, nth) = (index / substreams, index % substreams);
        let position = self.share.0 + nth * self.share.1;
        let substream = self.block.start + position;
        let heap_bytes = self.config.heap_bytes();
        let offset = packet * self.packet_payload;
        let length = self.packet_payload.min(heap_bytes - offset);
        let (frame, preamble) = header.split_at_mut(HEADERS_LEN);
        let frame: &mut [u8; HEADERS_LEN] = frame.try_into().expect("split at its length");
        let preamble: &mut [u8; PREAMBLE_LEN] = preamble.try_into().expect("the rest of it");
        self.templates[substream].emit(PREAMBLE_LEN + length, frame);
        SpectraRepr {
            heap_count: self.counts.peek(position),
            heap_length: heap_bytes as u64,
            payload_offset: offset as u64,
            payload_length: length as u64,
            timestamp: timestamp.0,
            feng_id: self.feng_id,
            first_channel: (substream * self.config.channels_per_substream()) as u64,
        }
        .emit(preamble);
        let start = substream * heap_bytes + offset;
        start..start + length
    }

    /// Ends the current batch: its heap counts are used up.
    pub fn finish_batch(&mut self) {
        self.counts.take(self.block.len());
    }
}

/// Bytes of UDP payload, preambles included, that an output makes in a second.
fn rate(config: &EngineConfig, output: &OutputConfig) -> f64 {
    let (heap, payload) = (output.heap_bytes(), config.send.packet_payload);
    let preambles = heap.div_ceil(payload) * PREAMBLE_LEN;
    let heaps =
        config.clock.adc_sample_rate / output.batch_samples() as f64 * output.dst.len() as f64;
    heaps * (heap + preambles) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Datagram;
    use ground::SampleClock;

    /// The configuration of the golden data packet, with two substreams.
    fn packetiser(packet_payload: usize) -> Packetiser {
        let options = "name=w,channels=128,dst=239.10.0.1+1:7148,jones_per_batch=32768";
        let config = crate::config::tests::engine(options, |config| {
            config.clock = SampleClock {
                adc_sample_rate: 1e6,
                sync_time: 0.0,
            };
            config.feng_id = 42;
            config.array_size = 64;
            config.send.packet_payload = packet_payload;
        });
        let source = SourceAddress {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ip: [10, 0, 0, 1].into(),
            port: 50000,
        };
        Packetiser::new(&config, 0, source)
    }

    #[test]
    fn packets_alternate_between_substreams_and_cover_each_heap_once() {
        let mut packetiser = packetiser(8000);
        let mut header = [0; HEADER_BYTES];
        assert_eq!(packetiser.batch_packets(), 18);
        let mut covered = vec![0u8; packetiser.config().batch_bytes()];
        for batch in 0..2 {
            for index in 0..18 {
                let timestamp = Timestamp(0x1234_5678_9abc);
                let range = packetiser.packet(timestamp, index, &mut header);
                let payload = vec![0; range.len()];
                let frame = [&header[..], &payload].concat();
                assert_eq!(data_timestamp(&header), Some(timestamp));
                // Headers alone have one.
                assert_eq!(data_timestamp(&frame), None);
                let datagram = Datagram::new_checked(&frame).unwrap();
                assert_eq!(datagram.dst().ip().octets()[3], 1 + (index % 2) as u8);
                let packet = spead::Packet::new_checked(datagram.payload()).unwrap();
                let repr = SpectraRepr::parse(&packet).unwrap().unwrap();
                assert_eq!(repr.heap_count, 42 + 64 * (2 * batch + index as u64 % 2));
                assert_eq!(repr.first_channel, 64 * (index as u64 % 2));
                assert_eq!((repr.timestamp, repr.feng_id), (0x1234_5678_9abc, 42));
                covered[range].iter_mut().for_each(|count| *count += 1);
            }
            packetiser.finish_batch();
        }
        assert!(covered.iter().all(|&count| count == 2));
    }

    #[test]
    fn every_heap_takes_a_count_of_its_own() {
        let mut packetiser = packetiser(8192);
        let counts = |frames: Vec<Vec<u8>>| -> Vec<u64> {
            frames
                .iter()
                .map(|frame| {
                    let datagram = Datagram::new_checked(frame).unwrap();
                    spead::Packet::new_checked(datagram.payload())
                        .unwrap()
                        .heap_count()
                })
                .collect()
        };
        for frame in packetiser.clone().stop_frames() {
            assert_eq!(data_timestamp(&frame), None);
            // Nor have headers whose item is another one.
            assert_eq!(data_timestamp(&frame.repeat(9)[..HEADER_BYTES]), None);
        }
        assert_eq!(counts(packetiser.descriptor_frames()), [42, 106]);
        packetiser.finish_batch();
        assert_eq!(counts(packetiser.stop_frames()), [298, 362]);
    }

    #[test]
    fn shares_together_send_what_one_packetiser_sends() {
        fn send(packetiser: &mut Packetiser) -> Vec<Vec<u8>> {
            let mut frames = packetiser.descriptor_frames();
            for batch in 0..2 {
                for index in 0..packetiser.batch_packets() {
                    let mut header = [0; HEADER_BYTES];
                    let range = packetiser.packet(Timestamp(batch << 20), index, &mut header);
                    frames.push([&header[..], &range.start.to_be_bytes()].concat());
                }
                packetiser.finish_batch();
            }
            frames.extend(packetiser.stop_frames());
            frames
        }
        let whole = packetiser(8000);
        let mut shared = [0, 1]
            .map(|index| send(&mut whole.share(index, 2)))
            .concat();
        let mut alone = send(&mut whole.clone());
        shared.sort();
        alone.sort();
        assert_eq!(shared, alone);
    }

    /// katgpucbf's blocks and heap counts: interface i starts at i·2^40 + F, and the first sends
    /// all descriptors.
    #[test]
    fn interfaces_divide_the_substreams_in_blocks() {
        let whole = packetiser(8192);
        let mut header = [0; HEADER_BYTES];
        for (interface, first_count) in [(0, 42), (1, (1 << 40) + 42)] {
            let mut through = whole.through(interface, 2);
            let controls = through.descriptor_frames().len();
            assert_eq!(controls, if interface == 0 { 2 } else { 0 });
            assert_eq!(through.batch_packets(), 8);
            assert_eq!(through.rate(), whole.rate() / 2.0);
            for batch in 0..2 {
                let range = through.packet(Timestamp(0), 7, &mut header);
                assert_eq!(
                    range,
                    interface * 65536 + 7 * 8192..interface * 65536 + 65536
                );
                let preamble = [&header[HEADERS_LEN..], &[0; 8192]].concat();
                let packet = spead::Packet::new_checked(&preamble).unwrap();
                let repr = SpectraRepr::parse(&packet).unwrap().unwrap();
                assert_eq!(repr.first_channel, 64 * interface as u64);
                assert_eq!(
                    repr.heap_count,
                    first_count + 64 * (controls as u64 + batch)
                );
                through.finish_batch();
            }
        }
    }

    /// As katgpucbf computes it: 1712 MHz, 8 KiB packets.
    #[test]
    fn the_rate_counts_preambles() {
        let options = "name=w,channels=1024,dst=239.10.0.1+63:7148";
        let config = crate::config::tests::engine(options, |_| {});
        let source = SourceAddress {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ip: [10, 0, 0, 1].into(),
            port: 50000,
        };
        let rate = 1.1 * Packetiser::new(&config, 0, source).rate();
        assert!((rate / 3.7995e9 - 1.0).abs() < 1e-4, "{rate}");
    }

    #[test]
    fn descriptors_repeat_in_sample_time() {
        let mut packetiser = packetiser(8192);
        let second = 1_000_000;
        let due: Vec<u64> = (0..1000)
            .filter(|&s| packetiser.descriptors_due(Timestamp(s * second)))
            .collect();
        // (42 + 1) × 5 s after the first batch, then every 64 × 5 s.
        assert_eq!(due, [215, 535, 855]);
        // After a gap they are sent once, and the deadlines stay where they were: 215 + 320·n.
        let due: Vec<u64> = (5000..6000)
            .filter(|&s| packetiser.descriptors_due(Timestamp(s * second)))
            .collect();
        assert_eq!(due, [5000, 5015, 5335, 5655, 5975]);
    }
}

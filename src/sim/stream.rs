//! Heaps of a digitiser, put into packets, and those into a capture.

use std::net::{Ipv4Addr, SocketAddrV4};

use spead::descriptor::{Descriptor, emit_heap};
use spead::digitiser::PREAMBLE_LEN;
use spead::{DigitiserRepr, IMMEDIATE_MASK};

use super::config::{DigitiserConfig, SimError};
use super::faults::SimHeap;
use super::window::Windows;
use crate::net::frame::{HEADERS_LEN, HeaderTemplate, MacAddr};
use crate::net::{CaptureError, CaptureWriter};

/// Seconds of sample time between descriptor heaps.
const DESCRIPTOR_SECONDS: f64 = 5.0;

/// First source address of a capture; further polarisations follow. From TEST-NET-1 (RFC 5737).
const SOURCE: [u8; 4] = [192, 0, 2, 1];
const DATA_PORT: u16 = 49152;
const DESCRIPTOR_PORT: u16 = 49153;
const SOURCE_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 1]);
/// Where a destination is not a multicast group.
const UNICAST_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 2]);

/// Where frames say that they come from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IPv4 address of the first polarisation.
    pub ip: Ipv4Addr,
    /// What is added to it for each further one.
    pub step: u8,
}

impl Origin {
    /// What captures say: addresses that are nobody's.
    pub const CAPTURE: Self = Self {
        mac: SOURCE_MAC,
        ip: Ipv4Addr::new(SOURCE[0], SOURCE[1], SOURCE[2], SOURCE[3]),
        step: 1,
    };

    fn template(&self, pol: usize, port: u16, dst: SocketAddrV4, ttl: u8) -> HeaderTemplate {
        let [a, b, c, d] = self.ip.octets();
        let d = d.wrapping_add(self.step.wrapping_mul(pol as u8));
        let src = SocketAddrV4::new([a, b, c, d].into(), port);
        HeaderTemplate::multicast(self.mac, src, dst, ttl)
            .unwrap_or_else(|| HeaderTemplate::new(self.mac, UNICAST_MAC, src, dst, ttl))
    }
}

/// Heaps in the order they are sent: all polarisations of one time, then those of the next.
pub fn heaps(pols: usize, per_pol: u64) -> impl Iterator<Item = SimHeap> + use<> {
    (0..per_pol).flat_map(move |index| (0..pols).map(move |pol| SimHeap::new(index, pol)))
}

/// Heaps to UDP payloads and their headers.
pub struct Packets {
    first_timestamp: u64,
    heap_samples: u64,
    first_id: u64,
    templates: Vec<Vec<HeaderTemplate>>,
    descriptors: Vec<Descriptor>,
    /// Descriptors go to the first address alone, from a port of their own.
    descriptor_template: Option<HeaderTemplate>,
    /// Samples from one descriptor heap to the next.
    descriptor_step: f64,
    /// How many of these heaps were sent, and the sample from which on the next is due.
    descriptor_heaps: u64,
    descriptors_from: f64,
}

impl Packets {
    /// The packets of `config`, from `origin`.
    pub fn new(config: &DigitiserConfig, origin: Origin) -> Self {
        let of = |(pol, dests): (usize, &Vec<SocketAddrV4>)| {
            let template = |dst: &_| origin.template(pol, DATA_PORT, *dst, config.ttl);
            dests.iter().map(template).collect()
        };
        let first = config.dests.iter().flatten().next();
        let (samples, bits) = (config.heap_samples as u64, config.sample_bits.get() as u16);
        Self {
            first_timestamp: config.first_timestamp,
            heap_samples: samples,
            first_id: config.first_id,
            templates: config.dests.iter().enumerate().map(of).collect(),
            descriptors: Descriptor::digitiser(samples, bits),
            descriptor_template: first
                .map(|dst| origin.template(0, DESCRIPTOR_PORT, *dst, config.ttl)),
            descriptor_step: DESCRIPTOR_SECONDS * config.clock.adc_sample_rate,
            descriptor_heaps: 0,
            descriptors_from: 0.0,
        }
    }

    /// Headers of the frame that `heap` goes in.
    pub fn template(&self, heap: SimHeap) -> &HeaderTemplate {
        let templates = &self.templates[heap.pol];
        &templates[(heap.index % templates.len() as u64) as usize]
    }

    /// What is in front of the samples of a heap.
    pub fn preamble(&self, heap: SimHeap, saturated: u16, bytes: usize) -> [u8; PREAMBLE_LEN] {
        let pols = self.templates.len() as u64;
        let repr = DigitiserRepr {
            heap_count: (2 * (heap.index * pols + heap.pol as u64 + 1)) & IMMEDIATE_MASK,
            timestamp: (self.first_timestamp + heap.index * self.heap_samples) & IMMEDIATE_MASK,
            digitiser_id: self.first_id + heap.pol as u64,
            saturated,
            payload_length: bytes,
        };
        let mut preamble = [0; PREAMBLE_LEN];
        repr.emit(&mut preamble);
        preamble
    }

    /// The heap's place in the windows, counted from timestamp 0.
    pub fn place(&self, heap: SimHeap) -> u64 {
        self.first_timestamp / self.heap_samples + heap.index
    }

    /// The UDP payload of a heap, damaged if it is to be.
    pub fn packet(&self, windows: &Windows, heap: SimHeap, packet: &mut Vec<u8>) {
        let (payload, saturated) = windows.heap(heap.pol, self.place(heap));
        packet.clear();
        packet.extend(self.preamble(heap, saturated, payload.len()));
        packet.extend_from_slice(payload);
        if let Some(damage) = heap.damage {
            damage.apply(packet);
        }
    }

    /// Headers and UDP payload of the descriptors, if they are due before the heaps of this time:
    /// until [`Self::descriptors_sent`].
    pub fn descriptors_due(&self, index: u64) -> Option<(&HeaderTemplate, Vec<u8>)> {
        if self.start(index) < self.descriptors_from {
            return None;
        }
        let packet = emit_heap(2 * self.descriptor_heaps + 1, &self.descriptors);
        Some((self.descriptor_template.as_ref()?, packet))
    }

    /// Notes that those that were due before the heaps of this time have been sent. What a gap left
    /// out is not made up for.
    pub fn descriptors_sent(&mut self, index: u64) {
        let steps = (self.start(index) / self.descriptor_step).floor();
        self.descriptor_heaps += 1;
        self.descriptors_from = (steps + 1.0) * self.descriptor_step;
    }

    /// Samples before the heaps of this time.
    fn start(&self, index: u64) -> f64 {
        (index * self.heap_samples) as f64
    }
}

/// A simulated digitiser: signals evaluated and packed, ready to be written.
pub struct Digitiser {
    config: DigitiserConfig,
    windows: Windows,
}

impl Digitiser {
    /// Checks the configuration and makes one window of samples per polarisation.
    pub fn new(config: DigitiserConfig) -> Result<Self, SimError> {
        config.check()?;
        let windows = Windows::new(&config, &config.signals, config.period);
        Ok(Self::of(config, windows))
    }

    /// One of a configuration that was checked, and of the windows of its signals.
    pub fn of(config: DigitiserConfig, windows: Windows) -> Self {
        Self { config, windows }
    }

    /// Bytes of a capture of so many heaps of each polarisation, descriptors apart.
    pub fn capture_bytes(config: &DigitiserConfig, per_pol: u64) -> u64 {
        let frame = HEADERS_LEN + PREAMBLE_LEN + config.heap_bytes();
        let pols = config.dests.len() as u64;
        let frames = per_pol.saturating_mul(pols);
        frames.saturating_mul(CaptureWriter::frame_bytes(frame))
    }

    /// UNIX time of the end of a capture of so many heaps of each polarisation.
    pub fn capture_end(config: &DigitiserConfig, per_pol: u64) -> f64 {
        let samples = config.first_timestamp as f64 + per_pol as f64 * config.heap_samples as f64;
        config.clock.sync_time + samples / config.clock.adc_sample_rate
    }

    /// Heaps in the order they are sent: all polarisations of one time, then those of the next.
    pub fn heaps(&self, per_pol: u64) -> impl Iterator<Item = SimHeap> + use<> {
        heaps(self.config.dests.len(), per_pol)
    }

    /// Writes heaps, and descriptors before and between them. Returns the number of data frames.
    pub fn write(
        &self,
        heaps: impl Iterator<Item = SimHeap>,
        capture: &mut CaptureWriter,
    ) -> Result<u64, CaptureError> {
        let mut packets = Packets::new(&self.config, Origin::CAPTURE);
        let (samples, pols) = (
            self.config.heap_samples as u64,
            self.config.dests.len() as u64,
        );
        let mut sent = 0;
        // The clock of the network: heaps leave when their last sample is there, polarisations
        // after one another, and a heap that was held back leaves with the one after which it goes.
        let mut now = 0;
        let mut packet = Vec::new();
        let mut headers = [0; HEADERS_LEN];
        for heap in heaps {
            let start = heap.index * samples;
            if let Some((template, packet)) = packets.descriptors_due(heap.index) {
                template.emit_checksummed(&[&packet], &mut headers);
                capture.write_frame(self.time_ns(start), &[&headers, &packet])?;
                packets.descriptors_sent(heap.index);
            }
            packets.packet(&self.windows, heap, &mut packet);
            now = now.max(start + samples * (heap.pol as u64 + 1) / pols);
            packets
                .template(heap)
                .emit_checksummed(&[&packet], &mut headers);
            capture.write_frame(self.time_ns(now), &[&headers, &packet])?;
            sent += 1;
        }
        Ok(sent)
    }

    /// UNIX time in nanoseconds, so many samples after the first.
    fn time_ns(&self, samples: u64) -> u64 {
        let clock = self.config.clock;
        // In integers as far as possible: a double of today's nanoseconds is 256 ns coarse.
        let sync = (clock.sync_time * 1e6).round() as u64 * 1000;
        let since = (self.config.first_timestamp + samples) as f64 / clock.adc_sample_rate;
        sync.saturating_add((since * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::capture::Precision;
    use crate::net::{CaptureReader, Datagram, parse_endpoints};
    use crate::sim::faults::{FaultPlan, Ledger};
    use crate::sim::parse;
    use dsp::SampleBits;
    use ground::SampleClock;
    use spead::descriptor::parse_heap;
    use spead::{DigitiserHeap, Packet};

    fn config() -> DigitiserConfig {
        DigitiserConfig {
            clock: SampleClock {
                adc_sample_rate: 1e9,
                sync_time: 1_763_700_000.0,
            },
            signals: parse("cw(0.5, 1e8); wgn(0.5, 7);", || 0).unwrap(),
            dests: ["239.102.0.64+7:7148", "239.102.1.64+3:7149"]
                .map(|list| parse_endpoints(list).unwrap())
                .to_vec(),
            heap_samples: 4096,
            sample_bits: SampleBits::new(10).unwrap(),
            first_id: 0,
            period: 1 << 15,
            max_period: 1 << 16,
            dither_seed: 1,
            ttl: 4,
            first_timestamp: 1 << 20,
        }
    }

    /// Frames as (time, destination, UDP payload).
    fn written(
        config: DigitiserConfig,
        heaps: u64,
        plan: &str,
    ) -> (Vec<(u64, SocketAddrV4, Vec<u8>)>, Ledger) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pcap");
        let digitiser = Digitiser::new(config).unwrap();
        let ledger = Ledger::default();
        let plan: FaultPlan = plan.parse().unwrap();
        let samples = digitiser.config.heap_samples;
        let stream = plan.decorate(digitiser.heaps(heaps), 1, samples, &ledger);
        let mut capture = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
        digitiser.write(stream, &mut capture).unwrap();
        capture.finish().unwrap();
        let mut reader = CaptureReader::open(&path).unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            let datagram = Datagram::new_checked(frame.bytes).unwrap();
            frames.push((frame.time_ns, datagram.dst(), datagram.payload().to_vec()));
        }
        (frames, ledger)
    }

    #[test]
    fn heaps_go_round_their_addresses() {
        let (frames, _) = written(config(), 20, "");
        assert_eq!(frames.len(), 41);
        assert!(frames.is_sorted_by_key(|frame| frame.0));
        let descriptors = Packet::new_checked(&frames[0].2).unwrap();
        assert_eq!(descriptors.heap_count(), 1);
        assert_eq!(frames[0].1.to_string(), "239.102.0.64:7148");
        let names: Vec<String> = parse_heap(&descriptors).map(|d| d.unwrap().name).collect();
        assert_eq!(
            names,
            [
                "timestamp",
                "digitiser_id",
                "digitiser_status",
                "adc_samples"
            ]
        );

        for (i, (_, dst, packet)) in frames[1..].iter().enumerate() {
            let (index, pol) = (i as u64 / 2, i % 2);
            let heap = DigitiserHeap::new_checked(packet).unwrap();
            assert_eq!(heap.heap_count(), 2 * (i as u64 + 1));
            assert_eq!(heap.timestamp(), Some((1 << 20) + 4096 * index));
            assert_eq!(heap.digitiser_id(), Some(pol as u64));
            assert_eq!(packet.len(), 5192);
            let expected = match pol {
                0 => format!("239.102.0.{}:7148", 64 + index % 8),
                _ => format!("239.102.1.{}:7149", 64 + index % 4),
            };
            assert_eq!(dst.to_string(), expected);
        }
        // One period is eight heaps.
        let payload = |i: usize| {
            DigitiserHeap::new_checked(&frames[i].2)
                .unwrap()
                .payload()
                .to_vec()
        };
        assert_eq!(payload(1), payload(17));
        assert_ne!(payload(1), payload(3));
        // The last heap of polarisation 1 leaves with its last sample.
        assert_eq!(
            frames[40].0,
            1_763_700_000_000_000_000 + (1 << 20) + 20 * 4096
        );
    }

    #[test]
    fn signals_are_aligned_by_timestamp() {
        let (all, _) = written(config(), 6, "");
        let mut later = config();
        later.first_timestamp += 2 * 4096;
        let (shifted, _) = written(later, 4, "");
        assert_eq!(all[5].2[40..], shifted[1].2[40..]);
    }

    #[test]
    fn what_the_ledger_names_is_missing() {
        let (frames, ledger) = written(
            config(),
            200,
            "drop=0.1,duplicate=0.05,corrupt=0.05,reorder=0.05",
        );
        let count = |kind| {
            ledger
                .borrow()
                .iter()
                .filter(|fault| fault.kind == kind)
                .count()
        };
        assert!(count("drop") > 0 && count("corrupt") > 0);
        assert_eq!(frames.len(), 401 - count("drop") + count("duplicate"));
        let sound = frames[1..]
            .iter()
            .filter_map(|frame| DigitiserHeap::new_checked(&frame.2).ok());
        let aligned = sound.filter(|heap| heap.timestamp().is_some_and(|t| t.is_multiple_of(4096)));
        assert_eq!(aligned.count(), frames.len() - 1 - count("corrupt"));
    }

    #[test]
    fn wrong_values_are_refused() {
        let refused = |change: &dyn Fn(&mut DigitiserConfig)| {
            let mut config = config();
            change(&mut config);
            Digitiser::new(config).err().unwrap()
        };
        assert!(matches!(
            refused(&|c| c.clock.adc_sample_rate = 0.0),
            SimError::SampleRate(_)
        ));
        let much = refused(&|c| c.clock.adc_sample_rate = 1.1e12);
        assert_eq!(much, SimError::SampleRate(1.1e12));
        assert!(matches!(
            refused(&|c| c.clock.sync_time = f64::NAN),
            SimError::SyncTime(_)
        ));
        assert!(matches!(
            refused(&|c| c.dests.truncate(1)),
            SimError::SignalCount { .. }
        ));
        assert!(matches!(
            refused(&|c| c.heap_samples = 4097),
            SimError::HeapSize { .. }
        ));
        assert!(matches!(
            refused(&|c| c.heap_samples = 1 << 40),
            SimError::HeapSize { .. }
        ));
        assert!(matches!(refused(&|c| c.period = 0), SimError::Period(0)));
        for first_id in [u64::MAX, 1 << 48, (1 << 48) - 1] {
            let mut config = config();
            config.first_id = first_id;
            let error = Digitiser::new(config).err();
            let most = (1 << 48) - 2;
            let expected = SimError::FirstId {
                first_id,
                dests: 2,
                most,
            };
            assert_eq!(error, Some(expected));
        }
        assert_eq!(
            refused(&|c| c.max_period = 40000),
            SimError::MaxPeriod {
                max_period: 40000,
                period: 32768,
                heap_samples: 4096,
                fit: 65536
            }
        );
        // What is advised is not refused in its turn.
        for (period, max_period) in [(12288, 1 << 30), (1, u64::MAX), (3 << 28, 1)] {
            let error = refused(&|c| (c.period, c.max_period) = (period, max_period));
            let SimError::MaxPeriod { fit, .. } = error else {
                panic!("{error}");
            };
            let mut config = config();
            (config.period, config.max_period) = (period, fit);
            assert_eq!(config.check(), Ok(()), "{period} {max_period}");
        }
        for period in [1_000_000_000, (1 << 30) - 1] {
            let error = refused(&|c| c.period = period);
            let SimError::Periods { fit, .. } = error else {
                panic!("{error}");
            };
            let mut config = config();
            (config.period, config.max_period) = (fit, fit);
            assert_eq!(config.check(), Ok(()), "{period}");
        }
        assert!(matches!(
            refused(&|c| c.first_timestamp = 100),
            SimError::FirstTimestamp { fit: 0, .. }
        ));
    }

    /// Whoever has no room for them tries again.
    #[test]
    fn descriptors_are_due_until_they_are_sent() {
        let config = config();
        let mut packets = Packets::new(&config, Origin::CAPTURE);
        let count = |packets: &Packets, index| {
            let (_, packet) = packets.descriptors_due(index)?;
            Some(Packet::new_checked(&packet).unwrap().heap_count())
        };
        for _ in 0..2 {
            assert_eq!(count(&packets, 0), Some(1));
        }
        packets.descriptors_sent(0);
        assert_eq!(count(&packets, 0), None);
        // 5 s later.
        let index = |seconds: u64| (seconds * 1_000_000_000).div_ceil(4096);
        assert_eq!(count(&packets, index(5) - 1), None);
        assert_eq!(count(&packets, index(5)), Some(3));
        // Behind a gap they come once, then at their times again.
        packets.descriptors_sent(index(63));
        assert_eq!(count(&packets, index(63)), None);
        assert_eq!(count(&packets, index(65) - 1), None);
        assert_eq!(count(&packets, index(65)), Some(5));
    }
}

//! Heaps of a digitiser, put into frames.

use std::net::SocketAddrV4;

use crate::config::SampleBits;
use crate::net::frame::{HEADERS_LEN, HeaderTemplate, MacAddr};
use crate::net::{CaptureError, CaptureWriter};
use crate::spead::descriptor::{Descriptor, emit_heap};
use crate::spead::digitiser::PREAMBLE_LEN;
use crate::spead::packet::MAX_PACKET;
use crate::spead::{DigitiserRepr, IMMEDIATE_MASK};
use crate::units::Clock;

use super::faults::SimHeap;
use super::signal::Signal;
use super::window::{Window, WindowConfig};

/// Longest period, in samples: one window of packed samples per polarisation is kept in memory.
pub const MAX_PERIOD: u64 = 1 << 30;

/// Seconds of sample time between descriptor heaps.
const DESCRIPTOR_SECONDS: f64 = 5.0;

/// First source address; further polarisations follow. From TEST-NET-1 (RFC 5737).
const SOURCE: [u8; 4] = [192, 0, 2, 1];
const DATA_PORT: u16 = 49152;
const DESCRIPTOR_PORT: u16 = 49153;
const SOURCE_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 1]);
/// Where a destination is not a multicast group.
const UNICAST_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 2]);

/// What a simulated digitiser is to do.
#[derive(Clone, Debug)]
pub struct DigitiserConfig {
    /// Sample counts to UNIX time.
    pub clock: Clock,
    /// One per destination, or one for all.
    pub signals: Vec<Signal>,
    /// Addresses of each polarisation, which its heaps take by turns.
    pub dests: Vec<Vec<SocketAddrV4>>,
    /// Samples per heap.
    pub heap_samples: usize,
    /// Bits per sample.
    pub sample_bits: SampleBits,
    /// Digitiser number of the first polarisation; the others follow.
    pub first_id: u64,
    /// Samples after which the signals repeat.
    pub period: u64,
    /// Samples in the replayed window.
    pub max_period: u64,
    /// Seed of the dither.
    pub dither_seed: u64,
    /// Time to live of the datagrams.
    pub ttl: u8,
    /// First timestamp.
    pub first_timestamp: u64,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// Rates are positive.
    #[error("--adc-sample-rate {0} must be a positive number of hertz, such as 1712e6")]
    SampleRate(f64),
    /// Times are UNIX times.
    #[error("--sync-time {0} must be a UNIX time from 0 to 2106, such as 1763700000")]
    SyncTime(f64),
    /// Signals match destinations.
    #[error(
        "--signals makes {signals} signals for {dests} destinations; make one for all, or one for each"
    )]
    SignalCount {
        /// Output signals.
        signals: usize,
        /// Destinations.
        dests: usize,
    },
    /// Heaps fill whole bytes and one packet.
    #[error(
        "--heap-samples {samples} of {bits} bits must fill whole bytes of one packet, at most {most} bytes; 4096 would do"
    )]
    HeapSize {
        /// Samples.
        samples: usize,
        /// Bits per sample.
        bits: u32,
        /// Payload bytes that fit.
        most: usize,
    },
    /// The signal's period.
    #[error("--period {0} must be from 1 to {MAX_PERIOD} samples")]
    Period(u64),
    /// The window.
    #[error(
        "--max-period {max_period} must be a multiple of the period {period} and of {heap_samples} samples per heap, at least two heaps, at most {MAX_PERIOD} samples; {fit} would do"
    )]
    MaxPeriod {
        /// As given.
        max_period: u64,
        /// The period.
        period: u64,
        /// Samples per heap.
        heap_samples: usize,
        /// A value that would do.
        fit: u64,
    },
    /// The first timestamp.
    #[error(
        "--first-timestamp {timestamp} must be a multiple of {heap_samples} samples per heap below 2^48; {fit} would do"
    )]
    FirstTimestamp {
        /// As given.
        timestamp: u64,
        /// Samples per heap.
        heap_samples: usize,
        /// A value that would do.
        fit: u64,
    },
    /// Dither and heap headers have room for so many.
    #[error("{0} destinations are more than the 255 that have source addresses")]
    Dests(usize),
}

/// A simulated digitiser: signals evaluated and packed, ready to be sent.
pub struct Digitiser {
    config: DigitiserConfig,
    windows: Vec<Window>,
    headers: Vec<Vec<HeaderTemplate>>,
}

impl Digitiser {
    /// Checks the configuration and makes one window of samples per polarisation.
    pub fn new(config: DigitiserConfig) -> Result<Self, SimError> {
        check(&config)?;
        let repeat = lcm(config.period, config.heap_samples as u64);
        let window = WindowConfig {
            period: config.period,
            samples: repeat,
            heap_samples: config.heap_samples,
            bits: config.sample_bits,
            adc_sample_rate: config.clock.adc_sample_rate,
            dither_seed: config.dither_seed,
        };
        let signal = |pol| config.signals.get(pol).or(config.signals.first());
        let windows = (0..config.dests.len())
            .filter_map(|pol| Some(Window::new(&window, signal(pol)?, pol)))
            .collect();
        let headers = config.dests.iter().enumerate().map(|(pol, dests)| {
            let dests = dests.iter();
            dests
                .map(|dst| headers(pol, DATA_PORT, *dst, config.ttl))
                .collect()
        });
        Ok(Self {
            headers: headers.collect(),
            windows,
            config,
        })
    }

    /// Heaps in the order they are sent: all polarisations of one time, then those of the next.
    pub fn heaps(&self, per_pol: u64) -> impl Iterator<Item = SimHeap> + use<> {
        let pols = self.config.dests.len();
        (0..per_pol).flat_map(move |index| (0..pols).map(move |pol| SimHeap::new(index, pol)))
    }

    /// Writes heaps, and descriptors before and between them. Returns the number of data frames.
    pub fn write(
        &self,
        heaps: impl Iterator<Item = SimHeap>,
        capture: &mut CaptureWriter,
    ) -> Result<u64, CaptureError> {
        let config = &self.config;
        let pols = self.windows.len() as u64;
        let step = DESCRIPTOR_SECONDS * config.clock.adc_sample_rate;
        let mut descriptors = 0u64;
        let mut sent = 0;
        // The clock of the network: heaps leave when their last sample is there, polarisations after one another,
        // and a heap that was held back leaves with the one after which it goes.
        let mut now = 0;
        let mut packet = Vec::new();
        for heap in heaps {
            let start = heap.index * config.heap_samples as u64;
            if start as f64 >= descriptors as f64 * step {
                self.write_descriptors(2 * descriptors + 1, start, capture)?;
                descriptors += 1;
            }
            let (payload, saturated) = self.window(heap);
            packet.clear();
            packet.resize(PREAMBLE_LEN, 0);
            let repr = DigitiserRepr {
                heap_count: 2 * (heap.index * pols + heap.pol as u64 + 1),
                timestamp: (config.first_timestamp + start) & IMMEDIATE_MASK,
                digitiser_id: config.first_id + heap.pol as u64,
                saturated,
                payload_length: payload.len(),
            };
            if let Some(preamble) = packet.first_chunk_mut() {
                repr.emit(preamble);
            }
            packet.extend_from_slice(payload);
            if let Some(damage) = heap.damage {
                damage.apply(&mut packet);
            }
            now = now.max(start + config.heap_samples as u64 * (heap.pol as u64 + 1) / pols);
            let dests = &self.headers[heap.pol];
            let template = &dests[(heap.index % dests.len() as u64) as usize];
            let mut headers = [0; HEADERS_LEN];
            template.emit_checksummed(&[&packet], &mut headers);
            capture.write_frame(self.time_ns(now), &[&headers, &packet])?;
            sent += 1;
        }
        Ok(sent)
    }

    fn window(&self, heap: SimHeap) -> (&[u8], u16) {
        let first = self.config.first_timestamp / self.config.heap_samples as u64;
        self.windows[heap.pol].heap(first + heap.index)
    }

    /// To the first address alone, from a port of its own.
    fn write_descriptors(
        &self,
        heap_count: u64,
        samples: u64,
        capture: &mut CaptureWriter,
    ) -> Result<(), CaptureError> {
        let config = &self.config;
        let Some(dst) = config.dests.iter().flatten().next() else {
            return Ok(());
        };
        let descriptors =
            Descriptor::digitiser(config.heap_samples as u64, config.sample_bits.get() as u16);
        let packet = emit_heap(heap_count, &descriptors);
        let mut frame = [0; HEADERS_LEN];
        headers(0, DESCRIPTOR_PORT, *dst, config.ttl).emit_checksummed(&[&packet], &mut frame);
        capture.write_frame(self.time_ns(samples), &[&frame, &packet])
    }

    /// UNIX time in nanoseconds, so many samples after the first.
    fn time_ns(&self, samples: u64) -> u64 {
        let clock = self.config.clock;
        // In integers as far as possible: a double of today's nanoseconds is 256 ns coarse.
        let sync = (clock.sync_time * 1e6).round() as u64 * 1000;
        let since = (self.config.first_timestamp + samples) as f64 / clock.adc_sample_rate;
        sync + (since * 1e9) as u64
    }
}

fn headers(pol: usize, port: u16, dst: SocketAddrV4, ttl: u8) -> HeaderTemplate {
    let [a, b, c, d] = SOURCE;
    let src = SocketAddrV4::new([a, b, c, d.wrapping_add(pol as u8)].into(), port);
    HeaderTemplate::multicast(SOURCE_MAC, src, dst, ttl)
        .unwrap_or_else(|| HeaderTemplate::new(SOURCE_MAC, UNICAST_MAC, src, dst, ttl))
}

fn check(config: &DigitiserConfig) -> Result<(), SimError> {
    let rate = config.clock.adc_sample_rate;
    if !(rate > 0.0 && rate.is_finite()) {
        return Err(SimError::SampleRate(rate));
    }
    let sync = config.clock.sync_time;
    if !(0.0..=4_294_967_295.0).contains(&sync) {
        return Err(SimError::SyncTime(sync));
    }
    let (signals, dests) = (config.signals.len(), config.dests.len());
    if dests > 255 {
        return Err(SimError::Dests(dests));
    }
    if signals == 0 || signals != 1 && signals != dests {
        return Err(SimError::SignalCount { signals, dests });
    }
    let (samples, bits) = (config.heap_samples, config.sample_bits.get());
    let most = MAX_PACKET - PREAMBLE_LEN;
    let fits = samples > 0 && samples <= 8 * most && samples * bits as usize <= 8 * most;
    if !fits || !(samples * bits as usize).is_multiple_of(8) {
        return Err(SimError::HeapSize {
            samples,
            bits,
            most,
        });
    }
    let (period, max_period) = (config.period, config.max_period);
    if !(1..=MAX_PERIOD).contains(&period) {
        return Err(SimError::Period(period));
    }
    let heap = samples as u64;
    let unit = lcm(period, heap);
    if !max_period.is_multiple_of(unit) || !(2 * heap..=MAX_PERIOD).contains(&max_period) {
        let wanted = max_period.clamp(2 * heap, MAX_PERIOD);
        return Err(SimError::MaxPeriod {
            max_period,
            period,
            heap_samples: samples,
            fit: wanted.div_ceil(unit) * unit,
        });
    }
    let timestamp = config.first_timestamp;
    if !timestamp.is_multiple_of(heap) || timestamp > IMMEDIATE_MASK {
        return Err(SimError::FirstTimestamp {
            timestamp,
            heap_samples: samples,
            fit: timestamp.min(IMMEDIATE_MASK) / heap * heap,
        });
    }
    Ok(())
}

/// Least common multiple of positive numbers.
fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::capture::Precision;
    use crate::net::{CaptureReader, Datagram, parse_endpoints};
    use crate::sim::faults::{FaultPlan, Ledger};
    use crate::sim::parse;
    use crate::spead::descriptor::parse_heap;
    use crate::spead::{DigitiserHeap, Packet};

    fn config() -> DigitiserConfig {
        DigitiserConfig {
            clock: Clock {
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
        let stream = plan.decorate(digitiser.heaps(heaps), 1, &ledger);
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
        let refused = |change: fn(&mut DigitiserConfig)| {
            let mut config = config();
            change(&mut config);
            Digitiser::new(config).err().unwrap()
        };
        assert!(matches!(
            refused(|c| c.clock.adc_sample_rate = 0.0),
            SimError::SampleRate(_)
        ));
        assert!(matches!(
            refused(|c| c.clock.sync_time = f64::NAN),
            SimError::SyncTime(_)
        ));
        assert!(matches!(
            refused(|c| c.dests.truncate(1)),
            SimError::SignalCount { .. }
        ));
        assert!(matches!(
            refused(|c| c.heap_samples = 4097),
            SimError::HeapSize { .. }
        ));
        assert!(matches!(
            refused(|c| c.heap_samples = 1 << 40),
            SimError::HeapSize { .. }
        ));
        assert!(matches!(refused(|c| c.period = 0), SimError::Period(0)));
        assert_eq!(
            refused(|c| c.max_period = 40000),
            SimError::MaxPeriod {
                max_period: 40000,
                period: 32768,
                heap_samples: 4096,
                fit: 65536
            }
        );
        assert!(matches!(
            refused(|c| c.first_timestamp = 100),
            SimError::FirstTimestamp { fit: 0, .. }
        ));
    }
}

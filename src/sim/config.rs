//! What a simulated digitiser is to do, checked.

use std::net::SocketAddrV4;

use dsp::SampleBits;
use ground::SampleClock;
use spead::IMMEDIATE_MASK;
use spead::digitiser::PREAMBLE_LEN;
use spead::packet::MAX_PACKET;

use super::signal::Signal;
use crate::config::check_rate;

/// Longest period, in samples: one window of packed samples per polarisation is kept in memory.
pub const MAX_PERIOD: u64 = 1 << 30;

/// What a simulated digitiser is to do.
#[derive(Clone, Debug)]
pub struct DigitiserConfig {
    /// Sample counts to UNIX time.
    pub clock: SampleClock,
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
    /// Rates are what those of engines are.
    #[error("--adc-sample-rate {0:?} must be more than 0 Hz and at most 1e12 Hz, such as 1712e6")]
    SampleRate(f64),
    /// Times are UNIX times.
    #[error("--sync-time {0:?} must be a UNIX time from 0 to 2106, such as 1763700000")]
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
        "--max-period {max_period} (that of --period unless given) must be a multiple of the period {period} and of {heap_samples} samples per heap, at least two heaps, at most {MAX_PERIOD} samples; {fit} would do"
    )]
    MaxPeriod {
        /// The window as given.
        max_period: u64,
        /// The period.
        period: u64,
        /// Samples per heap.
        heap_samples: usize,
        /// A value that would do.
        fit: u64,
    },
    /// No window has whole periods and whole heaps.
    #[error(
        "--period {period} has no multiple of {heap_samples} samples per heap that is at most {MAX_PERIOD} samples; {fit} would do"
    )]
    Periods {
        /// The period as given.
        period: u64,
        /// Samples per heap.
        heap_samples: usize,
        /// A period that would do.
        fit: u64,
    },
    /// The first timestamp.
    #[error(
        "--first-timestamp {timestamp} must be a multiple of {heap_samples} samples per heap below 2^48; {fit} would do"
    )]
    FirstTimestamp {
        /// The timestamp as given.
        timestamp: u64,
        /// Samples per heap.
        heap_samples: usize,
        /// A value that would do.
        fit: u64,
    },
    /// Heaps carry digitiser numbers in as many bits as timestamps.
    #[error(
        "--first-id {first_id} must be at most {most}, so that the numbers of {dests} polarisations are below 2^48; 0 would do"
    )]
    FirstId {
        /// The number as given.
        first_id: u64,
        /// Polarisations.
        dests: usize,
        /// The largest that would do.
        most: u64,
    },
    /// Dither and heap headers have room for so many.
    #[error("{0} destinations are more than the 255 that have source addresses")]
    Dests(usize),
}

impl DigitiserConfig {
    /// Refuses what cannot be sent.
    pub fn check(&self) -> Result<(), SimError> {
        check(self)
    }

    /// Bytes of samples in a heap.
    pub fn heap_bytes(&self) -> usize {
        self.sample_bits.bytes(self.heap_samples)
    }

    /// Timestamp of a polarisation's `index`th heap.
    pub fn timestamp(&self, index: u64) -> u64 {
        self.first_timestamp + index * self.heap_samples as u64
    }
}

fn check(config: &DigitiserConfig) -> Result<(), SimError> {
    let rate = config.clock.adc_sample_rate;
    if check_rate(rate).is_err() {
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
    let (first_id, most) = (config.first_id, IMMEDIATE_MASK + 1 - dests as u64);
    if first_id > most {
        return Err(SimError::FirstId {
            first_id,
            dests,
            most,
        });
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
    if unit > MAX_PERIOD {
        let powers = (0..=period.ilog2()).rev().map(|bits| 1 << bits);
        let fit = powers.into_iter().find(|&fit| lcm(fit, heap) <= MAX_PERIOD);
        return Err(SimError::Periods {
            period,
            heap_samples: samples,
            fit: fit.unwrap_or(1),
        });
    }
    if !max_period.is_multiple_of(unit) || !(2 * heap..=MAX_PERIOD).contains(&max_period) {
        let wanted = max_period.clamp(2 * heap, MAX_PERIOD);
        let above = wanted.next_multiple_of(unit);
        let fits = above <= MAX_PERIOD;
        return Err(SimError::MaxPeriod {
            max_period,
            period,
            heap_samples: samples,
            fit: if fits { above } else { wanted / unit * unit },
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
pub(super) fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

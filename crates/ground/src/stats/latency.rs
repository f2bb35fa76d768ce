//! How old data is when it leaves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

use crate::{SampleClock, Timestamp};

/// Upper bounds of the buckets, in seconds.
pub const BOUNDS: [f64; 16] = [
    0.001, 0.002, 0.003, 0.004, 0.005, 0.007, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
];

/// Ages of output chunks when their last packet was handed to its port: from their last sample, by
/// its timestamp, to the time of this host, so both clocks have to be right. Written once per chunk
/// of which anything is sent, by the last of the tx lcores that send it, and read by anyone.
#[derive(Debug)]
pub struct Latency {
    clock: SampleClock,
    /// One per bound, and one for what is above all.
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// Bits of the sum of all ages in seconds: whole nanoseconds would be too many for 64 bits
    /// where a sync time is wrong by years.
    seconds: AtomicU64,
    /// Microseconds since somebody last took the quantiles.
    recent: Mutex<Histogram<u64>>,
}

impl Latency {
    /// A histogram without chunks; `clock` says when a sample was taken.
    pub fn new(clock: SampleClock) -> Self {
        Self {
            clock,
            counts: Default::default(),
            seconds: AtomicU64::new(0f64.to_bits()),
            recent: Mutex::new(recent()),
        }
    }

    /// A chunk has left whose last sample is before `end`.
    pub fn note_departure(&self, end: Timestamp) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.record(now.as_secs_f64() - end.unix(self.clock));
    }

    /// Data from the future has no age.
    fn record(&self, seconds: f64) {
        let bucket = BOUNDS.partition_point(|&bound| bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let age = seconds.max(0.0);
        let add = |sum| Some((f64::from_bits(sum) + age).to_bits());
        let relaxed = Ordering::Relaxed;
        let (Ok(_) | Err(_)) = self.seconds.fetch_update(relaxed, relaxed, add);
        // An lcore does not wait: a chunk that leaves while quantiles are taken is not among them.
        if let Ok(mut recent) = self.recent.try_lock() {
            recent.saturating_record((age * 1e6) as u64);
        }
    }

    /// Quantiles in seconds of the chunks that left since the last call, each within 0.1 %, and how
    /// many these were; `None` if there were none. For one reader.
    pub fn take_quantiles<const N: usize>(&self, quantiles: [f64; N]) -> Option<([f64; N], u64)> {
        let empty = recent();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::replace(&mut *recent, empty);
        drop(recent);
        let value = |quantile| taken.value_at_quantile(quantile) as f64 * 1e-6;
        (!taken.is_empty()).then(|| (quantiles.map(value), taken.len()))
    }

    /// Chunks up to each bound, all chunks, and the sum of their ages in seconds.
    pub fn read(&self) -> ([u64; BOUNDS.len()], u64, f64) {
        let mut sum = 0;
        let cumulative = self.counts.each_ref().map(|count| {
            sum += count.load(Ordering::Relaxed);
            sum
        });
        let bounds = std::array::from_fn(|i| cumulative[i]);
        (
            bounds,
            sum,
            f64::from_bits(self.seconds.load(Ordering::Relaxed)),
        )
    }
}

/// Microseconds up to ten minutes, in memory that does not grow.
fn recent() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds that are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_fall_into_their_buckets() {
        let clock = SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 0.0,
        };
        let latency = Latency::new(clock);
        for age in [0.0015, 0.002, 0.3, 7.0, -1.0] {
            latency.record(age);
        }
        let (bounds, all, sum) = latency.read();
        let after = |bound: f64| bounds[BOUNDS.iter().position(|&b| b == bound).unwrap()];
        assert_eq!([0.001, 0.002, 0.2, 0.5, 5.0].map(after), [1, 3, 3, 4, 4]);
        assert!(all == 5 && (sum - 7.3035).abs() < 1e-6, "{all} {sum}");
        let (quantiles, count) = latency.take_quantiles([0.5, 1.0]).unwrap();
        assert_eq!(count, 5);
        for (quantile, expected) in quantiles.into_iter().zip([0.002, 7.0]) {
            assert!((quantile / expected - 1.0).abs() < 1e-3, "{quantile}");
        }
        assert_eq!(latency.take_quantiles([0.5]), None);
        // What was sampled in 1970 is old.
        latency.note_departure(Timestamp(0));
        assert_eq!(latency.read().0.last(), Some(&4));
        assert!(latency.read().2 > 1.7e9);
    }

    /// With `--sync-time 0` each chunk is decades old, and the sum is one that does not fall.
    #[test]
    fn the_sum_of_great_ages_grows() {
        let latency = Latency::new(SampleClock {
            adc_sample_rate: 1e9,
            sync_time: 0.0,
        });
        let mut before = 0.0;
        for number in 1..=30 {
            latency.record(1.8e9);
            let (_, _, sum) = latency.read();
            assert!(sum > before, "{number}: {sum}");
            before = sum;
        }
        assert_eq!(before, 30.0 * 1.8e9);
    }
}

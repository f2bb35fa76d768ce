//! How long a live rx lcore waits for a free chunk.

use std::time::{Duration, Instant};

use ground::N_POL;

use super::memory::{OPEN_CHUNKS, SLOTS};
use crate::config::RecvConfig;

/// The longest patience. No heap is counted meanwhile, and after 2 s without any an engine says
/// that no input comes.
const LONGEST: Duration = Duration::from_millis(1500);

/// How long packets may wait in a receive queue for free chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkPatience {
    /// By how much heaps may come later than without waiting.
    longest: Duration,
    /// The time of a chunk's samples.
    chunk: Duration,
}

impl ChunkPatience {
    /// No patience: heaps are dropped at once.
    pub const NONE: Self = Self::of(Duration::ZERO, Duration::ZERO);

    pub(super) const fn of(longest: Duration, chunk: Duration) -> Self {
        Self { longest, chunk }
    }

    pub(super) fn is_none(self) -> bool {
        self.longest.is_zero()
    }
}

/// A queue whose heaps wait for the engine, since it was last found empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HeldQueue {
    /// When it was looked at last, and the chunk of the heap that waited then.
    at: Instant,
    chunk: u64,
    /// By how much its heaps are late. Waiting adds to it; chunks that are placed meanwhile take
    /// off the time of their samples.
    late: Duration,
}

impl HeldQueue {
    /// A heap of chunk `id` is the first to wait.
    pub(super) fn new(now: Instant, id: u64) -> Self {
        Self {
            at: now,
            chunk: id,
            late: Duration::ZERO,
        }
    }

    /// Whether a heap of chunk `id` may wait on.
    pub(super) fn may_wait(&mut self, now: Instant, id: u64, patience: ChunkPatience) -> bool {
        let placed = u32::try_from(id.saturating_sub(self.chunk)).unwrap_or(u32::MAX);
        let waited = now.saturating_duration_since(self.at);
        self.late = (self.late + waited).saturating_sub(patience.chunk.saturating_mul(placed));
        self.at = now;
        self.chunk = self.chunk.max(id);
        self.late < patience.longest
    }
}

/// How long packets may wait in a receive queue, which holds `queue_packets` of them, for free
/// chunks, at `adc_sample_rate`:
///
/// * until half of the queue is full, if all input comes to it: from then on the port would lose
///   packets, and nobody could tell that the engine was slow;
/// * among several `lanes` no longer than the collector keeps the last of them from being left
///   behind: when their patience ends, the first to drop heaps runs ahead of the others by what
///   waits in its queue;
/// * 1.5 s at most.
pub fn chunk_patience(
    config: &RecvConfig,
    adc_sample_rate: f64,
    lanes: usize,
    queue_packets: usize,
    spare_chunks: usize,
) -> ChunkPatience {
    let packets = N_POL as f64 * adc_sample_rate / config.packet_samples as f64;
    let half_full = queue_packets as f64 / 2.0 / packets;
    let chunk = config.chunk_samples as f64 / adc_sample_rate;
    let behind = match lanes {
        1 => f64::INFINITY,
        _ => (SLOTS + spare_chunks - OPEN_CHUNKS - 1) as f64 * chunk,
    };
    let duration = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    ChunkPatience::of(
        duration(half_full.min(behind)).min(LONGEST),
        duration(chunk),
    )
}

#[cfg(test)]
mod tests {
    use dsp::SampleBits;

    use super::*;

    #[test]
    fn patience_ends_before_the_queue_is_full_and_before_others_are_left_behind() {
        let recv = RecvConfig {
            packet_samples: 4096,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: 1 << 20,
            mask_timestamp: false,
        };
        // 500 packets a second of each polarisation, and a chunk in 0.512 s.
        let milliseconds = |lanes, packets, spare| {
            let patience = chunk_patience(&recv, 2_048_000.0, lanes, packets, spare);
            assert_eq!(patience.chunk.as_millis(), 512);
            patience.longest.as_millis()
        };
        assert_eq!(milliseconds(1, 1000, 0), 500);
        assert_eq!(milliseconds(1, 4000, 0), 1500);
        assert_eq!(milliseconds(1, usize::MAX, 0), 1500);
        assert_eq!(milliseconds(1, 0, 0), 0);
        assert_eq!(milliseconds(2, 4000, 0), 512);
        assert_eq!(milliseconds(2, 4000, 1), 1024);
        assert_eq!(milliseconds(2, 4000, 9), 1500);
    }
    /// An engine that is a tenth faster than its input takes ten times as long to catch up as it
    /// was held up. The queue empties meanwhile.
    #[test]
    fn queues_that_empty_may_wait_on() {
        let ms = Duration::from_millis;
        let patience = ChunkPatience::of(ms(1000), ms(110));
        let begin = Instant::now();
        let mut held = HeldQueue::new(begin, 7);
        assert!(held.may_wait(begin + ms(900), 7, patience));
        for n in 1..=90 {
            assert!(
                held.may_wait(begin + ms(900 + 100 * n), 7 + n, patience),
                "{n}"
            );
        }
        assert_eq!(held.late, Duration::ZERO);
        // No faster than its input: as late as it was. Slower: later and later.
        let mut held = HeldQueue::new(begin, 7);
        assert!(held.may_wait(begin + ms(900), 7, patience));
        for n in 1..=90 {
            assert!(
                held.may_wait(begin + ms(900 + 110 * n), 7 + n, patience),
                "{n}"
            );
        }
        let mut slow = (1..).map(|n| held.may_wait(begin + ms(10_800 + 120 * n), 97 + n, patience));
        assert_eq!(slow.position(|waits| !waits), Some(9));
        // A leap of the digitisers' time is no time in which the queue emptied, beyond its end.
        assert!(held.may_wait(begin + ms(12_000), 1 << 40, patience));
        assert!(held.may_wait(begin + ms(12_999), 1 << 40, patience));
        assert!(!held.may_wait(begin + ms(13_000), 1 << 40, patience));
        // Heaps of older chunks wait as long.
        assert!(!held.may_wait(begin + ms(13_000), 8, patience));
    }
}

//! How long a live rx lcore waits for a free chunk.

use std::time::Duration;

use ground::N_POL;

use super::memory::{OPEN_CHUNKS, SLOTS};
use crate::config::RecvConfig;

/// The longest patience. No heap is counted meanwhile, and after 2 s without any an engine says
/// that no input comes.
const LONGEST: Duration = Duration::from_millis(1500);

/// How long packets may wait in a receive queue, which holds `queue_packets` of them, for a free
/// chunk, at `adc_sample_rate`:
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
) -> Duration {
    let packets = N_POL as f64 * adc_sample_rate / config.packet_samples as f64;
    let half_full = queue_packets as f64 / 2.0 / packets;
    let behind = match lanes {
        1 => f64::INFINITY,
        _ => {
            let chunks = SLOTS + spare_chunks - OPEN_CHUNKS - 1;
            (chunks * config.chunk_samples) as f64 / adc_sample_rate
        }
    };
    let patience = Duration::try_from_secs_f64(half_full.min(behind));
    patience.map_or(LONGEST, |patience| patience.min(LONGEST))
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
            chunk_patience(&recv, 2_048_000.0, lanes, packets, spare).as_millis()
        };
        assert_eq!(milliseconds(1, 1000, 0), 500);
        assert_eq!(milliseconds(1, 4000, 0), 1500);
        assert_eq!(milliseconds(1, usize::MAX, 0), 1500);
        assert_eq!(milliseconds(1, 0, 0), 0);
        assert_eq!(milliseconds(2, 4000, 0), 512);
        assert_eq!(milliseconds(2, 4000, 1), 1024);
        assert_eq!(milliseconds(2, 4000, 9), 1500);
    }
}

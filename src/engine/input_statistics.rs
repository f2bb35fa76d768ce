//! Statistics of the digitiser's samples: a few heaps of each period, looked at where they lie.

use std::sync::Arc;

use dsp::SampleBits;
use ground::{N_POL, Timestamp};

use super::InputStatistics;
use super::steer::Published;
use crate::config::EngineConfig;
use crate::memory::FrozenChunk;

/// Of so many heaps, one is looked at. A prime number, so that nothing periodic in the signal or in
/// the chunks keeps step with it.
const HEAPS_PER_LOOK: u64 = 257;

/// Looks at received chunks on their way to the pipelines.
///
/// One heap in 257 is unpacked, and the first one of each period; of what is in memory that the CPU
/// reads slowly, none.
#[derive(Debug)]
pub(super) struct InputLooks {
    /// Samples of a period.
    length: u64,
    bits: SampleBits,
    heap_samples: u64,
    published: Arc<Published>,
    /// The period under way, if it has a chunk.
    current: Option<InputStatistics>,
}

impl InputLooks {
    /// Looks for an engine of this configuration, if it takes statistics.
    pub fn new(config: &EngineConfig, published: Arc<Published>) -> Option<Self> {
        Some(Self {
            length: config.statistics_samples()?,
            bits: config.recv.sample_bits,
            heap_samples: config.recv.packet_samples as u64,
            published,
            current: None,
        })
    }

    /// Looks at a chunk that begins at `start`, and publishes the period that it ends.
    pub fn add(&mut self, start: Timestamp, chunk: &FrozenChunk) {
        if !chunk.kind().is_host() {
            return;
        }
        let (samples, first) = (chunk.layout().samples as u64, start.0 / self.heap_samples);
        let period = |at: Timestamp| at.0 / self.length;
        let goes_on = |current: &InputStatistics| period(current.start) == period(start);
        if !self.current.as_ref().is_some_and(goes_on) {
            self.end();
        }
        let (bits, mut before) = (self.bits, self.current.take());
        let current = before.get_or_insert_with(|| InputStatistics {
            start,
            end: start,
            histogram: [0; N_POL].map(|_| vec![0; 1 << bits.get()]),
            snapshot_start: start,
            snapshot: Default::default(),
        });
        current.end = start + samples;
        for heap in 0..chunk.layout().heaps {
            let there = [0, 1].map(|pol: usize| chunk.present(pol, heap));
            let begins = current.snapshot.iter().all(Vec::is_empty) && there != [false; N_POL];
            if begins || (first + heap as u64).is_multiple_of(HEAPS_PER_LOOK) {
                self.look(current, start, chunk, heap);
            }
        }
        self.current = before;
    }

    /// Unpacks one heap of both polarisations, as far as it is there.
    fn look(
        &self,
        current: &mut InputStatistics,
        start: Timestamp,
        chunk: &FrozenChunk,
        heap: usize,
    ) {
        let there = [0, 1].map(|pol: usize| chunk.present(pol, heap));
        // The first one, or the first of both polarisations.
        let missed = (0..N_POL).any(|pol| there[pol] && current.snapshot[pol].is_empty());
        let keeps =
            missed && (there == [true; N_POL] || current.snapshot.iter().all(Vec::is_empty));
        if keeps {
            current.snapshot_start = start + heap as u64 * self.heap_samples;
            current.snapshot.iter_mut().for_each(Vec::clear);
        }
        let (bits, bytes) = (self.bits.get(), chunk.layout().heap_bytes);
        for pol in (0..N_POL).filter(|&pol| there[pol]) {
            // There is padding behind the last heap.
            let packed = &chunk.pol(pol)[heap * bytes..][..bytes + 4];
            let (histogram, snapshot) = (&mut current.histogram[pol], &mut current.snapshot[pol]);
            for n in 0..self.heap_samples as usize {
                let x = sample(packed, bits, n);
                histogram[(x + (1 << (bits - 1))) as usize] += 1;
                if keeps {
                    snapshot.push(x as i16);
                }
            }
        }
    }

    /// Publishes the period under way, if it has a chunk.
    pub fn end(&mut self) {
        if let Some(current) = self.current.take() {
            let board = self.published.statistics();
            board.publish_input(Arc::new(current));
        }
    }
}

/// Sample `n` of `packed`, which has three more bytes behind it: as [`dsp::unpack::sample`].
fn sample(packed: &[u8], bits: u32, n: usize) -> i32 {
    let bit = n * bits as usize;
    let at = &packed[bit / 8..bit / 8 + 4];
    let word = u32::from_be_bytes([at[0], at[1], at[2], at[3]]);
    (word << (bit % 8)) as i32 >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dsp::unpack;

    use super::*;
    use crate::memory::{Chunk, ChunkAllocator, ChunkLayout, HostAllocator, Purpose};

    const HEAP: usize = 64;
    const HEAPS: usize = 4;

    fn config(bits: u32, period: f64) -> EngineConfig {
        let wideband = "name=w,channels=64,taps=4,dst=239.10.1.0,jones_per_batch=2048";
        crate::config::tests::engine(wideband, |config| {
            config.recv.packet_samples = HEAP;
            config.recv.sample_bits = SampleBits::new(bits).unwrap();
            config.recv.chunk_samples = HEAPS * HEAP;
            config.statistics_period = period / config.clock.adc_sample_rate;
        })
    }

    fn value(pol: usize, at: u64, bits: u32) -> i32 {
        let x = (at as i32).wrapping_mul(40503 + 2 * pol as i32);
        x << (32 - bits) >> (32 - bits)
    }

    /// A chunk from `start` on, of whose heaps those are there of which `there` says so.
    fn chunk(
        config: &EngineConfig,
        start: u64,
        there: impl Fn(usize, usize) -> bool,
    ) -> FrozenChunk {
        let layout = ChunkLayout::new(&config.recv, 0);
        let memory = HostAllocator::default().allocate(Purpose::ReceiveChunk, layout.bytes());
        let chunk = Arc::new(Chunk::new(layout, 0, memory.unwrap()));
        let bits = config.recv.sample_bits;
        for (pol, heap) in (0..N_POL).flat_map(|pol| (0..HEAPS).map(move |heap| (pol, heap))) {
            if there(pol, heap) {
                let first = start + (heap * HEAP) as u64;
                let samples = (first..first + HEAP as u64).map(|at| value(pol, at, bits.get()));
                let payload = unpack::pack(samples, bits);
                chunk.claim(pol, heap).unwrap().write(&payload, 0);
            }
        }
        chunk.freeze().unwrap()
    }

    fn looks(config: &EngineConfig) -> (InputLooks, Arc<Published>) {
        let published = Arc::new(Published::new(1));
        (
            InputLooks::new(config, published.clone()).unwrap(),
            published,
        )
    }

    #[test]
    fn samples_of_every_width_are_counted_as_they_are() {
        for bits in 2..=16 {
            let config = config(bits, 1e6);
            let (mut looks, published) = looks(&config);
            let start = HEAPS_PER_LOOK * HEAP as u64;
            looks.add(Timestamp(start), &chunk(&config, start, |_, _| true));
            assert_eq!(published.statistics().input(), None);
            looks.end();
            let input = published.statistics().input().unwrap();
            assert_eq!((input.start.0, input.end.0), (start, start + 256));
            assert_eq!(input.snapshot_start.0, start);
            for pol in 0..N_POL {
                let expected: Vec<_> = (start..start + HEAP as u64)
                    .map(|at| value(pol, at, bits))
                    .collect();
                let snapshot: Vec<_> = input.snapshot[pol].iter().map(|&x| i32::from(x)).collect();
                assert_eq!(snapshot, expected, "{bits} bits");
                assert_eq!(input.histogram[pol].len(), 1 << bits);
                for (i, &count) in input.histogram[pol].iter().enumerate() {
                    let x = i as i32 - (1 << (bits - 1));
                    let came = expected.iter().filter(|&&e| e == x).count();
                    assert_eq!(count, came as u64, "{x} of {bits} bits");
                }
            }
        }
    }

    #[test]
    fn one_heap_in_257_counts_and_the_first_of_each_period() {
        let config = config(8, 1024.0 * 256.0);
        let (mut looks, published) = looks(&config);
        let step = (HEAPS * HEAP) as u64;
        let mut counted = 0;
        for number in 0..3 * 1024 {
            let start = number * step;
            looks.add(Timestamp(start), &chunk(&config, start, |_, _| true));
            if let Some(input) = published.statistics().input()
                && input.end.0 == start
            {
                assert_eq!((input.end.0 - input.start.0), 1024 * 256);
                // Of 4096 heaps, 15 or 16, and the first one.
                let heaps = input.histogram[0].iter().sum::<u64>() / HEAP as u64;
                assert!((16..=17).contains(&heaps), "{heaps}");
                counted += 1;
            }
        }
        assert_eq!(counted, 2);
    }

    #[test]
    fn what_never_came_is_not_counted() {
        let config = config(8, 1e6);
        let (mut looks, published) = looks(&config);
        let first = |pol: usize, heap: usize| pol == 1 && heap == 2;
        looks.add(Timestamp(256), &chunk(&config, 256, first));
        looks.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.snapshot_start.0, 256 + 2 * HEAP as u64);
        assert_eq!(input.snapshot.each_ref().map(Vec::len), [0, HEAP]);
        let counts = input.histogram.each_ref().map(|h| h.iter().sum::<u64>());
        assert_eq!(counts, [0, HEAP as u64]);
        // A later heap of both polarisations is a better snapshot.
        looks.add(Timestamp(256), &chunk(&config, 256, first));
        let start = HEAPS_PER_LOOK * HEAP as u64;
        looks.add(Timestamp(start), &chunk(&config, start, |_, _| true));
        looks.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.snapshot_start.0, start);
        assert_eq!(input.snapshot.each_ref().map(Vec::len), [HEAP; 2]);
    }

    /// Looks at heaps of both polarisations that come later count, and leave the snapshot alone.
    #[test]
    fn the_first_heap_of_both_polarisations_stays_the_snapshot() {
        let config = config(8, 1e9);
        let (mut looks, published) = looks(&config);
        for heap in [0, HEAPS_PER_LOOK, 2 * HEAPS_PER_LOOK] {
            let start = heap * HEAP as u64;
            looks.add(Timestamp(start), &chunk(&config, start, |_, _| true));
        }
        looks.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.snapshot_start.0, 0);
        assert_eq!(input.samples(0), 3 * HEAP as u64);
    }

    #[test]
    fn the_last_heap_of_a_chunk_is_read_where_it_is() {
        for bits in [2, 10, 16] {
            let config = config(bits, 1e6);
            let (mut looks, published) = looks(&config);
            looks.add(
                Timestamp(0),
                &chunk(&config, 0, |_, heap| heap == HEAPS - 1),
            );
            looks.end();
            let input = published.statistics().input().unwrap();
            let first = ((HEAPS - 1) * HEAP) as u64;
            for pol in 0..N_POL {
                let expected = (first..first + HEAP as u64).map(|at| value(pol, at, bits) as i16);
                assert_eq!(
                    input.snapshot[pol],
                    expected.collect::<Vec<_>>(),
                    "{bits} bits"
                );
            }
        }
    }
}

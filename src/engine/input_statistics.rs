//! Statistics of the digitiser's samples: a few heaps of each period, looked at where they lie.

use std::sync::Arc;

use dsp::SampleBits;
use ground::{N_POL, Timestamp};

use super::InputStatistics;
use super::steer::Published;
use crate::config::EngineConfig;
use crate::memory::{FrozenChunk, is_for_statistics};

/// Cuts the input into periods as [`Periods`](super::statistics::Periods) does outputs, and takes
/// statistics of received chunks on their way to the pipelines.
///
/// One heap in [`STATISTICS_EVERY`](crate::memory::STATISTICS_EVERY) is unpacked, and the first one
/// of each period. Where the CPU reads memory slowly, there are copies of the former alone.
#[derive(Debug)]
pub(super) struct InputPeriods {
    /// Samples of a period.
    length: u64,
    bits: SampleBits,
    heap_samples: u64,
    published: Arc<Published>,
    /// The period under way, if it has a chunk.
    current: Option<InputStatistics>,
}

impl InputPeriods {
    /// Those of an engine of this configuration, if it takes statistics.
    pub fn new(config: &EngineConfig, published: Arc<Published>) -> Option<Self> {
        Some(Self {
            length: config.statistics_samples()?,
            bits: config.recv.sample_bits,
            heap_samples: config.recv.packet_samples as u64,
            published,
            current: None,
        })
    }

    /// Takes statistics of a chunk that begins at `start`, and publishes the period that it ends.
    pub fn add(&mut self, start: Timestamp, chunk: &FrozenChunk) {
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
            if current.snapshot.iter().all(Vec::is_empty) || is_for_statistics(first + heap as u64)
            {
                let packed = [0, 1].map(|pol: usize| chunk.readable(pol, heap));
                self.add_heaps(current, start + heap as u64 * self.heap_samples, packed);
            }
        }
        self.current = before;
    }

    /// Unpacks the heaps at one timestamp, as far as they are there.
    fn add_heaps(
        &self,
        current: &mut InputStatistics,
        start: Timestamp,
        packed: [Option<&[u8]>; N_POL],
    ) {
        let there = packed.map(|packed| packed.is_some());
        // The first one, or the first of both polarisations.
        let missed = (0..N_POL).any(|pol| there[pol] && current.snapshot[pol].is_empty());
        let keeps =
            missed && (there == [true; N_POL] || current.snapshot.iter().all(Vec::is_empty));
        if keeps {
            current.snapshot_start = start;
            current.snapshot.iter_mut().for_each(Vec::clear);
        }
        let bits = self.bits.get();
        for (pol, packed) in packed.into_iter().enumerate() {
            let Some(packed) = packed else { continue };
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
    use crate::memory::stand_in::{BarStandIn, shut};
    use crate::memory::{
        Chunk, ChunkAllocator, ChunkLayout, HostAllocator, Purpose, STATISTICS_EVERY,
    };

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
        filled(config, start, Chunk::new(layout, 0, memory.unwrap()), there)
    }

    /// The same in memory that the CPU cannot read.
    fn unread(
        config: &EngineConfig,
        start: u64,
        there: impl Fn(usize, usize) -> bool,
    ) -> FrozenChunk {
        let layout = ChunkLayout::new(&config.recv, 0);
        let memory = BarStandIn.allocate(Purpose::ReceiveChunk, layout.bytes());
        let copies = Chunk::copies_bytes(&layout);
        let copies = HostAllocator::default().allocate(Purpose::ReceiveChunk, copies);
        let chunk = Chunk::new(layout, 0, memory.unwrap()).with_copies(copies.unwrap());
        let chunk = filled(config, start, chunk, there);
        shut(&chunk);
        chunk
    }

    /// Places heaps as rx lcores do.
    fn filled(
        config: &EngineConfig,
        start: u64,
        chunk: Chunk,
        there: impl Fn(usize, usize) -> bool,
    ) -> FrozenChunk {
        let (chunk, bits) = (Arc::new(chunk), config.recv.sample_bits);
        for (pol, heap) in (0..N_POL).flat_map(|pol| (0..HEAPS).map(move |heap| (pol, heap))) {
            if there(pol, heap) {
                let first = start + (heap * HEAP) as u64;
                let samples = (first..first + HEAP as u64).map(|at| value(pol, at, bits.get()));
                let payload = unpack::pack(samples, bits);
                let slot = chunk.claim(pol, heap).unwrap();
                let slot = match is_for_statistics(first / HEAP as u64) {
                    true => slot.copied_for_statistics(),
                    false => slot,
                };
                slot.write(&payload, 0);
            }
        }
        chunk.freeze().unwrap()
    }

    fn periods(config: &EngineConfig) -> (InputPeriods, Arc<Published>) {
        let published = Arc::new(Published::new(1));
        (
            InputPeriods::new(config, published.clone()).unwrap(),
            published,
        )
    }

    #[test]
    fn samples_of_every_width_are_counted_as_they_are() {
        for bits in 2..=16 {
            let config = config(bits, 1e6);
            let (mut periods, published) = periods(&config);
            let start = STATISTICS_EVERY * HEAP as u64;
            periods.add(Timestamp(start), &chunk(&config, start, |_, _| true));
            assert_eq!(published.statistics().input(), None);
            periods.end();
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
        let (mut periods, published) = periods(&config);
        let step = (HEAPS * HEAP) as u64;
        let mut counted = 0;
        for number in 0..3 * 1024 {
            let start = number * step;
            periods.add(Timestamp(start), &chunk(&config, start, |_, _| true));
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

    /// Copies tell what the memory itself does, but for the first heap of a period.
    #[test]
    fn memory_that_the_cpu_does_not_read_has_the_same_statistics() {
        for bits in [2, 10, 12, 16] {
            let config = config(bits, 1e9);
            let there = |start: u64| move |pol: usize, _heap: usize| pol == 1 || start > 30_000;
            let [(mut read, of_read), (mut copied, of_copied)] = [(); 2].map(|()| periods(&config));
            for number in 257 / HEAPS as u64..5 * 257 {
                let start = number * (HEAPS * HEAP) as u64;
                let there = there(start);
                copied.add(Timestamp(start), &unread(&config, start, there));
                // Without the heaps before the first that is copied.
                if start >= 257 * HEAP as u64 - (HEAP * HEAPS) as u64 {
                    let later =
                        |pol, heap| (start / HEAP as u64 + heap as u64) >= 257 && there(pol, heap);
                    read.add(Timestamp(start), &chunk(&config, start, later));
                }
            }
            read.end();
            copied.end();
            let expected = of_read.statistics().input().unwrap();
            assert_eq!(of_copied.statistics().input(), Some(expected.clone()));
            let counts = expected.histogram.each_ref().map(|h| h.iter().sum::<u64>());
            assert_eq!(
                counts,
                [18, 19].map(|heaps| heaps * HEAP as u64),
                "{bits} bits"
            );
        }
    }

    #[test]
    fn a_period_without_copies_has_no_level() {
        let config = config(8, 1e9);
        let (mut periods, published) = periods(&config);
        periods.add(Timestamp(64), &unread(&config, 64, |_, _| true));
        periods.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.samples(0), 0);
        assert_eq!(
            (input.level_dbfs(0), input.rms(1), input.full_scale_share(0)),
            (None, None, None)
        );
        assert!(input.snapshot.iter().all(Vec::is_empty));
    }

    #[test]
    fn what_never_came_is_not_counted() {
        let config = config(8, 1e6);
        let (mut periods, published) = periods(&config);
        let first = |pol: usize, heap: usize| pol == 1 && heap == 2;
        periods.add(Timestamp(256), &chunk(&config, 256, first));
        periods.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.snapshot_start.0, 256 + 2 * HEAP as u64);
        assert_eq!(input.snapshot.each_ref().map(Vec::len), [0, HEAP]);
        let counts = input.histogram.each_ref().map(|h| h.iter().sum::<u64>());
        assert_eq!(counts, [0, HEAP as u64]);
        // A later heap of both polarisations is a better snapshot.
        periods.add(Timestamp(256), &chunk(&config, 256, first));
        let start = STATISTICS_EVERY * HEAP as u64;
        periods.add(Timestamp(start), &chunk(&config, start, |_, _| true));
        periods.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.snapshot_start.0, start);
        assert_eq!(input.snapshot.each_ref().map(Vec::len), [HEAP; 2]);
    }

    /// Looks at heaps of both polarisations that come later count, and leave the snapshot alone.
    #[test]
    fn the_first_heap_of_both_polarisations_stays_the_snapshot() {
        let config = config(8, 1e9);
        let (mut periods, published) = periods(&config);
        for heap in [0, STATISTICS_EVERY, 2 * STATISTICS_EVERY] {
            let start = heap * HEAP as u64;
            periods.add(Timestamp(start), &chunk(&config, start, |_, _| true));
        }
        periods.end();
        let input = published.statistics().input().unwrap();
        assert_eq!(input.snapshot_start.0, 0);
        assert_eq!(input.samples(0), 3 * HEAP as u64);
    }

    #[test]
    fn the_last_heap_of_a_chunk_is_read_where_it_is() {
        for bits in [2, 10, 16] {
            let config = config(bits, 1e6);
            let (mut periods, published) = periods(&config);
            periods.add(
                Timestamp(0),
                &chunk(&config, 0, |_, heap| heap == HEAPS - 1),
            );
            periods.end();
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

//! Heaps that came and batches that were computed here, until both of a kind are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ground::Timestamp;

use crate::config::{EngineConfig, OutputConfig};
use crate::engine::ChunkObserver;
use crate::memory::OutputMemory;
use crate::sink::live::KeptHeap;

/// Bytes that may wait for the thread that compares, and in it for the other half.
const WAITING: usize = 256 << 20;
/// Seconds that a half waits for the other, beside what an engine has in it.
const PATIENCE: f64 = 5.0;
/// Timestamps on the wire have so many bits.
const WIRE: u64 = Timestamp::WIRE_RANGE - 1;

/// Which batches are compared: one in so many, so that this host keeps up.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    samples: u64,
    every: u64,
}

impl Selection {
    /// One batch of the output in `every`.
    pub fn new(output: &OutputConfig, every: u64) -> Self {
        let samples = output.batch_samples() as u64;
        Self { samples, every }
    }

    /// Whether the batch of this timestamp is one, of which the bits count that the wire has.
    pub fn takes(self, timestamp: u64) -> bool {
        ((timestamp & WIRE) / self.samples).is_multiple_of(self.every)
    }
}

/// Half of what is compared.
#[derive(Debug)]
pub enum Half {
    /// A batch that was computed here.
    Ours {
        /// Index of its output.
        stream: usize,
        /// Timestamp.
        timestamp: u64,
        /// All its heaps, one behind the other.
        data: Vec<u8>,
    },
    /// A heap that came.
    Theirs(KeptHeap),
}

impl Half {
    fn bytes(&self) -> usize {
        match self {
            Self::Ours { data, .. } => data.len(),
            Self::Theirs(heap) => heap.data.len(),
        }
    }
}

/// Where halves are put in: nobody waits there.
#[derive(Clone, Debug)]
pub struct Inlet {
    sender: Sender<Half>,
    waiting: Arc<AtomicUsize>,
    refused: Arc<AtomicU64>,
}

impl Inlet {
    /// Puts a half in, if there is room.
    pub fn offer(&self, half: Half) {
        let bytes = half.bytes();
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) > WAITING
            || self.sender.send(half).is_err()
        {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where they come out.
#[derive(Debug)]
pub struct Outlet {
    receiver: Receiver<Half>,
    waiting: Arc<AtomicUsize>,
    refused: Arc<AtomicU64>,
}

impl Outlet {
    /// Waits for a half; an error if none will come.
    pub fn take(&self, wait: Duration) -> Result<Option<Half>, RecvTimeoutError> {
        match self.receiver.recv_timeout(wait) {
            Ok(half) => {
                self.waiting.fetch_sub(half.bytes(), Ordering::Relaxed);
                Ok(Some(half))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(end) => Err(end),
        }
    }

    /// Halves that found no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A queue of halves.
pub fn queue() -> (Inlet, Outlet) {
    let (sender, receiver) = channel();
    let (waiting, refused) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
    let inlet = Inlet {
        sender,
        waiting: waiting.clone(),
        refused: refused.clone(),
    };
    let outlet = Outlet {
        receiver,
        waiting,
        refused,
    };
    (inlet, outlet)
}

/// Takes what is computed here, for one output.
pub struct OurBatches {
    /// Index of the output.
    pub stream: usize,
    /// ADC samples of a batch.
    pub batch_samples: u64,
    /// Which batches are taken.
    pub selection: Selection,
    /// Where they go.
    pub inlet: Inlet,
}

impl ChunkObserver for OurBatches {
    fn observe(&mut self, chunk: &OutputMemory) {
        for batch in (0..chunk.batches()).filter(|&batch| chunk.present(batch)) {
            let timestamp = chunk.start().0 + batch as u64 * self.batch_samples;
            if self.selection.takes(timestamp) {
                let data = chunk.batch(batch).to_vec();
                self.inlet.offer(Half::Ours {
                    stream: self.stream,
                    timestamp,
                    data,
                });
            }
        }
    }
}

/// A heap of which both halves are there.
#[derive(Debug)]
pub struct Pair<'a> {
    /// Timestamp of what was computed here.
    pub timestamp: u64,
    /// Index of the substream.
    pub substream: usize,
    /// What was computed here.
    pub ours: &'a [u8],
    /// What came.
    pub theirs: &'a [u8],
}

/// A batch of which something is there.
#[derive(Debug)]
struct Batch {
    since: Instant,
    ours: Option<(u64, Vec<u8>)>,
    /// Heaps that wait for ours, by substream.
    theirs: Vec<(usize, Vec<u8>)>,
    compared: usize,
}

impl Batch {
    fn new(since: Instant) -> Self {
        Self {
            since,
            ours: None,
            theirs: Vec::new(),
            compared: 0,
        }
    }
}

/// Halves of one stream that wait for the other.
#[derive(Debug)]
pub struct Pairs {
    substreams: usize,
    heap_bytes: usize,
    /// By timestamp on the wire, unwrapped: later batches have larger ones.
    batches: BTreeMap<u64, Batch>,
    /// The last of these.
    last: Option<u64>,
    patience: Duration,
    bytes: usize,
    room: usize,
    /// Heaps that came and were not computed here.
    pub only_theirs: u64,
    /// Heaps that were computed here and did not come.
    pub only_ours: u64,
    /// Heaps of which both were there.
    pub compared: u64,
}

/// Bytes of halves of an output that wait for the other, with the batch that makes them too many.
fn room(output: &OutputConfig, engine: &EngineConfig) -> usize {
    let streams = engine.outputs.len().max(1);
    (WAITING / streams).max(4 * output.batch_bytes())
}

/// Bytes of halves that wait at most: for the thread that compares, and for their others.
pub fn most_bytes(engine: &EngineConfig) -> u64 {
    let outputs = engine.outputs.iter();
    let paired = outputs.map(|output| room(output, engine) + output.batch_bytes());
    let largest = engine.outputs.iter().map(OutputConfig::batch_bytes).max();
    (WAITING + largest.unwrap_or_default() + paired.sum::<usize>()) as u64
}

impl Pairs {
    /// Pairs of an output of this engine.
    pub fn new(output: &OutputConfig, engine: &EngineConfig) -> Self {
        let chunk = engine.send.chunk_jones / output.channels * output.spectrum_samples();
        let inside = (chunk + 2 * engine.recv.chunk_samples) as f64 / engine.clock.adc_sample_rate;
        let patience = Duration::try_from_secs_f64(PATIENCE + inside);
        Self {
            last: None,
            patience: patience.unwrap_or(Duration::MAX),
            substreams: output.dst.len(),
            heap_bytes: output.heap_bytes(),
            batches: BTreeMap::new(),
            bytes: 0,
            room: room(output, engine),
            only_theirs: 0,
            only_ours: 0,
            compared: 0,
        }
    }

    /// Adds a batch that was computed here; shows all pairs that it makes.
    pub fn add_ours(
        &mut self,
        timestamp: u64,
        data: Vec<u8>,
        now: Instant,
        mut show: impl FnMut(Pair<'_>),
    ) {
        if data.len() != self.substreams * self.heap_bytes {
            return;
        }
        let key = self.key(timestamp);
        let batch = self.batches.entry(key);
        let batch = batch.or_insert_with(|| Batch::new(now));
        if batch.ours.is_some() {
            return;
        }
        self.bytes += data.len();
        for (substream, theirs) in std::mem::take(&mut batch.theirs) {
            self.bytes -= theirs.len();
            batch.compared += 1;
            self.compared += 1;
            show(Pair {
                timestamp,
                substream,
                ours: &data[substream * self.heap_bytes..][..self.heap_bytes],
                theirs: &theirs,
            });
        }
        batch.ours = Some((timestamp, data));
        self.tidy(key);
    }

    /// Adds a heap that came; shows the pair that it makes.
    pub fn add_theirs(&mut self, heap: KeptHeap, now: Instant, mut show: impl FnMut(Pair<'_>)) {
        let substream = heap.substream;
        if heap.data.len() != self.heap_bytes || substream >= self.substreams {
            return;
        }
        let key = self.key(heap.timestamp);
        let batch = self.batches.entry(key);
        let batch = batch.or_insert_with(|| Batch::new(now));
        match &batch.ours {
            Some((timestamp, data)) => {
                batch.compared += 1;
                self.compared += 1;
                show(Pair {
                    timestamp: *timestamp,
                    substream,
                    ours: &data[substream * self.heap_bytes..][..self.heap_bytes],
                    theirs: &heap.data,
                });
            }
            None => {
                self.bytes += heap.data.len();
                batch.theirs.push((substream, heap.data));
            }
        }
        self.tidy(key);
    }

    /// Forgets the batch if it is complete, and the oldest if there are too many bytes.
    fn tidy(&mut self, key: u64) {
        let complete = |batch: &Batch| batch.compared == self.substreams;
        if self.batches.get(&key).is_some_and(complete) {
            self.forget(key);
        }
        while self.bytes > self.room {
            match self.batches.keys().next() {
                Some(&oldest) => self.forget(oldest),
                None => return,
            }
        }
    }

    /// Forgets batches whose other half does not come any more.
    pub fn forget_old(&mut self, now: Instant) {
        let old = |batch: &Batch| now.saturating_duration_since(batch.since) > self.patience;
        let batches = self.batches.iter();
        let keys: Vec<_> = batches.filter(|(_, b)| old(b)).map(|(&k, _)| k).collect();
        keys.into_iter().for_each(|key| self.forget(key));
    }

    /// Forgets all batches.
    pub fn close(&mut self) {
        while let Some((&key, _)) = self.batches.first_key_value() {
            self.forget(key);
        }
    }

    /// The key of a timestamp, of which the bits count that the wire has.
    fn key(&mut self, timestamp: u64) -> u64 {
        // From one range on, so that what is earlier than the first has a smaller one.
        let near = self.last.unwrap_or(Timestamp::WIRE_RANGE);
        let key = Timestamp::unwrap(timestamp & WIRE, Timestamp(near)).0;
        self.last = Some(key);
        key
    }

    fn forget(&mut self, key: u64) {
        let Some(batch) = self.batches.remove(&key) else {
            return;
        };
        self.only_theirs += batch.theirs.len() as u64;
        self.bytes -= batch
            .theirs
            .iter()
            .map(|(_, data)| data.len())
            .sum::<usize>();
        if let Some((_, data)) = batch.ours {
            self.bytes -= data.len();
            self.only_ours += (self.substreams - batch.compared) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::engine;

    const OPTIONS: &str = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";

    fn output() -> OutputConfig {
        engine(OPTIONS, |_| {}).outputs[0].clone()
    }

    fn pairs() -> Pairs {
        let output = output();
        Pairs::new(&output, &engine(OPTIONS, |_| {}))
    }

    fn heap(substream: usize, timestamp: u64) -> KeptHeap {
        KeptHeap {
            stream: 0,
            substream,
            timestamp,
            data: vec![10 + substream as u8; output().heap_bytes()],
        }
    }

    /// Whichever comes first, and though the wire has 48 bits.
    #[test]
    fn halves_meet() {
        let output = output();
        let (heaps, ahead) = (output.heap_bytes(), 5u64 << 48);
        let ours: Vec<u8> = [vec![1; heaps], vec![2; heaps]].concat();
        let mut seen = Vec::new();
        let (mut pairs, now) = (pairs(), Instant::now());
        let mut show = |pair: Pair<'_>| {
            seen.push((
                pair.timestamp - ahead,
                pair.substream,
                pair.ours[0],
                pair.theirs[0],
            ));
        };
        pairs.add_theirs(heap(1, 128), now, &mut show);
        pairs.add_ours(ahead + 128, ours.clone(), now, &mut show);
        pairs.add_theirs(heap(0, 128), now, &mut show);
        pairs.add_ours(ahead + 256, ours, now, &mut show);
        pairs.add_theirs(heap(0, 256), now, &mut show);
        assert_eq!(seen, [(128, 1, 2, 11), (128, 0, 1, 10), (256, 0, 1, 10)]);
        assert_eq!((pairs.batches.len(), pairs.bytes), (1, 2 * heaps));
    }

    #[test]
    fn what_finds_no_half_is_counted_and_takes_no_more_memory() {
        let output = output();
        let (mut pairs, now) = (pairs(), Instant::now());
        pairs.room = 10 * output.batch_bytes();
        for i in 0..100 {
            pairs.add_ours(i * 128, vec![0; output.batch_bytes()], now, |_| panic!());
            pairs.add_theirs(heap(0, (1000 + i) * 128), now, |_| panic!());
        }
        assert!(pairs.bytes <= pairs.room);
        assert!(pairs.only_ours > 150 && pairs.compared == 0, "{pairs:?}");
    }

    #[test]
    fn what_finds_no_half_for_long_is_counted() {
        let output = output();
        let (mut pairs, begun) = (pairs(), Instant::now());
        pairs.add_ours(128, vec![0; output.batch_bytes()], begun, |_| panic!());
        pairs.add_theirs(heap(0, 256), begun, |_| panic!());
        let later = begun + pairs.patience;
        pairs.add_theirs(heap(1, 384), later, |_| panic!());
        pairs.forget_old(later);
        assert_eq!((pairs.only_ours, pairs.only_theirs), (0, 0));
        pairs.forget_old(later + Duration::from_millis(1));
        assert_eq!((pairs.only_ours, pairs.only_theirs), (2, 1));
        assert_eq!((pairs.batches.len(), pairs.bytes), (1, output.heap_bytes()));
        // At the end, all.
        pairs.close();
        assert_eq!((pairs.only_ours, pairs.only_theirs), (2, 2));
        assert_eq!((pairs.batches.len(), pairs.bytes), (0, 0));
    }

    /// Though heaps wait from before the wire's timestamps began anew, and memory is full.
    #[test]
    fn halves_meet_behind_the_wrap_of_the_wire() {
        let output = output();
        let (mut pairs, now) = (pairs(), Instant::now());
        pairs.room = 4 * output.batch_bytes();
        let wrap = 3 * Timestamp::WIRE_RANGE;
        for i in 1..=20 {
            pairs.add_theirs(heap(0, (wrap - i * 128) & WIRE), now, |_| panic!());
        }
        let mut seen = Vec::new();
        for i in 0..20 {
            let (timestamp, data) = (wrap + i * 128, vec![0; output.batch_bytes()]);
            let mut show = |pair: Pair<'_>| seen.push(pair.timestamp);
            pairs.add_ours(timestamp, data, now, &mut show);
            pairs.add_theirs(heap(0, i * 128), now, &mut show);
        }
        let expected = (0..20).map(|i| wrap + i * 128);
        assert_eq!(seen, expected.collect::<Vec<_>>());
        // The oldest made room.
        assert_eq!(pairs.only_theirs, 20);
    }

    #[test]
    fn both_sides_select_the_same_batches() {
        let selection = Selection::new(&output(), 3);
        let taken = (0..9u64).filter(|i| selection.takes(i * 128));
        assert_eq!(taken.collect::<Vec<_>>(), [0, 3, 6]);
        let ahead = 7u64 << 48;
        assert!((0..9).all(|i| selection.takes(ahead + i * 128) == selection.takes(i * 128)));
    }
}

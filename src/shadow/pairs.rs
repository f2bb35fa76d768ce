//! Heaps that came and batches that were computed here, until both of a kind are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::config::OutputConfig;
use crate::engine::ChunkObserver;
use crate::memory::OutputMemory;
use crate::sink::live::KeptHeap;

/// Bytes that may wait for the thread that compares, and in it for the other half.
const WAITING: usize = 256 << 20;
/// Timestamps on the wire have so many bits.
pub const WIRE: u64 = (1 << 48) - 1;

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
    /// Which batches.
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
#[derive(Debug, Default)]
struct Batch {
    ours: Option<(u64, Vec<u8>)>,
    /// Heaps that wait for ours, by substream.
    theirs: Vec<(usize, Vec<u8>)>,
    compared: usize,
}

/// Halves of one stream that wait for the other.
#[derive(Debug)]
pub struct Pairs {
    substreams: usize,
    heap_bytes: usize,
    /// By timestamp on the wire.
    batches: BTreeMap<u64, Batch>,
    bytes: usize,
    room: usize,
    /// Heaps that came and were not computed here.
    pub only_theirs: u64,
    /// Heaps that were computed here and did not come.
    pub only_ours: u64,
    /// Heaps of which both were there.
    pub compared: u64,
}

impl Pairs {
    /// Pairs of an output, one of so many `streams`.
    pub fn new(output: &OutputConfig, streams: usize) -> Self {
        Self {
            substreams: output.dst.len(),
            heap_bytes: output.heap_bytes(),
            batches: BTreeMap::new(),
            bytes: 0,
            room: (WAITING / streams.max(1)).max(4 * output.batch_bytes()),
            only_theirs: 0,
            only_ours: 0,
            compared: 0,
        }
    }

    /// Adds a batch that was computed here; shows all pairs that it makes.
    pub fn add_ours(&mut self, timestamp: u64, data: Vec<u8>, mut show: impl FnMut(Pair<'_>)) {
        let wire = timestamp & WIRE;
        let batch = self.batches.entry(wire).or_default();
        if batch.ours.is_some() || data.len() != self.substreams * self.heap_bytes {
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
        self.tidy(wire);
    }

    /// Adds a heap that came; shows the pair that it makes.
    pub fn add_theirs(&mut self, heap: KeptHeap, mut show: impl FnMut(Pair<'_>)) {
        let (wire, substream) = (heap.timestamp & WIRE, heap.substream);
        if heap.data.len() != self.heap_bytes || substream >= self.substreams {
            return;
        }
        let batch = self.batches.entry(wire).or_default();
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
        self.tidy(wire);
    }

    /// Forgets the batch if it is complete, and the oldest if there are too many bytes.
    fn tidy(&mut self, wire: u64) {
        let complete = |batch: &Batch| batch.compared == self.substreams;
        if self.batches.get(&wire).is_some_and(complete) {
            self.forget(wire);
        }
        while self.bytes > self.room {
            match self.batches.keys().next() {
                Some(&oldest) => self.forget(oldest),
                None => return,
            }
        }
    }

    fn forget(&mut self, wire: u64) {
        let Some(batch) = self.batches.remove(&wire) else {
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

    fn output() -> OutputConfig {
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        engine(options, |_| {}).outputs[0].clone()
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
        let mut pairs = Pairs::new(&output, 1);
        let mut show = |pair: Pair<'_>| {
            seen.push((
                pair.timestamp - ahead,
                pair.substream,
                pair.ours[0],
                pair.theirs[0],
            ));
        };
        pairs.add_theirs(heap(1, 128), &mut show);
        pairs.add_ours(ahead + 128, ours.clone(), &mut show);
        pairs.add_theirs(heap(0, 128), &mut show);
        pairs.add_ours(ahead + 256, ours, &mut show);
        pairs.add_theirs(heap(0, 256), &mut show);
        assert_eq!(seen, [(128, 1, 2, 11), (128, 0, 1, 10), (256, 0, 1, 10)]);
        assert_eq!((pairs.batches.len(), pairs.bytes), (1, 2 * heaps));
    }

    #[test]
    fn what_finds_no_half_is_counted_and_takes_no_more_memory() {
        let output = output();
        let mut pairs = Pairs::new(&output, 1);
        pairs.room = 10 * output.batch_bytes();
        for i in 0..100 {
            pairs.add_ours(i * 128, vec![0; output.batch_bytes()], |_| panic!());
            pairs.add_theirs(heap(0, (1000 + i) * 128), |_| panic!());
        }
        assert!(pairs.bytes <= pairs.room);
        assert!(pairs.only_ours > 150 && pairs.compared == 0, "{pairs:?}");
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

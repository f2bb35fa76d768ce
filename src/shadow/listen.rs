//! The thread that takes in what the engine sends.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk::{MbufBatch, RxQueue};
use ground::{Idle, IdlePolicy, StopFlag};

use super::pairs::{Half, Inlet, Selection};
use crate::config::OutputConfig;
use crate::sink::live::{KeptHeap, Shape, Tracker};
use crate::sink::{Kind, StreamReport, classify};

/// What the thread has heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// Frames that are none of the streams', by cause.
    pub ignored: BTreeMap<&'static str, u64>,
    /// One per stream.
    pub streams: Vec<StreamReport>,
}

/// Newest timestamp of each stream, in the bits that the wire has.
pub type Newest = Arc<Vec<AtomicU64>>;

/// What takes in heaps.
pub struct Listener {
    queues: Vec<RxQueue>,
    trackers: Vec<Tracker>,
    selections: Vec<Selection>,
    routes: HashMap<SocketAddrV4, (usize, usize)>,
    inlet: Inlet,
    newest: Newest,
    heard: Heard,
}

impl Listener {
    /// Takes in heaps of these outputs from the queues.
    pub fn new(
        queues: Vec<RxQueue>,
        outputs: &[OutputConfig],
        selections: Vec<Selection>,
        array_size: u64,
        inlet: Inlet,
    ) -> Self {
        let tracker = |output: &OutputConfig| {
            let shape = Shape {
                channels: output.channels_per_substream() as u64,
                spectra: output.spectra_per_heap() as u64,
                bits: output.sample_bits,
            };
            let dst = output.dst.clone();
            let tracker = Tracker::new(&output.name, dst, Some(shape), Some(array_size));
            tracker.with_batch_samples(output.batch_samples() as u64)
        };
        let routes = outputs.iter().enumerate();
        let routes = routes.flat_map(|(stream, output)| {
            let dsts = output.dst.iter().enumerate();
            dsts.map(move |(sub, dst)| (*dst, (stream, sub)))
        });
        Self {
            queues,
            routes: routes.collect(),
            trackers: outputs.iter().map(tracker).collect(),
            selections,
            inlet,
            newest: Arc::new(outputs.iter().map(|_| AtomicU64::new(0)).collect()),
            heard: Heard::default(),
        }
    }

    /// Newest timestamps, for anybody to look at.
    pub fn newest(&self) -> Newest {
        self.newest.clone()
    }

    /// Takes in what comes until it is stopped.
    pub fn run(mut self, stop: &StopFlag) -> Heard {
        let mut idle = Idle::new(IdlePolicy::Share);
        let mut batch: MbufBatch = MbufBatch::new();
        let mut queues = std::mem::take(&mut self.queues);
        queues.iter_mut().for_each(RxQueue::discard);
        while !stop.is_set() {
            let mut received = 0;
            for queue in &mut queues {
                received += queue.rx_burst(&mut batch);
                for mbuf in batch.iter() {
                    self.take(mbuf.data());
                }
                batch.clear();
            }
            match received {
                0 => idle.wait(),
                _ => idle.reset(),
            }
        }
        let trackers = self.trackers.into_iter();
        self.heard.streams = trackers.map(Tracker::finish).collect();
        self.heard
    }

    fn take(&mut self, frame: &[u8]) {
        let (route, kind) = match classify(frame) {
            Ok(found) => found,
            Err(cause) => return self.ignore(cause),
        };
        let Some(&(stream, sub)) = self.routes.get(&route.1) else {
            return self.ignore("not-ours");
        };
        let selected = match &kind {
            Kind::Spectra(spectra, _) => {
                self.newest[stream].store(spectra.timestamp, Ordering::Relaxed);
                self.selections[stream].takes(spectra.timestamp)
            }
            _ => false,
        };
        if let Some(heap) = self.trackers[stream].add(sub, &kind, || selected) {
            let heap = KeptHeap { stream, ..heap };
            self.inlet.offer(Half::Theirs(heap));
        }
    }

    fn ignore(&mut self, cause: &'static str) {
        *self.heard.ignored.entry(cause).or_default() += 1;
    }
}

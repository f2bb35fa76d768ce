//! The thread that takes in what the engine sends.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpdk::{MbufBatch, RxQueue};
use ground::{Idle, IdlePolicy, StopFlag};

use super::pairs::{Half, Inlet, Selection};
use crate::config::{EngineConfig, OutputConfig};
use crate::sink::counts::is_of;
use crate::sink::live::{KeptHeap, Shape, Tracker};
use crate::sink::{Kind, StreamReport, classify};

/// What the thread has heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// Frames that are none of the engine's streams, by cause.
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
    feng_id: u64,
    array_size: u64,
    heard: Heard,
}

impl Listener {
    /// Takes in heaps of this engine's outputs from the queues.
    pub fn new(
        queues: Vec<RxQueue>,
        engine: &EngineConfig,
        selections: Vec<Selection>,
        inlet: Inlet,
    ) -> Self {
        let (outputs, array_size) = (&engine.outputs, engine.array_size);
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
            feng_id: engine.feng_id,
            array_size,
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
        if !self.is_of_engine(&kind) {
            return self.ignore("other-engine");
        }
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

    /// Whether the engine sent it: all engines of an array send to the same groups. Heaps without
    /// an F-engine number are told apart by their counts.
    fn is_of_engine(&self, kind: &Kind<'_>) -> bool {
        match kind {
            Kind::Spectra(spectra, _) => spectra.feng_id == self.feng_id,
            Kind::Descriptors(count, _) | Kind::Stop(count) => {
                is_of(*count, self.feng_id, self.array_size)
            }
            Kind::Other => true,
        }
    }

    fn ignore(&mut self, cause: &'static str) {
        *self.heard.ignored.entry(cause).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use ground::Timestamp;

    use super::*;
    use crate::config::tests::engine;
    use crate::net::MacAddr;
    use crate::send::{HEADER_BYTES, Packetiser, SourceAddress};
    use crate::shadow::pairs::{Outlet, queue};

    fn config(feng_id: u64) -> EngineConfig {
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        engine(options, |config| {
            config.feng_id = feng_id;
            config.array_size = 8;
        })
    }

    /// What F-engine `feng_id` sends.
    fn sender(feng_id: u64) -> Packetiser {
        let source = SourceAddress {
            mac: MacAddr([2, 0, 0, 0, 0, feng_id as u8]),
            ip: [10, 0, 0, 1].into(),
            port: 50000,
        };
        Packetiser::new(&config(feng_id), 0, source)
    }

    fn listener() -> (Listener, Outlet) {
        let (inlet, outlet) = queue();
        let config = config(3);
        let selections = vec![Selection::new(&config.outputs[0], 1)];
        let listener = Listener::new(Vec::new(), &config, selections, inlet);
        (listener, outlet)
    }

    /// Sends a batch whose bytes are the F-engine's number.
    fn send(listener: &mut Listener, sender: &mut Packetiser, feng_id: u8, timestamp: u64) {
        for index in 0..sender.batch_packets() {
            let mut header = [0; HEADER_BYTES];
            let range = sender.packet(Timestamp(timestamp), index, &mut header);
            let payload = vec![feng_id; range.len()];
            listener.take(&[&header[..], &payload].concat());
        }
        sender.finish_batch();
    }

    /// The others are heard first, are ahead, and stop before.
    #[test]
    fn heaps_of_the_other_engines_of_the_array_are_ignored() {
        let (mut listener, outlet) = listener();
        let newest = listener.newest();
        let mut senders = [2, 3, 4].map(sender);
        for batch in 1..=6 {
            for (sender, (feng_id, ahead)) in senders.iter_mut().zip([(2, 40), (3, 0), (4, 3)]) {
                send(&mut listener, sender, feng_id, (batch + ahead) * 128);
            }
            assert_eq!(newest[0].load(Ordering::Relaxed), batch * 128);
            for sender in [0, 2] {
                let stop = senders[sender].clone().stop_frames();
                stop.iter().for_each(|frame| listener.take(frame));
            }
        }
        let stopped = StopFlag::default();
        stopped.set();
        let heard = listener.run(&stopped);
        // Two batches of two heaps and two stop heaps, six times.
        assert_eq!(heard.ignored, [("other-engine", 6 * (4 + 4))].into());
        let stream = &heard.streams[0];
        assert_eq!((stream.feng_id, stream.stop_heaps), (3, 0));
        assert_eq!(stream.problems, Vec::<String>::new());
        let mut heaps = Vec::new();
        while let Ok(Some(half)) = outlet.take(std::time::Duration::ZERO) {
            let Half::Theirs(heap) = half else { panic!() };
            assert!(heap.data.iter().all(|&byte| byte == 3));
            heaps.push((heap.timestamp / 128, heap.substream));
        }
        let expected = (1..=6).flat_map(|batch| [(batch, 0), (batch, 1)]);
        assert_eq!(heaps, expected.collect::<Vec<_>>());
    }

    /// Whose counts begin at 2^40, no multiple of the array's size.
    #[test]
    fn heaps_of_a_second_interface_are_heard() {
        let (inlet, outlet) = queue();
        let mut config = config(3);
        config.array_size = 80;
        let selections = vec![Selection::new(&config.outputs[0], 1)];
        let mut listener = Listener::new(Vec::new(), &config, selections, inlet);
        let source = SourceAddress {
            mac: MacAddr([2, 0, 0, 0, 0, 3]),
            ip: [10, 0, 0, 2].into(),
            port: 50000,
        };
        let mut sender = Packetiser::new(&config, 0, source).through(1, 2);
        send(&mut listener, &mut sender, 3, 128);
        let Ok(Some(Half::Theirs(heap))) = outlet.take(std::time::Duration::ZERO) else {
            panic!("no heap");
        };
        assert_eq!((heap.timestamp, heap.substream), (128, 1));
        assert_eq!(listener.heard.ignored, BTreeMap::new());
    }
}

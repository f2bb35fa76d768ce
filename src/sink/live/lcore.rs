//! The loop of the lcore that receives, and what it tells.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};

use dpdk::{MbufBatch, RxQueue};
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, StopFlag, TscClock, tsc};

use super::check::Inlet;
use super::power::StreamView;
use super::track::{KeptHeap, Tracker};
use crate::sink::{Kind, StreamReport, classify};

/// How often counts are shown, in times a second.
const SHOWN: u64 = 20;
/// How often a heap of each stream is taken for the check, in times a second.
const CHECKED: u64 = 5;

/// What a sink's lcore shows of itself while it is at work.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Frames received.
    pub frames: u64,
    /// Frames that are none of the streams', by cause.
    pub ignored: HashMap<&'static str, u64>,
    /// One per stream.
    pub streams: Vec<StreamReport>,
    /// What is shown of each stream.
    pub views: Vec<StreamView>,
}

/// Where it is shown.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<Seen>>);

impl Shown {
    /// Shows this from the beginning.
    #[cfg(test)]
    pub fn of(seen: Seen) -> Self {
        Self(Arc::new(Mutex::new(seen)))
    }

    /// The newest.
    pub fn get(&self) -> Seen {
        ground::lock(&self.0).clone()
    }
}

/// What a sink's lcore is made of.
pub struct SinkParts {
    /// Where packets come from.
    pub queue: RxQueue,
    /// The streams.
    pub trackers: Vec<Tracker>,
    /// Where heaps are compared, if they are.
    pub check: Option<Inlet>,
    /// Where it shows what it has seen.
    pub shown: Shown,
    /// Ends it.
    pub stop: StopFlag,
    /// What its ticks are.
    pub clock: TscClock,
    /// What to do while nothing comes.
    pub idle: IdlePolicy,
}

/// The lcore of a sink.
pub struct SinkLcore {
    parts: SinkParts,
    routes: HashMap<SocketAddrV4, (usize, usize)>,
    seen: Seen,
    /// When a heap of each stream is to be kept, and of which substream.
    keep: Vec<(u64, usize)>,
    /// How often it has shown itself.
    shows: u64,
    /// A heap that the check had no time for yet.
    kept: Option<KeptHeap>,
}

impl SinkLcore {
    /// An lcore that has not begun.
    pub fn new(parts: SinkParts) -> Self {
        let streams = parts.trackers.iter().enumerate();
        let routes = streams.flat_map(|(stream, tracker)| {
            let dsts = tracker.destinations().iter().enumerate();
            dsts.map(move |(sub, dst)| (*dst, (stream, sub)))
        });
        Self {
            routes: routes.collect(),
            keep: vec![(0, 0); parts.trackers.len()],
            seen: Seen {
                views: vec![StreamView::default(); parts.trackers.len()],
                ..Seen::default()
            },
            shows: 0,
            kept: None,
            parts,
        }
    }

    /// Receives until it is stopped, then returns what came of each stream.
    pub fn run(mut self, timer: &mut PhaseTimer) -> Seen {
        let mut idle = Idle::new(self.parts.idle);
        let mut batch: MbufBatch = MbufBatch::new();
        let period = self.parts.clock.hz() / SHOWN;
        let mut show = tsc();
        self.parts.queue.discard();
        while !self.parts.stop.is_set() {
            timer.turn();
            let received = self.parts.queue.rx_burst(&mut batch);
            let now = tsc();
            if received > 0 {
                idle.reset();
                timer.mark(Phase::WaitInput);
                for mbuf in batch.iter() {
                    self.take(mbuf.data(), now);
                }
                batch.clear();
                timer.mark(Phase::Work);
            } else {
                idle.wait();
            }
            if let Some(inlet) = &self.parts.check
                && let Some(heap) = self.kept.take()
            {
                self.kept = inlet.offer(heap);
            }
            if now >= show {
                show = now + period;
                self.show();
            }
        }
        self.seen.streams = self
            .parts
            .trackers
            .into_iter()
            .map(Tracker::finish)
            .collect();
        self.seen
    }

    fn take(&mut self, frame: &[u8], now: u64) {
        self.seen.frames += 1;
        let (route, kind) = match classify(frame) {
            Ok(found) => found,
            Err(cause) => return self.ignore(cause),
        };
        let Some(&(stream, sub)) = self.routes.get(&route.1) else {
            return self.ignore("not-ours");
        };
        if matches!(kind, Kind::Other) {
            return self.ignore("other-spead");
        }
        let inlet = self.parts.check.as_ref();
        let checks = inlet.is_some_and(|inlet| inlet.takes(stream)) && self.kept.is_none();
        let (due, of) = self.keep[stream];
        let keep = || checks && now >= due && sub == of;
        let heap = self.parts.trackers[stream].add(sub, &kind, keep);
        if let Some(heap) = heap {
            self.kept = Some(KeptHeap { stream, ..heap });
            // Another substream the next time.
            let substreams = self.parts.trackers[stream].destinations().len();
            self.keep[stream] = (now + self.parts.clock.hz() / CHECKED, (of + 1) % substreams);
        }
    }

    fn ignore(&mut self, cause: &'static str) {
        *self.seen.ignored.entry(cause).or_default() += 1;
    }

    /// Nobody is waited for: what cannot be shown now will be.
    fn show(&mut self) {
        if let Ok(mut shown) = self.parts.shown.0.try_lock() {
            self.seen.streams = self.parts.trackers.iter().map(Tracker::report).collect();
            self.shows += 1;
            let views = self.seen.views.iter_mut();
            for (view, tracker) in views.zip(&mut self.parts.trackers) {
                view.whole = tracker.whole().to_vec();
                // Each second, so that a page has a spectrum for each of its documents.
                let due = self.shows.is_multiple_of(SHOWN);
                if let Some(powers) = due.then(|| tracker.take_powers()).flatten() {
                    view.powers = Some(Arc::new(powers));
                }
                if let Some(power_db) = due.then(|| tracker.take_power_db()).flatten() {
                    view.power_db = power_db;
                }
            }
            shown.clone_from(&self.seen);
        }
    }
}

//! A digitiser that sends in real time: the loop of its lcore.

mod history;
mod start;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam::queue::ArrayQueue;
use dpdk::{BURST, Mbuf, MbufBatch, MbufPool, TxQueue};
use ground::stats::{Phase, PhaseTimer};
use ground::{Idle, IdlePolicy, StopFlag, Timestamp, TscClock, tsc};
use katcp::reading::unix_now;
use spead::digitiser::PREAMBLE_LEN;
use tokio::sync::oneshot;

use super::config::DigitiserConfig;
use super::faults::{Fault, FaultPlan, Ledger, SimHeap};
use super::stream::{Origin, Packets, heaps};
use super::window::Windows;
use crate::net::frame::{HEADERS_LEN, HeaderTemplate};
use crate::send::Pace;
use history::WindowHistory;
pub use start::{Start, StartError};

/// Late heaps are made up for at so many times their rate (as katgpucbf's library has it).
const CATCH_UP: f64 = 1.05;
/// How long an lcore that shares its CPU may be held up by others, and then make up for it at once.
const HELD_UP: Duration = Duration::from_millis(250);
/// Heaps that are later than this are never sent: a digitiser does not wait for the network.
const MOST_LATE: Duration = Duration::from_millis(500);
/// Room for a frame with descriptors.
const DESCRIPTOR_FRAME: usize = 1024;

/// What was sent so far.
#[derive(Debug, Default)]
pub struct SimStats {
    /// Data heaps that the port has taken.
    pub heaps: AtomicU64,
    /// Bytes of samples in them.
    pub bytes: AtomicU64,
    /// Heaps that the port did not take in time.
    pub skipped: AtomicU64,
    /// Wall clock less nominal time of the last heap when it was handed over, or of the newest
    /// that waits, in seconds: bits of an `f64`.
    time_error: AtomicU64,
    /// Faults by kind.
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl SimStats {
    /// Wall clock less nominal time of the last heap when it was handed over, in seconds; of the
    /// newest that waits, if the port takes none.
    pub fn time_error(&self) -> f64 {
        f64::from_bits(self.time_error.load(Ordering::Relaxed))
    }

    /// Faults injected so far, by kind.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        ground::lock(&self.faults).clone()
    }
}

/// Other signals, from the next heap on.
pub struct SignalsChange {
    /// Their samples.
    pub windows: Arc<Windows>,
    /// Told from which timestamp on they are sent; with it come those that are of no use any more.
    pub done: oneshot::Sender<(Timestamp, Vec<Arc<Windows>>)>,
}

impl SignalsChange {
    /// Has heaps from `next` on be of these signals, whose first timestamp is `timestamp`. Not if
    /// nobody waits for it any more: then the asker has been told that nothing changes.
    fn take(self, next: u64, timestamp: Timestamp, history: &mut WindowHistory) {
        match self.done.send((timestamp, history.take_unused())) {
            Ok(()) => history.change(next, self.windows),
            // Samples are given back beside the lcore, which would take long for it.
            Err((_, unused)) => history.keep(unused.into_iter().chain([self.windows])),
        }
    }
}

/// What a sending lcore is made of.
pub struct SimParts {
    /// What to send; its first timestamp is that of the start.
    pub config: DigitiserConfig,
    /// Where frames say that they come from.
    pub origin: Origin,
    /// When the first sample is taken.
    pub begin: Instant,
    /// Heaps per polarisation; `None`: without end.
    pub heaps: Option<u64>,
    /// Faults, and their seed.
    pub faults: (FaultPlan, u64),
    /// Where they go.
    pub queue: TxQueue,
    /// Their buffers, with room for [`SimParts::data_room`].
    pub pool: MbufPool,
    /// Ticks of its pace.
    pub clock: TscClock,
    /// Signals to change to.
    pub changes: Arc<ArrayQueue<SignalsChange>>,
    /// What was sent.
    pub stats: Arc<SimStats>,
    /// What to do while nothing is due.
    pub idle: IdlePolicy,
    /// Ends it.
    pub stop: StopFlag,
}

impl SimParts {
    /// Room that a buffer has to have.
    pub fn data_room(config: &DigitiserConfig) -> usize {
        (HEADERS_LEN + PREAMBLE_LEN + config.heap_bytes()).max(DESCRIPTOR_FRAME)
    }
}

/// The lcore of a digitiser.
pub struct SimLcore {
    parts: SimParts,
    packets: Packets,
    pace: Pace,
    history: WindowHistory,
    /// Index after that of the newest heap sent.
    next: u64,
    batch: MbufBatch,
    /// What is in the batch, in its order; `None` for descriptors.
    waiting: VecDeque<Option<SimHeap>>,
    /// When the port last took something, or the batch was empty.
    taken: Instant,
    /// Index of the newest heap, while it may be in the batch.
    newest: Option<u64>,
    /// Index and polarisation of the heap that was skipped last.
    skipped: Option<(u64, usize)>,
    idle: Idle,
}

impl SimLcore {
    /// An lcore that has not begun, whose samples are those of `windows`.
    pub fn new(parts: SimParts, windows: Arc<Windows>) -> Self {
        let (config, plan) = (&parts.config, &parts.faults.0);
        let held_up = match parts.idle {
            IdlePolicy::Poll => parts.idle.longest_nap(),
            IdlePolicy::Share => HELD_UP,
        };
        Self {
            pace: Pace::new(parts.clock, most_rate(config, plan), held_up, tsc()),
            packets: Packets::new(config, parts.origin),
            history: WindowHistory::new(windows, config.dests.len(), plan),
            next: 0,
            batch: MbufBatch::new(),
            waiting: VecDeque::with_capacity(BURST),
            taken: Instant::now(),
            newest: None,
            skipped: None,
            idle: Idle::new(parts.idle),
            parts,
        }
    }

    /// Sends each heap when its last sample is there, until it is stopped or has sent all.
    pub fn run(mut self, timer: &mut PhaseTimer) {
        let ledger = Ledger::default();
        let pols = self.parts.config.dests.len();
        let (plan, seed) = self.parts.faults;
        let all = heaps(pols, self.parts.heaps.unwrap_or(u64::MAX));
        let samples = self.parts.config.heap_samples;
        let mut heaps = plan.decorate(all, seed, samples, &ledger).peekable();
        while !self.parts.stop.is_set() {
            timer.turn();
            if let Some(change) = self.parts.changes.pop() {
                self.change(change);
            }
            let since = Instant::now().saturating_duration_since(self.parts.begin);
            let due = due(&self.parts.config, since);
            let mut work = self.drop_late(due.start);
            // Also while the port takes nothing, and nothing has room.
            while !self.parts.stop.is_set()
                && let Some(heap) =
                    heaps.next_if(|heap| heap.index < due.start && heap.index >= self.next)
            {
                work = true;
                self.skip(heap);
            }
            while self.batch.room() > 0
                && !self.parts.stop.is_set()
                && let Some(&heap) = heaps.peek()
                && heap.index.max(self.next.saturating_sub(1)) < due.end
                && self.pace.allows(tsc())
            {
                work = true;
                // Behind one that faults held back, others may have become late.
                if heap.index < due.start && heap.index >= self.next {
                    self.skip(heap);
                } else if !self.fill(heap) {
                    break;
                }
                heaps.next();
            }
            if work {
                timer.mark(Phase::Work);
            }
            self.note_faults(&ledger);
            // Also when there is nothing: drivers then free what was sent.
            if self.flush() > 0 {
                self.idle.reset();
                timer.mark(Phase::Work);
            } else if self.batch.is_empty() && heaps.peek().is_none() {
                break;
            } else {
                self.idle.wait();
                let waits = if self.batch.is_empty() {
                    Phase::WaitInput
                } else {
                    Phase::WaitOutput
                };
                timer.mark(waits);
            }
        }
        self.flush();
        self.drop_waiting();
        // Nothing is sent any more, so that it may wait for who reads them.
        let mut faults = ground::lock(&self.parts.stats.faults);
        note(&mut ledger.borrow_mut(), &mut faults);
    }

    fn change(&mut self, change: SignalsChange) {
        let timestamp = Timestamp(self.parts.config.timestamp(self.next));
        change.take(self.next, timestamp, &mut self.history);
    }

    /// Counts a heap that is not sent: once, though it be a duplicate.
    fn skip(&mut self, heap: SimHeap) {
        self.history.came(heap);
        self.count_skipped(heap);
    }

    fn count_skipped(&mut self, heap: SimHeap) {
        let place = Some((heap.index, heap.pol));
        if std::mem::replace(&mut self.skipped, place) != place {
            self.parts.stats.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Throws away what is in the batch if the port has not taken it, and the newest heap of it is
    /// before this index, or all were held back by faults and wait as long; returns whether there
    /// was something.
    fn drop_late(&mut self, first: u64) -> bool {
        let waits_long = !self.batch.is_empty() && self.taken.elapsed() > MOST_LATE;
        let is_late = self.newest.map_or(waits_long, |newest| newest < first);
        if is_late {
            self.drop_waiting();
        }
        is_late
    }

    fn drop_waiting(&mut self) {
        self.batch.clear();
        self.newest = None;
        for heap in std::mem::take(&mut self.waiting).into_iter().flatten() {
            self.count_skipped(heap);
        }
    }

    /// Puts a heap into the batch, with descriptors before it if they are due. False while there
    /// are no buffers.
    fn fill(&mut self, heap: SimHeap) -> bool {
        if self.batch.room() > 1
            && let Some((template, packet)) = self.packets.descriptors_due(heap.index)
        {
            let Some(mbuf) = frame(&self.parts.pool, template, &[&packet]) else {
                return false;
            };
            // There is room.
            let _ = self.batch.push(mbuf);
            self.waiting.push_back(None);
            self.packets.descriptors_sent(heap.index);
        }
        let windows = self.history.of(heap.index);
        let template = self.packets.template(heap);
        let mbuf = if heap.damage.is_some() {
            let mut packet = Vec::new();
            self.packets.packet(windows, heap, &mut packet);
            frame(&self.parts.pool, template, &[&packet])
        } else {
            let (payload, saturated) = windows.heap(heap.pol, self.packets.place(heap));
            let preamble = self.packets.preamble(heap, saturated, payload.len());
            frame(&self.parts.pool, template, &[&preamble, payload])
        };
        let Some(mbuf) = mbuf else {
            return false;
        };
        self.pace.sent(mbuf.pkt_len() - HEADERS_LEN, tsc());
        let _ = self.batch.push(mbuf);
        self.waiting.push_back(Some(heap));
        self.history.came(heap);
        self.newest = newest(self.newest, heap.index, self.next);
        self.next = self.next.max(heap.index + 1);
        true
    }

    /// Hands over what is in the batch, as far as the port takes it.
    fn flush(&mut self) -> usize {
        let taken = self.parts.queue.tx_burst(&mut self.batch);
        let (config, stats) = (&self.parts.config, &self.parts.stats);
        let heaps = self.waiting.drain(..taken).flatten().count() as u64;
        stats.heaps.fetch_add(heaps, Ordering::Relaxed);
        let bytes = heaps * config.heap_bytes() as u64;
        stats.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Of those that faults hold back there is none.
        if let Some(index) = self.newest {
            let end = Timestamp(config.timestamp(index + 1)).unix(config.clock);
            let bits = (unix_now() - end).to_bits();
            stats.time_error.store(bits, Ordering::Relaxed);
        }
        if self.batch.is_empty() {
            self.newest = None;
        }
        if taken > 0 || self.batch.is_empty() {
            self.taken = Instant::now();
        }
        taken
    }

    fn note_faults(&self, ledger: &Ledger) {
        let mut ledger = ledger.borrow_mut();
        if ledger.is_empty() {
            return;
        }
        // Who reads them may have lost its CPU: the next turn notes them as well.
        if let Ok(mut faults) = self.parts.stats.faults.try_lock() {
            note(&mut ledger, &mut faults);
        }
    }
}

/// Heaps of a polarisation that are to be sent so long after the first sample: their last sample is
/// there, and has been for [`MOST_LATE`] at most.
fn due(config: &DigitiserConfig, since: Duration) -> Range<u64> {
    let heap = config.heap_samples as f64 / config.clock.adc_sample_rate;
    let whole = |time: Duration| (time.as_secs_f64() / heap) as u64;
    whole(since.saturating_sub(MOST_LATE))..whole(since)
}

/// Bytes a second that may be sent: late heaps are made up for, and faults send some twice.
fn most_rate(config: &DigitiserConfig, plan: &FaultPlan) -> f64 {
    let packet = (PREAMBLE_LEN + config.heap_bytes()) * config.dests.len();
    let rate = packet as f64 * config.clock.adc_sample_rate / config.heap_samples as f64;
    CATCH_UP * (1.0 + plan.duplicate) * rate
}

/// Index of the newest heap of a batch, of which another one is `index`, and `next` the first that
/// has not been sent: a heap that faults hold back says nothing of the clock.
fn newest(before: Option<u64>, index: u64, next: u64) -> Option<u64> {
    match index + 1 >= next {
        true => Some(index),
        false => before,
    }
}

/// Counts the faults of a ledger, which is empty then.
fn note(ledger: &mut Vec<Fault>, faults: &mut BTreeMap<&'static str, u64>) {
    for fault in ledger.drain(..) {
        *faults.entry(fault.kind).or_default() += 1;
    }
}

/// A frame with a payload in parts; `None` while there are no buffers.
fn frame(pool: &MbufPool, template: &HeaderTemplate, payload: &[&[u8]]) -> Option<Mbuf> {
    let bytes = payload.iter().map(|part| part.len()).sum::<usize>();
    let mut mbuf = pool.alloc()?;
    let data = mbuf.append(HEADERS_LEN + bytes)?;
    let (headers, mut rest) = data.split_first_chunk_mut::<HEADERS_LEN>()?;
    template.emit(bytes, headers);
    for part in payload {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
    Some(mbuf)
}

const _: () = assert!(BURST > 2, "descriptors go in front of a heap");

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use dpdk::{Device, Eal, PoolConfig, PortConfig, mbuf_ring};
    use dsp::SampleBits;
    use ground::SampleClock;
    use ground::stats::PhaseTimes;
    use std::ptr;

    pub(crate) fn config(sync_time: f64) -> DigitiserConfig {
        DigitiserConfig {
            clock: SampleClock {
                adc_sample_rate: 1e6,
                sync_time,
            },
            signals: crate::sim::parse("0;", || 0).unwrap(),
            dests: vec![vec!["239.102.0.64:7148".parse().unwrap()]],
            heap_samples: 4096,
            sample_bits: SampleBits::new(10).unwrap(),
            first_id: 0,
            period: 8192,
            max_period: 1 << 20,
            dither_seed: 1,
            ttl: 4,
            first_timestamp: 0,
        }
    }

    #[test]
    fn signals_that_nobody_waits_for_are_not_sent() {
        let config = config(0.0);
        let made = || Arc::new(Windows::new(&config, &config.signals, config.period));
        let (first, other) = (made(), made());
        let mut history = WindowHistory::new(first.clone(), 1, &FaultPlan::default());
        let (done, taken) = oneshot::channel();
        drop(taken);
        let windows = other.clone();
        let late = SignalsChange { windows, done };
        late.take(1, Timestamp(4096), &mut history);
        assert!(ptr::eq(history.of(1), &*first));

        let (done, mut taken) = oneshot::channel();
        let windows = other.clone();
        let change = SignalsChange { windows, done };
        change.take(2, Timestamp(8192), &mut history);
        assert!(ptr::eq(history.of(1), &*first) && ptr::eq(history.of(2), &*other));
        assert_eq!(taken.try_recv().unwrap().0, Timestamp(8192));
    }

    /// The lcore would stand still while it gives gigabytes back.
    #[test]
    fn samples_that_nobody_takes_wait_for_the_next_who_does() {
        let config = config(0.0);
        let made = || Arc::new(Windows::new(&config, &config.signals, config.period));
        let [first, second, late, third] = [made(), made(), made(), made()];
        let plan = FaultPlan::default();
        let mut history = WindowHistory::new(first.clone(), 1, &plan);
        history.change(1, second.clone());
        // The first are of no use any more.
        for heap in plan.decorate(heaps(1, 4), 1, 4096, &Ledger::default()) {
            history.came(heap);
        }
        let (done, taken) = oneshot::channel();
        drop(taken);
        let windows = late.clone();
        SignalsChange { windows, done }.take(4, Timestamp(16384), &mut history);
        assert!(ptr::eq(history.of(4), &*second));

        let (done, mut taken) = oneshot::channel();
        let windows = third.clone();
        SignalsChange { windows, done }.take(5, Timestamp(20480), &mut history);
        let (_, unused) = taken.try_recv().unwrap();
        let expected = [&first, &late];
        assert!(unused.iter().zip(expected).all(|(a, b)| Arc::ptr_eq(a, b)));
        assert_eq!(unused.len(), expected.len());
        assert!(ptr::eq(history.of(4), &*second) && ptr::eq(history.of(5), &*third));
    }

    /// Heaps of more than a second are no later than others when their last sample is there.
    #[test]
    fn heaps_are_late_by_time() {
        let mut config = config(0.0);
        let due = |config: &_, seconds| due(config, Duration::from_secs_f64(seconds));
        assert_eq!(due(&config, 0.1), 0..24);
        assert_eq!(due(&config, 1.0), 122..244);
        config.clock.adc_sample_rate = 4000.0;
        for (seconds, expected) in [(1.02, 0..0), (1.03, 0..1), (1.52, 0..1), (1.53, 1..1)] {
            assert_eq!(due(&config, seconds), expected, "{seconds}");
        }
        assert_eq!(due(&config, 3.1), 2..3);
    }

    /// Heaps that are sent twice take twice the bytes.
    #[test]
    fn duplicates_have_their_part_of_the_pace() {
        let config = config(0.0);
        // Of 1e6 samples with 10 bits, and 72 bytes for each 4096.
        let bytes = 1e6 * (1.25 + 72.0 / 4096.0);
        for (plan, copies) in [("", 1.0), ("duplicate=0.5", 1.5), ("duplicate=1", 2.0)] {
            let rate = most_rate(&config, &plan.parse().unwrap());
            assert!(
                (rate / (copies * bytes) - 1.05).abs() < 1e-9,
                "{plan}: {rate}"
            );
        }
    }

    /// What is counted of so many heaps, the first of which is so late, where nobody takes what the
    /// port sends: it has room for 15 packets.
    fn unread(name: &str, heaps: u64, late: Duration, plan: FaultPlan) -> Arc<SimStats> {
        unread_behind(0, (name, 15), heaps, late, plan)
    }

    /// The same where the heaps before `next` were held back, and with room for so many packets.
    fn unread_behind(
        next: u64,
        (name, room): (&str, usize),
        heaps: u64,
        late: Duration,
        plan: FaultPlan,
    ) -> Arc<SimStats> {
        let eal = Eal::for_tests();
        let (sender, _sink) = mbuf_ring(eal, &format!("{name}_out"), room).unwrap();
        let (_unused, end) = mbuf_ring(eal, &format!("{name}_in"), 15).unwrap();
        let port = Device::rings(eal, name, vec![end], vec![sender]).unwrap();
        let queue = port.start(&PortConfig::default()).unwrap().tx.remove(0);
        let config = config(unix_now() - late.as_secs_f64());
        let pool = PoolConfig {
            mbufs: 127,
            cache: 0,
            data_room: SimParts::data_room(&config),
            socket: None,
        };
        let stats = Arc::new(SimStats::default());
        let windows = Arc::new(Windows::new(&config, &config.signals, config.period));
        let parts = SimParts {
            config,
            origin: Origin::CAPTURE,
            begin: Instant::now().checked_sub(late).unwrap(),
            heaps: Some(heaps),
            faults: (plan, 1),
            queue,
            pool: MbufPool::new(eal, name, pool).unwrap(),
            clock: eal.tsc_clock(),
            changes: Arc::new(ArrayQueue::new(1)),
            stats: stats.clone(),
            idle: IdlePolicy::Share,
            stop: StopFlag::default(),
        };
        let mut timer = PhaseTimer::start(PhaseTimes::new("digitiser", None));
        let mut lcore = SimLcore::new(parts, windows);
        lcore.next = next;
        lcore.run(&mut timer);
        stats
    }

    /// Heaps that faults hold back are sent however late; those behind them are not.
    #[test]
    fn late_heaps_behind_those_that_faults_hold_back_are_skipped() {
        let late = Duration::from_secs(60);
        let sent = |name, room| {
            let stats = unread_behind(50, (name, room), 200, late, FaultPlan::default());
            [&stats.heaps, &stats.skipped].map(|count| count.load(Ordering::Relaxed))
        };
        assert_eq!(sent("dsim_held", 63), [50, 150]);
        // What the port does not take is skipped as well: it has room for descriptors and 14.
        assert_eq!(sent("dsim_held_full", 15), [14, 186]);
    }

    #[test]
    fn duplicates_are_skipped_once() {
        let plan = "duplicate=1".parse().unwrap();
        let stats = unread("dsim", 20, Duration::from_secs(60), plan);
        assert_eq!(stats.heaps.load(Ordering::Relaxed), 0);
        assert_eq!(stats.skipped.load(Ordering::Relaxed), 20);
        assert_eq!(stats.faults()["duplicate"], 20);
    }

    /// As one whose link is down: what it does not take is late after a while: skipped.
    #[test]
    fn heaps_that_the_port_does_not_take_are_skipped() {
        let stats = unread("dsim_full", 200, Duration::ZERO, FaultPlan::default());
        let counts = [&stats.heaps, &stats.skipped].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts.iter().sum::<u64>(), 200);
        assert!((1..=15).contains(&counts[0]), "{counts:?}");
        let bytes = 5120 * counts[0];
        assert_eq!(stats.bytes.load(Ordering::Relaxed), bytes);
        // The newest that waited, some time after it was due.
        let error = stats.time_error();
        assert!((0.1..600.0).contains(&error), "{error}");
    }

    #[test]
    fn heaps_that_are_late_on_purpose_say_nothing_of_the_clock() {
        // Both polarisations of a heap, then one that was held back.
        assert_eq!(newest(None, 7, 7), Some(7));
        assert_eq!(newest(Some(7), 7, 8), Some(7));
        assert_eq!(newest(Some(7), 3, 8), Some(7));
        assert_eq!(newest(None, 3, 8), None);
    }
}

//! What all threads of a run share: where it ends, and why.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use super::bell::Bell;
use super::settings::Patience;
use crate::queue::Alone;

/// Why a run ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The path of the node, the input or the output.
    pub path: String,
    /// What it did.
    pub text: String,
}

impl Failure {
    pub(super) fn node(path: String, text: String) -> Failure {
        Failure { path, text }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl std::error::Error for Failure {}

/// What somebody else's code said when it panicked.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panicked".into())
}

/// Where a run ends.
pub(super) struct Control {
    /// All threads are to end at once: everything is out, or something failed.
    stop: AtomicBool,
    /// The user wants the run to end.
    quit: AtomicBool,
    /// The threads that have something to do up to the end: the one that writes, and those of
    /// partitions that no output needs.
    busy: AtomicUsize,
    /// Ticks whose inputs have been sent. What all threads look at in each step is elsewhere.
    sent: Alone<AtomicU64>,
    /// What the thread that writes waits for `sent` to become; the most while it does not.
    awaited: Alone<AtomicU64>,
    /// The tick before which the run ends.
    end: AtomicU64,
    /// The tick before which the user wants the run to end.
    wanted: AtomicU64,
    failure: Mutex<Option<Failure>>,
    pub bells: Vec<Arc<Bell>>,
}

impl Control {
    /// `busy`: how many threads end the run, once all have done so ([`Control::finish`]).
    pub fn new(partitions: usize, limit: Option<u64>, busy: usize) -> Control {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let bell = |_| Arc::new(Bell::new(partitions, cpus));
        Control {
            stop: AtomicBool::new(false),
            quit: AtomicBool::new(false),
            busy: AtomicUsize::new(busy),
            sent: Alone(AtomicU64::new(0)),
            awaited: Alone(AtomicU64::new(u64::MAX)),
            end: AtomicU64::new(limit.unwrap_or(u64::MAX)),
            wanted: AtomicU64::new(u64::MAX),
            failure: Mutex::new(None),
            bells: (0..partitions).map(bell).collect(),
        }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// One thread has done all up to the end. The last one ends all.
    pub fn finish(&self) {
        if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.stop();
        }
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        self.bells.iter().for_each(|bell| bell.ring());
    }

    /// Ends all threads for a reason. The first one counts.
    pub fn fail(&self, failure: Failure) {
        self.tell(failure);
        self.stop();
    }

    /// Has the run fail for a reason once it has come to its end. The first one counts.
    pub fn tell(&self, failure: Failure) {
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(failure);
    }

    pub fn failure(&self) -> Option<Failure> {
        let kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }

    pub fn quit(&self) {
        self.quit.store(true, Ordering::Release);
        self.ring();
    }

    pub fn quits(&self) -> bool {
        self.quit.load(Ordering::Acquire)
    }

    /// Asks for the end before `tick`.
    pub fn stop_at(&self, tick: u64) {
        self.wanted.fetch_min(tick, Ordering::AcqRel);
        self.ring();
    }

    /// Sets the end, if it is asked for within the step from tick `at` on, or was before.
    pub fn stop_within(&self, at: u64, step: u64) {
        let wanted = self.wanted.load(Ordering::Acquire);
        if wanted < at + step {
            self.end_at(wanted.max(at));
        }
    }

    /// The tick before which a thread at tick `at` has to go on: a wish for the end is heeded where
    /// its tick has not been passed.
    pub fn wanted(&self, at: u64) -> u64 {
        let wanted = self.wanted.load(Ordering::Acquire);
        self.end_tick()
            .min(if wanted < at { u64::MAX } else { wanted })
    }

    /// Sets the end as it was asked for while the step from tick `at` on was read: within it, or
    /// behind it where the tick has been passed.
    pub fn stop_behind(&self, at: u64, step: u64) {
        let wanted = self.wanted.load(Ordering::Acquire);
        if wanted < at + step {
            self.end_at(if wanted < at { at + step } else { wanted });
        }
    }

    /// The tick before which the run ends.
    pub fn end_tick(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Lets the run end before `tick`, if it does not end earlier.
    pub fn end_at(&self, tick: u64) {
        self.end.fetch_min(tick, Ordering::AcqRel);
        self.ring();
    }

    pub fn sent(&self) -> u64 {
        self.sent.0.load(Ordering::Acquire)
    }

    /// The inputs of all ticks before `tick` have been sent.
    pub fn send_to(&self, tick: u64) {
        self.sent.0.store(tick, Ordering::Release);
        // Either this sees what is awaited, or whoever awaits it sees what has been sent.
        fence(Ordering::SeqCst);
        if tick >= self.awaited.0.load(Ordering::Relaxed) {
            self.bells[super::layout::OUT].ring();
        }
    }

    /// Waits until the inputs of all ticks before `tick` have been sent, or all ends.
    pub fn await_sent(&self, tick: u64, patience: Patience) {
        let ready = || self.sent() >= tick || self.stopped();
        if ready() {
            return;
        }
        self.awaited.0.store(tick, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.bells[super::layout::OUT].wait(patience, ready);
        self.awaited.0.store(u64::MAX, Ordering::Relaxed);
    }
}

//! The thread of one partition.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::bell::Bell;
use super::change::{self, Clock, Follower};
use super::code::PartitionCode;
use super::control::{Control, Failure, panicked};
use super::lane::Store;
use super::link::{Receiver, Sender};
use super::settings::Patience;
use super::telemetry::{Counts, EVERY, Waited, add};
use super::unit::{self, Fault};

/// The queues of one partition, and how it waits for them.
pub(super) struct PartitionQueues {
    pub partition: usize,
    pub receivers: Vec<Receiver>,
    pub senders: Vec<Sender>,
    pub bell: Arc<Bell>,
    pub patience: Patience,
    pub control: Arc<Control>,
    pub counts: Arc<Counts>,
}

/// How a partition that no output needs comes to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// It gets what the inputs or the outputs' partitions get, up to the end.
    Bound,
    /// It has its own pace.
    Free,
}

/// A partition that runs.
pub(super) struct Worker {
    pub queues: PartitionQueues,
    pub code: PartitionCode,
    pub paths: Vec<String>,
    /// Ticks of a step.
    pub step: u64,
    /// How changes are followed, if there is anything that can change.
    pub follower: Option<Follower>,
    /// The ticks that its steps are.
    pub clock: Clock,
    /// Set where no output needs it: then the run waits until it has come to the end.
    pub last: Option<Last>,
    /// Whether ticks are counted and steps are timed.
    pub telemetry: bool,
    /// The unit that runs now, to be named if it fails.
    pub now: usize,
}

/// Everything is to end.
pub(super) struct Stopped;

/// A wait, which counts as one from its begin on.
pub(super) struct Waits<'a, const N: usize> {
    counts: &'a Counts,
    all: [&'a Waited; N],
}

impl<'a, const N: usize> Waits<'a, N> {
    pub fn begin(counts: &'a Counts, all: [&'a Waited; N]) -> Waits<'a, N> {
        let now = counts.now();
        all.iter().for_each(|waited| waited.begin(now));
        Waits { counts, all }
    }

    pub fn end(self) {
        let now = self.counts.now();
        self.all.iter().for_each(|waited| waited.end(now));
    }
}

impl PartitionQueues {
    /// Waits until all queues let a step begin.
    pub fn wait_to_begin(&mut self) -> Result<(), Stopped> {
        for index in 0..self.receivers.len() {
            if self.receivers[index].may_begin() {
                continue;
            }
            self.wake_peers();
            let PartitionQueues {
                partition,
                receivers,
                bell,
                patience,
                control,
                counts,
                ..
            } = self;
            let receiver = &mut receivers[index];
            let counts: &Counts = counts;
            let (queue, own) = (
                receiver.times().clone(),
                &counts.partitions[*partition].empty,
            );
            let waits = Waits::begin(counts, [&queue.reader.0, own]);
            bell.wait(*patience, || receiver.may_begin() || control.stopped());
            waits.end();
            self.check_stopped()?;
        }
        self.wait_for_room(Sender::may_begin)
    }

    /// Waits until all queues take what has been computed.
    pub fn wait_for_room(&mut self, has: impl Fn(&mut Sender) -> bool) -> Result<(), Stopped> {
        for index in 0..self.senders.len() {
            if has(&mut self.senders[index]) {
                continue;
            }
            self.wake_peers();
            let PartitionQueues {
                partition,
                senders,
                bell,
                patience,
                control,
                counts,
                ..
            } = self;
            let sender = &mut senders[index];
            let counts: &Counts = counts;
            let (queue, own) = (sender.times().clone(), &counts.partitions[*partition].full);
            let waits = Waits::begin(counts, [&queue.writer.0, own]);
            bell.wait(*patience, || has(sender) || control.stopped());
            waits.end();
            self.check_stopped()?;
        }
        self.check_stopped()
    }

    /// Wakes all threads at other ends that sleep for what this one did: it may not wait before.
    pub fn wake_peers(&mut self) {
        self.senders.iter_mut().for_each(Sender::wake_peer);
        self.receivers.iter_mut().for_each(Receiver::wake_peer);
    }

    fn check_stopped(&self) -> Result<(), Stopped> {
        if self.control.stopped() {
            Err(Stopped)
        } else {
            Ok(())
        }
    }

    /// Gives the blocks back that came and that signals have worked in.
    pub fn release(&mut self, store: &mut Store) {
        let receivers = self.receivers.iter_mut();
        receivers.for_each(|receiver| receiver.give_back(store));
    }

    pub fn receive(&mut self, store: &mut Store, timed: bool) {
        for receiver in &mut self.receivers {
            if timed && receiver.begins_block() {
                let fill = receiver.fill() as u64;
                receiver.times().found(fill);
            }
            receiver.receive(store);
        }
    }

    pub fn send(&mut self, store: &Store, timed: bool) -> Result<(), Stopped> {
        self.wait_for_room(Sender::may_send)?;
        let begin = timed.then(Instant::now);
        for sender in &mut self.senders {
            sender.send(store);
        }
        if let Some(begin) = begin {
            let time = begin.elapsed().as_nanos() as u64;
            add(&self.counts.partitions[self.partition].writing, time);
        }
        Ok(())
    }
}

impl Worker {
    /// Runs until everything ends. A fault or a panic of a node ends everything and names it.
    pub fn work(mut self) {
        self.queues.bell.answer();
        let result = catch_unwind(AssertUnwindSafe(|| self.run()));
        let control = self.queues.control.clone();
        match result {
            Ok(Ok(())) => {}
            Ok(Err(Fault { item, text })) => {
                control.fail(Failure::node(self.paths[item].clone(), text));
            }
            Err(panic) => {
                let text = panicked(&*panic);
                let paths = self.code.units.get(self.now).map(|unit| {
                    let paths = unit.items.iter().map(|&item| self.paths[item].as_str());
                    paths.collect::<Vec<&str>>().join(", ")
                });
                control.fail(Failure::node(paths.unwrap_or_default(), text));
            }
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let counts = self.queues.counts.clone();
        let counts = &counts.partitions[self.queues.partition];
        let control = self.queues.control.clone();
        for index in 0..self.code.units.len() {
            self.now = index;
            self.code.units[index].start();
        }
        for step in 0u64.. {
            if self.queues.wait_to_begin().is_err() {
                return Ok(());
            }
            let at = self.clock.tick(step.saturating_mul(self.step));
            if at >= control.end_tick() || self.is_let_go(at) {
                self.pass_on();
                return Ok(());
            }
            if let Some(follower) = &mut self.follower {
                change::prepare(&mut self.code, &follower.begin(self.step));
            }
            let timed = self.telemetry && step % EVERY == 1;
            if timed {
                self.timed(counts, (step / EVERY).is_multiple_of(2))?;
            } else {
                self.queues.receive(&mut self.code.store, false);
                for index in 0..self.code.units.len() {
                    self.now = index;
                    unit::run(&mut self.code, index)?;
                }
            }
            self.queues.release(&mut self.code.store);
            if self.queues.send(&self.code.store, timed).is_err() {
                return Ok(());
            }
            self.code.end_step();
            if self.telemetry {
                add(&counts.ticks, self.step);
            }
        }
        Ok(())
    }

    /// Whether it runs free, and whoever wants an end does not wait until it comes to where the
    /// outputs are.
    fn is_let_go(&self, at: u64) -> bool {
        let control = &self.queues.control;
        self.last == Some(Last::Free) && (control.quits() || at >= control.wanted(0))
    }

    /// Behind the end no node runs: blocks of 0 go on to those that are not there yet.
    fn pass_on(&mut self) {
        if self.last.is_some() {
            self.queues.control.finish();
        }
        loop {
            self.queues.receive(&mut self.code.store, false);
            self.queues.release(&mut self.code.store);
            for sender in &self.queues.senders {
                sender.clear(&mut self.code.store);
            }
            if self.queues.send(&self.code.store, false).is_err()
                || self.queues.wait_to_begin().is_err()
            {
                return;
            }
        }
    }

    /// One step with a look at the clock before and behind, or also behind each unit: then the step
    /// itself takes longer, and does not count as one.
    fn timed(
        &mut self,
        counts: &super::telemetry::PartitionTimes,
        whole: bool,
    ) -> Result<(), Fault> {
        let begin = Instant::now();
        self.queues.receive(&mut self.code.store, true);
        let mut last = Instant::now();
        add(&counts.reading, (last - begin).as_nanos() as u64);
        add(&counts.timed, 1);
        for index in 0..self.code.units.len() {
            self.now = index;
            unit::run(&mut self.code, index)?;
            if !whole {
                let now = Instant::now();
                add(&counts.units[index], (now - last).as_nanos() as u64);
                last = now;
            }
        }
        if whole {
            let now = Instant::now();
            counts.steps.add((now - begin).as_nanos() as u64);
            add(&counts.computing, (now - last).as_nanos() as u64);
            add(&counts.whole, 1);
        }
        Ok(())
    }
}

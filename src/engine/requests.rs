//! Requests of one output on their way into effect.

use std::sync::Arc;

use dsp::delay::{DelayHistory, DelayModels};
use ground::{N_POL, Timestamp, tsc};
use hdrhistogram::Histogram;

use super::Pipeline;
use super::steer::{
    ActiveDelay, Applied, Change, EngineEvent, FORGET, Gains, MODELS, OutputRequests, Published,
    Request,
};
use super::test_patterns::{TestRequest, TestSchedule};

/// Requests of one output: those in effect, and those that are yet to be due.
pub(super) struct PendingRequests {
    /// Index of the output.
    output: usize,
    steered: OutputRequests,
    published: Arc<Published>,
    /// Delay models per polarisation.
    pub delays: [DelayModels; N_POL],
    /// All of them that there ever were, if they are kept.
    pub kept: Option<[DelayHistory; N_POL]>,
    subsampling: u32,
    /// A request that was taken from the queue but is not due yet.
    upcoming: Option<Request>,
    /// Gains that are due with the next output chunk.
    gains: [Option<Gains>; N_POL],
    /// A test pattern that is due then, or an end of one.
    test: Option<Option<TestRequest>>,
    /// Test patterns of chunks that were begun, for those that are complete.
    pub tests: TestSchedule,
    /// Whether the output chunk under construction ends with its current batch, so that `gains`
    /// are due then.
    cut_at_batch: bool,
    stats: RequestStats,
    /// The digitisers' time as control last reported it; 0 before the first report.
    last_told: Timestamp,
    /// Spectrum that the output has been stuck at, and the reported time since when.
    stalled_since: (Timestamp, Timestamp),
    /// Samples without input after which ended delay models are forgotten.
    forget: u64,
}

/// What requests to an output came to.
#[derive(Clone, Debug)]
pub struct RequestStats {
    /// Changes that were made.
    pub changes: u64,
    /// Ticks for which they held up the engine's thread: all that were due at once count as one.
    pub stalls: Histogram<u64>,
}

impl Default for RequestStats {
    fn default() -> Self {
        let longest = 1 << 40;
        Self {
            changes: 0,
            stalls: Histogram::new_with_bounds(1, longest, 3).expect("valid bounds"),
        }
    }
}

impl RequestStats {
    /// Adds what those to another output came to.
    pub fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.stalls.add(&other.stalls).expect("the same bounds");
    }
}

impl PendingRequests {
    /// Nothing was asked for yet of the output with this index, whose input samples are on
    /// multiples of `subsampling` of the digitiser's, of which there are `rate` per second.
    pub fn new(
        output: usize,
        subsampling: u32,
        rate: f64,
        steered: OutputRequests,
        published: Arc<Published>,
    ) -> Self {
        Self {
            output,
            steered,
            published,
            delays: [0; N_POL].map(|_| DelayModels::with_subsampling(subsampling)),
            kept: None,
            subsampling,
            upcoming: None,
            gains: [None, None],
            test: None,
            tests: TestSchedule::default(),
            cut_at_batch: false,
            stats: RequestStats::default(),
            last_told: Timestamp(0),
            stalled_since: (Timestamp(0), Timestamp(0)),
            forget: (FORGET * rate) as u64,
        }
    }

    /// Keeps all delay models from now on.
    pub fn keep(&mut self) {
        let none = |_| DelayHistory::with_subsampling(self.subsampling);
        self.kept = Some([0; N_POL].map(none));
    }

    /// Takes requests that are due at `next`, the next spectrum to be issued; `end` is where the
    /// output chunk will end that is under construction, if it is `building`, or would be begun.
    /// Tells which took effect.
    pub fn take(
        &mut self,
        next: Timestamp,
        end: Timestamp,
        building: bool,
        pipeline: &mut dyn Pipeline,
    ) {
        self.steered.publish_end(end);
        let begun = tsc();
        let before = self.stats.changes;
        while let Some(request) = self.upcoming.take().or_else(|| self.steered.take()) {
            if request.at.is_some_and(|at| at > next) {
                self.upcoming = Some(request);
                break;
            }
            match &request.change {
                Change::Delays { models, .. } => {
                    let output = self.output;
                    for (pol, &model) in models.iter().enumerate() {
                        if let Some(kept) = &mut self.kept {
                            kept[pol].add(next, model);
                        }
                        if self.delays[pol].add(model) {
                            let active = ActiveDelay { output, pol, model };
                            self.published.tell(EngineEvent::Delay(active));
                        }
                    }
                    self.tell_applied(next, request.change.clone());
                }
                Change::Gains(gains) => {
                    for (due, gains) in self.gains.iter_mut().zip(gains) {
                        if let Some(gains) = gains
                            && let Some(former) = due.replace(gains.clone())
                        {
                            self.steered.spend_gains(former);
                        }
                    }
                    self.cut_at_batch |= request.at.is_some();
                }
                Change::Test(test) => {
                    self.test = Some(*test);
                    self.cut_at_batch |= request.at.is_some();
                }
            }
            self.stats.changes += 1;
            self.steered.spend(request);
        }
        self.forget(next);
        self.steered.publish_models(self.delays[0].upcoming());
        let set = !building && self.set_gains(next, pipeline);
        if set || self.stats.changes > before {
            self.stats.stalls.saturating_record(tsc() - begun);
        }
    }

    /// Forgets delay models that ended long ago, if `next` has been the next spectrum for long.
    fn forget(&mut self, next: Timestamp) {
        let now = self.steered.now();
        if now == self.last_told {
            return;
        }
        // A clock that was set back says nothing of how long this has been so.
        let set_back = now < self.last_told;
        if self.last_told == Timestamp(0) || self.stalled_since.0 != next || set_back {
            self.stalled_since = (next, now);
        }
        self.last_told = now;
        let many = self.delays[0].upcoming() > MODELS / 2;
        if many && now.0.saturating_sub(self.stalled_since.1.0) >= self.forget {
            self.advance(Timestamp(now.0.saturating_sub(self.forget)));
        }
    }

    /// Forgets delay models that ended at or before `t`, and tells which then are active.
    pub fn advance(&mut self, t: Timestamp) {
        for (pol, delay) in self.delays.iter_mut().enumerate() {
            if delay.advance(t) {
                let (output, model) = (self.output, *delay.current());
                let active = ActiveDelay { output, pol, model };
                self.published.tell(EngineEvent::Delay(active));
            }
        }
    }

    /// Sets the gains and the test pattern that are due with the next output chunk, which begins at
    /// `next` or later. False if there are none.
    fn set_gains(&mut self, next: Timestamp, pipeline: &mut dyn Pipeline) -> bool {
        self.cut_at_batch = false;
        let test = self.test.take();
        if let Some(test) = test {
            self.tests.ask(next, test);
            self.tell_applied(next, Change::Test(test));
        }
        let due = std::mem::take(&mut self.gains);
        for (pol, gains) in due.iter().enumerate() {
            if let Some(mut gains) = gains.clone() {
                pipeline.set_gains(pol, &mut gains);
                self.steered.spend_gains(gains);
            }
        }
        let any = due.iter().any(Option::is_some);
        if any {
            self.tell_applied(next, Change::Gains(due));
        }
        any || test.is_some()
    }

    fn tell_applied(&self, from: Timestamp, change: Change) {
        let output = self.output;
        self.published.tell(EngineEvent::Applied(Applied {
            output,
            from,
            change,
        }));
    }

    /// When the next request is due.
    pub fn upcoming(&self) -> Option<Timestamp> {
        self.upcoming.as_ref().and_then(|request| request.at)
    }

    /// Whether the output chunk under construction is to end with its batch.
    pub fn cut(&self) -> bool {
        self.cut_at_batch
    }

    /// What requests came to so far.
    pub fn stats(&self) -> &RequestStats {
        &self.stats
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;

//! Requests of one output on their way into effect.

use hdrhistogram::Histogram;

use super::Pipeline;
use super::steer::{Change, Gains, Request, SteeredOutput};
use crate::dpdk::tsc;
use crate::dsp::delay::{DelayModels, LinearDelay};
use crate::units::{N_POL, Timestamp};

/// What requests have changed, and will change.
pub(super) struct Changes {
    steered: SteeredOutput,
    /// Delay models per polarisation.
    pub delays: [DelayModels; N_POL],
    /// Taken, but not due yet.
    upcoming: Option<Request>,
    /// Due with the next output chunk.
    gains: [Option<Gains>; N_POL],
    /// Whether the output chunk under construction is to end with its batch, so that they are due then.
    cut: bool,
    stats: RequestStats,
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

impl Changes {
    /// Nothing was asked for yet.
    pub fn new(steered: SteeredOutput) -> Self {
        Self {
            steered,
            delays: Default::default(),
            upcoming: None,
            gains: [None, None],
            cut: false,
            stats: RequestStats::default(),
        }
    }

    /// Takes requests that are due at `next`, the next spectrum to be issued; `end` is where the output chunk will end
    /// that is under construction, if it is `building`, or would be begun. `active` learns of models that hold at once.
    pub fn take(
        &mut self,
        next: Timestamp,
        end: Timestamp,
        building: bool,
        pipeline: &mut dyn Pipeline,
        mut active: impl FnMut(usize, LinearDelay),
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
                Change::Delays(models) => {
                    for (pol, model) in models.iter().enumerate() {
                        if self.delays[pol].add(*model) {
                            active(pol, *model);
                        }
                    }
                }
                Change::Gains(gains) => {
                    for (due, gains) in self.gains.iter_mut().zip(gains) {
                        if let Some(gains) = gains
                            && let Some(former) = due.replace(gains.clone())
                        {
                            self.steered.spend_gains(former);
                        }
                    }
                    self.cut |= request.at.is_some();
                }
            }
            self.stats.changes += 1;
            self.steered.spend(request);
        }
        let set = !building && self.set_gains(pipeline);
        if set || self.stats.changes > before {
            self.stats.stalls.saturating_record(tsc() - begun);
        }
    }

    /// Sets the gains that are due with the next output chunk. False if there are none.
    fn set_gains(&mut self, pipeline: &mut dyn Pipeline) -> bool {
        let mut any = false;
        for (pol, due) in self.gains.iter_mut().enumerate() {
            if let Some(mut gains) = due.take() {
                pipeline.set_gains(pol, &mut gains);
                self.steered.spend_gains(gains);
                any = true;
            }
        }
        self.cut = false;
        any
    }

    /// When the next request is due.
    pub fn upcoming(&self) -> Option<Timestamp> {
        self.upcoming.as_ref().and_then(|request| request.at)
    }

    /// Whether the output chunk under construction is to end with its batch.
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// What requests came to so far.
    pub fn stats(&self) -> &RequestStats {
        &self.stats
    }
}

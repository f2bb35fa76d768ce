//! Requests of one output on their way into effect.

use hdrhistogram::Histogram;
use rustfft::num_complex::Complex32;

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
    /// Due, but a batch was under construction.
    waiting: [Option<Gains>; N_POL],
    /// One gain per channel, for the pipeline.
    expanded: Vec<Complex32>,
    /// Ticks that each request took.
    stalls: Histogram<u64>,
}

impl Changes {
    /// Nothing was asked for yet.
    pub fn new(steered: SteeredOutput, channels: usize) -> Self {
        Self {
            steered,
            delays: Default::default(),
            upcoming: None,
            waiting: [None, None],
            expanded: Vec::with_capacity(channels),
            stalls: Histogram::new_with_bounds(1, 1 << 40, 3).expect("valid bounds"),
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
        if !building {
            for pol in 0..N_POL {
                if let Some(gains) = self.waiting[pol].take() {
                    self.set_gains(pol, &gains, pipeline);
                }
            }
        }
        while let Some(request) = self.upcoming.take().or_else(|| self.steered.take()) {
            if request.at.is_some_and(|at| at > next) {
                self.upcoming = Some(request);
                break;
            }
            let begun = tsc();
            match &request.change {
                Change::Delays(models) => {
                    for (pol, model) in models.iter().enumerate() {
                        if self.delays[pol].add(*model) {
                            active(pol, *model);
                        }
                    }
                }
                Change::Gains(gains) => {
                    for (pol, gains) in gains.iter().enumerate() {
                        let Some(gains) = gains else { continue };
                        self.waiting[pol] = None;
                        if building && request.at.is_some() {
                            self.waiting[pol] = Some(gains.clone());
                        } else {
                            self.set_gains(pol, gains, pipeline);
                        }
                    }
                }
            }
            self.stalls.saturating_record(tsc() - begun);
            self.steered.spend(request);
        }
    }

    fn set_gains(&mut self, pol: usize, gains: &Gains, pipeline: &mut dyn Pipeline) {
        self.expanded.clear();
        self.expanded.extend(gains.iter());
        pipeline.set_gains(pol, &self.expanded);
    }

    /// When the next request is due.
    pub fn upcoming(&self) -> Option<Timestamp> {
        self.upcoming.as_ref().and_then(|request| request.at)
    }

    /// Whether gains wait for the batch under construction to end.
    pub fn at_batch_end(&self) -> bool {
        self.waiting.iter().any(Option::is_some)
    }

    /// Ticks that each request took.
    pub fn stalls(&self) -> &Histogram<u64> {
        &self.stalls
    }
}

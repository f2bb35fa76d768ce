//! The boundary between control and an engine: requests go in, what happened comes out.
//!
//! Control holds a [`ControlHandle`], the engine a [`RequestQueues`]. Requests travel through a
//! bounded queue per output; what control publishes as sensors comes back through [`Published`].
//! The engine's thread never waits for either.
//!
//! # What takes effect when
//!
//! The engine takes requests before it issues a block of spectra, and while it has no input.
//!
//! | request | at once | at a timestamp ([`ControlHandle::at`]) |
//! |---|---|---|
//! | delays | next spectrum, once the model has begun | first spectrum at or after it |
//! | gains, test patterns | next output chunk | first batch at or after it, which cuts the chunk |
//!
//! Requests at a timestamp are for replays, where they make the output a function of the capture
//! and the requests alone, whatever the size of chunks. They are queued in the order of their
//! timestamps.
//!
//! The engine tells when each took effect ([`EngineEvent::Applied`]): asked for at that timestamp,
//! it has the same effect again.
//!
//! # The steady-state timestamp
//!
//! Every request returns a timestamp from which on all output reflects the request. It is the end E
//! of the output chunk under construction, or of the chunk that the engine would begin. Each side
//! does two things in order, with a sequentially consistent fence in between:
//!
//! ```text
//!  engine                          control
//!  1. publishes E                  1. queues the request
//!     fence                           fence
//!  2. polls the queue              2. reads E, and answers with it
//! ```
//!
//! So one of two things happens when the engine polls:
//!
//! * **It does not find the request.** Then control reads E after the engine published it, and
//!   answers with this E or a later one. The engine finds the request while chunks up to there are
//!   under construction, in time for the chunk that begins at E.
//! * **It finds the request.** Control may have answered with the E before. But all that the engine
//!   issues from here on reflects the request (gains: from the next chunk on), and the chunk before
//!   ended no later than that E.
//!
//! A gap may cut a chunk short. The next chunk then begins elsewhere, but all of it reflects the
//! request.
//!
//! # Without input
//!
//! A delay model ends when output passes the start of the next one. Without input there is no
//! output, and the models of a controller that goes on tracking would pile up. So an engine that
//! has had no input for [`FORGET`] seconds forgets the models that ended as long ago, once it has
//! more than half of [`MODELS`]. It knows the time from control ([`ControlHandle::tell_time`]).

mod gains;
mod published;

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam::queue::ArrayQueue;
use num_complex::Complex32;

pub use gains::{GainError, Gains};
pub use published::{
    ActiveDelay, Applied, EngineEvent, PowerLevel, Published, Received, Sent, TestChange,
};

use dsp::delay::LinearDelay;
use dsp::{Dither, OutputBits};
use ground::{Bell, N_POL, Timestamp};

use crate::config::EngineConfig;
use crate::engine::{OutputStatistics, TestRequest};

/// Requests to one output that a live engine may have before it, at most. An engine takes them
/// within a block; who asks for more meanwhile waits.
pub const REQUESTS: usize = 256;

/// Delay models of an output that may be yet to begin. Requests on their way may be added to them.
pub const MODELS: usize = 4096;
/// How long an engine is without input, in seconds, before it forgets models that ended as long
/// ago.
pub const FORGET: f64 = 60.0;

/// What control asks of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// New gains, of the polarisations that have some.
    Gains([Option<Gains>; N_POL]),
    /// One more delay model per polarisation.
    Delays {
        /// The models.
        models: [LinearDelay; N_POL],
        /// What they were made of, if a client asked for them.
        asked: Option<AskedDelays>,
    },
    /// A test pattern in place of what is computed, or an end of it.
    Test(Option<TestRequest>),
}

/// Delay models in the units of `?delays`. Other units may not have the numbers that make the same
/// models to the last bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AskedDelays {
    /// Where they begin: UNIX time in seconds.
    pub start_time: f64,
    /// Per polarisation: delay in s, rate in s/s, phase in rad, phase rate in rad/s.
    pub models: [[f64; 4]; N_POL],
}

/// A change, and when it is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Output timestamp that it is for; `None`: at once.
    pub at: Option<Timestamp>,
    /// What to change.
    pub change: Change,
}

/// A request that was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// The engine does not take requests.
    #[error(
        "output '{output}' has {waiting} requests waiting, and no more are accepted; the engine may be stuck: try again"
    )]
    Full {
        /// Stream name.
        output: String,
        /// Requests in its queue.
        waiting: usize,
    },
    /// So many models are yet to begin that more would only cost memory and time.
    #[error(
        "output '{output}' has {waiting} delay models that are yet to begin; from {MODELS} on, no later ones are taken: ask for more when some have begun, or for one that begins earlier, which replaces those that begin later"
    )]
    Models {
        /// Stream name.
        output: String,
        /// How many there are.
        waiting: usize,
    },
    /// The gains are not for this output.
    #[error("output '{output}' has {channels} channels, but there are gains for {given}")]
    Channels {
        /// Stream name.
        output: String,
        /// Channels of the output.
        channels: usize,
        /// Channels of the gains.
        given: usize,
    },
    /// There is no such polarisation.
    #[error("input {0} is out of range: it must be 0 or 1")]
    Input(usize),
}

/// What is left to be freed.
#[derive(Debug)]
enum Spent {
    Request(#[expect(dead_code, reason = "only dropped")] Request),
    Gains(#[expect(dead_code, reason = "only dropped")] Gains),
}

/// What both ends share of one output.
#[derive(Debug)]
struct Shared {
    name: String,
    channels: usize,
    /// Bits and dither of the output's samples.
    quantiser: (OutputBits, Dither),
    default_gains: Gains,
    /// The gains last asked for; only control locks it.
    gains: Mutex<[Gains; N_POL]>,
    /// Timestamp from which on all output has the gains last asked for.
    gains_from: AtomicU64,
    requests: ArrayQueue<Request>,
    /// Requests and gains that the engine is done with: control frees their memory.
    spent: ArrayQueue<Spent>,
    /// End of the output chunk under construction.
    end: AtomicU64,
    /// Delay models that are yet to begin.
    models: AtomicUsize,
    /// Where the delay models last asked for begin: none that waits begins later.
    last_start: AtomicI64,
    /// What time it was when control told it last; 0 where nobody does.
    now: AtomicU64,
    /// Wakes the engine.
    bell: Arc<Bell>,
}

/// Control's end of an engine: cheap to clone.
#[derive(Clone, Debug)]
pub struct ControlHandle {
    outputs: Vec<OutputHandle>,
    steady: Arc<AtomicU64>,
}

impl ControlHandle {
    /// Both ends of an engine of `config`, each output of which may have `requests` waiting.
    pub fn new(config: &EngineConfig, requests: usize) -> (Self, RequestQueues) {
        let steady = Arc::new(AtomicU64::new(0));
        let published = Arc::new(Published::new(config.outputs.len()));
        let bell = Arc::<Bell>::default();
        let output = |output: &crate::config::OutputConfig| {
            let gain = Complex32::new(config.gain as f32, 0.0);
            let gains = Gains::uniform(output.channels, gain);
            Arc::new(Shared {
                name: output.name.clone(),
                channels: output.channels,
                quantiser: (output.sample_bits, output.dither),
                gains_from: AtomicU64::new(0),
                gains: Mutex::new([gains.clone(), gains.clone()]),
                default_gains: gains,
                requests: ArrayQueue::new(requests.max(1)),
                // A request, and the gains that its own take the place of.
                spent: ArrayQueue::new((1 + N_POL) * requests.max(1)),
                end: AtomicU64::new(0),
                models: AtomicUsize::new(0),
                last_start: AtomicI64::new(i64::MIN),
                now: AtomicU64::new(0),
                bell: bell.clone(),
            })
        };
        let shared: Vec<_> = config.outputs.iter().map(output).collect();
        let outputs = shared.iter().cloned().enumerate();
        let outputs = outputs.map(|(index, shared)| OutputHandle {
            shared,
            index,
            published: published.clone(),
            at: None,
            steady: steady.clone(),
        });
        let outputs = outputs.collect();
        let steered = RequestQueues {
            outputs: shared.into_iter().map(OutputRequests).collect(),
            published,
            bell,
        };
        (Self { outputs, steady }, steered)
    }

    /// The same, but what it asks for is due when the output reaches `timestamp`, in the order in
    /// which it is asked for.
    pub fn at(&self, timestamp: Timestamp) -> Self {
        let mut timed = self.clone();
        let timestamp = timestamp.min(Timestamp(Timestamp::END));
        for output in &mut timed.outputs {
            output.at = Some(timestamp);
        }
        timed
    }

    /// All outputs, in the order of the configuration.
    pub fn outputs(&self) -> &[OutputHandle] {
        &self.outputs
    }

    /// The output of this name.
    pub fn output(&self, name: &str) -> Option<&OutputHandle> {
        self.outputs.iter().find(|output| output.name() == name)
    }

    /// Tells what sample the digitisers are at by this host's clock, for an engine that has no
    /// input to tell it. What it then forgets depends on that clock, so replays tell nothing.
    pub fn tell_time(&self, now: Timestamp) {
        for OutputHandle { shared, .. } in &self.outputs {
            // It may be earlier than the last: clocks are set.
            shared.now.store(now.0, Ordering::Relaxed);
        }
    }

    /// Every heap from this timestamp on reflects every request so far; 0 before the first.
    pub fn steady_state(&self) -> Timestamp {
        Timestamp(self.steady.load(Ordering::Acquire))
    }
}

/// Control's end of one output.
#[derive(Clone, Debug)]
pub struct OutputHandle {
    shared: Arc<Shared>,
    index: usize,
    published: Arc<Published>,
    at: Option<Timestamp>,
    steady: Arc<AtomicU64>,
}

impl OutputHandle {
    /// Stream name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Channels of the output.
    pub fn channels(&self) -> usize {
        self.shared.channels
    }

    /// Bits and dither of its samples.
    pub fn quantiser(&self) -> (OutputBits, Dither) {
        self.shared.quantiser
    }

    /// Latest statistics of the output.
    pub fn statistics(&self) -> Option<Arc<OutputStatistics>> {
        self.published.statistics().output(self.index)
    }

    /// The latest statistics, if the output had the gains last asked for all the time.
    pub fn statistics_with_gains(&self) -> Option<Arc<OutputStatistics>> {
        let from = Timestamp(self.shared.gains_from.load(Ordering::Acquire));
        self.statistics().filter(|of| of.start >= from)
    }

    /// Whether no more requests can be made until the engine takes some.
    pub fn is_full(&self) -> bool {
        self.shared.requests.is_full()
    }

    /// The gains that it starts with (`--gain`).
    pub fn default_gains(&self) -> &Gains {
        &self.shared.default_gains
    }

    /// The gains last asked for of polarisation `pol`; `None` if there is no such polarisation.
    pub fn gains(&self, pol: usize) -> Option<Gains> {
        self.requested().get(pol).cloned()
    }

    /// Sets the gains of one polarisation. Returns from which timestamp on all output has them.
    pub fn set_gains(&self, pol: usize, gains: Gains) -> Result<Timestamp, EnqueueError> {
        let mut change = [None, None];
        *change.get_mut(pol).ok_or(EnqueueError::Input(pol))? = Some(gains);
        self.change_gains(change)
    }

    /// Sets the gains of both polarisations, from the same spectrum on. Returns as
    /// [`set_gains`](Self::set_gains).
    pub fn set_all_gains(&self, gains: Gains) -> Result<Timestamp, EnqueueError> {
        self.change_gains([Some(gains.clone()), Some(gains)])
    }

    /// Adds one delay model per polarisation to those that it has (see
    /// [`DelayModels::add`](dsp::delay::DelayModels::add)). Returns from which timestamp on it has
    /// them.
    pub fn set_delays(&self, models: [LinearDelay; N_POL]) -> Result<Timestamp, EnqueueError> {
        self.change_delays(models, None)
    }

    /// The same for models that were made of what a client `asked` for.
    pub fn set_asked_delays(
        &self,
        models: [LinearDelay; N_POL],
        asked: AskedDelays,
    ) -> Result<Timestamp, EnqueueError> {
        self.change_delays(models, Some(asked))
    }

    fn change_delays(
        &self,
        models: [LinearDelay; N_POL],
        asked: Option<AskedDelays>,
    ) -> Result<Timestamp, EnqueueError> {
        let waiting = self.shared.models.load(Ordering::Relaxed);
        let start = models.iter().map(LinearDelay::start).max();
        let start = start.unwrap_or(i64::MIN);
        // Held so that requests return increasing timestamps.
        let _order = self.requested();
        // One that begins no later replaces at least one.
        if waiting >= MODELS && start > self.shared.last_start.load(Ordering::Relaxed) {
            let output = self.name().to_owned();
            return Err(EnqueueError::Models { output, waiting });
        }
        let steady = self.send(Change::Delays { models, asked })?;
        self.shared.last_start.store(start, Ordering::Relaxed);
        Ok(steady)
    }

    /// Sends a test pattern in place of what is computed, from the next output chunk on, or ends
    /// that. Returns as [`set_gains`](Self::set_gains).
    pub fn set_test(&self, request: Option<TestRequest>) -> Result<Timestamp, EnqueueError> {
        let _order = self.requested();
        self.send(Change::Test(request))
    }

    /// Sets gains of the polarisations that have some, from the same spectrum on. Returns as
    /// [`set_gains`](Self::set_gains).
    pub fn change_gains(&self, gains: [Option<Gains>; N_POL]) -> Result<Timestamp, EnqueueError> {
        if let Some(other) = gains
            .iter()
            .flatten()
            .find(|g| g.channels() != self.channels())
        {
            return Err(EnqueueError::Channels {
                output: self.name().to_owned(),
                channels: self.channels(),
                given: other.channels(),
            });
        }
        // Held so that the last one queued is the one that is told.
        let mut requested = self.requested();
        let effective = self.send(Change::Gains(gains.clone()))?;
        for (requested, gains) in requested.iter_mut().zip(gains) {
            if let Some(gains) = gains {
                *requested = gains;
            }
        }
        let from = &self.shared.gains_from;
        from.fetch_max(effective.0, Ordering::AcqRel);
        Ok(effective)
    }

    fn send(&self, change: Change) -> Result<Timestamp, EnqueueError> {
        let Shared {
            requests, spent, ..
        } = &*self.shared;
        while spent.pop().is_some() {}
        let request = Request {
            at: self.at,
            change,
        };
        requests.push(request).map_err(|_| EnqueueError::Full {
            output: self.name().to_owned(),
            waiting: requests.len(),
        })?;
        self.shared.bell.ring();
        fence(Ordering::SeqCst);
        let end = self.shared.end.load(Ordering::Relaxed);
        let effective = self.at.unwrap_or(Timestamp(end));
        self.steady.fetch_max(effective.0, Ordering::AcqRel);
        Ok(effective)
    }

    fn requested(&self) -> MutexGuard<'_, [Gains; N_POL]> {
        ground::lock(&self.shared.gains)
    }
}

/// The engine's end.
#[derive(Debug)]
pub struct RequestQueues {
    /// One per output, in the order of the configuration.
    pub outputs: Vec<OutputRequests>,
    /// Where it tells what happens.
    pub published: Arc<Published>,
    /// Wakes the lcores of the engine when they sleep: requests ring it, and whoever else gives
    /// them something to do.
    pub bell: Arc<Bell>,
}

impl RequestQueues {
    /// The end of an engine that nobody steers.
    pub fn alone(config: &EngineConfig) -> Self {
        ControlHandle::new(config, 1).1
    }
}

/// The engine's end of one output.
#[derive(Debug)]
pub struct OutputRequests(Arc<Shared>);

impl OutputRequests {
    /// Publishes the end of the output chunk under construction, or of the one that would be begun
    /// now. [`take`](Self::take) comes after this.
    pub fn publish_end(&self, end: Timestamp) {
        self.0.end.store(end.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Publishes how many delay models are yet to begin.
    pub fn publish_models(&self, upcoming: usize) {
        self.0.models.store(upcoming, Ordering::Relaxed);
    }

    /// What time it was when control told it last; 0 where it does not.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.now.load(Ordering::Relaxed))
    }

    /// The next request.
    pub fn take(&self) -> Option<Request> {
        self.0.requests.pop()
    }

    /// Gives a request back, so that control frees its memory.
    pub fn spend(&self, request: Request) {
        // Full only if nothing was asked for in a long time: then it is freed here.
        let _ = self.0.spent.push(Spent::Request(request));
    }

    /// The same for gains that others have taken the place of.
    pub fn spend_gains(&self, gains: Gains) {
        let _ = self.0.spent.push(Spent::Gains(gains));
    }
}

#[cfg(test)]
mod tests;

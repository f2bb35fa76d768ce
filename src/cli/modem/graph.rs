//! Receiving by a dataflow graph.

use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread;

use karoo_modem::formats::ReadCounts;
use karoo_modem::graph::{self, Copies, GraphError};
use karoo_modem::rx::{Counts, ReceivedFrame, RxConfig};
use num_complex::Complex32;

use super::algorithms::refused;
use super::sink::{Sink, lock};
use super::stream::{EndOptions, Source, Watch};
use crate::cli::Failure;

/// What a thread of a run failed with: the run itself tells it as text alone.
#[derive(Clone, Default)]
struct Failed(Arc<Mutex<Option<Failure>>>);

impl Failed {
    /// Keeps a failure, and ends the run.
    fn keep(&self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.to_string());
        *lock(&self.0) = Some(failure);
        error
    }

    /// What the run failed with.
    fn of(&self, error: GraphError) -> Failure {
        let kept = lock(&self.0).take();
        kept.unwrap_or_else(|| match error {
            GraphError::Config(error) => refused(error),
            GraphError::Original => {
                let why = "it has one thread; leave out --graph";
                Failure::usage(format!("--acquisition original with --graph: {why}"))
            }
            other => Failure::data(other),
        })
    }
}

/// So many threads, or what the placement says.
fn copies(threads: Option<usize>) -> Copies {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    match threads {
        Some(threads) => Copies::Number(threads.max(1)),
        None => Copies::Placed(cpus),
    }
}

/// Receives bytes until they end or somebody wants the end, and says what was counted and read.
pub fn receive(
    config: &RxConfig,
    threads: Option<usize>,
    source: Source,
    sink: &mut Sink,
    (watch, end): (&Watch, &EndOptions),
) -> Result<(Counts, ReadCounts), Failure> {
    let mut input = match source {
        Source::Bytes(input) => input,
        Source::Packets(place, ..) => {
            let why = "a stream of packets may begin anew, which no graph does; leave out --graph";
            return Err(Failure::usage(format!("--input {place}: {why}")));
        }
        Source::Link(..) => return Err(Failure::usage("a link has no graph")),
    };
    let (failed, stop) = (Failed::default(), watch.stop().clone());
    let (failed_too, gatherer) = (failed.clone(), sink.gatherer.clone());
    let read_counts = Arc::new(Mutex::new(input.counts()));
    let counts_too = read_counts.clone();
    let read = move |samples: &mut Vec<Complex32>| {
        if stop.is_set() {
            return Ok(0);
        }
        let before = samples.len();
        let count = input.read(samples);
        let count = count.map_err(|error| failed_too.keep(error))?;
        if let Some(gatherer) = &gatherer {
            lock(gatherer).samples(&samples[before..]);
        }
        *lock(&counts_too) = input.counts();
        Ok(count)
    };
    let mut frames: Vec<ReceivedFrame> = Vec::new();
    let each = |frame| {
        frames.push(frame);
        let done = sink.frames(&mut frames);
        if end.is_enough(sink.found) {
            watch.stop().set();
        }
        done.map_err(|error| failed.keep(error))
    };
    let counts = graph::receive(config, copies(threads), read, each);
    let counts = counts.map_err(|error| failed.of(error))?;
    sink.flush()?;
    let read = *lock(&read_counts);
    Ok((counts, read))
}

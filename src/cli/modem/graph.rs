//! Receiving and sending by a dataflow graph.

use std::io;
use std::num::NonZero;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use karoo_flow::adapters::Stop;
use karoo_modem::formats::ReadCounts;
use karoo_modem::graph::{self, Copies, GraphError, Received, SendFrames};
use karoo_modem::rx::{ReceivedFrame, RxConfig};
use num_complex::Complex32;

use super::algorithms::refused;
use super::ending::{EndOptions, Watch};
use super::messages::next_message;
use super::sink::Sink;
use super::stream::Source;
use crate::cli::Failure;

/// What a thread of a run failed with: the run itself tells it as text alone.
#[derive(Clone, Default)]
struct Failed(Arc<Mutex<Option<Failure>>>);

impl Failed {
    /// Keeps a failure, and ends the run.
    fn keep(&self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.to_string());
        *ground::lock(&self.0) = Some(failure);
        error
    }

    /// What the run failed with.
    fn of(&self, error: GraphError) -> Failure {
        let kept = ground::lock(&self.0).take();
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

/// Receives bytes until they end or somebody wants the end, and says what was received and read.
pub fn receive(
    config: &RxConfig,
    threads: Option<usize>,
    source: Source,
    sink: &mut Sink,
    (watch, end): (&Watch, &EndOptions),
) -> Result<(Received, ReadCounts), Failure> {
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
    let meter = sink.meter.clone();
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
            ground::lock(gatherer).samples(&samples[before..]);
        }
        ground::lock(&meter).take(&samples[before..]);
        *ground::lock(&counts_too) = input.counts();
        Ok(count)
    };
    sink.most = end.frames();
    let mut frames: Vec<ReceivedFrame> = Vec::new();
    let each = |frame| {
        frames.push(frame);
        let done = sink.frames(&mut frames);
        if sink.is_full() {
            watch.stop().set();
        }
        done.map_err(|error| failed.keep(error))
    };
    let received = graph::receive(config, copies(threads), read, each);
    let received = received.map_err(|error| failed.of(error))?;
    sink.flush()?;
    let received = Received {
        counts: sink.counted(received.counts, 0),
        ..received
    };
    let read = *ground::lock(&read_counts);
    Ok((received, read))
}

/// Sends messages until there are no more or somebody wants the end: each as a frame and 24 blank
/// symbols, whose samples `each` takes with the number of bytes that are in it.
pub fn send(
    node: &SendFrames,
    threads: Option<usize>,
    messages: Receiver<Result<Vec<u8>, Failure>>,
    stop: Stop,
    mut each: impl FnMut(&[Complex32], usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = Failed::default();
    let failed_too = failed.clone();
    // Frames come out in the order of their messages.
    let (read_sizes, sizes) = mpsc::channel();
    let read = move |bytes: &mut Vec<u8>, _: usize| {
        let message = next_message(&messages, || stop.is_set());
        let message = message.map_err(|failure| failed_too.keep(failure))?;
        let Some(message) = message else {
            return Ok(0);
        };
        bytes.extend(&message);
        // Whoever takes samples is there as long as the graph is.
        let _ = read_sizes.send(message.len());
        Ok(message.len())
    };
    let samples = |samples: &[Complex32]| {
        let used = sizes.try_recv().unwrap_or_default();
        each(samples, used).map_err(|failure| failed.keep(failure))
    };
    graph::send(node, copies(threads), read, samples).map_err(|error| failed.of(error))
}

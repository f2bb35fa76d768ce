//! Runs of both graphs.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use karoo_flow::place::PlanError;
use karoo_flow::run::Failure;
use karoo_flow::{Executor, Problems};
use num_complex::{Complex32, Complex64};

use super::bytes::{Take, complexes};
use super::ends::{Cut, Records, blocks};
use super::placing::{receiving, sending, settings};
use super::record::{self, FrameRecord};
use super::search::{BLOCK, CORRECTION, COUNTS};
use super::send::{SAMPLES, SendFrames};
use crate::rx::{Acquisition, Correction, Counts, ReceivedFrame, RxConfig, RxConfigError};

/// Ticks behind the end of the samples in which frames that were found come out. They are enough
/// for frames that a transmitter sends one behind the other. Frames that lie over one another, for
/// which see [`BLOCK`], may leave more waiting: what then has not come out is lost, and shows in
/// the counts as fields that were detected and of which nothing became.
const FLUSH: usize = 4;

/// How many threads work on frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// So many, beside the one that finds frames.
    Number(usize),
    /// As many as the placement of `karoo_flow` gives them on so many cores, by what the nodes cost
    /// on this machine.
    Placed(usize),
}

/// Why a graph did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// Settings that cannot be.
    #[error(transparent)]
    Config(#[from] RxConfigError),
    /// The original's acquisition, which is one state machine over all samples.
    #[error("the original's acquisition in a graph: it has one thread; receive without a graph")]
    Original,
    /// The graph, or how it was to be run.
    #[error("{0}")]
    Graph(Problems),
    /// No placement.
    #[error("{0}")]
    Plan(PlanError),
    /// What failed while it ran: a reader, a writer, a node.
    #[error("{0}")]
    Run(Failure),
}

/// What a graph has received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received {
    /// Counts of samples and frames.
    pub counts: Counts,
    /// What was taken off samples at their end, if [`RxConfig::correct`] says so.
    pub correction: Option<Correction>,
}

/// Receives samples by a graph. `read` appends samples, and returns how many: 0 at the end. Frames
/// come in their order, and `each` may fail with what it was to write them to.
///
/// Settings of the configuration that a graph has no use for are its threads, level and soft
/// values.
pub fn receive(
    config: &RxConfig,
    copies: Copies,
    read: impl FnMut(&mut Vec<Complex32>) -> io::Result<usize> + Send + 'static,
    mut each: impl FnMut(ReceivedFrame) -> io::Result<()>,
) -> Result<Received, GraphError> {
    config.check()?;
    if config.acquisition != Acquisition::Fits {
        return Err(GraphError::Original);
    }
    let graph = super::receiver(config).map_err(GraphError::Graph)?;
    let settings = settings(&graph, copies, || receiving(config))?;
    let executor = Executor::new(&graph, settings).map_err(GraphError::Graph)?;
    let (samples, used) = blocks(read, BLOCK, Cut::Stream(FLUSH));
    let done = RefCell::new(Counts::default());
    let frames = Records::new(
        record::bytes(config.points),
        |bytes: &[u8]| match FrameRecord::read(bytes).map_err(io::Error::other)? {
            FrameRecord::Nothing => Ok(()),
            FrameRecord::Missed(missed) => {
                done.borrow_mut().miss(missed);
                Ok(())
            }
            FrameRecord::Frame(frame) => {
                done.borrow_mut().add(frame.outcome);
                each(*frame)
            }
        },
    );
    let mut seen = [0; COUNTS];
    let counts = Records::new(8 * COUNTS, |bytes: &[u8]| {
        let mut all = Take(bytes);
        seen = std::array::from_fn(|_| all.u64().unwrap_or(0));
        Ok(())
    });
    let mut off = [0.0; CORRECTION];
    let correction = Records::new(8 * CORRECTION, |bytes: &[u8]| {
        let mut all = Take(bytes);
        off = std::array::from_fn(|_| all.f64().unwrap_or(0.0));
        Ok(())
    });
    let readers: Vec<Box<dyn Read + Send>> = vec![Box::new(samples), Box::new(used)];
    let writers: Vec<Box<dyn Write + '_>> =
        vec![Box::new(frames), Box::new(counts), Box::new(correction)];
    let run = executor
        .prepare(readers, writers)
        .map_err(GraphError::Run)?;
    run.run().map_err(GraphError::Run)?;
    let [samples, bad_samples, detected, before, cut] = seen;
    let done = done.into_inner();
    let counts = Counts {
        samples,
        bad_samples,
        detected,
        not_acquired: before + done.not_acquired,
        cut,
        ..done
    };
    let correction = Correction {
        dc: Complex64::new(off[0], off[1]),
        image: Complex64::new(off[2], off[3]),
    };
    Ok(Received {
        counts,
        correction: config.correct.then_some(correction),
    })
}

/// Sends messages by a graph, each a frame and 24 blank symbols. `read` appends a message of at
/// most as many bytes as it is told, and returns how many: 0 at the end. `each` takes a frame's
/// samples.
pub fn send(
    node: &SendFrames,
    copies: Copies,
    mut read: impl FnMut(&mut Vec<u8>, usize) -> io::Result<usize> + Send + 'static,
    mut each: impl FnMut(&[Complex32]) -> io::Result<()>,
) -> Result<(), GraphError> {
    let graph = super::transmitter(node).map_err(GraphError::Graph)?;
    let settings = settings(&graph, copies, || sending(node))?;
    let executor = Executor::new(&graph, settings).map_err(GraphError::Graph)?;
    let size = node.modulation.payload_bytes();
    let read = move |bytes: &mut Vec<u8>| read(bytes, size);
    let (payloads, used) = blocks(read, size, Cut::Messages);
    let samples = Records::new(8 * SAMPLES, |bytes: &[u8]| each(&complexes(bytes)));
    let readers: Vec<Box<dyn Read + Send>> = vec![Box::new(payloads), Box::new(used)];
    let run = executor
        .prepare(readers, vec![Box::new(samples)])
        .map_err(GraphError::Run)?;
    run.run().map_err(GraphError::Run)?;
    Ok(())
}

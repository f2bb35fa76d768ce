//! Rates of the modem on this machine: transmitter, receiver, both with a converter between them.

mod latency;
mod link;
mod loopback;
mod receiver;
mod threads;
mod transmitter;

pub use latency::{LatencyBench, LatencyRow, measure_latency};
pub use link::Transfer;
pub use loopback::{LoopBench, LoopRow, Phases, ThreadRow, measure_loop};
pub use receiver::{RxBench, RxRow, Way, measure_receiver};
pub use transmitter::{TxBench, TxRow, measure_transmitter};

use std::time::Duration;

use karoo_modem::graph::GraphError;
use karoo_modem::rx::RxConfigError;
use karoo_modem::tx::{DutyError, Transmitter, blank_symbols};
use karoo_modem::waveform::{CheckField, Frame, FrameError, Header, Modulation};
use num_complex::Complex32;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Serialize;

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum ModemBenchError {
    /// A duty cycle that none can have.
    #[error("--duty: {0}")]
    Duty(#[from] DutyError),
    /// Settings that a receiver cannot have.
    #[error("{0}")]
    Receiver(#[from] RxConfigError),
    /// A graph without a thread that decodes.
    #[error("--by graph with --threads 0: a graph decodes on a thread of its own; give 1 or more")]
    NoDecoder,
    /// A graph that did not run to its end.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A frame that cannot be made.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A queue that cannot be made.
    #[error("--block: {0}")]
    Queue(String),
    /// A rate at which a run would last longer than it may.
    #[error(
        "--rate {rate}: {samples} samples, which a run has or which wait in its queues, take longer than --seconds \
         {seconds}; try {least}, or longer --seconds"
    )]
    Slow {
        /// The rate.
        rate: f64,
        /// Samples that a run has at least, or for which its queues have room.
        samples: usize,
        /// Seconds that it may last.
        seconds: f64,
        /// The least rate that would do.
        least: f64,
    },
    /// A thread ended early.
    #[error("a thread ended before its time")]
    Thread,
}

/// What several rounds gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The best.
    pub best: f64,
}

impl Spread {
    /// Of rates, of which the highest is the best.
    fn of(mut rates: Vec<f64>) -> Spread {
        rates.sort_by(f64::total_cmp);
        Spread {
            median: rates.get(rates.len() / 2).copied().unwrap_or(0.0),
            best: rates.last().copied().unwrap_or(0.0),
        }
    }
}

/// Refuses a rate at which so many samples take longer than the time of a run.
fn check_rate(rate: f64, samples: usize, time: Duration) -> Result<(), ModemBenchError> {
    let seconds = time.as_secs_f64();
    let least = (samples as f64 / seconds).ceil();
    match rate >= least {
        true => Ok(()),
        false => Err(ModemBenchError::Slow {
            rate,
            samples,
            seconds,
            least,
        }),
    }
}

/// Frames with random payloads.
fn frames(modulation: Modulation, count: usize) -> Result<Vec<Frame>, FrameError> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let frame = |number: usize| {
        let mut payload = vec![0; modulation.payload_bytes()];
        random.fill(payload.as_mut_slice());
        let header = Header {
            source: number as u8,
            ..Header::new(modulation)
        };
        Frame::new(header, &payload, CheckField::Crc)
    };
    (0..count).map(frame).collect()
}

/// Samples of frames one after the other, with the pauses of a duty cycle.
fn stream(
    modulation: Modulation,
    duty: f64,
    count: usize,
) -> Result<Vec<Complex32>, ModemBenchError> {
    let blanks = blank_symbols(duty)? as usize;
    let mut samples = Vec::new();
    let mut transmitter = Transmitter::new(1.0);
    for frame in frames(modulation, count)? {
        transmitter.frame(&frame, &mut samples);
        transmitter.blanks(blanks, &mut samples);
    }
    transmitter.finish(&mut samples);
    Ok(samples)
}

#[cfg(test)]
mod tests;

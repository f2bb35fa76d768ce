//! Samples per second of transmitters.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use karoo_modem::tx::{Transmitter, blank_symbols};
use karoo_modem::waveform::{CheckField, Frame, Header, Modulation, SAMPLES_PER_SYMBOL};
use schemars::JsonSchema;
use serde::Serialize;

use super::threads::own_seconds;
use super::{ModemBenchError, Spread};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct TxBench {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Duty cycle.
    pub duty: f64,
    /// Threads, each a transmitter by itself.
    pub threads: usize,
    /// How long a round takes.
    pub time: Duration,
    /// Rounds.
    pub rounds: usize,
}

/// What came of it, in samples per second.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TxRow {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Duty cycle.
    pub duty: f64,
    /// Threads, each a transmitter by itself.
    pub threads: usize,
    /// Of all threads, by the wall clock.
    pub wall: Spread,
    /// Of a thread, by its CPU time.
    pub core: Spread,
    /// Symbols per second of all threads, by the wall clock.
    pub symbols: f64,
    /// Bits of payload per second of all threads, by the wall clock.
    pub goodput: f64,
}

/// Samples, and seconds of CPU time, of one thread.
struct Sent {
    samples: u64,
    frames: u64,
    seconds: f64,
}

fn send(modulation: Modulation, blanks: usize, until: Instant) -> Result<Sent, ModemBenchError> {
    let payload: Vec<u8> = (0..modulation.payload_bytes()).map(|i| i as u8).collect();
    let mut transmitter = Transmitter::new(1.0);
    let mut samples = Vec::new();
    let (mut all, mut frames) = (0, 0);
    let begun = own_seconds();
    loop {
        samples.clear();
        let frame = Frame::new(Header::new(modulation), &payload, CheckField::Crc)?;
        transmitter.frame(&frame, &mut samples);
        transmitter.blanks(blanks, &mut samples);
        all += black_box(&samples).len() as u64;
        frames += 1;
        if Instant::now() >= until {
            break;
        }
    }
    Ok(Sent {
        samples: all,
        frames,
        seconds: own_seconds() - begun,
    })
}

/// Measures transmitters that make frames of payloads, and samples of frames.
pub fn measure_transmitter(bench: &TxBench) -> Result<TxRow, ModemBenchError> {
    let blanks = blank_symbols(bench.duty)? as usize;
    let (mut wall, mut core, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let start = Barrier::new(bench.threads);
        let (sent, seconds) = thread::scope(|scope| {
            let run = || {
                scope.spawn(|| {
                    start.wait();
                    send(bench.modulation, blanks, Instant::now() + bench.time)
                })
            };
            let begun = Instant::now();
            let threads: Vec<_> = (0..bench.threads).map(|_| run()).collect();
            let sent = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| ModemBenchError::Thread)?);
            let sent: Result<Vec<Sent>, ModemBenchError> = sent.collect();
            (sent, begun.elapsed().as_secs_f64())
        });
        let sent = sent?;
        let samples: u64 = sent.iter().map(|sent| sent.samples).sum();
        let of_threads: f64 = sent.iter().map(|sent| sent.seconds).sum();
        wall.push(samples as f64 / seconds);
        core.push(samples as f64 / of_threads);
        frames.push(sent.iter().map(|sent| sent.frames).sum::<u64>() as f64 / seconds);
    }
    let wall = Spread::of(wall);
    let payload = 8.0 * bench.modulation.payload_bytes() as f64;
    Ok(TxRow {
        modulation: bench.modulation,
        duty: bench.duty,
        threads: bench.threads,
        core: Spread::of(core),
        symbols: wall.median / SAMPLES_PER_SYMBOL as f64,
        goodput: Spread::of(frames).median * payload,
        wall,
    })
}

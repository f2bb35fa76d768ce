//! Time from a frame's last sample to its last byte, while samples come at a rate.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use karoo_modem::rx::{ReceivedFrame, Receiver, RxConfig};
use karoo_modem::waveform::{FRAME_SYMBOLS, Modulation, SAMPLES_PER_SYMBOL};
use schemars::JsonSchema;
use serde::Serialize;

use super::threads::{new_tasks, own_without_cpu, tasks};
use super::{ModemBenchError, check_rate, stream};

/// Frames of the stream that is received again and again.
const FRAMES: usize = 16;
/// How long frames of the first pass are waited for.
const WARM: Duration = Duration::from_secs(1);

/// What is measured.
#[derive(Clone, Debug)]
pub struct LatencyBench {
    /// Modulation of the frames, which follow one another.
    pub modulation: Modulation,
    /// Samples per second at which they come.
    pub rate: f64,
    /// Samples that come at once.
    pub block: usize,
    /// The receiver.
    pub config: RxConfig,
    /// How long they come.
    pub time: Duration,
}

/// What came of it, in microseconds from a frame's last sample to its last byte.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LatencyRow {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Samples per second at which they came.
    pub rate: f64,
    /// Samples that came at once.
    pub block: usize,
    /// Threads that decode, beside the one that finds frames; 0 does both on one.
    pub decoders: usize,
    /// Frames that came behind the first pass.
    pub frames: u64,
    /// Frames that did not come, or came with a wrong check field.
    pub lost: u64,
    /// The least.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// 99 of 100 are below.
    pub of_99: f64,
    /// 999 of 1000 are below.
    pub of_999: f64,
    /// The most.
    pub most: f64,
    /// Share of blocks that came when the receiver was still at work on those before.
    pub waited: f64,
    /// Time in which the receiver's threads were ready to run and had no CPU, all together, by the
    /// wall-clock time.
    pub without_cpu: f64,
}

/// Gives blocks to a receiver when each is due. Before, it receives the stream once as fast as it
/// can, for nothing: memory that is touched for the first time may cost more than a frame.
pub fn measure_latency(bench: &LatencyBench) -> Result<LatencyRow, ModemBenchError> {
    let samples = stream(bench.modulation, 1.0, FRAMES)?;
    check_rate(bench.rate, samples.len(), bench.time)?;
    let before = tasks();
    let mut receiver = Receiver::new(&bench.config)?;
    let decoders = new_tasks(&before);
    let without_cpu = || -> Vec<f64> {
        let decoding = decoders.iter().map(|task| task.without_cpu());
        decoding.chain([own_without_cpu()]).collect()
    };
    let mut frames: Vec<ReceivedFrame> = Vec::new();
    for block in samples.chunks(bench.block) {
        receiver.push(block, &mut frames);
    }
    let warmed = Instant::now();
    // The last frame is complete with later samples.
    while frames.len() + 1 < FRAMES && warmed.elapsed() < WARM {
        receiver.push(&[], &mut frames);
    }
    frames.clear();
    let had_none_before = without_cpu();
    let mut times = Vec::new();
    let first = samples.len() as u64;
    let (mut given, mut waited, mut blocks, mut sent) = (first, 0u64, 0u64, FRAMES as u64);
    let begun = Instant::now();
    let due = |sample: u64| begun + Duration::from_secs_f64((sample - first) as f64 / bench.rate);
    let mut take = |frames: &mut Vec<ReceivedFrame>| {
        for frame in frames.drain(..) {
            let last = frame.start + (SAMPLES_PER_SYMBOL * FRAME_SYMBOLS) as u64;
            if last >= first {
                times.push(due(last).elapsed().as_secs_f64() * 1e6);
            }
        }
    };
    loop {
        for block in samples.chunks(bench.block) {
            given += block.len() as u64;
            blocks += 1;
            let when = due(given);
            waited += u64::from(Instant::now() > when);
            while Instant::now() < when {
                // Frames of other threads come at any time.
                receiver.push(&[], &mut frames);
                take(&mut frames);
                spin_loop();
            }
            receiver.push(block, &mut frames);
            take(&mut frames);
        }
        sent += FRAMES as u64;
        if begun.elapsed() >= bench.time {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    // A thread that is somebody else's may have ended, and then has no time any more.
    let (before, now) = (had_none_before.iter(), without_cpu().into_iter());
    let had_none: f64 = now
        .zip(before)
        .map(|(now, before)| (now - before).max(0.0))
        .sum();
    receiver.finish(&mut frames);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * (times.len().saturating_sub(1)) as f64).round() as usize;
        times.get(place).copied().unwrap_or(0.0)
    };
    let delivered = receiver.counts().delivered;
    Ok(LatencyRow {
        modulation: bench.modulation,
        rate: bench.rate,
        block: bench.block,
        decoders: bench.config.threads,
        frames: delivered.saturating_sub(FRAMES as u64),
        lost: sent.saturating_sub(delivered),
        least: at(0.0),
        median: at(0.5),
        of_99: at(0.99),
        of_999: at(0.999),
        most: at(1.0),
        waited: waited as f64 / blocks.max(1) as f64,
        without_cpu: had_none / seconds,
    })
}

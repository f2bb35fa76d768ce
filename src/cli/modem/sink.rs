//! What becomes of received frames.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ground::counted;
use karoo_flow::adapters::{Address, Stop};
use karoo_modem::formats::FullScale;
use karoo_modem::graph::Received;
use karoo_modem::rx::{Counts, Outcome, ReceivedFrame, Receiver, RxConfig, SequenceGaps};
use karoo_modem::waveform::{Modulation, Scrambler};
use katcp::reading::unix_now;
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::refused;
use super::ending::{EndOptions, Watch};
use super::samples::goes_to_stdout;
use super::soft::SoftOutput;
use super::stream::{Next, Source};
use crate::cli::{Failure, NewFile, is_pipe};
use crate::modem::Watcher;
use crate::report::modem::{InputMeter, ModemGatherer};

/// Frames of which all that is known is kept; later ones are counted.
const MOST_FRAMES: usize = 1_000_000;

/// A frame in JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FrameDone {
    /// Sample of its start, since the stream began or began anew; and what is left to the exact
    /// one.
    sample: u64,
    fraction: f64,
    mode: Modulation,
    /// Bytes of the payload that are used.
    bytes: usize,
    outcome: Outcome,
    check_passed: bool,
    kind: u8,
    source: u8,
    destination: u8,
    network: u16,
    /// Number of the frame, if frames have numbers.
    sequence: Option<u8>,
    snr_db: f64,
    evm: f64,
    /// Carrier offset in cycles per sample, and in Hz if the rate is known.
    cfo_cycles_per_sample: f64,
    cfo_hz: Option<f64>,
    clock_ppm: f64,
}

/// What makes the report: a graph has samples on one thread, and frames on another.
pub type Gatherer = Arc<Mutex<ModemGatherer>>;

/// What measures the input, likewise.
pub type SharedMeter = Arc<Mutex<InputMeter>>;

/// One of samples whose full scale is known, or not.
pub fn meter(full_scale: Option<FullScale>) -> SharedMeter {
    Arc::new(Mutex::new(InputMeter::new(full_scale)))
}

/// Where payloads go, and its name.
pub type Payloads = (String, Box<dyn Write>);

/// A line for each cause for which frames were not delivered, and for what was no frame or sample.
pub fn lost_lines(counts: &Counts) -> String {
    let mut text = String::new();
    let lost = [
        (counts.check, "with a wrong check field"),
        (counts.length, "with a length that is too large"),
        (counts.mode, "with an unknown mode byte"),
        (counts.equaliser, "whose equaliser's taps ran away"),
        (counts.cut, "cut by the end of the samples"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("\nnot delivered: {count} {what}");
    }
    let others = [
        (
            counts.not_acquired,
            "look like a frame's begin alone: no frames",
        ),
        (
            counts.bad_samples,
            "samples are infinite, larger than 1e6 or not numbers: taken for 0; scale larger ones down",
        ),
    ];
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("\n{count} {what}");
    }
    text
}

/// What becomes of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct SinkSettings {
    /// Whether payloads of frames whose check field is wrong are written too.
    pub keep_failed: bool,
    /// Whether the demo's scrambling is taken off.
    pub scramble: bool,
    /// Whether all that is known of each frame is kept.
    pub keep_frames: bool,
    /// Whether somebody waits for each payload.
    pub prompt: bool,
}

/// Where frames go.
#[derive(Default)]
pub struct Sink {
    pub settings: SinkSettings,
    pub output: Option<Payloads>,
    pub soft: Option<SoftOutput>,
    pub gatherer: Option<Gatherer>,
    pub watcher: Option<Watcher>,
    pub meter: SharedMeter,
    pub sample_rate: Option<f64>,
    pub bytes: u64,
    pub done: Vec<FrameDone>,
    /// Numbers of frames, if they have some.
    pub gaps: Option<SequenceGaps>,
    /// Frames that were taken, and at how many no more are.
    pub found: u64,
    pub most: Option<u64>,
    /// What became of those.
    pub outcomes: Counts,
}

/// What is to be written: a file has what it had until it begins.
pub struct NewOutput {
    option: &'static str,
    name: String,
    to: To,
}

/// Where it is.
enum To {
    /// Standard output: what a frame has delivered goes on at once.
    Standard(Box<dyn Write>),
    File(NewFile),
    /// A named pipe, whose reader has come.
    Pipe(Box<dyn Write>),
}

impl NewOutput {
    /// Opens where payloads go, a file or standard output. No output waits for its reader once
    /// `stop` is set.
    pub fn payloads(path: &Path, stop: &Stop) -> Result<NewOutput, Failure> {
        let option = "--output";
        if !goes_to_stdout(path) {
            return NewOutput::file(option, path, stop);
        }
        let name = path.display().to_string();
        let output = Address::Standard.writer(stop);
        let output = output.map_err(|error| Failure::data(format!("{option} {name}: {error}")))?;
        Ok(NewOutput {
            option,
            name,
            to: To::Standard(output),
        })
    }

    /// Opens a file that an option names. A named pipe waits for its reader until `stop` is set.
    pub fn file(option: &'static str, path: &Path, stop: &Stop) -> Result<NewOutput, Failure> {
        let name = path.display().to_string();
        let failed = |error| Failure::data(format!("{option} {name}: {error}"));
        let to = match is_pipe(path) {
            true => {
                let pipe = Address::File(path.to_owned()).writer(stop);
                To::Pipe(pipe.map_err(failed)?)
            }
            false => To::File(NewFile::open(path).map_err(failed)?),
        };
        Ok(NewOutput { option, name, to })
    }

    /// Begins to write it.
    pub fn begin(self) -> Result<Payloads, Failure> {
        let NewOutput { option, name, to } = self;
        let output: Box<dyn Write> = match to {
            To::Standard(output) => output,
            To::Pipe(pipe) => Box::new(BufWriter::new(pipe)),
            To::File(file) => {
                let failed = |error| Failure::data(format!("{option} {name}: {error}"));
                Box::new(BufWriter::new(file.begin().map_err(failed)?))
            }
        };
        Ok((name, output))
    }
}

impl Sink {
    /// Writes what has been held back.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if let Some(soft) = &mut self.soft {
            soft.flush()?;
        }
        match &mut self.output {
            Some((name, output)) => output.flush().map_err(|error| written(name, &error)),
            None => Ok(()),
        }
    }

    /// What has come out.
    pub fn words(&self) -> String {
        let (frames, bytes) = (counted(self.found, "frame"), counted(self.bytes, "byte"));
        format!("{frames}, {bytes} received")
    }

    /// Whether there are as many frames as are wanted.
    pub fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.found >= most)
    }

    /// What was counted of a stream. Where there are as many frames as are wanted, those behind
    /// them are in no count, and no end of samples has cut one: `cut` are those that there were
    /// before.
    pub fn counted(&self, counts: Counts, cut: u64) -> Counts {
        match self.is_full() {
            false => counts,
            true => Counts {
                samples: counts.samples,
                bad_samples: counts.bad_samples,
                detected: counts.not_acquired + counts.equaliser + cut + self.found,
                not_acquired: counts.not_acquired,
                equaliser: counts.equaliser,
                cut,
                ..self.outcomes
            },
        }
    }

    /// Takes frames, as long as any are wanted.
    pub fn frames(&mut self, frames: &mut Vec<ReceivedFrame>) -> Result<(), Failure> {
        if let Some(most) = self.most {
            frames.truncate(most.saturating_sub(self.found) as usize);
        }
        self.found += frames.len() as u64;
        let any = !frames.is_empty();
        for mut frame in frames.drain(..) {
            self.outcomes.add(frame.outcome);
            if let Some(gaps) = &mut self.gaps {
                gaps.take(&frame);
            }
            if let Some(gatherer) = &self.gatherer {
                ground::lock(gatherer).frame(&frame);
            }
            if let Some(soft) = &mut self.soft {
                soft.frame(&frame)?;
            }
            if self.settings.keep_frames && self.done.len() < MOST_FRAMES {
                self.done.push(self.done(&frame));
            }
            if self.settings.scramble {
                let whole = frame.modulation().payload_bytes().min(frame.body.len());
                Scrambler::demo().apply(&mut frame.body[..whole]);
            }
            if let Some(watcher) = &mut self.watcher {
                watcher.missing(self.gaps.map(|gaps| gaps.missing()));
                watcher.frame(&frame, unix_now());
            }
            let write = match frame.outcome {
                Outcome::Delivered => true,
                Outcome::Check => self.settings.keep_failed,
                Outcome::Mode | Outcome::Length => false,
            };
            if !write {
                continue;
            }
            let payload = frame.payload();
            self.bytes += payload.len() as u64;
            if let Some((name, output)) = &mut self.output {
                let done = output.write_all(payload);
                done.map_err(|error| written(name, &error))?;
            }
        }
        // Whoever reads it waits for it.
        match any && self.settings.prompt {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn done(&self, frame: &ReceivedFrame) -> FrameDone {
        let header = &frame.header;
        FrameDone {
            sample: frame.start,
            fraction: frame.start_fraction,
            mode: frame.modulation(),
            bytes: frame.payload().len(),
            outcome: frame.outcome,
            check_passed: frame.check_passed(),
            kind: header.kind,
            source: header.source,
            destination: header.destination,
            network: header.network,
            sequence: self.gaps.map(|_| header.sequence()),
            snr_db: frame.snr_db,
            evm: frame.evm,
            cfo_cycles_per_sample: frame.frequency,
            cfo_hz: self.sample_rate.map(|rate| rate * frame.frequency),
            clock_ppm: frame.clock_ppm,
        }
    }
}

fn written(name: &str, error: &io::Error) -> Failure {
    Failure::data(format!("{name}: {error}"))
}

/// Receives until the samples end or somebody wants the end, and says what was counted and what was
/// taken off.
pub fn receive(
    config: &RxConfig,
    source: &mut Source,
    sink: &mut Sink,
    (watch, end): (&Watch, &EndOptions),
) -> Result<Received, Failure> {
    let mut receiver = Receiver::new(config).map_err(refused)?;
    let mut before = Counts::default();
    sink.most = end.frames();
    let (mut block, mut frames): (Vec<Complex32>, Vec<ReceivedFrame>) = Default::default();
    while !sink.is_full() {
        if watch.has_ended() && !source.stop() {
            break;
        }
        match source.next(&mut block)? {
            Next::End => break,
            Next::Nothing | Next::Samples => {}
            Next::Restart => {
                // What came before is not continued.
                receiver.finish(&mut frames);
                sink.frames(&mut frames)?;
                before += receiver.counts();
                receiver = Receiver::new(config).map_err(refused)?;
                sink.watcher.iter_mut().for_each(Watcher::restart);
                // A new rate begins a stream anew.
                sink.sample_rate = source.sample_rate().or(sink.sample_rate);
            }
        }
        if sink.sample_rate.is_none() {
            sink.sample_rate = source.sample_rate();
        }
        if let Some(gatherer) = &sink.gatherer {
            ground::lock(gatherer).samples(&block);
        }
        ground::lock(&sink.meter).take(&block);
        if let Some(watcher) = &mut sink.watcher {
            watcher.samples(&block);
            watcher.level(&ground::lock(&sink.meter), Instant::now());
        }
        // Also where nothing came: threads may have frames.
        receiver.push(&block, &mut frames);
        sink.frames(&mut frames)?;
        if let Some(watcher) = &sink.watcher {
            let mut counts = before;
            counts += receiver.counts();
            watcher.counts(counts, sink.bytes, source.counts(), sink.sample_rate);
            watcher.correction(receiver.correction());
        }
    }
    receiver.finish(&mut frames);
    sink.frames(&mut frames)?;
    sink.flush()?;
    let cut = before.cut;
    before += receiver.counts();
    before = sink.counted(before, cut);
    if let Some(watcher) = &mut sink.watcher {
        watcher.counts(before, sink.bytes, source.counts(), sink.sample_rate);
        watcher.correction(receiver.correction());
        watcher.end(&ground::lock(&sink.meter));
    }
    Ok(Received {
        counts: before,
        correction: receiver.correction(),
    })
}

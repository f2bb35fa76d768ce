//! A digitiser, an F-engine and a receiver, one behind another.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{env, thread};

use ground::StopFlag;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use npyz::NpyFile;
use num_complex::Complex32;
use tempfile::TempDir;

use super::Subject;

/// The gain that is tried first.
pub(super) const FIRST_GAIN: f64 = 1e-2;
/// Samples of a digitiser's heap.
const HEAP: u64 = 4096;
/// Lines of what a command said that an error repeats.
const LINES: usize = 4;
/// How soon a command is told to end once a signal has told this one to.
const LOOK: Duration = Duration::from_millis(50);

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum QualifyError {
    /// A file of the run.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A command did not do its part.
    #[error("`{command}` failed ({status}): {said}")]
    Command {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The pass band has fewer channels than a measurement takes.
    #[error(
        "{output}: {channels} channels of the pass band can be measured, and this takes at least {needed}; give more \
         channels or a larger pass_bandwidth"
    )]
    FewChannels {
        /// The option and its value.
        output: String,
        /// Channels that can be measured.
        channels: usize,
        /// Channels that it takes.
        needed: usize,
    },
    /// What came is not what was asked for.
    #[error("{0}")]
    Unexpected(String),
}

/// Where runs are made.
pub struct Chain {
    /// The program that simulates and reads back.
    karoo: PathBuf,
    /// The program that is measured.
    program: PathBuf,
    /// Options of its `replay` beside those of a case.
    options: Vec<String>,
    folder: TempDir,
    /// Ends it.
    stop: StopFlag,
}

/// What goes through the chain.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The output.
    pub subject: &'a Subject,
    /// What the digitiser sends, in `karoo dsim`'s language.
    pub signals: String,
    /// Bits of its samples.
    pub bits: u32,
    /// How many there are.
    pub samples: u64,
    /// After how many the signals repeat.
    pub period: u64,
    /// Gain of all channels.
    pub gain: f64,
    /// Delay models of both polarisations from the start on.
    pub delays: Option<[String; 2]>,
    /// Most samples between the delays of the polarisations.
    pub max_delay_diff: u64,
    /// Requests: lines of a timestamp and a request.
    pub requests: Option<String>,
}

impl<'a> Case<'a> {
    /// Signals through an output, for so many spectra.
    pub fn new(subject: &'a Subject, signals: String, spectra: u64) -> Self {
        let samples = subject.samples(spectra).next_multiple_of(HEAP);
        // 128 places in each channel are whole numbers of cycles; noise repeats late.
        let period = (128 * subject.spectrum_samples()).max(samples.min(1 << 20));
        Self {
            subject,
            signals,
            bits: 10,
            samples,
            period: period.next_power_of_two(),
            gain: FIRST_GAIN,
            delays: None,
            max_delay_diff: 1 << 15,
            requests: None,
        }
    }
}

/// Spectra that came.
pub struct Spectra {
    /// Of each channel the spectra, each with both polarisations.
    channels: Vec<Vec<[Complex32; 2]>>,
    /// Timestamp of each spectrum's first sample.
    pub timestamps: Vec<u64>,
}

impl Spectra {
    /// Those of all channels, as many of each as there are timestamps.
    pub(super) fn new(channels: Vec<Vec<[Complex32; 2]>>, timestamps: Vec<u64>) -> Self {
        Self {
            channels,
            timestamps,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.timestamps.len()
    }

    /// How many channels there are.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Both polarisations of a channel, spectrum by spectrum.
    pub fn channel(&self, channel: usize) -> &[[Complex32; 2]] {
        &self.channels[channel]
    }

    /// Mean power of a channel in squared counts.
    pub fn power(&self, channel: usize, pol: usize) -> f64 {
        let values = self.channel(channel).iter();
        let sum: f64 = values.map(|pair| f64::from(pair[pol].norm_sqr())).sum();
        sum / self.count().max(1) as f64
    }

    /// The largest real or imaginary part of a channel, in counts.
    pub fn largest(&self, channel: usize, pol: usize) -> f32 {
        let values = self.channel(channel).iter();
        let largest = values.map(|pair| pair[pol].re.abs().max(pair[pol].im.abs()));
        largest.fold(0.0, f32::max)
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> QualifyError {
    let path = path.to_owned();
    move |source| QualifyError::File { path, source }
}

impl Chain {
    /// A chain of `karoo`'s simulator and sink around `program`'s `replay`, which has `options`
    /// beside its own. `stop` ends the command that runs, and with it the chain.
    pub fn new(
        karoo: &Path,
        program: &Path,
        options: Vec<String>,
        stop: StopFlag,
    ) -> Result<Self, QualifyError> {
        let folder = TempDir::with_prefix("karoo-qualify-").map_err(file(&env::temp_dir()))?;
        Ok(Self {
            karoo: karoo.to_owned(),
            program: program.to_owned(),
            options,
            folder,
            stop,
        })
    }

    /// What the program says of its version.
    pub fn version(&self) -> Result<String, QualifyError> {
        let said = self.command(&self.program, &["--version"])?;
        Ok(said.lines().next().unwrap_or_default().to_owned())
    }

    /// Runs a case, and gives what came.
    pub fn run(&self, case: &Case<'_>) -> Result<Spectra, QualifyError> {
        let rate = case.subject.rate().to_string();
        let path = |name: &str| self.folder.path().join(name);
        let (input, output, arrays) = (path("input.pcap"), path("output.pcap"), path("arrays"));
        let [bits, samples] = [u64::from(case.bits), case.samples].map(|n| n.to_string());
        let period = case.period.to_string();
        let digitiser: [&OsStr; 19] = [
            "dsim".as_ref(),
            "--output".as_ref(),
            input.as_ref(),
            "--signals".as_ref(),
            case.signals.as_ref(),
            "--samples".as_ref(),
            samples.as_ref(),
            "--period".as_ref(),
            period.as_ref(),
            "--max-period".as_ref(),
            period.as_ref(),
            "--sample-bits".as_ref(),
            bits.as_ref(),
            "--adc-sample-rate".as_ref(),
            rate.as_ref(),
            "--seed".as_ref(),
            "1".as_ref(),
            "--dither-seed".as_ref(),
            "1".as_ref(),
        ];
        self.command(&self.karoo, &digitiser)?;

        let mut engine: Vec<String> = [
            "replay",
            "--quiet",
            "--array-size",
            "64",
            "--sync-time",
            SYNC,
        ]
        .map(str::to_owned)
        .to_vec();
        engine.push(input.to_string_lossy().into_owned());
        engine.extend(["--output".to_owned(), output.to_string_lossy().into_owned()]);
        engine.extend(case.subject.arguments());
        for (option, value) in [
            ("--adc-sample-rate", rate),
            ("--dig-sample-bits", bits),
            ("--gain", case.gain.to_string()),
            ("--max-delay-diff", case.max_delay_diff.to_string()),
        ] {
            engine.extend([option.to_owned(), value]);
        }
        if let Some([first, second]) = &case.delays {
            let name = case.subject.name();
            engine.extend(["--delays", name, first, second].map(str::to_owned));
        }
        if let Some(requests) = &case.requests {
            let written = path("requests");
            fs::write(&written, requests).map_err(file(&written))?;
            engine.extend([
                "--requests".to_owned(),
                written.to_string_lossy().into_owned(),
            ]);
        }
        engine.extend(self.options.iter().cloned());
        self.command(&self.program, &engine)?;

        let sink: [&OsStr; 4] = [
            "sink".as_ref(),
            output.as_ref(),
            "--output-dir".as_ref(),
            arrays.as_ref(),
        ];
        self.command(&self.karoo, &sink)?;
        let spectra = read(&arrays, case.subject);
        fs::remove_dir_all(&arrays).map_err(file(&arrays))?;
        spectra
    }

    /// Runs a command to its end, and gives what it printed.
    fn command(
        &self,
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<String, QualifyError> {
        let mut command = Command::new(program);
        let ran = self
            .output(command.args(arguments))
            .map_err(file(program))?;
        if self.stop.is_set() {
            return Err(QualifyError::Interrupted);
        }
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let lines: Vec<_> = said.lines().collect();
        let end = &lines[lines.len().saturating_sub(LINES)..];
        let words = std::iter::once(program.as_os_str()).chain(arguments.iter().map(AsRef::as_ref));
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Err(QualifyError::Command {
            command: shlex::try_join(words.iter().map(AsRef::as_ref)).unwrap_or_default(),
            status: ran.status.to_string(),
            said: end.join("; "),
        })
    }

    /// Runs a command to its end, which comes early where this one is told to end: so nothing is
    /// left behind.
    fn output(&self, command: &mut Command) -> io::Result<Output> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        // A group of its own: a program may be a script that waits for another one.
        let command = command.stderr(Stdio::piped()).process_group(0);
        let child = command.spawn()?;
        let group = Pid::from_raw(child.id().cast_signed());
        let (done, ended) = channel();
        let waits = thread::spawn(move || done.send(child.wait_with_output()));
        let mut told = false;
        let output = loop {
            match ended.recv_timeout(LOOK) {
                Ok(output) => break output,
                Err(RecvTimeoutError::Timeout) if told || !self.stop.is_set() => {}
                Err(RecvTimeoutError::Timeout) => {
                    // One that has ended by itself meanwhile need not be told.
                    let _ = killpg(group, Signal::SIGTERM);
                    told = true;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(io::Error::other("nobody waited for it"));
                }
            }
        };
        // It has nothing more to do.
        let _ = waits.join();
        output
    }
}

/// UNIX time of timestamp 0: whole, so that times of requests lose nothing.
pub const SYNC: &str = "1763700000";

/// The arrays that the sink wrote of its only stream.
fn read(folder: &Path, subject: &Subject) -> Result<Spectra, QualifyError> {
    let entries = fs::read_dir(folder).map_err(file(folder))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut streams = names.filter(|name| name.ends_with(".npy") && name.matches('.').count() == 1);
    let (Some(name), None) = (streams.next(), streams.next()) else {
        return Err(QualifyError::Unexpected(
            "one stream was to come, no more and no less".to_owned(),
        ));
    };
    let stem = name.trim_end_matches(".npy");
    let open = |name: &str| {
        let path = folder.join(name);
        let opened = File::open(&path).and_then(|file| NpyFile::new(BufReader::new(file)));
        opened.map_err(file(&path))
    };
    let (array, starts) = (open(&name)?, open(&format!("{stem}.timestamps.npy"))?);
    let shape: Vec<usize> = array.shape().iter().map(|&n| n as usize).collect();
    let &[batches, channels, spectra, 2, 2] = &shape[..] else {
        return Err(QualifyError::Unexpected(format!(
            "an array of the shape {shape:?} came"
        )));
    };
    if channels != subject.channels() {
        let text = format!(
            "{channels} channels came, and {} were asked for",
            subject.channels()
        );
        return Err(QualifyError::Unexpected(text));
    }
    let path = folder.join(&name);
    let values: Vec<i8> = array.into_vec().map_err(file(&path))?;
    let starts: Vec<u64> = starts.into_vec().map_err(file(&path))?;
    let mut all = vec![Vec::with_capacity(batches * spectra); channels];
    for batch in values.chunks_exact(channels * spectra * 4) {
        for (channel, values) in all.iter_mut().zip(batch.chunks_exact(spectra * 4)) {
            let pairs = values.chunks_exact(4).map(|jones| {
                let part = |i: usize| f32::from(jones[i]);
                [
                    Complex32::new(part(0), part(1)),
                    Complex32::new(part(2), part(3)),
                ]
            });
            channel.extend(pairs);
        }
    }
    let step = subject.spectrum_samples();
    let timestamps = starts
        .iter()
        .flat_map(|start| (0..spectra as u64).map(move |n| start + n * step));
    let timestamps: Vec<u64> = timestamps.collect();
    if timestamps.is_empty() {
        return Err(QualifyError::Unexpected("no batch came".to_owned()));
    }
    Ok(Spectra::new(all, timestamps))
}

//! `karoo dsim`: a simulated digitiser that sends in real time, or writes a capture file.

mod live;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dsp::SampleBits;
use ground::files::WholeFile;
use ground::{SampleClock, StopFlag, counted};
use katcp::reading::unix_now;
use nix::sys::statvfs::statvfs;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::log::LogTo;
use super::{Failure, Files, NewFile, examples, is_pipe, no_dash_to_write};
use crate::assembly::{Demand, stop_on_signal};
use crate::config::units::{bytes, count, hertz, plain, seconds, seed, time_to_live, unix_time};
use crate::config::{
    AiomonitorOptions, ConfigError, Cpu, ServeOptions, check_capture_end, doubt_about_rate,
    doubt_about_sync_time, heading,
};
use crate::control::dsim::canonical;
use crate::net::capture::Precision;
use crate::net::{CaptureWriter, parse_endpoints};
use crate::report::{Documented, to_json};
use crate::sim::faults::{Fault, Ledger};
use crate::sim::progress::{self, SimProgress};
use crate::sim::{Digitiser, DigitiserConfig, FaultPlan, Windows, parse};

/// Send what a digitiser would send through an interface, in real time, or write it to a capture
/// file
///
/// With --interface it takes the command line of katgpucbf's dsim and goes on until it is told to
/// end. SIGINT, SIGTERM and ?halt end it; before a capture file is whole, they leave none. Exit
/// codes: 0 ended as told, or all was written; 1 the run failed; 2 the command line is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::DSIM)]
#[group(id = "to", required = true, args = ["output", "interface"])]
#[command(mut_arg("katcp_host", |arg| arg.conflicts_with("output")))]
#[command(mut_arg("katcp_port", |arg| arg.conflicts_with("output")))]
#[command(mut_arg("prometheus_port", |arg| arg.conflicts_with("output")))]
pub struct DsimArgs {
    /// Capture file to write [required, or --interface]
    #[arg(long, value_name = "CAPTURE.pcap", value_parser = no_dash_to_write(), conflicts_with = "interface", help_heading = heading::RESULTS)]
    pub output: Option<PathBuf>,
    /// Interface to send through, in real time [required, or --output]
    #[arg(long, value_name = "IFACE", help_heading = heading::SEND)]
    pub interface: Option<String>,
    /// Samples per polarisation, rounded up to whole heaps [default: 4194304 with --output, else
    /// without end]
    #[arg(long, value_name = "N", value_parser = count::<u64>("4Mi"), conflicts_with = "seconds", help_heading = heading::END)]
    pub samples: Option<u64>,
    /// Length in seconds of sample time, rounded up to whole heaps
    #[arg(long, value_name = "S", value_parser = seconds, help_heading = heading::END)]
    pub seconds: Option<f64>,
    /// ADC sample rate in hertz, or with a unit: 1712M [default: 1712e6 with --output]
    #[arg(long, value_name = "HZ", value_parser = hertz, help_heading = heading::TIMING)]
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of timestamp 0 [default: 1763700000 with --output, else now]
    #[arg(long, value_name = "UNIX", value_parser = unix_time, help_heading = heading::TIMING)]
    pub sync_time: Option<f64>,
    /// Signals, one for all destinations or one for each, of the functions below
    /// [default: "cw(1.0, 232101234.0);", with --output tones and noise]
    #[arg(long, value_name = "SPEC", help_heading = heading::SIGNAL)]
    pub signals: Option<String>,
    /// Samples per heap
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count::<usize>("4096"), help_heading = heading::SEND)]
    pub heap_samples: usize,
    /// Bits per sample, 2 to 16
    #[arg(long, value_name = "B", default_value = "10", help_heading = heading::SEND)]
    pub sample_bits: SampleBits,
    /// Digitiser number of the first polarisation
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = plain::<u64>("must be a whole number from 0 on", "0"), help_heading = heading::SEND)]
    pub first_id: u64,
    /// Samples after which the signals repeat [default: 134217728, with --output 4194304]
    #[arg(long, value_name = "N", value_parser = count::<u64>("128Mi"), help_heading = heading::SIGNAL)]
    pub period: Option<u64>,
    /// Samples after which everything repeats [default: the period]
    #[arg(long, value_name = "N", value_parser = count::<u64>("128Mi"), help_heading = heading::SIGNAL)]
    pub max_period: Option<u64>,
    /// Timestamp of the first heap; in real time it follows from the sync time [default: 0]
    #[arg(long, value_name = "N", value_parser = plain::<u64>("must be a whole number from 0 on", "0"), conflicts_with = "interface", help_heading = heading::TIMING)]
    pub first_timestamp: Option<u64>,
    /// Seed of the dither [default: 1 with --output, else any]
    #[arg(long, value_name = "N", value_parser = seed, help_heading = heading::SIGNAL)]
    pub dither_seed: Option<u64>,
    /// Seed of noise that gives none [default: 1 with --output, else any, so that digitisers
    /// differ]
    #[arg(long, value_name = "N", value_parser = seed, help_heading = heading::SIGNAL)]
    pub seed: Option<u64>,
    /// Multicast time to live
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = time_to_live, help_heading = heading::SEND)]
    pub ttl: u8,
    /// Faults per heap: drop=P, duplicate=P, reorder=P, late=P[:HEAPS], corrupt=P, gap=P:HEAPS;
    /// with --interface drop, late and gap below 1, and HEAPS 1048576 at most
    #[arg(long, value_name = "FAULTS", default_value = "", help_heading = heading::FAULTS)]
    pub faults: FaultPlan,
    /// Seed of the faults
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, help_heading = heading::FAULTS)]
    pub fault_seed: u64,
    /// Write what was sent and which faults were injected as JSON
    #[arg(long, value_name = "FILE.json", conflicts_with = "interface", help_heading = heading::RESULTS)]
    pub truth: Option<PathBuf>,
    /// CPU of the lcore that sends, which then polls; -1: any
    #[arg(
        long,
        value_name = "CPU",
        default_value = "-1",
        allow_hyphen_values = true,
        conflicts_with = "output", help_heading = heading::PLACE)]
    pub affinity: Cpu,
    /// CPU of everything else; -1: any
    #[arg(
        long,
        value_name = "CPU",
        default_value = "-1",
        allow_hyphen_values = true,
        conflicts_with = "output", help_heading = heading::PLACE)]
    pub main_affinity: Cpu,
    /// Bytes that packets may wait in
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = bytes, conflicts_with = "output", help_heading = heading::SEND)]
    pub send_buffer: usize,
    #[command(flatten)]
    pub serve: ServeOptions,
    /// Where log messages go
    #[arg(long, value_enum, default_value_t, conflicts_with = "output", help_heading = heading::CONTROL)]
    pub log: LogTo,
    #[command(flatten)]
    ignored: Ignored,
    /// Addresses of each polarisation, a.b.c.d[+n][:port]
    /// [default with --output: 239.102.0.64+7:7148 239.102.1.64+7:7148]
    #[arg(value_name = "DEST")]
    pub dest: Vec<String>,
}

/// Options of katgpucbf that do nothing here.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = heading::IGNORED)]
struct Ignored {
    /// Kernel bypass: the interface's DPDK driver decides
    #[arg(long)]
    ibv: bool,
    /// Completion vector
    #[arg(long, value_name = "V", value_parser = plain::<i64>("must be a whole number", "0"), allow_hyphen_values = true)]
    comp_vector: Option<i64>,
    #[command(flatten)]
    aiomonitor: AiomonitorOptions,
}

/// What a capture holds unless the options say otherwise.
const CAPTURE_SIGNALS: [&str; 2] = [
    "cw(0.25, 232101234.0) + wgn(0.05);",
    "cw(0.15, 381407890.0) + wgn(0.05);",
];
const CAPTURE_DESTS: [&str; 2] = ["239.102.0.64+7:7148", "239.102.1.64+7:7148"];
/// What katgpucbf sends.
const LIVE_SIGNALS: &str = "cw(1.0, 232101234.0);";

/// Where it all goes.
#[derive(Clone, Copy)]
enum To {
    Capture,
    Interface,
}

impl DsimArgs {
    /// Whether it sends in real time.
    pub fn is_live(&self) -> bool {
        self.interface.is_some()
    }

    fn signals_text(&self, to: To) -> String {
        match (&self.signals, to) {
            (Some(given), _) => given.clone(),
            (None, To::Interface) => LIVE_SIGNALS.to_owned(),
            (None, To::Capture) => {
                let by_turns = CAPTURE_SIGNALS.iter().cycle().take(self.dests(to).len());
                by_turns.copied().collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn dests(&self, to: To) -> Vec<&str> {
        match to {
            To::Capture if self.dest.is_empty() => CAPTURE_DESTS.to_vec(),
            _ => self.dest.iter().map(String::as_str).collect(),
        }
    }

    fn seed(&self, to: To) -> u64 {
        self.seed.unwrap_or_else(|| match to {
            To::Capture => 1,
            To::Interface => rand::random(),
        })
    }

    fn config(&self, to: To) -> Result<DigitiserConfig, Failure> {
        let mut seeds = ChaCha8Rng::seed_from_u64(self.seed(to));
        let text = self.signals_text(to);
        let signals = parse(&text, || seeds.next_u64())
            .map_err(|error| Failure::usage(error.shown(&text)))?;
        let dests = self.dests(to);
        if dests.is_empty() {
            return Err(self.missing());
        }
        let dests: Result<_, _> = dests.into_iter().map(parse_endpoints).collect();
        let (rate, sync_time, period, dither_seed) = match to {
            To::Capture => (Some(1712e6), 1_763_700_000.0, 1 << 22, 1),
            To::Interface => (None, unix_now(), 1 << 27, rand::random()),
        };
        let Some(adc_sample_rate) = self.adc_sample_rate.or(rate) else {
            return Err(self.missing());
        };
        let period = self.period.unwrap_or(period);
        let config = DigitiserConfig {
            clock: SampleClock {
                adc_sample_rate,
                sync_time: self.sync_time.unwrap_or(sync_time),
            },
            signals,
            dests: dests.map_err(Failure::usage)?,
            heap_samples: self.heap_samples,
            sample_bits: self.sample_bits,
            first_id: self.first_id,
            period,
            max_period: self.max_period.unwrap_or(period),
            dither_seed: self.dither_seed.unwrap_or(dither_seed),
            ttl: self.ttl,
            first_timestamp: self.first_timestamp.unwrap_or(0),
        };
        config.check().map_err(Failure::usage)?;
        Demand::check(vec![Windows::demand(&config, config.period, "--period")])
            .map_err(Failure::usage)?;
        Ok(config)
    }

    /// Names all that sending in real time needs and was not given.
    fn missing(&self) -> Failure {
        let dest = ("DEST", "239.102.0.64+7:7148 239.102.1.64+7:7148");
        let rate = ("--adc-sample-rate", "--adc-sample-rate 1712M");
        let lacks = [
            self.adc_sample_rate.is_none().then_some(rate),
            self.dest.is_empty().then_some(dest),
        ];
        let (names, examples): (Vec<_>, Vec<_>) = lacks.into_iter().flatten().unzip();
        let rule = match names.len() {
            1 => "it is required with --interface",
            _ => "they are required with --interface",
        };
        let way_out = format!("add {}", examples.join(" "));
        Failure::usage(ConfigError::new(names.join(", "), "missing", rule, way_out))
    }

    /// Says what of the clock is odd.
    pub fn tell_doubts(&self, config: &DigitiserConfig) {
        let rate = doubt_about_rate(config.clock.adc_sample_rate);
        let time = doubt_about_sync_time(config.clock.sync_time, unix_now());
        for doubt in rate.into_iter().chain(time) {
            tracing::warn!("{doubt}");
        }
    }

    /// Heaps per polarisation that were asked for.
    fn heaps(&self, adc_sample_rate: f64) -> Result<Option<u64>, Failure> {
        let samples = match self.seconds {
            Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
                Some((seconds * adc_sample_rate).ceil() as u64)
            }
            Some(seconds) => {
                let message = format!("--seconds {seconds} must be a positive number, such as 0.1");
                return Err(Failure::usage(message));
            }
            None => self.samples,
        };
        if samples == Some(0) {
            let rule = "must be 1 at least, or no heap is sent";
            let way_out = "leave it out for the usual length";
            return Err(Failure::usage(ConfigError::new(
                "--samples",
                0,
                rule,
                way_out,
            )));
        }
        Ok(samples.map(|samples| samples.div_ceil(self.heap_samples as u64)))
    }
}

/// Refuses a capture that its file system has no room for.
fn check_room(path: &Path, bytes: u64) -> Result<(), Failure> {
    // What a pipe or a device takes is not known.
    let Some(part) = CaptureWriter::part_of(path) else {
        return Ok(());
    };
    // That behind a link.
    let folder = part
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // Creating the file has said what is wrong with the folder.
    let Ok(stats) = statvfs(folder) else {
        return Ok(());
    };
    let free = stats.blocks_available() * stats.fragment_size();
    match bytes <= free {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "--output {}: would take {} MiB, and {} MiB are free there; lower --samples or --seconds, or name a folder \
             with more room",
            path.display(),
            bytes.div_ceil(1 << 20),
            free >> 20
        ))),
    }
}

/// Refuses a capture that ends when its format has no times any more.
fn check_end(config: &DigitiserConfig, heaps: u64) -> Result<(), ConfigError> {
    let by = "--first-timestamp, --samples or --seconds and --adc-sample-rate";
    let way_out = "give an earlier --sync-time, a higher rate or a shorter capture";
    let end = Digitiser::capture_end(config, heaps);
    check_capture_end(end, config.clock.sync_time, by, way_out)
}

/// What went into a capture.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(super) struct Truth<'a> {
    bits: SampleBits,
    heap_samples: usize,
    samples: u64,
    first_timestamp: u64,
    sync_time: f64,
    adc_sample_rate: f64,
    sources: String,
    signals: String,
    dither_seed: u64,
    fault_plan: FaultPlan,
    fault_seed: u64,
    frames: u64,
    faults: &'a [Fault],
}

impl Documented for Truth<'_> {
    const NAME: &'static str = "dsim-truth";
    const TITLE: &'static str = "What karoo dsim --truth put into a capture";
}

/// Runs the command.
pub fn run(args: &DsimArgs) -> Result<(), Failure> {
    match (&args.interface, &args.output) {
        (Some(interface), _) => {
            args.serve.check().map_err(Failure::usage)?;
            live::run(args, args.config(To::Interface)?, interface)
        }
        (None, Some(path)) => write(args, path),
        (None, None) => Err(Failure::usage("give --interface or --output")),
    }
}

/// The files that a capture and its truth are written to. Each has another name until it is whole,
/// and takes the place of what has its own then.
fn files(truth: Option<&Path>, output: &Path) -> Files {
    let [truth_part, part] = [truth, Some(output)].map(|path| WholeFile::part_of(path?));
    let files = Files::default().writes("--truth", truth);
    let files = files.writes("--truth, until it is whole", truth_part.as_deref());
    let files = files.writes("--output", Some(output));
    files.writes("--output, until it is whole", part.as_deref())
}

fn write(args: &DsimArgs, path: &Path) -> Result<(), Failure> {
    files(args.truth.as_deref(), path).check()?;
    let to = To::Capture;
    let config = args.config(to)?;
    args.tell_doubts(&config);
    let heaps = args.heaps(config.clock.adc_sample_rate)?;
    let heaps = heaps.unwrap_or((1u64 << 22).div_ceil(args.heap_samples as u64));
    let part = CaptureWriter::part_of(path);
    let truth = args.truth.as_deref();
    let ends_in_time = || check_end(&config, heaps).map_err(Failure::usage);
    // Pipes wait for their readers, and until those come a signal ends the process.
    if part.is_none() {
        ends_in_time()?;
    }
    let truth_pipe = truth.filter(|path| is_pipe(path)).map(open_truth);
    let truth_pipe = truth_pipe.transpose()?;
    let pipe = part.is_none().then(|| create(path)).transpose()?;
    let stop = StopFlag::default();
    stop_on_signal(&stop, part);
    // Before minutes of signals, and not before a signal leaves nothing of them.
    if pipe.is_none() {
        drop(create(path)?);
    }
    if let Some(truth) = truth {
        NewFile::check(truth).map_err(|error| no_truth(truth, &error))?;
    }
    check_room(path, Digitiser::capture_bytes(&config, heaps))?;
    ends_in_time()?;
    let is_told = || stop.is_set();
    let windows = progress::windows(&config, &config.signals, config.period, is_told);
    let windows = windows.ok_or_else(|| interrupted(path))?;
    let digitiser = Digitiser::of(config.clone(), windows);
    // Opened before hours of writing.
    let truth_file = match truth_pipe {
        None => truth.map(open_truth).transpose()?,
        pipe => pipe,
    };
    let ledger = Ledger::default();
    let capture = pipe.map_or_else(|| create(path), Ok);
    let written =
        capture.and_then(|capture| write_heaps(args, &digitiser, heaps, capture, &stop, &ledger));
    let written = written.and_then(|frames| frames.ok_or_else(|| interrupted(path)));
    let frames = written?;
    let samples = heaps.saturating_mul(args.heap_samples as u64);
    tracing::info!(
        "{}: {}, {} per polarisation, {}",
        path.display(),
        counted(frames, "heap"),
        counted(samples, "sample"),
        counted(ledger.borrow().len() as u64, "fault"),
    );
    if let Some((path, mut file)) = truth.zip(truth_file) {
        let truth = Truth {
            bits: args.sample_bits,
            heap_samples: args.heap_samples,
            samples,
            first_timestamp: config.first_timestamp,
            sync_time: config.clock.sync_time,
            adc_sample_rate: config.clock.adc_sample_rate,
            sources: args.dests(to).join(","),
            signals: canonical(&config.signals, config.dests.len()),
            dither_seed: config.dither_seed,
            fault_plan: args.faults,
            fault_seed: args.fault_seed,
            frames,
            faults: &ledger.borrow(),
        };
        let text = to_json(&truth).map_err(Failure::data)?;
        let written = file.write_all(text.as_bytes());
        let written = written.and_then(|()| file.finish());
        written.map_err(|error| no_truth(path, &error))?;
    }
    Ok(())
}

fn interrupted(path: &Path) -> Failure {
    let why = format!("--output {}: interrupted, and not written", path.display());
    Failure::data(why)
}

fn no_truth(path: &Path, error: &io::Error) -> Failure {
    Failure::data(format!("cannot write --truth {path:?}: {error}"))
}

fn open_truth(path: &Path) -> Result<WholeFile, Failure> {
    WholeFile::create(path).map_err(|error| no_truth(path, &error))
}

fn create(path: &Path) -> Result<CaptureWriter, Failure> {
    CaptureWriter::create(path, Precision::Nanoseconds).map_err(Failure::data)
}

/// Writes heaps, with their faults. Returns the number of frames with data, or none if it was told
/// to stop.
fn write_heaps(
    args: &DsimArgs,
    digitiser: &Digitiser,
    heaps: u64,
    mut capture: CaptureWriter,
    stop: &StopFlag,
    ledger: &Ledger,
) -> Result<Option<u64>, Failure> {
    let all = digitiser.heaps(heaps);
    let (plan, seed) = (args.faults, args.fault_seed);
    let stream = plan.decorate(all, seed, args.heap_samples, ledger);
    let total = heaps.saturating_mul(args.dests(To::Capture).len() as u64);
    let mut progress = SimProgress::new("writing heaps", total);
    let stream = stream.take_while(|_| !stop.is_set());
    let frames = digitiser.write(stream.inspect(|_| progress.step()), &mut capture);
    let frames = frames.map_err(Failure::data)?;
    drop(progress);
    if stop.is_set() {
        return Ok(None);
    }
    capture.finish().map_err(Failure::data)?;
    Ok(Some(frames))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn room_is_looked_for_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("a.pcap");
        assert!(check_room(&link, 1).is_ok());
        // There is never any.
        std::os::unix::fs::symlink("/proc/a.pcap", &link).unwrap();
        assert!(check_room(&link, 1).is_err());
    }

    /// Else the truth would be renamed over the capture.
    #[test]
    fn the_truth_is_not_written_to_the_unfinished_capture() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let check = |truth: &str| files(Some(&at(truth)), &at("a.pcap")).check();
        assert!(check("a.json").is_ok() && check("b.pcap.part").is_ok());
        let other_way_round = files(Some(&at("a")), &at("a.part")).check();
        assert!(other_way_round.is_err());
        for truth in ["a.pcap", "a.pcap.part"] {
            assert!(check(truth).is_err(), "{truth}");
        }
        // Also if one is there.
        fs::write(at("a.pcap.part"), "").unwrap();
        assert!(check("a.pcap.part").is_err());
    }
}

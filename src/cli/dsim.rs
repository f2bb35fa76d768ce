//! `karoo dsim`: a simulated digitiser that writes a capture file.

use std::fs;
use std::path::PathBuf;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::config::SampleBits;
use crate::net::capture::Precision;
use crate::net::{CaptureWriter, parse_endpoints};
use crate::sim::faults::{Fault, Ledger};
use crate::sim::{Digitiser, DigitiserConfig, FaultPlan, parse};
use crate::units::Clock;

use super::Failure;

/// Write what a digitiser would send to a capture file.
#[derive(Debug, clap::Args)]
pub struct DsimArgs {
    /// Capture file to write
    #[arg(long, value_name = "CAPTURE.pcap")]
    pub output: PathBuf,
    /// Samples per polarisation, rounded up to whole heaps
    #[arg(long, value_name = "N", default_value_t = 1 << 22, conflicts_with = "seconds")]
    pub samples: u64,
    /// Length in seconds of sample time, rounded up to whole heaps
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// ADC sample rate in hertz
    #[arg(long, value_name = "HZ", default_value_t = 1712e6)]
    pub adc_sample_rate: f64,
    /// UNIX time of timestamp 0
    #[arg(long, value_name = "UNIX", default_value_t = 1_763_700_000.0)]
    pub sync_time: f64,
    /// Signals, one for all destinations or one for each: cw, multicw, comb, wgn, delay, nodither, + - *
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "cw(0.25, 232101234.0) + wgn(0.05); cw(0.15, 381407890.0) + wgn(0.05);"
    )]
    pub signals: String,
    /// Samples per heap
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub heap_samples: usize,
    /// Bits per sample, 2 to 16
    #[arg(long, value_name = "B", default_value = "10", value_parser = sample_bits)]
    pub sample_bits: SampleBits,
    /// Digitiser number of the first polarisation
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub first_id: u64,
    /// Samples after which the signals repeat
    #[arg(long, value_name = "N", default_value_t = 1 << 22)]
    pub period: u64,
    /// Samples after which everything repeats [default: the period]
    #[arg(long, value_name = "N")]
    pub max_period: Option<u64>,
    /// Timestamp of the first heap
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub first_timestamp: u64,
    /// Seed of the dither
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub dither_seed: u64,
    /// Seed of noise that gives none
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Multicast time to live
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub ttl: u8,
    /// Faults per heap: drop=P, duplicate=P, reorder=P, late=P[:HEAPS], corrupt=P, gap=P:HEAPS
    #[arg(long, value_name = "FAULTS", default_value = "")]
    pub faults: FaultPlan,
    /// Seed of the faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub fault_seed: u64,
    /// Write what was sent and which faults were injected as JSON
    #[arg(long, value_name = "FILE.json")]
    pub truth: Option<PathBuf>,
    /// Addresses of each polarisation, a.b.c.d[+n][:port]
    #[arg(value_name = "DEST", default_values = ["239.102.0.64+7:7148", "239.102.1.64+7:7148"])]
    pub dest: Vec<String>,
}

/// What went into a capture.
#[derive(serde::Serialize)]
struct Truth<'a> {
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

/// Runs the command.
pub fn run(args: &DsimArgs) -> Result<(), Failure> {
    let mut seeds = ChaCha8Rng::seed_from_u64(args.seed);
    let signals = parse(&args.signals, || seeds.next_u64()).map_err(Failure::usage)?;
    let canonical: Vec<String> = signals.iter().map(ToString::to_string).collect();
    let dests: Result<_, _> = args.dest.iter().map(|list| parse_endpoints(list)).collect();
    let samples = match args.seconds {
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
            (seconds * args.adc_sample_rate).ceil() as u64
        }
        Some(seconds) => {
            let message = format!("--seconds {seconds} must be a positive number, such as 0.1");
            return Err(Failure::usage(message));
        }
        None => args.samples,
    };
    let config = DigitiserConfig {
        clock: Clock {
            adc_sample_rate: args.adc_sample_rate,
            sync_time: args.sync_time,
        },
        signals,
        dests: dests.map_err(Failure::usage)?,
        heap_samples: args.heap_samples,
        sample_bits: args.sample_bits,
        first_id: args.first_id,
        period: args.period,
        max_period: args.max_period.unwrap_or(args.period),
        dither_seed: args.dither_seed,
        ttl: args.ttl,
        first_timestamp: args.first_timestamp,
    };
    let digitiser = Digitiser::new(config).map_err(Failure::usage)?;
    let heaps = samples.div_ceil(args.heap_samples as u64);
    let ledger = Ledger::default();
    let stream = args
        .faults
        .decorate(digitiser.heaps(heaps), args.fault_seed, &ledger);
    let mut capture =
        CaptureWriter::create(&args.output, Precision::Nanoseconds).map_err(Failure::data)?;
    let frames = digitiser
        .write(stream, &mut capture)
        .map_err(Failure::data)?;
    capture.finish().map_err(Failure::data)?;
    tracing::info!(
        "{}: {frames} heaps, {} samples per polarisation, {} faults",
        args.output.display(),
        heaps * args.heap_samples as u64,
        ledger.borrow().len(),
    );
    if let Some(path) = &args.truth {
        let truth = Truth {
            bits: args.sample_bits,
            heap_samples: args.heap_samples,
            samples: heaps * args.heap_samples as u64,
            first_timestamp: args.first_timestamp,
            sync_time: args.sync_time,
            adc_sample_rate: args.adc_sample_rate,
            sources: args.dest.join(","),
            signals: canonical.join(" "),
            dither_seed: args.dither_seed,
            fault_plan: args.faults,
            fault_seed: args.fault_seed,
            frames,
            faults: &ledger.borrow(),
        };
        let text = serde_json::to_string_pretty(&truth).map_err(Failure::data)?;
        let failed = |error| Failure::data(format!("cannot write --truth {path:?}: {error}"));
        fs::write(path, text).map_err(failed)?;
    }
    Ok(())
}

fn sample_bits(text: &str) -> Result<SampleBits, String> {
    let bits = text.parse().ok().and_then(SampleBits::new);
    bits.ok_or_else(|| "must be a whole number from 2 to 16".to_owned())
}

//! `karoo modem bench`.

mod latency;
mod loopback;
mod rx;
mod tx;

pub(in crate::cli) use latency::Report as LatencyDocument;
pub(in crate::cli) use loopback::Report as LoopDocument;
pub(in crate::cli) use rx::Report as RxDocument;
pub(in crate::cli) use tx::Report as TxDocument;

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use ground::os::run_on;
use host::topology::{CpuList, Machine, Root};
use karoo_modem::rx::{Level, RxConfig};
use karoo_modem::waveform::Modulation;
use schemars::JsonSchema;
use serde::Serialize;

use crate::bench::modem::ModemBenchError;
use crate::cli::numbers::{number_within, whole_number};
use crate::cli::{Failure, print_json};
use crate::config::units::seconds;
use crate::report::Documented;

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Tx(tx::TxArgs),
    Rx(rx::RxArgs),
    Latency(latency::LatencyArgs),
    Loop(loopback::LoopArgs),
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        Bench::Tx(args) => tx::run(args),
        Bench::Rx(args) => rx::run(args),
        Bench::Latency(args) => latency::run(args),
        Bench::Loop(args) => loopback::run(args),
    }
}

/// The frames that a bench is of.
#[derive(Debug, Args)]
struct FrameOptions {
    /// Modulations, bpsk, qpsk, qam16, qam64 or qam256, with commas between
    #[arg(long = "mod", value_name = "LIST", value_delimiter = ',', default_value = "qam256", value_parser = Modulation::from_str)]
    modulations: Vec<Modulation>,
    /// Duty cycles: shares of the time in which frames are sent
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1",
        value_parser = duty, allow_negative_numbers = true)]
    duty: Vec<f64>,
}

impl FrameOptions {
    /// Each modulation at each duty cycle.
    fn each(&self) -> impl Iterator<Item = (Modulation, f64)> {
        let pairs = |&modulation| self.duty.iter().map(move |&duty| (modulation, duty));
        self.modulations.iter().flat_map(pairs)
    }
}

/// The CPUs that a bench has.
#[derive(Debug, Args)]
struct CpuOptions {
    /// CPUs that all threads may use [default: those of this process]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
}

impl CpuOptions {
    /// Keeps this process to the CPUs; names them and the machine.
    fn keep(&self) -> Result<Place, Failure> {
        if let Some(cpus) = &self.cpus {
            let allowed: CpuList = ground::os::allowed_cpus().into_iter().collect();
            let failed = |error| {
                let why = format!("--cpus {cpus}: {error}; this process may use {allowed}");
                Failure::usage(why)
            };
            run_on(cpus.iter()).map_err(failed)?;
        }
        Ok(Place {
            model: Machine::read(&Root::host()).map_or(String::new(), |machine| machine.model),
            cpus: ground::os::allowed_cpus(),
            level: Level::detect().to_string(),
        })
    }
}

/// Where a bench ran.
#[derive(Debug, Serialize, JsonSchema)]
struct Place {
    /// The processor's name.
    model: String,
    /// CPUs that threads could use.
    cpus: Vec<usize>,
    /// What loops are compiled for.
    level: String,
}

impl Place {
    fn print(&self) {
        println!("{}, {} CPUs, {}", self.model, self.cpus.len(), self.level);
    }
}

fn duty(text: &str) -> Result<f64, String> {
    let rule = "it must be 0.001 to 1; 0.5 sends as long as it pauses";
    number_within(text, 0.001..=1.0, rule)
}

fn time(text: &str) -> Result<Duration, String> {
    let value = seconds(text).map_err(|error| error.to_string())?;
    match (0.001..=86_400.0).contains(&value) {
        true => Ok(Duration::from_secs_f64(value)),
        false => Err("it must be 0.001 to 86400 seconds".to_owned()),
    }
}

fn block(text: &str) -> Result<usize, String> {
    let rule = "it must be 3 to 4194304 samples, such as 8192";
    let value = whole_number(text, rule)?;
    match (3..=1 << 22).contains(&value) {
        true => Ok(value),
        false => Err(rule.to_owned()),
    }
}

fn decoders(text: &str) -> Result<usize, String> {
    let rule = "it must be at most 1024, such as one for each core";
    let value = whole_number(text, rule)?;
    match value <= 1024 {
        true => Ok(value),
        false => Err(rule.to_owned()),
    }
}

/// A receiver with so many taps and threads that decode.
fn config(taps: usize, threads: usize) -> Result<RxConfig, Failure> {
    let config = RxConfig {
        taps,
        threads,
        ..RxConfig::default()
    };
    let failed = |error| Failure::usage(format!("--taps {taps}: {error}"));
    config.check().map_err(failed)?;
    Ok(config)
}

fn failed(error: ModemBenchError) -> Failure {
    match error {
        ModemBenchError::Thread | ModemBenchError::Graph(_) | ModemBenchError::Frame(_) => {
            Failure::data(error)
        }
        _ => Failure::usage(error),
    }
}

/// How rows are shown.
struct Shown<R> {
    /// Lines above all.
    head: String,
    /// Lines of a row.
    row: fn(&R) -> String,
    /// Frames of a row that were lost.
    lost: fn(&R) -> u64,
}

/// Runs benches one after the other, prints their rows as they come, or all as JSON.
fn measure_all<B, R, D: Documented>(
    (cpus, json): (&CpuOptions, bool),
    benches: &[B],
    measure: fn(&B) -> Result<R, ModemBenchError>,
    shown: &Shown<R>,
    document: impl FnOnce(Place, Vec<R>) -> D,
) -> Result<(), Failure> {
    let machine = cpus.keep()?;
    if !json {
        machine.print();
        print!("{}", shown.head);
    }
    let mut rows = Vec::new();
    for bench in benches {
        let row = measure(bench).map_err(failed)?;
        if !json {
            println!("{}", (shown.row)(&row));
        }
        rows.push(row);
    }
    let lost = rows.iter().map(shown.lost).sum();
    if json {
        print_json(&document(machine, rows))?;
    }
    none_lost(lost)
}

/// Frames that were lost are a failure: what a receiver loses it need not decode.
fn none_lost(lost: u64) -> Result<(), Failure> {
    match lost {
        0 => Ok(()),
        lost => Err(Failure::data(format!(
            "{lost} frames were lost: the rates count for nothing"
        ))),
    }
}

fn mega(rate: f64) -> f64 {
    rate / 1e6
}

//! `karoo modem bench latency`.

use std::time::Duration;

use clap::Args;
use karoo_modem::waveform::Modulation;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CpuOptions, Place, Shown, block, config, decoders, measure_all, mega, time};
use crate::bench::modem::{LatencyBench, LatencyRow, measure_latency};
use crate::cli::modem::samples::rate;
use crate::cli::{Failure, examples};
use crate::report::Documented;

/// Measure the time from a frame's last sample to its last byte, while samples come at a rate
///
/// Each block is given to the receiver when its last sample is due. A machine that does anything
/// else shows in the highest values. Exit codes: 0 measured; 1 frames were lost; 2 the command line
/// is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::MODEM_BENCH_LATENCY)]
pub struct LatencyArgs {
    /// Modulation of the frames, which follow one another
    #[arg(long = "mod", value_name = "MODULATION", default_value_t = Modulation::Qam256)]
    modulation: Modulation,
    /// Samples per second
    #[arg(long, value_name = "HZ", default_value = "80M", value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    /// Samples that come at once
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "120,4096", value_parser = block, allow_negative_numbers = true)]
    block: Vec<usize>,
    /// Threads that decode, beside the one that finds frames; 0 does both on one
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1", value_parser = decoders, allow_negative_numbers = true)]
    threads: Vec<usize>,
    /// Taps of the equaliser: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        allow_negative_numbers = true
    )]
    taps: usize,
    /// Seconds that samples come
    #[arg(long, value_name = "S", default_value = "2", value_parser = time, allow_negative_numbers = true)]
    seconds: Duration,
    #[command(flatten)]
    cpus: CpuOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of all.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    machine: Place,
    /// Taps of the equaliser.
    taps: usize,
    rows: Vec<LatencyRow>,
}

impl Documented for Report {
    const NAME: &'static str = "modem-bench-latency";
    const TITLE: &'static str = "What karoo modem bench latency --json measured";
}

pub fn run(args: &LatencyArgs) -> Result<(), Failure> {
    let mut benches = Vec::new();
    for &threads in &args.threads {
        let config = config(args.taps, threads)?;
        benches.extend(args.block.iter().map(|&block| LatencyBench {
            modulation: args.modulation,
            rate: args.rate,
            block,
            config: config.clone(),
            time: args.seconds,
        }));
    }
    let head = format!(
        "{} at {} Msample/s; microseconds from a frame's last sample to its last byte\n\
         {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>4}\n",
        args.modulation,
        mega(args.rate),
        "decoders",
        "block",
        "least",
        "median",
        "99 %",
        "99.9 %",
        "most",
        "waited",
        "no CPU",
        "frames",
        "lost"
    );
    let shown = Shown {
        head,
        row: line,
        lost: |row| row.lost,
    };
    let document = |machine, rows| Report {
        machine,
        taps: args.taps,
        rows,
    };
    let how = (&args.cpus, args.json);
    measure_all(how, &benches, measure_latency, &shown, document)
}

fn line(row: &LatencyRow) -> String {
    format!(
        "{:8} {:7} {:9.1} {:9.1} {:9.1} {:9.1} {:9.1} {:5.1} % {:5.1} % {:7} {:4}",
        row.decoders,
        row.block,
        row.least,
        row.median,
        row.of_99,
        row.of_999,
        row.most,
        100.0 * row.waited,
        100.0 * row.without_cpu,
        row.frames,
        row.lost,
    )
}

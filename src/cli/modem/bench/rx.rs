//! `karoo modem bench rx`.

use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CpuOptions, FrameOptions, Place, Shown, block, config, decoders, measure_all, mega, time,
};
use crate::bench::modem::{RxBench, RxRow, Spread, Way, measure_receiver};
use crate::cli::{Failure, examples};
use crate::report::Documented;

/// Measure how fast receivers take samples, by modulation, duty cycle, threads and block
///
/// Frames follow one another without noise; every one has to come. Exit codes: 0 measured; 1 frames
/// were lost; 2 the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::MODEM_BENCH_RX)]
pub struct RxArgs {
    #[command(flatten)]
    frames: FrameOptions,
    /// Threads that decode, beside the one that finds frames; 0 does both on one
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0", value_parser = decoders, allow_negative_numbers = true)]
    threads: Vec<usize>,
    /// What takes frames to these threads
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "pool"
    )]
    by: Vec<Way>,
    /// Samples that come at once
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4096", value_parser = block, allow_negative_numbers = true)]
    block: Vec<usize>,
    /// Receivers that run at the same time, each with samples of its own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    instances: Vec<u16>,
    /// Taps of the equaliser: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        allow_negative_numbers = true
    )]
    taps: usize,
    /// Seconds of a round
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = time, allow_negative_numbers = true)]
    seconds: Duration,
    /// Rounds: their median and their best are told
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), allow_negative_numbers = true)]
    rounds: u16,
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
    rows: Vec<RxRow>,
}

impl Documented for Report {
    const NAME: &'static str = "modem-bench-rx";
    const TITLE: &'static str = "What karoo modem bench rx --json measured";
}

impl RxArgs {
    fn benches(&self) -> Result<Vec<RxBench>, Failure> {
        let mut benches = Vec::new();
        for (modulation, duty) in self.frames.each() {
            for &threads in &self.threads {
                let config = config(self.taps, threads)?;
                for &block in &self.block {
                    let of = |&instances: &u16| RxBench {
                        way: Way::Pool,
                        modulation,
                        duty,
                        block,
                        instances: instances.into(),
                        config: config.clone(),
                        time: self.seconds,
                        rounds: self.rounds.into(),
                    };
                    for bench in self.instances.iter().map(of) {
                        let by = |&way: &Way| RxBench {
                            way,
                            ..bench.clone()
                        };
                        benches.extend(self.by.iter().map(by));
                    }
                }
            }
        }
        Ok(benches)
    }
}

/// Median and best, or a dash.
fn spread(rates: Option<Spread>) -> String {
    let text = |rates: Spread| format!("{:.1}{:9.1}", mega(rates.median), mega(rates.best));
    rates.map_or("-".to_owned(), text)
}

fn head() -> String {
    let each = "median, best";
    format!(
        "{:10} {:>6} {:>5} {:>8} {:>7} {:>9} {:>18} {:>18} {:>18} {:>10} {:>7} {:>4}\n\
         {:50} {each:>18} {each:>18} {each:>18}\n",
        "modulation",
        "duty",
        "by",
        "decoders",
        "block",
        "receivers",
        "Msample/s",
        "per core",
        "finder",
        "Msymbol/s",
        "frames",
        "lost",
        "",
    )
}

fn line(row: &RxRow) -> String {
    format!(
        "{:10} {:6} {:>5} {:8} {:7} {:9} {:>18} {:>18} {:>18} {:10.1} {:7} {:4}",
        row.modulation,
        row.duty,
        row.way.name(),
        row.decoders,
        row.block,
        row.instances,
        spread(Some(row.wall)),
        spread(row.core),
        spread(row.finder),
        mega(row.symbols),
        row.frames,
        row.lost,
    )
}

pub fn run(args: &RxArgs) -> Result<(), Failure> {
    let benches = args.benches()?;
    let shown = Shown {
        head: head(),
        row: line,
        lost: |row| row.lost,
    };
    let document = |machine, rows| Report {
        machine,
        taps: args.taps,
        rows,
    };
    let how = (&args.cpus, args.json);
    measure_all(how, &benches, measure_receiver, &shown, document)
}

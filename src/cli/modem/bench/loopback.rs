//! `karoo modem bench loop`.

use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CpuOptions, FrameOptions, Place, Shown, block, config, decoders, measure_all, mega, time,
};
use crate::bench::modem::{LoopBench, LoopRow, Transfer, measure_loop};
use crate::cli::modem::samples::rate;
use crate::cli::{Failure, examples};
use crate::report::Documented;

/// Send and receive through a converter without a radio, and measure what all threads do
///
/// A transmitter, a converter that copies blocks, and a receiver have threads of their own and
/// queues between them. Every frame has to come. Exit codes: 0 measured; 1 frames were lost; 2 the
/// command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::MODEM_BENCH_LOOP, next_help_heading = "Bench")]
pub struct LoopArgs {
    #[command(flatten)]
    frames: FrameOptions,
    /// Samples of a block
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4096", value_parser = block, allow_negative_numbers = true)]
    block: Vec<usize>,
    /// How blocks pass from thread to thread
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "in-place"
    )]
    transfer: Vec<Transfer>,
    /// Samples per second that the converter keeps [default: as fast as they come]
    #[arg(long, value_name = "HZ", value_parser = rate, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Threads that decode, beside the one that finds frames; 0 does both on one
    #[arg(long, value_name = "N", default_value = "0", value_parser = decoders, allow_negative_numbers = true)]
    threads: usize,
    /// Taps of the equaliser: a multiple of 8, from 8 to 128
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        allow_negative_numbers = true
    )]
    taps: usize,
    /// Seconds that frames are sent: at least one, with its pause, is
    #[arg(long, value_name = "S", default_value = "2", value_parser = time, allow_negative_numbers = true)]
    seconds: Duration,
    /// Take the time of what threads do with each block, in a second run
    #[arg(long)]
    telemetry: bool,
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
    rows: Vec<LoopRow>,
}

impl Documented for Report {
    const NAME: &'static str = "modem-bench-loop";
    const TITLE: &'static str = "What karoo modem bench loop --json measured";
}

impl LoopArgs {
    fn benches(&self) -> Result<Vec<LoopBench>, Failure> {
        let config = config(self.taps, self.threads)?;
        let telemetry: &[bool] = match self.telemetry {
            true => &[false, true],
            false => &[false],
        };
        let mut benches = Vec::new();
        for (modulation, duty) in self.frames.each() {
            for &block in &self.block {
                for &transfer in &self.transfer {
                    benches.extend(telemetry.iter().map(|&telemetry| LoopBench {
                        modulation,
                        duty,
                        block,
                        transfer,
                        rate: self.rate,
                        config: config.clone(),
                        time: self.seconds,
                        telemetry,
                    }));
                }
            }
        }
        Ok(benches)
    }
}

pub fn run(args: &LoopArgs) -> Result<(), Failure> {
    let benches = args.benches()?;
    let shown = Shown {
        head: String::new(),
        row: lines,
        lost: |row| row.lost,
    };
    let document = |machine, rows| Report {
        machine,
        taps: args.taps,
        rows,
    };
    let how = (&args.cpus, args.json);
    measure_all(how, &benches, measure_loop, &shown, document)
}

fn lines(row: &LoopRow) -> String {
    let mut text = format!(
        "\n{} at a duty cycle of {}, blocks of {}, {}{}: {:.1} Msample/s, {:.2} Msymbol/s, {:.1} \
         Mb/s of payload; {} in {:.2} s, {} lost",
        row.modulation,
        row.duty,
        row.block,
        row.transfer.name(),
        match row.telemetry {
            true => ", telemetry",
            false => "",
        },
        mega(row.rate),
        mega(row.symbols),
        mega(row.goodput),
        ground::counted(row.sent, "frame"),
        row.seconds,
        row.lost,
    );
    for thread in &row.threads {
        text += &format!(
            "\n  {:12} {:5.1} % of a CPU",
            thread.name,
            100.0 * thread.cpu
        );
        if let Some(phases) = &thread.phases {
            text += &format!(
                "; waits for blocks {:.1} %, works {:.1} %, waits for room {:.1} %, copies {:.1} %",
                100.0 * phases.wait_in,
                100.0 * phases.compute,
                100.0 * phases.wait_out,
                100.0 * phases.write,
            );
        }
    }
    text
}

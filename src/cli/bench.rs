//! `karoo bench`: what this machine can do.

mod cores;
mod kernels;

pub(in crate::cli) use kernels::Report as KernelsReport;

use clap::{Args, Subcommand};

use super::{Failure, examples, print_json};
use crate::assembly::StageError;
use crate::bench::engine::{self, BenchError, BenchOptions};
use crate::bench::ports::{self, PortsError, PortsOptions, PortsReport};

/// Measure what this machine can do
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Measure whole engines, from a packet in to a packet out, at a rate or at the highest without
    /// loss
    ///
    /// Losses are counted, not a failure. Exit code 1 when packets are not accounted for, or when
    /// the output is wrong.
    #[command(after_help = examples::BENCH_ENGINE)]
    Engine(Box<BenchOptions>),
    Kernels(kernels::KernelArgs),
    /// Send packets from one interface to another, at a rate or at the highest without loss
    ///
    /// Exit code 1 when packets are lost at the one rate that was asked for or it is not reached,
    /// or when no rate is without loss.
    #[command(after_help = examples::BENCH_PORTS)]
    Ports(PortsOptions),
    Cores(cores::CoresArgs),
}

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        Bench::Engine(options) => run_engine(options),
        Bench::Kernels(args) => kernels::run(args),
        Bench::Ports(options) => run_ports(options),
        Bench::Cores(args) => cores::run(args),
    }
}

fn run_engine(options: &BenchOptions) -> Result<(), Failure> {
    let report = engine::run(options).map_err(|error| match error {
        BenchError::Config(_) | BenchError::Compute(_) | BenchError::NoRoom(..) => {
            Failure::usage(error)
        }
        BenchError::Stage(StageError::Engine(_)) => Failure::device(error),
        _ => Failure::data(error),
    })?;
    if options.json {
        print_json(&report)?;
    } else {
        print!("{report}");
    }
    if report.is_right() {
        Ok(())
    } else {
        Err(Failure::data(
            "the output is wrong, or packets are not accounted for: see the report",
        ))
    }
}

fn run_ports(options: &PortsOptions) -> Result<(), Failure> {
    let report = ports::run(options).map_err(|error| match error {
        PortsError::Lcore(_) | PortsError::Dpdk(_) | PortsError::Interrupted => {
            Failure::data(error)
        }
        _ => Failure::usage(error),
    })?;
    if options.json {
        print_json(&report)?;
    } else {
        print!("{report}");
    }
    let held = match &report.found {
        Some(found) => found.rate.is_some(),
        None => report.trials.iter().all(|trial| trial.passed()),
    };
    if held {
        Ok(())
    } else {
        Err(Failure::data(shortfall(&report)))
    }
}

/// Why no rate held.
fn shortfall(report: &PortsReport) -> String {
    let failed = || report.trials.iter().filter(|trial| !trial.passed());
    let lowest = failed().min_by(|a, b| a.rate.total_cmp(&b.rate));
    match lowest {
        Some(trial) if failed().all(|trial| trial.received == trial.sent) => {
            let (reached, rate) = (trial.reached, trial.rate);
            let option = if report.found.is_some() {
                "--lowest"
            } else {
                "--rate"
            };
            format!("the rate was not reached: {reached:.4} of {rate:.4} Gb/s; lower {option}")
        }
        _ => "packets were lost: see the report".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ports::PortTrial;

    fn report(rate: f64, reached: f64, received: u64) -> PortsReport {
        let trial = PortTrial {
            rate,
            reached,
            sent: 10,
            received,
            burst_bytes: 5192,
        };
        PortsReport {
            ports: ["eth0".to_owned(), "eth1".to_owned()],
            payload: 5192,
            seconds: 1.0,
            found: None,
            trials: vec![trial],
        }
    }

    #[test]
    fn loss_and_a_rate_that_is_not_reached_are_told_apart() {
        assert_eq!(
            shortfall(&report(10.0, 7.5, 10)),
            "the rate was not reached: 7.5000 of 10.0000 Gb/s; lower --rate"
        );
        let lost = "packets were lost: see the report";
        assert_eq!(shortfall(&report(10.0, 10.0, 9)), lost);
        assert_eq!(shortfall(&report(10.0, 7.5, 9)), lost);
    }
}

//! `karoo shadow`: computes what a running engine does, and compares.

mod live;

use std::time::Duration;

use clap::{ArgMatches, Args, Command};

use live::Shadow;

use super::frame::positive_seconds;
use super::serve::Sockets;
use super::{Failure, examples, fgpu, log, with_katgpucbf_syntax};
use crate::config::units::{seconds, within};
use crate::config::{
    EngineConfig, FgpuConfig, FgpuOptions, OutputConfig, heading, with_output_keys,
};
use crate::fgpu::Interfaces;
use crate::ports::{Interface, PortUse, without_driver};
use crate::shadow::{self, FollowError, Follower};

/// Options of `fgpu` that are taken and make no difference here.
const HIDDEN: [&str; 21] = [
    "karoo_sensors_period",
    "katcp_host",
    "katcp_port",
    "prometheus_port",
    "print_config",
    "send_affinity",
    "send_buffer",
    "send_rate_factor",
    "send_ttl",
    "recv_ibv",
    "recv_comp_vector",
    "send_ibv",
    "send_comp_vector",
    "use_peerdirect",
    "jones_per_batch",
    "monitor_log",
    "aiomonitor",
    "aiomonitor_host",
    "aiomonitor_port",
    "aiomonitor_webui_port",
    "aioconsole_port",
];
/// What help says of one of them here.
const SEND_INTERFACE: &str = "Interfaces to which the engine's output comes";
/// Bytes of outputs per second that are compared unless told otherwise, so that one core keeps up.
const BUDGET: f64 = 100e6;
/// Bytes of heaps that may wait at an interface.
const HEARD: usize = 1 << 25;

/// Compute what a running engine computes, and say where what it sends is different
///
/// Takes the engine's KATCP address and its command line: what KATCP does not tell. Takes over its
/// gains and delays, also as they change, computes the same input to nowhere, and compares with the
/// heaps that come. Sends nothing, and changes nothing in the engine. Works beside Karoo and beside
/// katgpucbf's fgpu. Exit codes: 0 nothing differs; 1 something does, nothing could be compared, or
/// the run failed; 2 the command line is wrong; 3 a device failed.
#[derive(Debug, Args)]
#[command(
    after_help = examples::SHADOW,
    after_long_help = with_output_keys(examples::SHADOW)
)]
pub struct ShadowArgs {
    /// Where the running engine's KATCP server listens
    #[arg(value_name = "HOST:PORT", required = true)]
    running: String,
    #[command(flatten)]
    engine: fgpu::FgpuArgs,
    /// Take over gains and delays at the start alone: what changes later is a difference
    #[arg(long, help_heading = heading::SHADOW)]
    no_follow: bool,
    /// Compare one batch in N [default: as many as come to 100 MB of output a second]
    #[arg(long, value_name = "N", value_parser = within(1..=1_000_000_u64, "must be 1 to 1000000", "10"), help_heading = heading::SHADOW)]
    every: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds, help_heading = heading::END)]
    duration: Option<f64>,
    /// Seconds between lines that say how it goes
    #[arg(long, value_name = "S", value_parser = seconds, default_value_t = 10.0, help_heading = heading::RESULTS)]
    report_interval: f64,
    /// Print the report as JSON
    #[arg(long, help_heading = heading::RESULTS)]
    json: bool,
}

/// The command with katgpucbf's defaults and ways to write options.
pub fn command(command: Command) -> Command {
    let command = with_katgpucbf_syntax(FgpuOptions::with_defaults(command));
    let command = command.mut_args(|arg| match HIDDEN.contains(&arg.get_id().as_str()) {
        true => arg.hide(true),
        false => arg,
    });
    command.mut_arg("send_interface", |arg| {
        arg.help(format!("{SEND_INTERFACE} [required]"))
    })
}

impl ShadowArgs {
    /// How often to say how it goes, and after what time to end.
    fn times(&self) -> Result<(Duration, Option<Duration>), Failure> {
        let interval = positive_seconds("--report-interval", self.report_interval)?;
        let duration = self.duration.map(|s| positive_seconds("--duration", s));
        Ok((interval, duration.transpose()?))
    }
}

/// Runs the command, of which `matches` is the parsed form; the summary goes to standard output.
pub fn run(args: &ShadowArgs, matches: &ArgMatches) -> Result<(), Failure> {
    let (report_interval, duration) = args.times()?;
    let level = log::start(args.engine.log());
    let mut config = fgpu::resolved(&args.engine)?;
    let names = std::mem::take(&mut config.egress.interfaces);
    let payload = config.engine.send.packet_payload;
    let beside = |config: &FgpuConfig, interfaces: &Interfaces| {
        Ok(fgpu::Beside {
            ports: listened(interfaces, &names, payload)?,
            demands: shadow::demands(&config.engine),
        })
    };
    let settled = fgpu::Settled::find(&args.engine, matches, config, beside)?;
    let Some(mut settled) = settled else {
        return Ok(());
    };
    let engine = &mut settled.config.engine;
    let mut follower = Follower::connect(&args.running, engine).map_err(refused)?;
    let seeds = follower.dither_seeds(engine).map_err(refused)?;
    for (output, seed) in engine.outputs.iter_mut().zip(seeds.into_iter().flatten()) {
        output.dither_seed = seed;
    }
    let every = args.every.unwrap_or_else(|| every(engine));
    tracing::info!(every, "batches compared: one in so many");
    let serving = settled.serve(Sockets::bind("", None)?, level)?;
    Shadow {
        args,
        launch: settled.launch(&args.engine),
        every,
        report_interval,
        duration,
    }
    .run(serving, follower)
}

/// An engine that has other outputs than the command line is the command line's fault.
fn refused(error: FollowError) -> Failure {
    match error {
        FollowError::Stream { .. } | FollowError::Told { .. } => Failure::usage(error),
        _ => Failure::data(error),
    }
}

/// One batch in how many is compared, so that a core has no more to do than it can.
fn every(engine: &EngineConfig) -> u64 {
    let rate = |output: &OutputConfig| {
        let seconds = output.batch_samples() as f64 / engine.clock.adc_sample_rate;
        output.batch_bytes() as f64 / seconds
    };
    let rate: f64 = engine.outputs.iter().map(rate).sum();
    ((rate / BUDGET).ceil() as u64).max(1)
}

/// The interfaces to which output comes. One through which the input comes as well is listened to
/// by sockets of the kernel's.
fn listened(
    interfaces: &Interfaces,
    names: &[String],
    payload: usize,
) -> Result<Vec<(Interface, PortUse)>, Failure> {
    let port_use = PortUse {
        rx_queues: 1,
        rx_bytes: HEARD / names.len().max(1),
        label: "_heard",
        ..PortUse::default()
    };
    let interface = |name: &String| {
        let mut interface = Interface::find(name).map_err(Failure::usage)?;
        if interfaces.receives(&interface.name) {
            if interface.index == 0 {
                return Err(Failure::usage(format!(
                    "--send-interface {name}: the input comes through it, and the kernel does not have it: give another interface to which the engine's output comes"
                )));
            }
            let by_kernel = format!("udp:{}", without_driver(name));
            interface = Interface::find(&by_kernel).map_err(Failure::usage)?;
        }
        let packet = spead::spectra::PREAMBLE_LEN + payload;
        let fits = interface.check_mtu(packet, "--send-packet-payload");
        fits.map_err(Failure::usage)?;
        Ok((interface, port_use))
    };
    names.iter().map(interface).collect()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    /// The first would run for ever, the second fill the log.
    #[test]
    fn times_that_are_not_positive_are_refused() {
        let times = |option: &str| {
            let line = ["shadow", "localhost:1", option];
            let command = command(ShadowArgs::augment_args(Command::new("shadow")));
            let matches = command.try_get_matches_from(line).expect("a command line");
            ShadowArgs::from_arg_matches(&matches).unwrap().times()
        };
        for option in ["--duration=-1", "--duration=0", "--report-interval=0"] {
            let error = times(option).expect_err(option).to_string();
            let (name, _) = option.split_once('=').unwrap();
            assert!(
                error.starts_with(name) && error.contains("positive"),
                "{error}"
            );
        }
        let (interval, duration) = times("--duration=2min").unwrap();
        assert_eq!(interval, Duration::from_secs(10));
        assert_eq!(duration, Some(Duration::from_secs(120)));
    }
}

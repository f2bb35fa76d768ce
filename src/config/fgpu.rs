//! Options of a live engine under katgpucbf's names, and what they come to.

use std::collections::HashSet;
use std::net::SocketAddrV4;
use std::path::Path;
use std::str::FromStr;

use clap::{Args, Command};
use dsp::SampleBits;
use ground::SampleClock;
use host::topology::CpuList;

use super::units::{bytes, plain};
use super::{
    ConfigError, EgressConfig, EngineConfig, EngineOptions, FgpuConfig, GainOption, IgnoredOptions,
    InputConfig, JONES_PER_BATCH, RecvConfig, SendConfig, ServeOptions, heading,
};
use crate::net::{is_read_once, parse_endpoints};

/// Defaults of katgpucbf for options that a capture can tell `karoo replay`.
const DEFAULTS: [(&str, &str); 5] = [
    ("dig_sample_bits", "10"),
    ("recv_packet_samples", "4096"),
    ("recv_chunk_samples", "33554432"),
    ("send_chunk_jones", "8388608"),
    ("max_delay_diff", "1048576"),
];

/// Options without which there is no engine, and how help says so. A configuration file may have
/// them, so that the parser cannot ask for them.
const REQUIRED: [(&str, &str); 7] = [
    ("src", "[required]"),
    ("recv_interface", "[required, but for a capture]"),
    ("send_interface", "[required]"),
    ("adc_sample_rate", "[required]"),
    ("sync_time", "[required]"),
    ("wideband", "[required, or --narrowband]"),
    ("narrowband", "[required, or --wideband]"),
];

/// Interfaces to send on, at most.
pub const MAX_SEND_INTERFACES: usize = 16;

/// Options of `karoo fgpu` that katgpucbf has.
#[derive(Clone, Debug, Args)]
pub struct FgpuOptions {
    /// Where digitiser packets come from: multicast groups of both polarisations, or a capture file
    #[arg(value_name = "SRC")]
    pub src: Option<String>,
    /// Interfaces to receive on, dealt out to the receive queues
    #[arg(long, value_name = "IFACE,…", help_heading = heading::RECEIVE)]
    pub recv_interface: Option<List<String>>,
    /// CPU of each receive queue's lcore, one queue for each that is named; -1: any
    #[arg(
        long,
        value_name = "CPU,…",
        default_value = "-1",
        allow_hyphen_values = true,
        help_heading = heading::RECEIVE
    )]
    pub recv_affinity: List<Cpu>,
    /// Bytes that packets may wait in, all receive queues together
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1 << 27,
        value_parser = bytes,
        help_heading = heading::RECEIVE
    )]
    pub recv_buffer: usize,
    /// Interfaces to send on, each of which takes an equal share of every output's destinations
    #[arg(long, value_name = "IFACE,…", help_heading = heading::SEND)]
    pub send_interface: Option<List<String>>,
    /// CPU of the send lcores; -1: any
    #[arg(
        long,
        value_name = "CPU",
        default_value = "-1",
        allow_hyphen_values = true,
        help_heading = heading::SEND
    )]
    pub send_affinity: Cpu,
    /// Bytes that packets may wait in, all send interfaces together
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1 << 20,
        value_parser = bytes,
        help_heading = heading::SEND
    )]
    pub send_buffer: usize,
    /// Rate at which an output's packets are sent, as a multiple of its own; 0: as fast as the
    /// interface takes them
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.1,
        value_parser = plain::<f64>(
            "must be 0, which is without limit, or from 0.000001 on",
            "1.1"
        ),
        help_heading = heading::SEND
    )]
    pub send_rate_factor: f64,
    /// What every engine has.
    #[command(flatten)]
    pub engine: EngineOptions,
    /// Where it listens.
    #[command(flatten)]
    pub serve: ServeOptions,
    /// Receive straight into GPU memory that the CPU can write: --memory bar
    #[arg(long, help_heading = heading::COMPUTE)]
    pub use_vkgdr: bool,
    /// What does nothing here.
    #[command(flatten)]
    pub ignored: IgnoredOptions,
}

/// Values separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.split(',')
            .map(|part| part.trim().parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A CPU to run on, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu(pub Option<usize>);

/// Not a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the number of a CPU, {most} at most, or -1 for any", most = CpuList::LARGEST)]
pub struct CpuError;

impl FromStr for Cpu {
    type Err = CpuError;

    fn from_str(text: &str) -> Result<Self, CpuError> {
        match text {
            "-1" => Ok(Self(None)),
            _ => match text.parse() {
                Ok(cpu @ 0..=CpuList::LARGEST) => Ok(Self(Some(cpu))),
                _ => Err(CpuError),
            },
        }
    }
}

/// Refuses that these are missing, each with words that would do.
fn refuse_missing(missing: &[(&str, &[&str])]) -> Result<(), ConfigError> {
    let options: Vec<_> = missing.iter().map(|(option, _)| *option).collect();
    let rule = match options[..] {
        [] => return Ok(()),
        ["--wideband"] => "at least one output is required",
        [_] => "it is required",
        _ => "they are required",
    };
    let examples: Vec<_> = missing.iter().map(|(_, words)| words.join(" ")).collect();
    let way_out = format!("add {}", examples.join(" "));
    Err(ConfigError::new(
        options.join(", "),
        "missing",
        rule,
        way_out,
    ))
}

impl FgpuOptions {
    /// Gives the options katgpucbf's defaults, and marks those that have none and are required; for
    /// the command that they were made for.
    pub fn with_defaults(command: Command) -> Command {
        let command = Self::with_fallbacks(command);
        REQUIRED.iter().fold(command, |command, (id, mark)| {
            command.mut_arg(*id, |arg| {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                arg.help(format!("{help} {mark}"))
            })
        })
    }

    /// Gives the options katgpucbf's defaults; for commands that can do without some.
    pub fn with_fallbacks(command: Command) -> Command {
        DEFAULTS.iter().fold(command, |command, (id, value)| {
            command.mut_arg(*id, |arg| arg.default_value(*value))
        })
    }

    /// What is required and was not given: each option, and an argument that would do.
    pub fn missing(&self) -> Vec<(&'static str, &'static [&'static str])> {
        let engine = &self.engine;
        // What is neither a file nor a list of endpoints may be a file's wrong name.
        let is_capture = self
            .src
            .as_deref()
            .is_some_and(|src| Path::new(src).is_file() || parse_endpoints(src).is_err());
        let outputs = engine.wideband.len() + engine.narrowband.len();
        [
            ("SRC", self.src.is_some()),
            (
                "--recv-interface",
                self.recv_interface.is_some() || is_capture,
            ),
            ("--send-interface", self.send_interface.is_some()),
            ("--adc-sample-rate", engine.adc_sample_rate.is_some()),
            ("--sync-time", engine.sync_time.is_some()),
            ("--wideband", outputs > 0),
        ]
        .into_iter()
        .filter(|(_, given)| !given)
        .map(|(option, _)| (option, example(option)))
        .collect()
    }

    /// What to say of `--recv-interface` if some of its interfaces have no receive queue, so that
    /// nothing is received through them.
    pub fn unused_interfaces(&self) -> Option<String> {
        let source = self.src.as_deref().unwrap_or_default();
        let interfaces = &self.recv_interface.as_ref()?.0;
        let queues = self.recv_affinity.0.len();
        if interfaces.len() <= queues || Path::new(source).is_file() {
            return None;
        }
        let (used, others) = interfaces.split_at(queues);
        let unused = others.iter().filter(|name| !used.contains(name));
        let unused: Vec<_> = unused.map(String::as_str).collect();
        if unused.is_empty() {
            return None;
        }
        let (given, used, unused) = (interfaces.join(","), used.join(","), unused.join(","));
        let entries = vec!["-1"; interfaces.len()].join(",");
        Some(format!(
            "--recv-interface {given}: nothing is received through {unused}, only through {used}: there is one receive queue for \
             each entry of --recv-affinity, which has {queues}; try --recv-affinity {entries}"
        ))
    }

    /// Refuses what lacks required options, all of which it names.
    fn check_missing(&self) -> Result<(), ConfigError> {
        refuse_missing(&self.missing())
    }

    /// Refuses what says too little of where input comes from.
    pub fn check_input(&self) -> Result<(), ConfigError> {
        let mut missing = self.missing();
        missing.retain(|(option, _)| ["SRC", "--recv-interface"].contains(option));
        refuse_missing(&missing)
    }

    /// Checks every rule; the first one broken is returned.
    pub fn resolve(&self) -> Result<FgpuConfig, ConfigError> {
        self.check_missing()?;
        let egress = self.egress()?;
        let engine = self.engine_config()?;
        for output in &engine.outputs {
            let (destinations, interfaces) = (output.dst.len(), egress.interfaces.len());
            if !destinations.is_multiple_of(interfaces) {
                let option = format!("{} dst of '{}'", output.option(), output.name);
                let rule = format!(
                    "{destinations} must be a multiple of the {interfaces} of --send-interface"
                );
                let way_out = format!("try {}", destinations.next_multiple_of(interfaces));
                return Err(ConfigError::new(option, destinations, rule, way_out));
            }
        }
        Ok(FgpuConfig {
            input: self.input()?,
            engine,
            egress,
        })
    }

    fn engine_config(&self) -> Result<EngineConfig, ConfigError> {
        let options = &self.engine;
        self.check_names()?;
        let bits = options.dig_sample_bits.unwrap_or_default();
        let sample_bits = SampleBits::new(bits).ok_or_else(|| {
            ConfigError::new("--dig-sample-bits", bits, "must be 2 to 16", "try 10")
        })?;
        let chunk_jones = options.send_chunk_jones.unwrap_or_default();
        let clock = SampleClock {
            adc_sample_rate: required("--adc-sample-rate", options.adc_sample_rate)?,
            sync_time: required("--sync-time", options.sync_time)?,
        };
        let outputs = options.outputs(clock, |_, _, _| JONES_PER_BATCH)?;
        let engine = EngineConfig {
            clock,
            feng_id: options.feng_id,
            array_size: options.array_size,
            recv: RecvConfig {
                packet_samples: options.recv_packet_samples.unwrap_or_default(),
                sample_bits,
                chunk_samples: options.recv_chunk_samples.unwrap_or_default(),
                mask_timestamp: options.mask_timestamp,
            },
            send: SendConfig {
                packet_payload: options.send_packet_payload,
                chunk_jones: SendConfig::whole_batches(chunk_jones, &outputs)?,
                ttl: options.send_ttl,
            },
            max_delay_diff: options.max_delay_diff.unwrap_or_default(),
            gain: fixed(options.gain)?,
            statistics_period: options.statistics_period,
            outputs,
        };
        engine.validate()?;
        Ok(engine)
    }

    /// Before filters are designed.
    fn check_names(&self) -> Result<(), ConfigError> {
        let EngineOptions {
            wideband,
            narrowband,
            ..
        } = &self.engine;
        let narrowband = narrowband.iter().map(|output| &output.common.name);
        let mut names = HashSet::new();
        let mut all = wideband.iter().map(|output| &output.name).chain(narrowband);
        match all.find(|&name| !names.insert(name)) {
            None => Ok(()),
            Some(name) => {
                let rule = "is the name of two outputs";
                Err(ConfigError::new(
                    "--wideband or --narrowband name",
                    name,
                    rule,
                    "rename one",
                ))
            }
        }
    }

    fn egress(&self) -> Result<EgressConfig, ConfigError> {
        let ignored = &self.ignored;
        if ignored.use_peerdirect && !ignored.send_ibv {
            let rule = "needs --send-ibv";
            return Err(ConfigError::new(
                "--use-peerdirect",
                "alone",
                rule,
                "add --send-ibv or leave it out",
            ));
        }
        let interfaces = required("--send-interface", self.send_interface.clone())?;
        let count = interfaces.0.len();
        if count > MAX_SEND_INTERFACES || !count.is_power_of_two() {
            let rule = format!(
                "must be a power of two, as destinations are, {MAX_SEND_INTERFACES} at most"
            );
            return Err(ConfigError::new(
                "--send-interface",
                format!("with {count} interfaces"),
                rule,
                "give 1, 2, 4, 8 or 16",
            ));
        }
        let factor = self.send_rate_factor;
        if !(factor.is_finite() && (factor == 0.0 || factor >= LEAST_RATE_FACTOR)) {
            let rule = format!("must be 0, which is without limit, or from {LEAST_RATE_FACTOR} on");
            let value = format!("{factor:e}");
            return Err(ConfigError::new(
                "--send-rate-factor",
                value,
                rule,
                "try 1.1",
            ));
        }
        check_buffer("--send-buffer", self.send_buffer)?;
        Ok(EgressConfig {
            interfaces: names("--send-interface", interfaces, true)?,
            cpu: self.send_affinity.0,
            buffer: self.send_buffer,
            rate_factor: factor,
        })
    }

    /// Where samples come from, whatever else is missing.
    pub fn input(&self) -> Result<InputConfig, ConfigError> {
        let src = required("SRC", self.src.clone())?;
        check_buffer("--recv-buffer", self.recv_buffer)?;
        let cpus: Vec<_> = self.recv_affinity.0.iter().map(|cpu| cpu.0).collect();
        // Where it was not given there are as many as it takes: nothing comes of them here.
        if let Some(vectors) = &self.ignored.recv_comp_vector
            && self.ignored.recv_ibv
            && vectors.0.len() != cpus.len()
        {
            let value = match vectors.0.len() {
                1 => "with 1 entry".to_owned(),
                n => format!("with {n} entries"),
            };
            let rule = format!(
                "must have as many as --recv-affinity ({}) with --recv-ibv",
                cpus.len()
            );
            return Err(ConfigError::new(
                "--recv-comp-vector",
                value,
                rule,
                "give one for each, or leave it out",
            ));
        }
        if Path::new(&src).is_file() {
            return Ok(InputConfig::Capture {
                path: src.into(),
                cpu: cpus[0],
            });
        }
        if is_read_once(Path::new(&src)) {
            let rule = "is not a regular file, and a capture is read twice";
            let way_out = "save it to a file first";
            return Err(ConfigError::new("SRC", &src, rule, way_out));
        }
        let endpoints = parse_endpoints(&src).map_err(|error| {
            let rule = format!("is neither a file nor a list of endpoints: {error}");
            ConfigError::new(
                "SRC",
                &src,
                rule,
                "try 239.102.0.64+7:7148,239.102.1.64+7:7148",
            )
        })?;
        if let Some(any) = endpoints.iter().find(|of| of.ip().is_unspecified()) {
            let rule = "is where no packet is sent to";
            let way_out = "give the groups that digitisers send to, or an address of this host";
            return Err(ConfigError::new("SRC", any, rule, way_out));
        }
        let interfaces = required("--recv-interface", self.recv_interface.clone())?;
        let interfaces = names("--recv-interface", interfaces, false)?;
        Ok(InputConfig::Live {
            interfaces: interfaces
                .iter()
                .cycle()
                .take(cpus.len())
                .cloned()
                .collect(),
            endpoints: once(endpoints),
            cpus,
            buffer: self.recv_buffer,
        })
    }
}

/// Each endpoint where it comes first: one that is named twice would bring all packets twice.
fn once(mut endpoints: Vec<SocketAddrV4>) -> Vec<SocketAddrV4> {
    let mut seen = HashSet::new();
    endpoints.retain(|endpoint| seen.insert(*endpoint));
    endpoints
}

/// Bytes of a buffer, more than any host has.
const MOST_BUFFER: usize = 1 << 40;

fn check_buffer(option: &str, bytes: usize) -> Result<(), ConfigError> {
    if bytes <= MOST_BUFFER {
        return Ok(());
    }
    let rule = "must be at most 2^40 bytes, 1 TiB";
    Err(ConfigError::new(option, bytes, rule, "try 128Mi"))
}

/// The least factor of the rate at which output is sent: with less, what is computed piles up at
/// once.
const LEAST_RATE_FACTOR: f64 = 1e-6;

/// Arguments that would do for an option that is required.
fn example(option: &str) -> &'static [&'static str] {
    match option {
        "SRC" => &["239.102.0.64+7:7148,239.102.1.64+7:7148"],
        "--recv-interface" => &["--recv-interface", "eth0"],
        "--send-interface" => &["--send-interface", "eth0"],
        "--adc-sample-rate" => &["--adc-sample-rate", "1712M"],
        "--sync-time" => &["--sync-time", "1763700000"],
        _ => &[
            "--wideband",
            "name=wideband,channels=1024,dst=239.10.10.0+7",
        ],
    }
}

/// A gain that is a number: there is no capture to measure.
fn fixed(gain: GainOption) -> Result<f64, ConfigError> {
    match gain {
        GainOption::Fixed(gain) => Ok(gain),
        auto => {
            let rule = "is for replays, which can look at their input before they begin";
            let way_out = "give a number, and ask ?karoo-auto-gain of the running engine";
            Err(ConfigError::new("--gain", auto, rule, way_out))
        }
    }
}

/// A value that is there once [`FgpuOptions::missing`] names nothing.
fn required<T>(option: &str, given: Option<T>) -> Result<T, ConfigError> {
    given.ok_or_else(|| {
        let way_out = format!("add {}", example(option).join(" "));
        ConfigError::new(option, "missing", "it is required", way_out)
    })
}

/// Names of interfaces; packets are sent through each once.
fn names(option: &str, list: List<String>, once: bool) -> Result<Vec<String>, ConfigError> {
    let mut seen = HashSet::new();
    let mut names = list.0.iter();
    match names.find(|&name| name.is_empty() || !seen.insert(name) && once) {
        Some(name) => {
            let rule = "must be names of different interfaces, separated by commas";
            let way_out = "try eth0,eth1";
            Err(ConfigError::new(option, format!("'{name}'"), rule, way_out))
        }
        None => Ok(list.0),
    }
}

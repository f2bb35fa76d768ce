//! Options of `karoo bench engine`, and the engines that they ask for.

use std::net::{Ipv4Addr, SocketAddrV4};

use dsp::{Dither, OutputBits, Oversampling, SampleBits, WindowFunction};
use ground::{IdlePolicy, N_POL, SampleClock};
use live::connections::Limits;

use super::signal::BenchSignal;
use super::watched::slot;
use crate::assembly::{BackendKind, StageIdle, Stages};
use crate::config::units::seconds;
use crate::config::{
    ConfigError, EngineConfig, Narrowband, NarrowbandSpec, OutputConfig, RecvConfig, SendConfig,
    heading,
};
use crate::gpu::{KernelOptions, MemoryChoice};
use crate::memory::BAR_SHARE;
use crate::net::endpoint::DEFAULT_PORT;
use crate::send::MAX_TX_LCORES;

/// Root mean square of the output's real and imaginary parts: far from the limits, far from zero.
const OUTPUT_RMS: f64 = 20.0;

/// Beyond, the design of a filter takes longer than the bench.
const MOST_DECIMATION: usize = 512;

/// Seconds that an engine and an rx lcore may be held up before packets are lost: on virtual
/// machines all of whose CPUs are busy, stalls of 10 to 25 ms were seen.
const ENGINE_STALL: f64 = 0.05;
const RX_STALL: f64 = 0.025;

/// The preset as the command line has it.
const ONE_RX_LCORE: &str = "one-rx-lcore";

/// Options that go together, where they are not given one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchPreset {
    /// An engine of S band whose input one rx lcore receives, as MeerKAT's controller has it:
    /// --rate 1.75 --rx-queues 1 --channels 4096 --seconds 20
    OneRxLcore,
}

/// Options of the bench.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchOptions {
    /// Options that go together, where they are not given one by one
    #[arg(long, value_enum, value_name = "NAME", help_heading = heading::MEASURE)]
    pub preset: Option<BenchPreset>,
    /// Rate in Gsample/s per polarisation; with --search the highest to try
    #[arg(long, value_name = "GSPS", default_value_t = 1.712, default_value_if("preset", ONE_RX_LCORE, "1.75"), help_heading = heading::MEASURE)]
    pub rate: f64,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 10.0, default_value_if("preset", ONE_RX_LCORE, "20"), value_parser = seconds, help_heading = heading::MEASURE)]
    pub seconds: f64,
    /// Look for the highest rate at which nothing is lost, then measure at it
    #[arg(long, help_heading = heading::MEASURE)]
    pub search: bool,
    /// With --search: repeat trials, by noisy bisection, until the rate is known with this
    /// probability
    #[arg(long, value_name = "P", requires = "search", help_heading = heading::MEASURE)]
    pub confidence: Option<f64>,
    /// Most trials of a search with --confidence
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = heading::MEASURE)]
    pub trials: u32,
    /// How long --search stays at each rate
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds, help_heading = heading::MEASURE)]
    pub probe_seconds: f64,
    /// Pages that are open of each engine in rounds behind the measurement, which run with and
    /// without somebody who looks by turns: what does looking cost?
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = heading::MEASURE)]
    pub viewers: usize,
    /// Scrapes of each engine's metrics a second in these rounds
    #[arg(long, value_name = "N", default_value_t = 0.0, help_heading = heading::MEASURE)]
    pub scrapes: f64,
    /// How many such rounds there are, each twice --seconds
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = heading::MEASURE)]
    pub rounds: usize,
    /// Share of the rate of the measurement at which they run
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, help_heading = heading::MEASURE)]
    pub watched_share: f64,
    /// Engines in the process
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = heading::PLACE)]
    pub engines: usize,
    /// Rx queues of each engine, each with an lcore of its own
    #[arg(long, value_name = "N", default_value_t = 2, default_value_if("preset", ONE_RX_LCORE, "1"), help_heading = heading::PLACE)]
    pub rx_queues: usize,
    /// Tx queues of each engine, each with an lcore of its own
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = heading::PLACE)]
    pub tx_queues: usize,
    /// Generator lcores for all engines
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = heading::PLACE)]
    pub generators: usize,
    /// Sink lcores for all engines
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = heading::PLACE)]
    pub sinks: usize,
    /// CPUs, one for each thread in this order: the main thread, the rx, engine and tx lcores of
    /// each engine, the generators, the sinks, the CPU backend's workers; what is left is for those
    /// who look [default: all that there are, in order]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = heading::PLACE)]
    pub cpus: Vec<usize>,
    /// Engines whose engine and tx lcores share one CPU; 0: each lcore has a CPU of its own
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = heading::PLACE)]
    pub share_cpus: usize,
    /// Let lcores share CPUs where there are too few
    #[arg(long, help_heading = heading::PLACE)]
    pub oversubscribe: bool,
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, help_heading = heading::COMPUTE)]
    pub backend: BackendKind,
    /// Where receive chunks are if a GPU computes
    #[arg(long, value_enum, default_value_t = MemoryChoice::Auto, help_heading = heading::COMPUTE)]
    pub memory: MemoryChoice,
    /// With --memory mixed: the share of receive chunks that are in the GPU's memory
    #[arg(long, value_name = "SHARE", default_value_t = BAR_SHARE, help_heading = heading::COMPUTE)]
    pub bar_share: f64,
    /// Which kernels; the fastest unless said otherwise.
    #[command(flatten)]
    pub kernels: KernelOptions,
    /// Compute threads of the CPU backend
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = heading::COMPUTE)]
    pub workers: usize,
    /// Channels
    #[arg(long, value_name = "N", default_value_t = 1024, default_value_if("preset", ONE_RX_LCORE, "4096"), help_heading = heading::OUTPUTS)]
    pub channels: usize,
    /// PFB taps
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = heading::OUTPUTS)]
    pub taps: usize,
    /// Spectra for each transform's length of time, M/N, as outputs' key of the same name
    #[arg(long, value_name = "M/N", default_value = "1/1", help_heading = heading::OUTPUTS)]
    pub oversampling: Oversampling,
    /// Narrowband outputs of each engine beside its wideband one
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = heading::OUTPUTS)]
    pub narrowband: usize,
    /// Decimation of the narrowband outputs
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = heading::OUTPUTS)]
    pub decimation: usize,
    /// Destinations among which the channels are divided
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = heading::OUTPUTS)]
    pub substreams: usize,
    /// Jones vectors per batch
    #[arg(long, value_name = "N", default_value_t = 1 << 20, help_heading = heading::OUTPUTS)]
    pub jones_per_batch: usize,
    /// Dither before quantisation
    #[arg(long, value_enum, default_value_t = Dither::Uniform, help_heading = heading::OUTPUTS)]
    pub dither: Dither,
    /// Digitiser bits per sample, 2 to 16
    #[arg(long, value_name = "BITS", default_value_t = 10, help_heading = heading::RECEIVE)]
    pub dig_sample_bits: u32,
    /// Samples per digitiser packet
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = heading::RECEIVE)]
    pub recv_packet_samples: usize,
    /// Samples per polarisation of a receive chunk
    #[arg(long, value_name = "N", default_value_t = 1 << 22, help_heading = heading::RECEIVE)]
    pub recv_chunk_samples: usize,
    /// Jones vectors of an output chunk [default: one batch]
    #[arg(long, value_name = "N", help_heading = heading::SEND)]
    pub send_chunk_jones: Option<usize>,
    /// Payload bytes of an output packet
    #[arg(long, value_name = "BYTES", default_value_t = 8192, help_heading = heading::SEND)]
    pub send_packet_payload: usize,
    /// Largest difference of coarse delay between the polarisations, in samples
    #[arg(long, value_name = "N", default_value_t = 1 << 16, help_heading = heading::RECEIVE)]
    pub max_delay_diff: usize,
    /// Receive chunks of each engine beside those that it needs [default: 50 ms' worth at --rate]
    #[arg(long, value_name = "N", help_heading = heading::RECEIVE)]
    pub recv_spare_chunks: Option<usize>,
    /// Packets that each rx queue holds [default: 25 ms' worth at --rate]
    #[arg(long, value_name = "N", help_heading = heading::RECEIVE)]
    pub rx_descriptors: Option<usize>,
    /// Packets that each tx queue holds
    #[arg(long, value_name = "N", default_value_t = 1023, help_heading = heading::SEND)]
    pub tx_descriptors: usize,
    /// Seconds over which statistics are taken; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, help_heading = heading::ENGINE)]
    pub statistics_period: f64,
    /// Report as JSON
    #[arg(long, help_heading = heading::RESULTS)]
    pub json: bool,
}

impl BenchOptions {
    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |option: &str, value: String, rule: &str, way_out: &str| {
            Err(ConfigError::new(option, value, rule, way_out))
        };
        for (option, value) in [
            ("--rate", self.rate),
            ("--seconds", self.seconds),
            ("--probe-seconds", self.probe_seconds),
            ("--watched-share", self.watched_share),
            // None at all will do.
            (
                "--scrapes",
                if self.scrapes == 0.0 {
                    1.0
                } else {
                    self.scrapes
                },
            ),
        ] {
            if !(1e-6..=1e6).contains(&value) {
                let rule = "must be from 1e-6 to 1000000";
                return refuse(option, value.to_string(), rule, "try 1");
            }
        }
        if !(0.0..=1.0).contains(&self.bar_share) {
            let share = self.bar_share.to_string();
            return refuse("--bar-share", share, "must be 0 to 1", "try 0.5");
        }
        if let Some(confidence) = self.confidence.filter(|p| !(0.5..1.0).contains(p)) {
            let rule = "must be from 0.5 to below 1";
            return refuse("--confidence", confidence.to_string(), rule, "try 0.95");
        }
        let most = MAX_TX_LCORES.min(self.substreams);
        for (option, value, most) in [
            ("--engines", self.engines, 64),
            ("--rx-queues", self.rx_queues, 64),
            ("--tx-queues", self.tx_queues, most),
            (
                "--generators",
                self.generators,
                self.engines.saturating_mul(self.rx_queues),
            ),
            (
                "--sinks",
                self.sinks,
                self.engines.saturating_mul(self.tx_queues),
            ),
            ("--workers", self.workers, 1024),
            ("--viewers", self.viewers.max(1), Limits::default().viewers),
            ("--rounds", self.rounds, 100),
            ("--trials", self.trials as usize, 100_000),
            // None at all will do.
            ("--narrowband", self.narrowband.max(1), 16),
            ("--decimation", self.decimation, MOST_DECIMATION),
            ("--substreams", self.substreams, 256),
            ("--rx-descriptors", self.rx_descriptors(), 1 << 16),
            ("--tx-descriptors", self.tx_descriptors, 1 << 16),
            // None at all will do.
            ("--recv-spare-chunks", self.spare_chunks().max(1), 1024),
        ] {
            if !(1..=most).contains(&value) {
                let rule = format!("must be 1 to {most} here");
                return refuse(option, value.to_string(), &rule, "try 1");
            }
        }
        Ok(())
    }

    /// Whether somebody looks at the engines in rounds of their own.
    pub fn is_watched(&self) -> bool {
        self.viewers > 0 || self.scrapes > 0.0
    }

    /// Histograms of latency: one of the measurement, two of each round.
    pub fn latency_slots(&self) -> usize {
        match self.is_watched() {
            true => slot(self.rounds, false),
            false => 1,
        }
    }

    /// Receive chunks of each engine beside those that it needs.
    pub fn spare_chunks(&self) -> usize {
        let samples = ENGINE_STALL * self.rate * 1e9;
        let chunks = samples / self.recv_chunk_samples.max(1) as f64;
        self.recv_spare_chunks
            .unwrap_or((chunks.ceil() as usize).min(1024))
    }

    /// What lcores do when nothing is due: they poll if each has a CPU.
    pub fn idle(&self) -> IdlePolicy {
        if self.oversubscribe {
            IdlePolicy::Share
        } else {
            IdlePolicy::Poll
        }
    }

    /// What the lcores of an engine do when nothing is due.
    pub fn engine_idle(&self) -> StageIdle {
        let rest = match self.share_cpus {
            0 => self.idle(),
            _ => IdlePolicy::Share,
        };
        StageIdle {
            rx: vec![self.idle(); self.rx_queues],
            engine: rest,
            tx: vec![rest; self.tx_queues],
        }
    }

    /// CPUs for the engine and tx lcores of all engines.
    pub fn modest_cpus(&self) -> usize {
        match self.share_cpus {
            0 => self.engines * (1 + self.tx_queues),
            engines => self.engines.div_ceil(engines),
        }
    }

    /// Packets that each rx queue holds, a power of two less one unless given.
    pub fn rx_descriptors(&self) -> usize {
        let heaps = RX_STALL * self.rate * 1e9 / self.recv_packet_samples.max(1) as f64;
        let packets = N_POL as f64 * heaps / self.rx_queues as f64;
        let size = (packets as usize).clamp(512, 1 << 16).next_power_of_two();
        self.rx_descriptors.unwrap_or(size - 1)
    }

    /// Worker lcores of the whole bench.
    pub fn lcore_count(&self) -> usize {
        self.engines * Stages::lcore_count(self.rx_queues, self.tx_queues)
            + self.generators
            + self.sinks
    }

    /// One configuration per engine, checked.
    pub fn configs(&self) -> Result<Vec<EngineConfig>, ConfigError> {
        self.check()?;
        let sample_bits = SampleBits::new(self.dig_sample_bits).ok_or_else(|| {
            let bits = self.dig_sample_bits;
            ConfigError::new("--dig-sample-bits", bits, "must be 2 to 16", "try 10")
        })?;
        let clock = SampleClock {
            adc_sample_rate: self.rate * 1e9,
            sync_time: 0.0,
        };
        let narrowband = self.narrowbands(clock)?;
        let recv = RecvConfig {
            packet_samples: self.recv_packet_samples,
            sample_bits,
            chunk_samples: self.recv_chunk_samples,
            mask_timestamp: false,
        };
        (0..self.engines)
            .map(|engine| {
                let mut config = EngineConfig {
                    clock,
                    feng_id: engine as u64,
                    array_size: self.engines as u64,
                    recv: recv.clone(),
                    send: SendConfig {
                        packet_payload: self.send_packet_payload,
                        chunk_jones: self.send_chunk_jones.unwrap_or(self.jones_per_batch),
                        ttl: 4,
                    },
                    max_delay_diff: self.max_delay_diff,
                    gain: 1.0,
                    statistics_period: self.statistics_period,
                    outputs: std::iter::once(None)
                        .chain(narrowband.iter().cloned().map(Some))
                        .enumerate()
                        .map(|(number, narrowband)| self.output(engine, number, narrowband))
                        .collect(),
                };
                config.validate()?;
                config.gain = gain(&config);
                Ok(config)
            })
            .collect()
    }

    /// Bands that lie side by side from the middle of the digitised one on, and around it where
    /// there are more. One filter is designed for all.
    fn narrowbands(&self, clock: SampleClock) -> Result<Vec<Narrowband>, ConfigError> {
        if self.narrowband == 0 {
            return Ok(Vec::new());
        }
        let (rate, decimation) = (clock.adc_sample_rate, self.decimation);
        let width = rate / (2 * decimation) as f64;
        let centre = |number: usize| (rate / 4.0 + number as f64 * width) % (rate / 2.0);
        let spec = NarrowbandSpec {
            centre_frequency: centre(0),
            decimation,
            ddc_taps: None,
            weight_pass: 0.005,
            pass_bandwidth: None,
        };
        let first = Narrowband::new(&spec, clock).map_err(|error| {
            let rule = error.to_string();
            ConfigError::new("--decimation", decimation, rule, "try 8")
        })?;
        let band = |number| first.centred(centre(number), clock);
        Ok((0..self.narrowband).map(band).collect())
    }

    fn output(&self, engine: usize, number: usize, narrowband: Option<Narrowband>) -> OutputConfig {
        let first = (engine * (1 + self.narrowband) + number) * self.substreams;
        let group = u32::from(Ipv4Addr::new(239, 10, 0, 0)) + first as u32;
        let dst = |i| SocketAddrV4::new(Ipv4Addr::from(group + i), DEFAULT_PORT);
        let window_function = match self.oversampling.is_none() {
            true => WindowFunction::Hann,
            false => WindowFunction::Kaiser,
        };
        OutputConfig {
            name: match narrowband {
                None => "wideband".into(),
                Some(_) => format!("narrowband{number}"),
            },
            channels: self.channels,
            dst: (0..self.substreams as u32).map(dst).collect(),
            jones_per_batch: self.jones_per_batch,
            taps: self.taps,
            w_cutoff: window_function.cutoff(self.taps, self.oversampling),
            window_function,
            oversampling: self.oversampling,
            dither: self.dither,
            dither_seed: engine as u64,
            sample_bits: OutputBits::Eight,
            narrowband,
        }
    }
}

/// The gain that gives white noise of the signal's power [`OUTPUT_RMS`] in each part: its variance
/// in a channel is σ²·Σw², half of it in either part.
fn gain(config: &EngineConfig) -> f64 {
    let output = &config.outputs[0];
    let weights = output.weights();
    let power: f64 = weights.iter().map(|&w| f64::from(w).powi(2)).sum();
    OUTPUT_RMS / (BenchSignal::deviation(config.recv.sample_bits) * (power / 2.0).sqrt())
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn options(words: &[&str]) -> BenchOptions {
        let command = BenchOptions::augment_args(Command::new("engine"));
        let words = ["engine"].iter().chain(words);
        let matches = command.try_get_matches_from(words).unwrap();
        BenchOptions::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_preset_stands_for_what_is_not_given() {
        let of = |options: BenchOptions| {
            let BenchOptions {
                rate,
                seconds,
                rx_queues,
                channels,
                ..
            } = options;
            (rate, seconds, rx_queues, channels)
        };
        assert_eq!(of(options(&[])), (1.712, 10.0, 2, 1024));
        let preset = ["--preset", ONE_RX_LCORE];
        assert_eq!(of(options(&preset)), (1.75, 20.0, 1, 4096));
        let given = [&preset[..], &["--channels=8192", "--seconds=2"]].concat();
        assert_eq!(of(options(&given)), (1.75, 2.0, 1, 8192));
        let preset = options(&preset);
        assert_eq!(preset.preset, Some(BenchPreset::OneRxLcore));
        preset.check().unwrap();
    }
}

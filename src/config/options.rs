//! The engine's command-line options, under katgpucbf's names.
//!
//! Everything that a capture can tell is optional here; `karoo replay` fills the gaps, `karoo fgpu`
//! gives them katgpucbf's defaults.

use clap::Args;
use dsp::OutputBits;
use dsp::delay::{DelaySeconds, LinearDelay};
use ground::SampleClock;

use super::units::{count, hertz, plain, seconds, seed, time_to_live, unix_time};
use super::{ConfigError, GainOption, NarrowbandOptions, OutputConfig, WidebandOptions, heading};

/// Options of an engine.
#[derive(Clone, Debug, Args)]
pub struct EngineOptions {
    /// Add an output of the whole band; its keys are listed below
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = heading::OUTPUTS)]
    pub wideband: Vec<WidebandOptions>,
    /// Add an output of a part of the band; its keys are listed below
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = heading::OUTPUTS)]
    pub narrowband: Vec<NarrowbandOptions>,
    /// Bits of each real and imaginary part sent, 4 or 8
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 8,
        value_parser = plain::<u32>("must be 4 or 8", "8"),
        help_heading = heading::OUTPUTS
    )]
    pub send_sample_bits: u32,
    /// Gain of every channel of every output, until a client sets others. In a replay also auto or
    /// auto:RMS: each channel gets the gain with which its real and imaginary parts have this rms,
    /// in counts; without RMS the one that is best for noise
    #[arg(
        long,
        value_name = "X",
        default_value_t = GainOption::Fixed(1.0),
        allow_negative_numbers = true,
        help_heading = heading::OUTPUTS
    )]
    pub gain: GainOption,
    /// Key of the dither generator: the same key and capture give the same bytes
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = seed,
        help_heading = heading::OUTPUTS
    )]
    pub dither_seed: u64,
    /// ADC sample rate in hertz, or with a unit: 1712e6, 1712M, 1.712GHz
    #[arg(long, value_name = "HZ", value_parser = hertz, help_heading = heading::TIMING)]
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of sample 0 in seconds
    #[arg(
        long,
        value_name = "UNIX",
        value_parser = unix_time,
        allow_negative_numbers = true,
        help_heading = heading::TIMING
    )]
    pub sync_time: Option<f64>,
    /// Number of this F-engine in the array, from 0
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = plain::<u64>("must be a whole number from 0 on, below --array-size", "0"),
        help_heading = heading::ENGINE
    )]
    pub feng_id: u64,
    /// F-engines in the array, by which heap counts go up: the same for all of them, and more than
    /// every --feng-id
    #[arg(
        long,
        value_name = "N",
        default_value_t = 65536,
        value_parser = plain::<u64>("must be a whole number from 1 to 2^40", "64"),
        help_heading = heading::ENGINE
    )]
    pub array_size: u64,
    /// Seconds of samples over which statistics of input and outputs are taken, up to 60; 0: none
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1.0,
        value_parser = seconds,
        help_heading = heading::ENGINE
    )]
    pub statistics_period: f64,
    /// Bits per sample of the digitiser, 2 to 16
    #[arg(
        long,
        value_name = "BITS",
        value_parser = plain::<u32>("must be 2 to 16", "10"),
        help_heading = heading::RECEIVE
    )]
    pub dig_sample_bits: Option<u32>,
    /// Samples per digitiser packet
    #[arg(
        long,
        value_name = "N",
        value_parser = count::<usize>("4096"),
        help_heading = heading::RECEIVE
    )]
    pub recv_packet_samples: Option<usize>,
    /// Samples per polarisation of a receive chunk, which is what is computed at once: 33554432,
    /// 32Mi
    #[arg(
        long,
        value_name = "N",
        value_parser = count::<usize>("32Mi"),
        help_heading = heading::RECEIVE
    )]
    pub recv_chunk_samples: Option<usize>,
    /// Largest difference between the coarse delays of the two polarisations, in samples, for which
    /// input is kept: beyond it batches may be lost
    #[arg(
        long,
        value_name = "N",
        value_parser = count::<usize>("1Mi"),
        help_heading = heading::RECEIVE
    )]
    pub max_delay_diff: Option<usize>,
    /// Clear the bits of digitiser timestamps below a packet's samples, for digitisers that leave
    /// something there
    #[arg(long, help_heading = heading::RECEIVE)]
    pub mask_timestamp: bool,
    /// Jones vectors (a value of either polarisation for one channel and time) that are computed
    /// before they are sent, rounded up to whole batches of every output
    #[arg(
        long,
        value_name = "N",
        value_parser = count::<usize>("8Mi"),
        help_heading = heading::SEND
    )]
    pub send_chunk_jones: Option<usize>,
    /// Payload bytes of an output packet
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 8192,
        value_parser = count::<usize>("8192"),
        help_heading = heading::SEND
    )]
    pub send_packet_payload: usize,
    /// Time to live of output packets
    #[arg(
        long,
        value_name = "TTL",
        default_value_t = 4,
        value_parser = time_to_live,
        help_heading = heading::SEND
    )]
    pub send_ttl: u8,
}

impl EngineOptions {
    /// The outputs, wideband ones first. `jones_per_batch` gives the batches of those that do not
    /// say; it is told the option that an output is from, and its decimation.
    pub fn outputs(
        &self,
        clock: SampleClock,
        mut jones_per_batch: impl FnMut(&WidebandOptions, &'static str, usize) -> usize,
    ) -> Result<Vec<OutputConfig>, ConfigError> {
        let sample_bits = OutputBits::new(self.send_sample_bits).ok_or_else(|| {
            let rule = "must be 4 or 8";
            ConfigError::new("--send-sample-bits", self.send_sample_bits, rule, "try 8")
        })?;
        // Each output has a dither seed of its own.
        let mut seeds = (0..).map(|n| self.dither_seed.wrapping_add(n));
        let mut seed = || seeds.next().unwrap_or_default();
        let mut outputs = Vec::new();
        for options in &self.wideband {
            let jones = jones_per_batch(options, "--wideband", 1);
            outputs.push(options.clone().into_config(jones, seed()));
        }
        for options in &self.narrowband {
            let jones = jones_per_batch(&options.common, "--narrowband", options.spec.decimation);
            outputs.push(options.clone().into_config(jones, seed(), clock)?);
        }
        for output in &mut outputs {
            output.sample_bits = sample_bits;
        }
        Ok(outputs)
    }
}

/// Options in place of what a live engine hears from its interfaces and its controller.
#[derive(Clone, Debug, Default, Args)]
pub struct CaptureOptions {
    /// Destinations of the digitisers' packets, `a.b.c.d[+n][:port],…`, both polarisations'; all
    /// others are not ours
    #[arg(long, value_name = "LIST", help_heading = heading::RECEIVE)]
    pub sources: Option<String>,
    /// Delay model per polarisation from sample 0 on, as delay_s,rate:phase_rad,phase_rate
    #[arg(long, value_names = ["STREAM", "MODEL0", "MODEL1"], num_args = 3, allow_hyphen_values = true, help_heading = heading::TIMING)]
    pub delays: Vec<String>,
}

/// Delay models of one output, in samples.
#[derive(Clone, Debug, PartialEq)]
pub struct InitialDelays {
    /// Stream name.
    pub stream: String,
    /// One model per polarisation.
    pub models: [LinearDelay; 2],
}

/// Parses `--delays` triples. `adc_sample_rate` converts seconds to samples.
pub fn parse_delays(
    words: &[String],
    adc_sample_rate: f64,
) -> Result<Vec<InitialDelays>, ConfigError> {
    words
        .chunks_exact(3)
        .map(|words| {
            let model = |text: &str| {
                delay_model(text, adc_sample_rate).map_err(|rule| {
                    let option = format!("--delays {}", words[0]);
                    ConfigError::new(option, format!("'{text}'"), rule, "try 1e-9,0:0,0")
                })
            };
            Ok(InitialDelays {
                stream: words[0].clone(),
                models: [model(&words[1])?, model(&words[2])?],
            })
        })
        .collect()
}

/// The model, or the rule that it does not keep.
fn delay_model(text: &str, adc_sample_rate: f64) -> Result<LinearDelay, String> {
    fn pair(text: &str) -> Option<(f64, f64)> {
        let (a, b) = text.split_once(',')?;
        let (a, b): (f64, f64) = (a.parse().ok()?, b.parse().ok()?);
        (a.is_finite() && b.is_finite()).then_some((a, b))
    }
    let numbers = text
        .split_once(':')
        .and_then(|(delay, phase)| pair(delay).zip(pair(phase)));
    let ((delay, rate), (phase, phase_rate)) =
        numbers.ok_or("must be delay,rate:phase,phase_rate in s, s/s, rad and rad/s")?;
    let clock = SampleClock {
        adc_sample_rate,
        sync_time: 0.0,
    };
    let seconds = DelaySeconds {
        start_time: 0.0,
        delay,
        rate,
        phase,
        phase_rate,
    };
    LinearDelay::from_seconds(clock, seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_converted_to_samples() {
        let words = ["w", "1e-6,0:0.5,2", "0,-1e-9:0,0"].map(String::from);
        let delays = parse_delays(&words, 1e9).unwrap();
        assert_eq!(delays[0].models[0].delay(), 1000.0);
        assert_eq!(delays[0].models[0].phase_rate(), 2e-9);
        // Beyond 60 s or a rate of 1 an output would stand still, as `?delays` says.
        for wrong in ["1,2", "nan,0:0,0", "1e3,0:0,0", "0,1:0,0", "0,-1:0,0"] {
            let words = ["w", wrong, "0,0:0,0"].map(String::from);
            assert!(parse_delays(&words, 1.0).is_err(), "{wrong}");
        }
    }
}

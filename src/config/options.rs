//! The engine's command-line options, under the peer's names.
//!
//! Everything that a capture can tell is optional here; `karoo replay` fills the gaps.

use std::net::SocketAddrV4;
use std::str::FromStr;

use clap::Args;

use super::{ConfigError, Dither, OutputConfig, WindowFunction};
use crate::dsp::delay::LinearDelay;
use crate::net::endpoint;

/// Options of an engine.
#[derive(Clone, Debug, Args)]
pub struct EngineOptions {
    /// Add a wideband output: name=…,channels=…,`dst=a.b.c.d[+n][:port]` and optionally
    /// jones_per_batch, taps, w_cutoff, window_function (hann|rect), dither (none|uniform)
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub wideband: Vec<WidebandOptions>,
    /// Destinations of the digitisers' packets, `a.b.c.d[+n][:port],…`, both polarisations'; all others
    /// are not ours
    #[arg(long, value_name = "LIST")]
    pub sources: Option<String>,
    /// ADC sample rate in hertz
    #[arg(long, value_name = "HZ")]
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of sample 0
    #[arg(long, value_name = "UNIX", allow_negative_numbers = true)]
    pub sync_time: Option<f64>,
    /// Number of this F-engine
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub feng_id: u64,
    /// F-engines in the array: the step of heap counts
    #[arg(long, value_name = "N", default_value_t = 65536)]
    pub array_size: u64,
    /// Digitiser bits per sample, 2 to 16
    #[arg(long, value_name = "BITS")]
    pub dig_sample_bits: Option<u32>,
    /// Samples per digitiser packet
    #[arg(long, value_name = "N")]
    pub recv_packet_samples: Option<usize>,
    /// Samples per polarisation of a receive chunk
    #[arg(long, value_name = "N")]
    pub recv_chunk_samples: Option<usize>,
    /// Jones vectors of an output chunk, rounded up to whole batches of every output
    #[arg(long, value_name = "N")]
    pub send_chunk_jones: Option<usize>,
    /// Payload bytes of an output packet
    #[arg(long, value_name = "BYTES", default_value_t = 8192)]
    pub send_packet_payload: usize,
    /// Time to live of output packets
    #[arg(long, value_name = "TTL", default_value_t = 4)]
    pub send_ttl: u8,
    /// Largest difference of coarse delay between the polarisations, in samples
    #[arg(long, value_name = "N")]
    pub max_delay_diff: Option<usize>,
    /// Gain of every channel of every output
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub gain: f64,
    /// Clear the low bits of digitiser timestamps
    #[arg(long)]
    pub mask_timestamp: bool,
    /// Delay model per polarisation from sample 0 on, as delay_s,rate:phase_rad,phase_rate
    #[arg(long, value_names = ["STREAM", "MODEL0", "MODEL1"], num_args = 3, allow_hyphen_values = true)]
    pub delays: Vec<String>,
    /// Key of the dither generator: the same key and capture give the same bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dither_seed: u64,
}

/// One `--wideband` value.
#[derive(Clone, Debug, PartialEq)]
pub struct WidebandOptions {
    /// Stream name.
    pub name: String,
    /// Channels.
    pub channels: usize,
    /// Destinations, one per substream.
    pub dst: Vec<SocketAddrV4>,
    /// Jones vectors per batch.
    pub jones_per_batch: Option<usize>,
    /// PFB taps.
    pub taps: usize,
    /// Scale of the filter's width.
    pub w_cutoff: f64,
    /// Window of the filter.
    pub window_function: WindowFunction,
    /// Dither before quantisation.
    pub dither: Dither,
}

impl WidebandOptions {
    /// The output's configuration; `jones_per_batch` where the option does not say.
    pub fn into_config(self, jones_per_batch: usize, dither_seed: u64) -> OutputConfig {
        OutputConfig {
            name: self.name,
            channels: self.channels,
            dst: self.dst,
            jones_per_batch: self.jones_per_batch.unwrap_or(jones_per_batch),
            taps: self.taps,
            w_cutoff: self.w_cutoff,
            window_function: self.window_function,
            dither: self.dither,
            dither_seed,
        }
    }
}

const KEYS: &str = "name, channels, dst, jones_per_batch, taps, w_cutoff, window_function, dither";

impl FromStr for WidebandOptions {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut given = SubOptions::parse("--wideband", text)?;
        let options = Self {
            name: given.required("name", "a stream name", "wideband", |s| {
                (!s.is_empty()).then(|| s.to_owned())
            })?,
            channels: given.required("channels", "a whole number", "1024", |s| s.parse().ok())?,
            dst: given.required(
                "dst",
                "IPv4 endpoints a.b.c.d[+n][:port]",
                "239.10.10.0+7:7148",
                |s| endpoint::parse_endpoints(s).ok(),
            )?,
            jones_per_batch: given.optional(
                "jones_per_batch",
                "a whole number",
                "1048576",
                |s| s.parse().ok(),
            )?,
            taps: given
                .optional("taps", "a whole number", "16", |s| s.parse().ok())?
                .unwrap_or(16),
            w_cutoff: given
                .optional("w_cutoff", "a number", "1.0", |s| s.parse().ok())?
                .unwrap_or(1.0),
            window_function: given
                .optional("window_function", "hann or rect", "hann", choice)?
                .unwrap_or(WindowFunction::Hann),
            dither: given
                .optional("dither", "none or uniform", "uniform", choice)?
                .unwrap_or(Dither::Uniform),
        };
        given.nothing_left()?;
        Ok(options)
    }
}

/// An enum value by its exact lower-case name.
fn choice<T: clap::ValueEnum>(text: &str) -> Option<T> {
    T::from_str(text, false).ok()
}

/// The `key=value` pairs of one option, taken out one by one.
struct SubOptions<'a> {
    option: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> SubOptions<'a> {
    fn parse(option: &'a str, text: &'a str) -> Result<Self, ConfigError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',') {
            let pair = part.split_once('=').ok_or_else(|| {
                let way_out = "separate pairs by commas, such as name=wideband,channels=1024";
                ConfigError::new(option, format!("'{part}'"), "is not key=value", way_out)
            })?;
            if pairs.iter().any(|(key, _)| *key == pair.0) {
                let rule = format!("key {} is given twice", pair.0);
                return Err(ConfigError::new(
                    option,
                    format!("'{part}'"),
                    rule,
                    "give it once",
                ));
            }
            pairs.push(pair);
        }
        Ok(Self { option, pairs })
    }

    fn optional<T>(
        &mut self,
        key: &str,
        rule: &str,
        example: &str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(at) = self.pairs.iter().position(|pair| pair.0 == key) else {
            return Ok(None);
        };
        let (_, value) = self.pairs.swap_remove(at);
        convert(value).map(Some).ok_or_else(|| {
            ConfigError::new(
                format!("{} {key}", self.option),
                format!("'{value}'"),
                format!("must be {rule}"),
                format!("try {key}={example}"),
            )
        })
    }

    fn required<T>(
        &mut self,
        key: &str,
        rule: &str,
        example: &str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        self.optional(key, rule, example, convert)?.ok_or_else(|| {
            ConfigError::new(
                self.option,
                format!("without {key}"),
                format!("{key} is required"),
                format!("add {key}={example}"),
            )
        })
    }

    fn nothing_left(self) -> Result<(), ConfigError> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err(ConfigError::new(
                self.option,
                format!("'{key}'"),
                "is not a key of this option",
                format!("the keys are {KEYS}"),
            )),
        }
    }
}

/// Delay models of one output, in samples (reference: what clients send).
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
                delay_model(text, adc_sample_rate).ok_or_else(|| {
                    ConfigError::new(
                        format!("--delays {}", words[0]),
                        format!("'{text}'"),
                        "must be delay,rate:phase,phase_rate in s, s/s, rad and rad/s, finite, rate < 1",
                        "try 1e-9,0:0,0",
                    )
                })
            };
            Ok(InitialDelays {
                stream: words[0].clone(),
                models: [model(&words[1])?, model(&words[2])?],
            })
        })
        .collect()
}

fn delay_model(text: &str, adc_sample_rate: f64) -> Option<LinearDelay> {
    fn pair(text: &str) -> Option<(f64, f64)> {
        let (a, b) = text.split_once(',')?;
        let (a, b): (f64, f64) = (a.parse().ok()?, b.parse().ok()?);
        (a.is_finite() && b.is_finite()).then_some((a, b))
    }
    let (delay, phase) = text.split_once(':')?;
    let (delay, rate) = pair(delay)?;
    let (phase, phase_rate) = pair(phase)?;
    LinearDelay::new(
        0,
        delay * adc_sample_rate,
        rate,
        phase,
        phase_rate / adc_sample_rate,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<WidebandOptions>().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_the_peers() {
        let options: WidebandOptions = "name=w,channels=64,dst=239.1.2.3+1".parse().unwrap();
        assert_eq!((options.taps, options.w_cutoff), (16, 1.0));
        assert_eq!(
            (options.window_function, options.dither),
            (WindowFunction::Hann, Dither::Uniform)
        );
        assert_eq!(
            options.dst,
            [
                "239.1.2.3:7148".parse().unwrap(),
                "239.1.2.4:7148".parse().unwrap()
            ]
        );
    }

    #[test]
    fn refusals_name_the_key_and_a_way_out() {
        assert!(refusal("name=w,channels=64").contains("dst is required"));
        assert!(refusal("name=w,name=v").contains("given twice"));
        assert!(refusal("name").contains("not key=value"));
        assert!(refusal("name=w,channels=6x4,dst=239.1.2.3").contains("try channels=1024"));
        assert!(
            refusal("name=w,channels=64,dst=239.1.2.3,dither=Uniform").contains("none or uniform")
        );
        assert!(refusal("name=w,channels=64,dst=239.1.2.3,chanels=3").contains("'chanels'"));
    }

    #[test]
    fn delays_are_converted_to_samples() {
        let words = ["w", "1e-6,0:0.5,2", "0,-1e-9:0,0"].map(String::from);
        let delays = parse_delays(&words, 1e9).unwrap();
        assert_eq!(delays[0].models[0].delay(), 1000.0);
        assert_eq!(delays[0].models[0].phase_rate(), 2e-9);
        assert!(parse_delays(&["w", "1,2", "0,0:0,0"].map(String::from), 1.0).is_err());
        assert!(parse_delays(&["w", "nan,0:0,0", "0,0:0,0"].map(String::from), 1.0).is_err());
    }
}

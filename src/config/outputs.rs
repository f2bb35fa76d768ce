//! The values of `--wideband` and `--narrowband`.

use std::net::SocketAddrV4;
use std::str::FromStr;

use dsp::remez::RemezError;
use dsp::{Dither, OutputBits, Oversampling, WindowFunction};
use ground::SampleClock;

use super::prototype::PrototypeOptions;
use super::suboptions::{Key, SubOptions, choice, key};
use super::units::hertz;
use super::validate::check_rate;
use super::{ConfigError, Narrowband, NarrowbandSpec, OutputConfig};
use crate::net::endpoint;

/// katgpucbf's default of the sub-option `jones_per_batch`.
pub const JONES_PER_BATCH: usize = 1 << 20;
/// Largest decimation of a narrowband output.
pub(super) const MAX_DECIMATION: usize = 1024;
/// Weight of the pass band unless an option says another.
const WEIGHT_PASS: f64 = 0.005;
/// Most taps of its filter: the time of a design grows with their square, and this is up to some
/// ten seconds.
const MAX_DDC_TAPS: usize = 8192;

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
    /// Spectra for each transform's length of time.
    pub oversampling: Oversampling,
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
            oversampling: self.oversampling,
            dither: self.dither,
            dither_seed,
            sample_bits: OutputBits::Eight,
            narrowband: None,
        }
    }

    /// The keys that both kinds of output have.
    fn take(given: &mut SubOptions<'_>) -> Result<Self, ConfigError> {
        let PrototypeOptions {
            taps,
            w_cutoff,
            window_function,
            oversampling,
        } = PrototypeOptions::take(given)?;
        Ok(Self {
            name: given.required(
                "name",
                "a name without blanks and / ? # %",
                "wideband",
                |s| {
                    let apart = |c: char| c.is_whitespace() || c.is_control() || "/?#%".contains(c);
                    (!s.is_empty() && !s.contains(apart)).then(|| s.to_owned())
                },
            )?,
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
            taps,
            w_cutoff,
            window_function,
            oversampling,
            dither: given
                .optional("dither", "none or uniform", "uniform", choice)?
                .unwrap_or(Dither::Uniform),
        })
    }
}

/// One that must be there.
const fn required(key: Key, example: &'static str) -> Key {
    Key {
        example: Some(example),
        ..key
    }
}

/// The keys of both kinds of output.
const KEYS: [Key; 9] = [
    required(
        key("name", "NAME", "name of the stream [required]"),
        "wideband",
    ),
    required(
        key("channels", "N", "channels, a power of two [required]"),
        "1024",
    ),
    required(
        key(
            "dst",
            "a.b.c.d[+n][:port]",
            "first multicast group, and how many follow it: +7 divides the channels among eight [required]",
        ),
        "239.10.10.0+7:7148",
    ),
    key(
        "jones_per_batch",
        "N",
        "channels times spectra per heap, a multiple of 32 times the channels [1048576]",
    ),
    key("taps", "N", "taps of the polyphase filter bank [16]"),
    key(
        "w_cutoff",
        "X",
        "scale of the width of a channel's response [1.0; with kaiser, as deep stop bands need]",
    ),
    key(
        "window_function",
        "hann|rect|kaiser",
        "window of the filter [hann; kaiser with oversampling]",
    ),
    key(
        "oversampling",
        "M/N",
        "spectra for each transform's length of time, such as 32/27, 4/3 or 8/7; M a power of two [1/1]",
    ),
    key(
        "dither",
        "none|uniform",
        "noise of up to half a step before values are rounded [uniform]",
    ),
];

/// The keys that only narrowband outputs have.
const NARROWBAND_KEYS: [Key; 5] = [
    required(
        key(
            "centre_frequency",
            "HZ",
            "centre of the output's band within the digitised one, such as 284e6 or 284M [required]",
        ),
        "284M",
    ),
    required(
        key(
            "decimation",
            "N",
            "how many times narrower than the digitised band it is [required]",
        ),
        "8",
    ),
    key(
        "ddc_taps",
        "N",
        "taps of the filter that cuts the band out [16 for each of its outputs]",
    ),
    key(
        "weight_pass",
        "X",
        "weight of the pass band against the stop band in that filter's design [0.005]",
    ),
    key(
        "pass_bandwidth",
        "HZ",
        "width that the filter passes: channels beyond it have aliases [all of the band, without]",
    ),
];

/// A help text behind what the keys of `--wideband` and `--narrowband` mean.
pub fn with_output_keys(help: &str) -> String {
    let list = |keys: &[Key]| -> String {
        let line = |key: &Key| format!("  {}={}\n      {}\n", key.name, key.value, key.help);
        keys.iter().map(line).collect()
    };
    format!(
        "Keys of --wideband and --narrowband, separated by commas:\n{}\nKeys of --narrowband alone:\n{}\n{help}",
        list(&KEYS),
        list(&NARROWBAND_KEYS)
    )
}

impl FromStr for WidebandOptions {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut given = SubOptions::parse("--wideband", text, KEYS.iter())?;
        Self::take(&mut given)
    }
}

/// One `--narrowband` value.
#[derive(Clone, Debug, PartialEq)]
pub struct NarrowbandOptions {
    /// The keys that wideband outputs have as well.
    pub common: WidebandOptions,
    /// What makes it narrowband.
    pub spec: NarrowbandSpec,
}

impl FromStr for NarrowbandOptions {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut given =
            SubOptions::parse("--narrowband", text, KEYS.iter().chain(&NARROWBAND_KEYS))?;
        let frequency = |s: &str| hertz(s).ok().filter(|value| value.is_finite());
        let finite = |s: &str| s.parse().ok().filter(|value: &f64| value.is_finite());
        let positive = |s: &str| s.parse().ok().filter(|&value: &usize| value > 0);
        let options = Self {
            common: WidebandOptions::take(&mut given)?,
            spec: NarrowbandSpec {
                centre_frequency: given.required(
                    "centre_frequency",
                    "hertz, alone or with a unit",
                    "284M",
                    frequency,
                )?,
                decimation: given.required("decimation", "a positive number", "8", positive)?,
                ddc_taps: given.optional("ddc_taps", "a positive number", "128", positive)?,
                weight_pass: given
                    .optional("weight_pass", "a number", "0.005", finite)?
                    .unwrap_or(WEIGHT_PASS),
                pass_bandwidth: given.optional(
                    "pass_bandwidth",
                    "hertz, alone or with a unit",
                    "53.5M",
                    frequency,
                )?,
            },
        };
        options.check()?;
        Ok(options)
    }
}

impl NarrowbandOptions {
    /// The rules that hold for an output by itself.
    fn check(&self) -> Result<(), ConfigError> {
        let WidebandOptions {
            channels,
            dst,
            jones_per_batch,
            ..
        } = &self.common;
        if *channels == 0 || !channels.is_multiple_of(dst.len()) {
            let rule = format!("destinations must divide the {channels} channels");
            return Err(self.refuse("dst", dst.len(), rule, "try +7 for eight of them"));
        }
        if let Some(batch) = jones_per_batch.filter(|batch| !batch.is_multiple_of(*channels)) {
            let rule = format!("must be a multiple of the {channels} channels");
            return Err(self.refuse("jones_per_batch", batch, rule, "try 1048576"));
        }
        let decimation = self.spec.decimation;
        if self.spec.pass_bandwidth.is_none() && !decimation.is_multiple_of(2) {
            let rule = "must be even without pass_bandwidth";
            return Err(self.refuse("decimation", decimation, rule, "try 8"));
        }
        if decimation > MAX_DECIMATION {
            let rule = format!("must be at most {MAX_DECIMATION}");
            return Err(self.refuse("decimation", decimation, rule, "try 16"));
        }
        let taps = self.spec.taps();
        if taps > MAX_DDC_TAPS {
            let rule =
                format!("must be at most {MAX_DDC_TAPS}, for which a filter can be designed");
            return Err(self.refuse("ddc_taps", taps, rule, format!("try {MAX_DDC_TAPS}")));
        }
        let subsampling = self.spec.subsampling();
        if taps < subsampling {
            let rule = format!("must be at least the subsampling of {subsampling}");
            let way_out = format!("try {}", (16 * subsampling).min(MAX_DDC_TAPS));
            return Err(self.refuse("ddc_taps", taps, rule, way_out));
        }
        if self.spec.weight_pass <= 0.0 {
            let (weight, rule) = (self.spec.weight_pass, "must be positive");
            return Err(self.refuse("weight_pass", weight, rule, "try 0.005"));
        }
        Ok(())
    }

    /// The output's configuration for samples of `clock`'s rate; `jones_per_batch` where the option
    /// does not say.
    ///
    /// Designs the filter.
    pub fn into_config(
        self,
        jones_per_batch: usize,
        dither_seed: u64,
        clock: SampleClock,
    ) -> Result<OutputConfig, ConfigError> {
        check_rate(clock.adc_sample_rate)?;
        let bandwidth = clock.adc_sample_rate / 2.0 / self.spec.decimation as f64;
        if let Some(pass) = self.spec.pass_bandwidth
            && !(pass > 0.0 && pass < bandwidth)
        {
            let rule =
                format!("must be positive and less than the output's bandwidth, {bandwidth} Hz");
            let way_out = format!("try {}", (0.6 * bandwidth).round());
            return Err(self.refuse("pass_bandwidth", pass, rule, way_out));
        }
        let narrowband =
            Narrowband::new(&self.spec, clock).map_err(|error| self.refuse_filter(&error))?;
        Ok(OutputConfig {
            narrowband: Some(narrowband),
            ..self.common.into_config(jones_per_batch, dither_seed)
        })
    }

    /// The refusal of a filter that cannot be designed, by what is not as usual about it.
    fn refuse_filter(&self, error: &RemezError) -> ConfigError {
        let NarrowbandSpec { weight_pass, .. } = self.spec;
        if weight_pass != WEIGHT_PASS {
            let rule = format!("makes no filter: {error}");
            return self.refuse(
                "weight_pass",
                format!("{weight_pass:e}"),
                rule,
                "leave it out",
            );
        }
        let (taps, rule) = (self.spec.taps(), format!("make no filter: {error}"));
        let usual = (16 * self.spec.subsampling()).min(MAX_DDC_TAPS);
        let way_out = match usual == taps {
            true => "lower pass_bandwidth".to_owned(),
            false => format!("try {usual}"),
        };
        self.refuse("ddc_taps", taps, rule, way_out)
    }

    fn refuse(
        &self,
        key: &str,
        value: impl ToString,
        rule: impl Into<String>,
        way_out: impl Into<String>,
    ) -> ConfigError {
        let option = format!("--narrowband {key} of '{}'", self.common.name);
        ConfigError::new(option, value, rule, way_out)
    }
}

#[cfg(test)]
#[path = "outputs_tests.rs"]
mod tests;

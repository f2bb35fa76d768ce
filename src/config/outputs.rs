//! The values of `--wideband` and `--narrowband`.

use std::net::SocketAddrV4;
use std::str::FromStr;

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
const MAX_DECIMATION: usize = 1024;
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
                    .unwrap_or(0.005),
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
        let narrowband = Narrowband::new(&self.spec, clock).map_err(|error| {
            let (taps, rule) = (self.spec.taps(), format!("make no filter: {error}"));
            let way_out = format!("try {}", (16 * self.spec.subsampling()).min(MAX_DDC_TAPS));
            self.refuse("ddc_taps", taps, rule, way_out)
        })?;
        Ok(OutputConfig {
            narrowband: Some(narrowband),
            ..self.common.into_config(jones_per_batch, dither_seed)
        })
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
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<WidebandOptions>().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_katgpucbfs() {
        let options: WidebandOptions = "name=w,channels=64,dst=239.1.2.3+1".parse().unwrap();
        assert_eq!((options.taps, options.w_cutoff), (16, 1.0));
        assert!(options.oversampling.is_none());
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
    }

    #[test]
    fn an_unknown_key_is_named_before_a_missing_one_with_what_was_meant() {
        for (given, meant) in [
            ("chanels=64", "did you mean channels?"),
            ("Channels=64", "did you mean channels?"),
            ("tap=4", "did you mean taps?"),
            ("window=hann", "did you mean window_function?"),
            ("jones-per-batch=1024", "did you mean jones_per_batch?"),
            ("xyz=1", "the keys are name, channels,"),
        ] {
            let said = refusal(&format!("name=w,{given}"));
            let key = given.split('=').next().expect("a key");
            assert!(
                said.starts_with(&format!("--wideband '{key}': is not a key")),
                "{said}"
            );
            assert!(said.contains(meant), "{said}");
        }
        assert!(!refusal("name=w,xyz=1").contains("did you mean"));
        // A key of the other option.
        let said = refusal("name=w,decimation=8");
        assert!(said.contains("'decimation': is not a key"), "{said}");
    }

    #[test]
    fn blanks_beside_commas_are_no_part_of_keys_and_values() {
        let plain = "name=n,channels=64,dst=239.1.2.3+1,centre_frequency=284e6,decimation=8";
        let blanks =
            " name = n, channels=64 ,\n  dst=239.1.2.3+1, centre_frequency= 284 MHz,decimation=8 ";
        let parse = |text: &str| text.parse::<NarrowbandOptions>().expect("options");
        assert_eq!(parse(blanks), parse(plain));
    }

    #[test]
    fn an_oversampled_output_has_a_filter_for_it() {
        let parse = |keys: &str| -> WidebandOptions {
            let text = format!("name=w,channels=64,dst=239.1.2.3+1,{keys}");
            text.parse().expect("options")
        };
        let options = parse("oversampling=64/54");
        assert_eq!(options.oversampling.to_string(), "32/27");
        assert_eq!(options.window_function, WindowFunction::Kaiser);
        assert!((0.95..0.97).contains(&options.w_cutoff));
        let given = parse("oversampling=4/3,window_function=hann,w_cutoff=0.8");
        assert_eq!(
            (given.window_function, given.w_cutoff),
            (WindowFunction::Hann, 0.8)
        );
        for value in ["27/32", "1.2", "17", "4/0"] {
            let said = refusal(&format!(
                "name=w,channels=64,dst=239.1.2.3,oversampling={value}"
            ));
            assert!(
                said.contains("--wideband oversampling") || said.contains("oversampling"),
                "{said}"
            );
            assert!(said.contains("32/27"), "{said}");
        }
    }

    #[test]
    fn help_has_every_key() {
        let help = with_output_keys("the rest");
        for key in KEYS.iter().chain(&NARROWBAND_KEYS) {
            assert!(
                help.contains(&format!("\n  {}={}\n", key.name, key.value)),
                "{help}"
            );
        }
        assert!(help.ends_with("the rest"));
        // Those that are required are those without which an output is refused.
        let all = || KEYS.iter().chain(&NARROWBAND_KEYS);
        for key in all() {
            assert_eq!(key.help.ends_with("[required]"), key.example.is_some());
        }
        let required = all().filter(|key| key.example.is_some());
        let names: Vec<_> = required.map(|key| key.name).collect();
        assert_eq!(
            names,
            ["name", "channels", "dst", "centre_frequency", "decimation"]
        );
    }

    #[test]
    fn all_keys_that_are_missing_are_named_at_once() {
        let said = |text: &str| text.parse::<NarrowbandOptions>().unwrap_err().to_string();
        let all = said("taps=4,dst=239.1.2.3+1");
        assert!(
            all.contains("name, channels, centre_frequency, decimation are required; add name=wideband,channels=1024,"),
            "{all}"
        );
        let one = said("name=n,channels=64,dst=239.1.2.3+1,decimation=8");
        assert!(
            one.ends_with("centre_frequency is required; add centre_frequency=284M"),
            "{one}"
        );
    }

    #[test]
    fn names_have_nothing_that_breaks_addresses_and_logs() {
        for name in ["a b", "../x", "a\nb", "a\u{1b}[1m", "50%", "a?b", "a#b"] {
            let text = format!("name={name},channels=64,dst=239.1.2.3+1");
            let error = text.parse::<WidebandOptions>().unwrap_err().to_string();
            assert!(error.contains("--wideband name"), "{name}: {error}");
        }
        for name in [
            "wideband",
            "m800.antenna-channelised_voltage",
            "schmalband-ü",
        ] {
            let text = format!("name={name},channels=64,dst=239.1.2.3+1");
            assert_eq!(text.parse::<WidebandOptions>().unwrap().name, name);
        }
    }
}

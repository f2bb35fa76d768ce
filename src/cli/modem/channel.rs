//! `karoo modem channel`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use ground::counted;
use karoo_modem::channel::{
    Channel, ChannelSettings, Converter, Fading, IqImbalance, Path, Profile, Setting, SettingError,
};
use karoo_modem::formats::{FullScale, Recording, SampleFormat};
use karoo_modem::waveform::SAMPLES_PER_SYMBOL;
use num_complex::{Complex32, Complex64};
use schemars::JsonSchema;
use serde::Serialize;

use super::ending::{Watch, after};
use super::samples::{self, file, goes_to_stdout, is_standard};
use crate::cli::numbers::{number, whole_number};
use crate::cli::{Failure, print_json};
use crate::config::units::hertz;
use crate::report::Documented;

#[derive(Debug, Args)]
#[command(next_help_heading = "Samples")]
pub struct ChannelArgs {
    /// Samples: raw, or SigMF by the names .sigmf-meta and .sigmf-data; - is standard input
    #[arg(short, long, value_name = "FILE")]
    input: PathBuf,
    /// What becomes of them, likewise; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format of the input: cf32 or ci16 [default: by the file's name, else cf32]
    #[arg(long, value_name = "FORMAT", value_parser = SampleFormat::from_str)]
    format: Option<SampleFormat>,
    /// Format of the output: cf32 or ci16 [default: by the file's name, else cf32]
    #[arg(long, value_name = "FORMAT", value_parser = SampleFormat::from_str)]
    output_format: Option<SampleFormat>,
    /// Value that 32767 stands for in ci16 [default: what metadata say, else 4; of the output
    /// with --bits: that of --clip]
    #[arg(long, value_name = "VALUE", value_parser = samples::full_scale, allow_negative_numbers = true)]
    full_scale: Option<FullScale>,
    /// Samples per second, which frequencies in Hz need [default: what metadata say]
    #[arg(long, value_name = "HZ", value_parser = samples::rate, allow_negative_numbers = true)]
    sample_rate: Option<f64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    channel: ChannelOptions,
}

/// What the channel does.
#[derive(Debug, Args)]
#[command(next_help_heading = "Channel")]
pub struct ChannelOptions {
    /// Gain in dB
    #[arg(
        long,
        value_name = "DB",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    gain: f64,
    /// Delay in samples, of which a part may be a fraction
    #[arg(
        long,
        value_name = "SAMPLES",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    delay: f64,
    /// Error of the sample clock in parts per million: the delay grows by it
    #[arg(
        long,
        value_name = "PPM",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    clock: f64,
    /// Carrier frequency offset
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 0.0,
        allow_hyphen_values = true, value_parser = hertz)]
    frequency: f64,
    /// Carrier phase at the first sample
    #[arg(
        long,
        value_name = "DEGREES",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    phase: f64,
    /// Paths by name: none, manual or cost207RAx4
    #[arg(long, value_name = "NAME", default_value_t = Profile::None, value_parser = Profile::from_str)]
    profile: Profile,
    /// A path: samples of delay, gain in dB, and phase in degrees; may be given again
    #[arg(long, value_name = "DELAY:DB[:DEGREES]", value_parser = path, conflicts_with = "profile")]
    path: Vec<Path>,
    /// Rayleigh fading of each path, with this greatest Doppler frequency
    #[arg(long, value_name = "HZ", value_parser = hertz, allow_hyphen_values = true)]
    doppler: Option<f64>,
    /// Signal-to-noise ratio in dB: 1 over the noise power in the whole sampled band
    #[arg(long, value_name = "DB", allow_negative_numbers = true)]
    snr: Option<f64>,
    /// The same by the energy of a symbol over the density of noise: 4.77 dB more than --snr
    #[arg(
        long,
        value_name = "DB",
        allow_negative_numbers = true,
        conflicts_with = "snr"
    )]
    es_n0: Option<f64>,
    #[command(flatten)]
    front_end: FrontEndOptions,
    /// Bits of the converter [default: none, samples stay floats]
    #[arg(long, value_name = "BITS", allow_negative_numbers = true)]
    bits: Option<u32>,
    /// Value at which the converter clips
    #[arg(
        long,
        value_name = "VALUE",
        default_value_t = 4.0,
        requires = "bits",
        allow_negative_numbers = true
    )]
    clip: f64,
    /// Seed of noise and fading
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    seed: u64,
}

/// Faults of the receiver's front end.
#[derive(Clone, Copy, Debug, Args)]
pub struct FrontEndOptions {
    /// Gain of Q against I in dB
    #[arg(
        long,
        value_name = "DB",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    iq_gain: f64,
    /// Degrees by which I and Q are not at right angles
    #[arg(
        long,
        value_name = "DEGREES",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    iq_phase: f64,
    /// What is added to I and to Q
    #[arg(long, value_name = "I,Q", default_value = "0,0", allow_hyphen_values = true, value_parser = complex)]
    dc: Complex64,
}

impl FrontEndOptions {
    /// Differences between the branches of its mixer.
    pub fn iq(&self) -> IqImbalance {
        IqImbalance {
            gain_db: self.iq_gain,
            phase_degrees: self.iq_phase,
        }
    }

    /// What it adds.
    pub fn dc(&self) -> Complex64 {
        self.dc
    }

    /// The front end's faults in words, if it has any.
    pub fn words(&self) -> Option<String> {
        let FrontEndOptions {
            iq_gain,
            iq_phase,
            dc,
        } = self;
        let any = self.iq() != IqImbalance::default() || *dc != Complex64::default();
        any.then(|| {
            format!(
                "IQ {iq_gain} dB, {iq_phase} degrees, DC {}, {}",
                dc.re, dc.im
            )
        })
    }
}

pub(super) fn path(text: &str) -> Result<Path, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (delay, gain, phase) = match parts[..] {
        [delay, gain] => (delay, gain, "0"),
        [delay, gain, phase] => (delay, gain, phase),
        _ => return Err("it has two or three parts, such as 12:-3 or 12:-3:90".to_owned()),
    };
    let delay = whole_number(
        delay,
        "a path begins with its delay in samples, such as 12:-3",
    )?;
    let gain: f64 = number(gain.trim(), "a path's gain is in dB, such as 12:-3")?;
    let phase: f64 = number(
        phase.trim(),
        "a path's phase is in degrees, such as 12:-3:90",
    )?;
    let gain = Complex64::from_polar(10f64.powf(gain / 20.0), phase.to_radians());
    Ok(Path { delay, gain })
}

/// The paths: those that were given, or those of a profile, of whose fading the mean is 1.
pub(super) fn paths(given: &[Path], profile: Profile, fade: bool) -> Vec<Path> {
    match (given.is_empty(), fade) {
        (false, _) => given.to_vec(),
        (true, true) => profile.fading_paths(),
        (true, false) => profile.paths(),
    }
}

fn complex(text: &str) -> Result<Complex64, String> {
    let (re, im) = text
        .split_once(',')
        .ok_or_else(|| "it has two parts, such as 0.1,-0.05".to_owned())?;
    let part = |text: &str| number(text.trim(), "it has two numbers, such as 0.1,-0.05");
    Ok(Complex64::new(part(re)?, part(im)?))
}

/// What a command line gives otherwise than a channel takes it.
#[derive(Clone, Copy, Default)]
pub(super) struct Given {
    pub sample_rate: f64,
    pub frequency: f64,
    pub doppler: f64,
    /// In degrees.
    pub phase: f64,
    pub es_n0: Option<f64>,
}

/// Refuses a setting by its option, in the option's units.
pub(super) fn refused(error: &SettingError, given: &Given) -> Failure {
    // Very large and very small ones have exponents.
    let number = |value: f64| {
        let text = format!("{value:?}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    let by_rate = |value: f64, share: f64, words: &str| {
        let most = number(given.sample_rate * share);
        let least = if share == 0.5 {
            format!("-{most}")
        } else {
            "0".to_owned()
        };
        let rule = format!("{least} to {most} Hz, {words} of the sample rate");
        (number(value), rule)
    };
    let whole = |rule: &str| (number(error.value), rule.to_owned());
    let (option, (value, rule)) = match error.setting {
        Setting::Gain => ("--gain", whole(error.rule)),
        Setting::Delay => ("--delay", whole(error.rule)),
        Setting::Clock => ("--clock", whole(error.rule)),
        Setting::Frequency => ("--frequency", by_rate(given.frequency, 0.5, "half")),
        Setting::Phase => {
            let rule = "-3.6e8 to 3.6e8 degrees".to_owned();
            ("--phase", (number(given.phase), rule))
        }
        Setting::Doppler => ("--doppler", by_rate(given.doppler, 0.01, "a hundredth")),
        Setting::Snr => match given.es_n0 {
            // As --snr, 4.77 dB more.
            Some(ratio) => ("--es-n0", (number(ratio), "-195.2 to 204.7 dB".to_owned())),
            None => ("--snr", whole(error.rule)),
        },
        Setting::IqGain => ("--iq-gain", whole(error.rule)),
        Setting::IqPhase => ("--iq-phase", whole(error.rule)),
        Setting::Dc => ("--dc", whole(error.rule)),
        Setting::Bits => ("--bits", whole(error.rule)),
        Setting::FullScale => ("--clip", whole(error.rule)),
        Setting::Paths | Setting::PathDelay | Setting::PathGain => {
            return Failure::usage(format!("--path: {error}"));
        }
    };
    Failure::usage(format!("{option} {value}: it must be {rule}"))
}

impl ChannelOptions {
    /// Refuses a setting, at a rate if it is known: without one there is no frequency.
    pub fn refused(&self, error: &SettingError, sample_rate: Option<f64>) -> Failure {
        let given = Given {
            sample_rate: sample_rate.unwrap_or_default(),
            frequency: self.frequency,
            doppler: self.doppler.unwrap_or_default(),
            phase: self.phase,
            es_n0: self.es_n0,
        };
        refused(error, &given)
    }

    /// The channel, for samples at a rate if it is known.
    pub fn settings(&self, sample_rate: Option<f64>) -> Result<ChannelSettings, Failure> {
        let cycles = |option: &str, hertz: f64| match sample_rate {
            _ if hertz == 0.0 => Ok(0.0),
            Some(rate) => Ok(hertz / rate),
            None => Err(Failure::usage(format!(
                "--{option} {hertz}: a frequency in Hz needs --sample-rate"
            ))),
        };
        let fading = match self.doppler {
            Some(doppler) => Some(Fading {
                doppler: cycles("doppler", doppler)?,
            }),
            None => None,
        };
        let per_symbol = 10.0 * (SAMPLES_PER_SYMBOL as f64).log10();
        Ok(ChannelSettings {
            gain_db: self.gain,
            delay: self.delay,
            clock_ppm: self.clock,
            frequency: cycles("frequency", self.frequency)?,
            phase: self.phase / 360.0,
            paths: paths(&self.path, self.profile, fading.is_some()),
            fading,
            snr_db: self.snr.or(self.es_n0.map(|ratio| ratio - per_symbol)),
            iq: self.front_end.iq(),
            dc: self.front_end.dc(),
            converter: self.bits.map(|bits| Converter {
                bits,
                full_scale: self.clip,
            }),
            seed: self.seed,
        })
    }
}

/// What went through.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Passed {
    samples_in: u64,
    samples_out: u64,
    /// Samples of the input that were infinite or not numbers, and taken for 0.
    not_finite: u64,
    /// Bytes of a sample that was cut at the input's end.
    cut_bytes: u64,
    /// Real and imaginary parts that the converter clipped.
    clipped: u64,
    /// Real and imaginary parts that did not fit into the output's format.
    output_clipped: u64,
}

impl Documented for Passed {
    const NAME: &'static str = "modem-channel";
    const TITLE: &'static str = "What karoo modem channel --json passed on";
}

/// Metadata of what comes out: those of what went in, and its labels where their samples are now.
fn describe(
    output: &mut Recording,
    input: Option<Recording>,
    (settings, sample_rate): (&ChannelSettings, Option<f64>),
) {
    output.sample_rate = sample_rate;
    let Some(input) = input else {
        return;
    };
    output.frequency = input.frequency;
    // Sample n of the output is that of n − delay − o n of the input.
    let clock = 1.0 - 1e-6 * settings.clock_ppm;
    let moved = |sample: u64| ((sample as f64 + settings.delay) / clock).round() as u64;
    output.annotations = input.annotations;
    for label in &mut output.annotations {
        let end = label
            .sample_count
            .map(|count| label.sample_start.saturating_add(count));
        label.sample_start = moved(label.sample_start);
        label.sample_count = end.map(|end| moved(end).saturating_sub(label.sample_start));
    }
}

/// Runs the command.
pub fn run(args: &ChannelArgs) -> Result<(), Failure> {
    let standard = goes_to_stdout(&args.output);
    if args.json && standard {
        return Err(Failure::usage(format!(
            "--json with --output {}: samples go to standard output; name a file",
            args.output.display()
        )));
    }
    let watch = Watch::start(None)?;
    let stop = watch.stop();
    let awaited = samples::awaited(file(&args.input))?;
    let mut input = samples::read(&args.input, args.format, args.full_scale, stop)?;
    let recording = input.recording.take();
    let said = recording
        .as_ref()
        .and_then(|recording| recording.sample_rate);
    let sample_rate = args.sample_rate.or(said);
    let settings = args.channel.settings(sample_rate)?;
    let refused = |error| args.channel.refused(&error, sample_rate);
    let mut channel = Channel::new(&settings).map_err(refused)?;
    samples::not_the_same(file(&args.input), file(&args.output))?;
    samples::wait(awaited, stop)?;
    let converter = settings.converter.map(|converter| converter.full_scale);
    let converter = converter.and_then(|value| FullScale::new(value as f32).ok());
    let scale = args.full_scale.or(converter).or(input.full_scale);
    let scale = scale.unwrap_or_default();
    let mut output = samples::write(&args.output, args.output_format, scale, stop)?;
    describe(&mut output.recording, recording, (&settings, sample_rate));
    // Floats have been through the channel's converter, if through any.
    output.recording.full_scale = output.recording.full_scale.or(converter);
    let (mut before, mut behind): (Vec<Complex32>, Vec<Complex32>) = Default::default();
    while !watch.has_ended() && input.read(&mut before)? > 0 {
        channel.push(&before, &mut behind);
        let written = output.write(&behind);
        written.map_err(|failure| {
            let samples = counted(input.counts().samples, "sample");
            after(failure, &format!("{samples} read"))
        })?;
        before.clear();
        behind.clear();
    }
    let whole = match is_standard(&args.input) {
        true => Ok(()),
        false => watch.whole(),
    };
    let counts = channel.finish(&mut behind);
    output.write(&behind)?;
    let (read, written) = (input.counts(), output.finish()?);
    watch.finish();
    let passed = Passed {
        samples_in: counts.samples_in,
        samples_out: counts.samples_out,
        not_finite: read.not_finite,
        cut_bytes: read.cut_bytes,
        clipped: counts.clipped,
        output_clipped: written.clipped,
    };
    if args.json {
        print_json(&passed)?;
        return whole;
    }
    let mut text = format!(
        "{} samples in, {} out",
        counts.samples_in, counts.samples_out
    );
    let faults = [
        (
            passed.not_finite,
            "samples of the input were infinite or not numbers",
        ),
        (passed.cut_bytes, "bytes of a sample were cut at its end"),
        (passed.clipped, "parts clipped by the converter"),
        (
            passed.output_clipped,
            "parts clipped by the output's format",
        ),
    ];
    for (count, what) in faults {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    match standard {
        true => eprintln!("{text}"),
        false => println!("{text}"),
    }
    whole
}

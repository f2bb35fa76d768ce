//! `karoo bench kernels`: what the GPU's kernels take.

use clap::Args;
use dsp::{OutputBits, Oversampling, SampleBits};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bench::kernels::{self, Case, KernelError, Machine, Row, Together};
use crate::cli::{Failure, examples, print_json};
use crate::config::{ConfigError, heading};
use crate::gpu::{Fft, Gpu, KernelChoice, Tune};
use crate::report::Documented;

/// Time the GPU's kernels, with dither
///
/// What they make is compared with the double-precision model before they are timed.
#[derive(Debug, Args)]
#[command(after_help = examples::BENCH_KERNELS)]
pub struct KernelArgs {
    /// Channels, powers of two
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1024,4096,8192,32768", help_heading = heading::OUTPUTS)]
    channels: Vec<usize>,
    /// Bits per sample, 2 to 16
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10", help_heading = heading::RECEIVE)]
    bits: Vec<u32>,
    /// Taps of the filter bank
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = heading::OUTPUTS)]
    taps: usize,
    /// Spectra for each transform's length of time, M/N, as outputs' key of the same name
    #[arg(long, value_name = "M/N", default_value = "1/1", help_heading = heading::OUTPUTS)]
    oversampling: Oversampling,
    /// Decimations of outputs, powers of two up to 64: 1 for wideband, others for narrowband
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", help_heading = heading::OUTPUTS)]
    decimation: Vec<usize>,
    /// Pass band of narrowband outputs as a fraction of their band, as their key pass_bandwidth has
    /// it in hertz: no channel is then discarded; without, the outer half of a transform twice as
    /// wide is
    #[arg(long, value_name = "P", help_heading = heading::OUTPUTS)]
    pass_fraction: Option<f64>,
    /// Bits per output sample, 4 or 8
    #[arg(long, value_name = "BITS", default_value_t = 8, help_heading = heading::OUTPUTS)]
    send_sample_bits: u32,
    /// Samples per polarisation of a pass, or those of one spectrum if that is more
    #[arg(long, value_name = "N", default_value_t = kernels::SAMPLES, help_heading = heading::MEASURE)]
    samples: usize,
    /// Time the outputs of all decimations together as well, as those of one engine
    #[arg(long, help_heading = heading::MEASURE)]
    together: bool,
    /// Who makes the transform
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "fused", help_heading = heading::COMPUTE)]
    fft: Vec<Fft>,
    /// How the GPU's kernels are divided into blocks (their shape): off (the first that fits), auto
    /// (the fastest, as stored or else measured), again (measured anew), or the name of a shape
    #[arg(long, value_name = "HOW", default_value = "off", help_heading = heading::COMPUTE)]
    tune: Tune,
    /// JSON instead of a table
    #[arg(long, help_heading = heading::RESULTS)]
    json: bool,
}

#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Report<'a> {
    #[serde(flatten)]
    machine: &'a Machine,
    kernels: &'a [Row],
    together: &'a [Together],
}

impl Documented for Report<'_> {
    const NAME: &'static str = "bench-kernels";
    const TITLE: &'static str = "What karoo bench kernels --json measured";
}

/// Runs the command.
pub fn run(args: &KernelArgs) -> Result<(), Failure> {
    let cases = cases(args).map_err(Failure::usage)?;
    let gpu = Gpu::open().map_err(Failure::usage)?;
    let machine = kernels::machine(&gpu).map_err(Failure::data)?;
    if !args.json {
        print_head(&machine);
    }
    let failed = |error| match error {
        KernelError::Gpu(_) | KernelError::Filter { .. } => Failure::usage(error),
        KernelError::Wrong { .. } => Failure::data(error),
    };
    let mut rows = Vec::new();
    for case in &cases {
        let row = kernels::run(&gpu, &machine, case).map_err(failed)?;
        if !args.json {
            print_row(&row);
        }
        rows.push(row);
    }
    let mut together = Vec::new();
    // Cases that differ in nothing but their decimation stand together.
    let engines = args.together.then(|| cases.chunks(args.decimation.len()));
    for outputs in engines.into_iter().flatten() {
        let row = kernels::run_together(&gpu, outputs).map_err(failed)?;
        if !args.json {
            print_together(&row);
        }
        together.push(row);
    }
    if args.json {
        let report = Report {
            machine: &machine,
            kernels: &rows,
            together: &together,
        };
        print_json(&report)?;
    }
    Ok(())
}

fn cases(args: &KernelArgs) -> Result<Vec<Case>, ConfigError> {
    let mut cases = Vec::new();
    let sample_bits = OutputBits::new(args.send_sample_bits).ok_or_else(|| {
        let bits = args.send_sample_bits;
        ConfigError::new("--send-sample-bits", bits, "must be 4 or 8", "try 8")
    })?;
    for &decimation in &args.decimation {
        if !decimation.is_power_of_two() || decimation > 64 {
            let rule = "must be a power of two, 1 to 64";
            return Err(ConfigError::new("--decimation", decimation, rule, "try 8"));
        }
    }
    if let Some(pass) = args
        .pass_fraction
        .filter(|pass| !(*pass > 0.0 && *pass < 1.0))
    {
        let rule = "must be between 0 and 1";
        return Err(ConfigError::new("--pass-fraction", pass, rule, "try 0.6"));
    }
    if !(1..=1 << 28).contains(&args.samples) {
        let rule = "must be 1 to 268435456";
        return Err(ConfigError::new(
            "--samples",
            args.samples,
            rule,
            "try 16777216",
        ));
    }
    for &channels in &args.channels {
        if !channels.is_power_of_two() || !(64..=1 << 17).contains(&channels) {
            let rule = "must be a power of two, 64 to 131072";
            return Err(ConfigError::new("--channels", channels, rule, "try 1024"));
        }
        if !(1..=256).contains(&args.taps) {
            return Err(ConfigError::new(
                "--taps",
                args.taps,
                "must be 1 to 256",
                "try 16",
            ));
        }
        let m = args.oversampling.numerator();
        let points = match args.pass_fraction {
            None => 2 * channels,
            Some(_) => channels,
        };
        if !args.oversampling.is_none() && (!m.is_power_of_two() || m > points / 2) {
            let rule = format!(
                "of M/N, M must be a power of two, at most {} with {channels} channels",
                points / 2
            );
            let (option, of) = ("--oversampling", args.oversampling);
            return Err(ConfigError::new(option, of, rule, "try 32/27"));
        }
        for &bits in &args.bits {
            let width = SampleBits::new(bits)
                .ok_or_else(|| ConfigError::new("--bits", bits, "must be 2 to 16", "try 10"))?;
            for &fft in &args.fft {
                let case = |&decimation| Case {
                    channels,
                    bits: width,
                    taps: args.taps,
                    oversampling: args.oversampling,
                    decimation,
                    pass_fraction: args.pass_fraction,
                    sample_bits,
                    samples: args.samples,
                    kernels: KernelChoice {
                        fft,
                        tune: args.tune.clone(),
                    },
                };
                cases.extend(args.decimation.iter().map(case));
            }
        }
    }
    Ok(cases)
}

fn print_head(machine: &Machine) {
    let nvrtc = machine.nvrtc.as_deref().unwrap_or("missing");
    println!(
        "{}; driver {}; NVRTC {nvrtc}; copies {:.2} TB/s",
        machine.device,
        machine.driver,
        machine.copy_bandwidth * 1e-12
    );
    println!(
        "Times in µs; rate in Gsample/s per polarisation; moved: bytes over those of samples in and Jones vectors out;"
    );
    println!(
        "stat: time of passes over that of passes none of which is summed for statistics, on the average;"
    );
    println!(
        "J/Gs: joules of the whole card per Gsample of both polarisations while nothing but passes runs, and watts;"
    );
    println!(
        "copy: bytes moved per second over those of a copy; differ: bytes off by one of those compared with the model."
    );
    println!(
        "{:>8} {:>10} {:>4} {:>4} {:>8} {:>6} {:>6} {:>5} {:>6} {:>11} {:>12}  stages, kernels",
        "channels",
        "decimation",
        "bits",
        "taps",
        "whole",
        "rate",
        "moved",
        "copy",
        "stat",
        "J/Gs",
        "differ"
    );
}

fn print_row(row: &Row) {
    let stages: Vec<_> = row
        .stages
        .iter()
        .map(|s| format!("{} {:.1} ({:.2})", s.name, s.seconds * 1e6, s.copy_fraction))
        .collect();
    let ddc = row.ddc_rate.map_or(String::new(), |rate| {
        format!(", ddc at {:.0} Gsample/s", rate * 1e-9)
    });
    let oversampled = match row.oversampling.is_none() {
        true => String::new(),
        false => format!(", oversampled by {}", row.oversampling),
    };
    let statistics = &row.statistics;
    let mut sums = format!(", back {:.1} with sums", statistics.back_seconds * 1e6);
    if statistics.every > 1 {
        sums += &format!(" of one pass in {}", statistics.every);
    }
    if statistics.kernels != row.kernels {
        sums += &format!(" by {}", statistics.kernels);
    }
    let energy = row.energy.map_or("-".to_owned(), |energy| {
        format!("{:.2}, {:.0} W", energy.joules_per_gigasample, energy.watts)
    });
    println!(
        "{:>8} {:>10} {:>4} {:>4} {:>8.1} {:>6.1} {:>6.2} {:>5.2} {:>6.3} {energy:>11} {:>12}  {}{ddc}{oversampled}; {}{sums}",
        row.channels,
        row.decimation,
        row.bits,
        row.taps,
        row.seconds * 1e6,
        row.rate * 1e-9,
        row.moved_over_ideal,
        row.copy_fraction,
        row.statistics.ratio,
        format!("{}/{}", row.differ, row.compared),
        stages.join(", "),
        row.kernels
    );
}

fn print_together(row: &Together) {
    let list: Vec<_> = row.decimations.iter().map(usize::to_string).collect();
    println!(
        "{:>8} {:>10} {:>4}      {:>8.1} {:>6.1}  together",
        row.channels,
        list.join("+"),
        row.bits,
        row.seconds * 1e6,
        row.rate * 1e-9
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: KernelArgs,
    }

    fn cases_of(options: &[&str]) -> Result<Vec<Case>, ConfigError> {
        let line = ["kernels"].iter().chain(options);
        cases(&Line::try_parse_from(line).expect("options").args)
    }

    #[test]
    fn every_channel_count_is_measured_with_every_width_and_path() {
        let options = [
            "--channels",
            "64,1024",
            "--bits",
            "8,10",
            "--fft",
            "fused,cufft",
        ];
        let cases = cases_of(&options).unwrap();
        let listed: Vec<_> = cases
            .iter()
            .map(|case| (case.channels, case.bits.get(), case.kernels.fft))
            .collect();
        let mut expected = Vec::new();
        for channels in [64, 1024] {
            for bits in [8, 10] {
                expected.extend([Fft::Fused, Fft::Cufft].map(|fft| (channels, bits, fft)));
            }
        }
        assert_eq!(listed, expected);
        assert_eq!(cases_of(&[]).unwrap().len(), 4);
        let decimations = cases_of(&["--channels", "64", "--decimation", "1,8,8"]).unwrap();
        let listed: Vec<_> = decimations.iter().map(|case| case.decimation).collect();
        assert_eq!(listed, [1, 8, 8]);
    }

    #[test]
    fn refusals_name_the_option_and_the_value() {
        for (option, value) in [
            ("--channels", "48"),
            ("--channels", "32"),
            ("--channels", "262144"),
            ("--bits", "1"),
            ("--bits", "17"),
            ("--taps", "0"),
            ("--decimation", "3"),
            ("--decimation", "128"),
            ("--pass-fraction", "1"),
            ("--send-sample-bits", "5"),
            ("--samples", "0"),
        ] {
            let refusal = cases_of(&[option, value]).unwrap_err().to_string();
            assert!(
                refusal.contains(option) && refusal.contains(value),
                "{refusal}"
            );
        }
    }
}

//! `karoo replay`: a capture through the data path, to a capture and a report.

use std::path::PathBuf;

use clap::Args;
use dsp::power::dbfs_words;
use ground::counted;
use katcp::reading::unix_now;

use super::{
    Failure, Files, colour, examples, is_stdout, log, make_folder, no_dash_to_read,
    no_dash_to_write,
};
use crate::assembly::StageError;
use crate::config::units::plain;
use crate::config::{
    CaptureOptions, ConfigError, Decision, EngineOptions, doubt_about_sync_time, heading,
    with_output_keys,
};
use crate::gpu::{KernelOptions, MemoryChoice, Tune};
use crate::net::CaptureWriter;
use crate::replay::{
    self, AutoGainError, BackendKind, CaptureScan, ReplayError, ReplayOptions, Requests,
};
use crate::report::html::{REPORT_FILES, write_report};
use crate::report::levels::OutputLevels;
use crate::report::verdict::{Grade, Verdict};
use crate::report::{METADATA, RunReport};

/// Failed requests of which the summary has the replies.
const FAILED: usize = 5;

/// Replay a capture of digitiser packets: channelise it exactly as a live engine would, without
/// loss, and write what would have been multicast
#[derive(Debug, Args)]
#[command(
    after_help = examples::REPLAY,
    after_long_help = with_output_keys(examples::REPLAY)
)]
pub struct ReplayArgs {
    /// Capture to read: pcap or pcapng with Ethernet frames
    #[arg(value_name = "CAPTURE", value_parser = no_dash_to_read())]
    capture: PathBuf,
    /// Capture to write: the F-engine's packets
    #[arg(long, short, value_name = "OUT.pcap", value_parser = no_dash_to_write(), help_heading = heading::RESULTS)]
    output: PathBuf,
    /// Folder for report.json and report.html
    #[arg(long, value_name = "DIR", help_heading = heading::RESULTS)]
    report: Option<PathBuf>,
    /// Requests to the engine: lines of an ADC timestamp and a KATCP request (?gain, ?gain-all,
    /// ?delays, ?karoo-test), each applied when the output reaches its timestamp
    #[arg(long, value_name = "FILE", help_heading = heading::CONTROL)]
    requests: Option<PathBuf>,
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, help_heading = heading::COMPUTE)]
    backend: BackendKind,
    #[command(flatten)]
    kernels: KernelOptions,
    /// Where receive chunks are if a GPU computes
    #[arg(long, value_enum, default_value_t = MemoryChoice::Auto, help_heading = heading::COMPUTE)]
    memory: MemoryChoice,
    /// Receive queues per polarisation, each with an lcore of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = plain::<usize>("must be 1 to 16 per polarisation", "1"), help_heading = heading::RECEIVE)]
    rx_queues: usize,
    /// Compute threads of the CPU backend; all CPUs unless given
    #[arg(long, value_name = "N", value_parser = plain::<usize>("must be 1 to 1024", "4"), help_heading = heading::COMPUTE)]
    workers: Option<usize>,
    /// No progress bar, no summary
    #[arg(long, short, help_heading = heading::RESULTS)]
    quiet: bool,
    #[command(flatten)]
    engine: EngineOptions,
    #[command(flatten)]
    in_place: CaptureOptions,
}

/// Runs the command.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    check(args).map_err(Failure::usage)?;
    let to_stdout = is_stdout(&args.output);
    let part = CaptureWriter::part_of(&args.output);
    Files::default()
        .reads("CAPTURE", Some(&args.capture))
        .reads("--requests", args.requests.as_deref())
        .writes("--output", Some(&args.output))
        .writes("--output", part.as_deref())
        .writes_into("--report", args.report.as_deref(), &REPORT_FILES)
        .check()?;
    let scan = CaptureScan::new(&args.capture).map_err(Failure::data)?;
    // Before it is refused, for what it may have been meant for.
    let sync_time = args.engine.sync_time;
    let doubt = sync_time.and_then(|time| doubt_about_sync_time(time, unix_now()));
    if let Some(doubt) = doubt {
        tracing::warn!("{doubt}");
    }
    let mut plan = replay::plan(&args.engine, &args.in_place, &scan, args.rx_queues)
        .map_err(Failure::usage)?;
    for doubt in plan.engine.doubts(None) {
        tracing::warn!("{doubt}");
    }
    if let Some(path) = &args.requests {
        plan.requests = Requests::read(path).map_err(Failure::usage)?;
    }
    replay::measure_gains(&mut plan, &args.capture).map_err(|error| match error {
        AutoGainError::Demand(_) => Failure::usage(error),
        _ => Failure::data(error),
    })?;
    if let Some(folder) = &args.report {
        // Before the run, so that a wrong folder is refused at once and not after hours.
        make_folder("--report", folder)?;
    }
    if !args.quiet {
        plan.chosen.iter().for_each(tell);
    }
    let options = ReplayOptions {
        capture: args.capture.clone(),
        output: args.output.clone(),
        backend: args.backend,
        // The same bytes each time, whatever else this machine has measured.
        kernels: args.kernels.choice(Tune::Off),
        memory: args.memory,
        workers: args.workers,
        progress: !args.quiet,
    };
    let (report, spectra) = replay::run(&plan, &options).map_err(|error| match error {
        ReplayError::Demand(_) | ReplayError::Compute(_) => Failure::usage(error),
        ReplayError::Stage(StageError::Engine(_)) => Failure::device(error),
        _ => Failure::data(error),
    })?;
    if let Some(folder) = &args.report {
        write_report(folder, &report, &spectra).map_err(Failure::data)?;
    }
    match to_stdout {
        _ if args.quiet => {}
        true => eprintln!("{}", summary(&report, args, colour::on_stderr())),
        false => println!("{}", summary(&report, args, colour::on_stdout())),
    }
    let verdict = Verdict::of(&report);
    if verdict.grade == Grade::Nothing {
        let why = verdict.reasons.join(" ");
        return Err(Failure::data(format!("no batch came out. {why}")));
    }
    Ok(())
}

/// Says what was picked.
fn tell(Decision { option, value, why }: &Decision) {
    match log::is_json() {
        true => tracing::info!(option, value, why, "picked"),
        false => eprintln!("picked {option} {value} ({why})"),
    }
}

/// Options that have nothing to do with the capture.
fn check(args: &ReplayArgs) -> Result<(), ConfigError> {
    if !(1..=16).contains(&args.rx_queues) {
        let rule = "must be 1 to 16 per polarisation";
        return Err(ConfigError::new(
            "--rx-queues",
            args.rx_queues,
            rule,
            "try 1",
        ));
    }
    if args
        .workers
        .is_some_and(|workers| !(1..=1024).contains(&workers))
    {
        let value = args.workers.unwrap_or_default();
        return Err(ConfigError::new(
            "--workers",
            value,
            "must be 1 to 1024",
            "try 2",
        ));
    }
    Ok(())
}

/// Levels of an output, and the option that makes better ones where they are far off.
fn levels_line(levels: &OutputLevels) -> String {
    let [first, second] = &levels.pols;
    let better = match levels.pols.iter().any(|pol| pol.is_off()) {
        true => ": see --gain auto",
        false => "",
    };
    format!(
        "levels     {:.2} and {:.2} counts rms of {}, {:.1} are good{better}",
        first.rms, second.rms, levels.name, first.best_rms
    )
}

/// What came of it, for a terminal or not.
fn summary(report: &RunReport, args: &ReplayArgs, on_terminal: bool) -> String {
    let mut lines = Vec::new();
    let input = &report.input;
    for note in &report.capture_notes {
        lines.push(format!("capture    {note}"));
    }
    lines.push(format!("backend    {}", report.backend));
    // The one choice that is made while it runs.
    for chosen in report.chosen.iter().filter(|c| c.option == "--backend") {
        lines.push(format!(
            "           picked {} ({})",
            chosen.value, chosen.why
        ));
    }
    for (pol, counts) in input.pols.iter().enumerate() {
        let power = counts
            .power_dbfs
            .map_or(String::new(), |dbfs| format!(", {}", dbfs_words(dbfs, 2)));
        lines.push(format!(
            "input {pol}    {}, {} missing, {} clipped{power}",
            counted(counts.heaps, "heap"),
            counts.missing_heaps,
            counted(counts.clipped_samples, "sample")
        ));
    }
    let dropped: u64 = input.drops.values().sum();
    let causes = input.not_placed().into_iter();
    let causes = causes.map(|(cause, n)| match cause {
        METADATA => counted(n, METADATA),
        cause => format!("{n} {cause}"),
    });
    let causes: Vec<_> = causes.collect();
    let causes = if causes.is_empty() {
        String::new()
    } else {
        format!(": {}", causes.join(", "))
    };
    lines.push(format!(
        "datagrams  {}, {dropped} not placed{causes}",
        input.datagrams
    ));
    for output in &report.outputs {
        let counts = &output.counts;
        lines.push(format!(
            "{:10} {} of {}, {} sent, {} not sent, {} and {} samples clipped",
            counts.name,
            counts.batches,
            counted(output.expected_batches, "batch"),
            counted(counts.heaps, "heap"),
            output.skipped_heaps,
            counts.clipped_samples[0],
            counts.clipped_samples[1]
        ));
    }
    lines.extend(report.levels.iter().map(levels_line));
    if let Some(requests) = &report.requests {
        lines.push(format!(
            "requests   {}, {} failed, {} after the last batch; {} changes, which held the engine up for {:.1} µs at most",
            requests.replies.len(),
            requests.failed,
            requests.behind,
            requests.applied,
            requests.stalls.max * 1e6
        ));
        let mut failed = requests.replies.iter().filter(|reply| reply.failed());
        for reply in failed.by_ref().take(FAILED) {
            let (line, at) = (reply.line, reply.timestamp);
            lines.push(format!("           line {line}, at {at}: {}", reply.reply));
        }
        let more = failed.count();
        if more > 0 {
            lines.push(format!("           and {more} more, which --report lists"));
        }
    }
    lines.push(format!(
        "rate       {:.1} Msample/s per polarisation, {:.3} of real time",
        report.rate.samples_per_second * 1e-6,
        report.rate.realtime
    ));
    let verdict = Verdict::of(report);
    let style = match verdict.grade {
        Grade::Good => colour::GOOD,
        Grade::Losses | Grade::Refused | Grade::Weak | Grade::Clipped => colour::DOUBTFUL,
        Grade::Nothing => colour::BAD,
    };
    let headline = colour::paint(style, &verdict.headline, on_terminal);
    lines.push(format!("verdict    {headline}"));
    lines.push(format!("written    {}", args.output.display()));
    if let Some(folder) = &args.report {
        lines.push(format!(
            "report     {}",
            folder.join("report.html").display()
        ));
    }
    lines.join("\n")
}

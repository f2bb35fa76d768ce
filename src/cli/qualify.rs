//! `karoo qualify`: what is required of an F-engine, measured.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use clap::{Args, ValueEnum};
use ground::{SampleClock, StopFlag};
use host::topology::{Machine, Root};
use katcp::Client;
use katcp::reading::unix_now;

use super::{Failure, Files, colour, examples, make_folder, print_json};
use crate::assembly::{BackendKind, stop_on_signal};
use crate::config::units::hertz;
use crate::config::{ConfigError, check_rate, heading, with_output_keys};
use crate::qualify::{Chain, LIVE_RULES, LiveRule, RULES, Rule, Subject, outputs};
use crate::report::html::REPORT_FILES;
use crate::report::qualification::{
    Checked, Limit, Qualification, Requirement, number, write_qualification,
};

/// Programs that make a PDF of a page.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Measure what SARAO requires of an F-engine: channels, delays, phases, gains
///
/// Simulates digitisers, runs the F-engine over their packets as karoo replay does, and reads its
/// packets back. Exit codes: 0 all requirements are met; 1 one is not, or could not be measured, or
/// a signal came; 2 the command line is wrong.
#[derive(Debug, Args)]
#[command(
    after_help = examples::QUALIFY,
    after_long_help = with_output_keys(examples::QUALIFY)
)]
pub struct QualifyArgs {
    /// A wideband output to measure; may be given again [default: 1024 channels, unless
    /// --narrowband is given]
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = heading::OUTPUTS)]
    wideband: Vec<String>,
    /// A narrowband output to measure; may be given again [default: 1024 channels of an eighth of
    /// the band, with and without a pass band, unless --wideband is given]
    #[arg(long, value_name = "KEY=VALUE,…", help_heading = heading::OUTPUTS)]
    narrowband: Vec<String>,
    /// ADC sample rate in hertz, or with a unit
    #[arg(long, value_name = "HZ", default_value = "1712M", value_parser = hertz, help_heading = heading::TIMING)]
    adc_sample_rate: f64,
    /// Requirements to measure, by name, with commas between [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = heading::MEASURE)]
    only: Vec<String>,
    /// List the requirements and end
    #[arg(long, help_heading = heading::MEASURE)]
    list: bool,
    /// The program whose replay is measured [default: this one]
    #[arg(long, value_name = "PATH", help_heading = heading::MEASURE)]
    program: Option<PathBuf>,
    /// Measure a running engine by its KATCP server at HOST:PORT, in place of replays: how soon it
    /// answers requests, and its sensors. Its delays are changed, and are zero at the end
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["wideband", "narrowband", "adc_sample_rate", "program", "backend"], help_heading = heading::MEASURE)]
    live: Option<String>,
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, help_heading = heading::COMPUTE)]
    backend: BackendKind,
    /// Folder for report.html, report.json and, if there is a Chromium, report.pdf
    #[arg(long, value_name = "DIR", help_heading = heading::RESULTS)]
    report: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long, help_heading = heading::RESULTS)]
    json: bool,
}

impl QualifyArgs {
    fn subjects(&self) -> Result<Vec<Subject>, Failure> {
        let rate = self.adc_sample_rate;
        check_rate(rate).map_err(Failure::usage)?;
        let clock = SampleClock {
            adc_sample_rate: rate,
            sync_time: 0.0,
        };
        let (mut wide, mut narrow) = (self.wideband.clone(), self.narrowband.clone());
        if wide.is_empty() && narrow.is_empty() {
            wide.push("name=wideband,channels=1024,dst=239.10.0.0+7".to_owned());
            let common = format!(
                "channels=1024,dst=239.11.0.0+7,centre_frequency={},decimation=8",
                0.166 * rate
            );
            narrow.push(format!("name=narrowband,{common}"));
            // As MeerKAT's for VLBI: 64 of 107 MHz.
            narrow.push(format!(
                "name=vlbi,{common},pass_bandwidth={}",
                64.0 / 1712.0 * rate
            ));
        }
        let wide = wide.iter().map(|text| Subject::wideband(text, clock));
        let narrow = narrow.iter().map(|text| Subject::narrowband(text, clock));
        let subjects: Result<Vec<_>, ConfigError> = wide.chain(narrow).collect();
        subjects.map_err(Failure::usage)
    }

    /// Those of `all` that are to be measured.
    fn chosen<T>(
        &self,
        all: &'static [T],
        name: fn(&T) -> &str,
    ) -> Result<Vec<&'static T>, Failure> {
        for given in &self.only {
            if !all.iter().any(|rule| name(rule) == given) {
                if let Some((rule, way_out)) = self.elsewhere(given) {
                    let error = ConfigError::new("--only", given, rule, way_out);
                    return Err(Failure::usage(error));
                }
                let names: Vec<_> = all.iter().map(name).collect();
                let way_out = format!("there are {}", names.join(", "));
                let error = ConfigError::new("--only", given, "is not a requirement", way_out);
                return Err(Failure::usage(error));
            }
        }
        let chosen = |rule: &&T| self.only.is_empty() || self.only.iter().any(|n| n == name(rule));
        Ok(all.iter().filter(chosen).collect())
    }

    /// The rule and the way out for a requirement that is measured with `--live` alone, or without
    /// alone.
    fn elsewhere(&self, given: &str) -> Option<(&'static str, &'static str)> {
        match self.live {
            None if LIVE_RULES.iter().any(|rule| rule.name == given) => Some((
                "is measured of an engine that runs",
                "give its --live HOST:PORT",
            )),
            Some(_) if RULES.iter().any(|rule| rule.name == given) => {
                Some(("is measured of replays", "leave out --live"))
            }
            _ => None,
        }
    }

    /// Notes a requirement, and tells it.
    fn note(&self, requirements: &mut Vec<Requirement>, requirement: Requirement, output: &str) {
        if !self.json {
            tell(&requirement, output);
        }
        requirements.push(requirement);
    }

    /// Measures replays.
    fn replays(&self, stop: &StopFlag) -> Result<Qualification, Failure> {
        let subjects = self.subjects()?;
        let rules = self.chosen(&RULES, |rule: &Rule| rule.name)?;
        let karoo = env::current_exe().map_err(Failure::data)?;
        let program = self.program.clone().unwrap_or_else(|| karoo.clone());
        let backend = self.backend.to_possible_value();
        let backend = backend.map_or(String::new(), |value| value.get_name().to_owned());
        let options = vec!["--backend".to_owned(), backend.clone()];
        let chain = Chain::new(&karoo, &program, options, stop.clone()).map_err(Failure::data)?;
        let program_version = chain.version().map_err(Failure::usage)?;
        let mut requirements = Vec::new();
        for subject in &subjects {
            for rule in rules.iter().filter(|rule| rule.concerns(subject)) {
                let requirement = rule.measure(&chain, subject);
                check_stop(stop)?;
                self.note(&mut requirements, requirement, subject.name());
            }
        }
        Ok(Qualification {
            program: program.display().to_string(),
            program_version,
            backend,
            requirements,
            ..Qualification::default()
        })
    }

    /// Measures the engine at `address`.
    fn running(&self, address: &str, stop: &StopFlag) -> Result<Qualification, Failure> {
        let rules = self.chosen(&LIVE_RULES, |rule: &LiveRule| rule.name)?;
        let mut client = Client::connect(address).map_err(Failure::data)?;
        let mut requirements = Vec::new();
        for output in outputs(&mut client, address).map_err(Failure::data)? {
            for rule in &rules {
                let requirement = rule.measure(&mut client, &output, stop);
                check_stop(stop)?;
                self.note(&mut requirements, requirement, &output);
            }
        }
        let versions = client.request("version-list", &[]).map_err(Failure::data)?;
        let version = versions
            .informs()
            .iter()
            .map(|inform| inform.arguments().texts());
        let version = version.filter(|of| of.first().is_some_and(|name| name == "katcp-device"));
        Ok(Qualification {
            program: address.to_owned(),
            program_version: version
                .flat_map(|of| of.into_iter().skip(1))
                .collect::<Vec<_>>()
                .join(" "),
            requirements,
            ..Qualification::default()
        })
    }
}

fn check_stop(stop: &StopFlag) -> Result<(), Failure> {
    match stop.is_set() {
        true => Err(Failure::data("interrupted, and nothing was reported")),
        false => Ok(()),
    }
}

/// Runs the command.
pub fn run(args: &QualifyArgs) -> Result<(), Failure> {
    if args.list {
        let row =
            |name: &str, title: &str, of: &[&str]| println!("{name:18} {title}{}", numbers(of));
        for rule in &RULES {
            row(rule.name, rule.title, rule.numbers);
        }
        for rule in &LIVE_RULES {
            row(rule.name, &format!("{} (--live)", rule.title), rule.numbers);
        }
        return Ok(());
    }
    Files::default()
        .reads("--program", args.program.as_deref())
        .writes_into("--report", args.report.as_deref(), &REPORT_FILES)
        .check()?;
    if let Some(folder) = &args.report {
        // Before the measurements, so that a wrong folder is refused at once and not behind them.
        make_folder("--report", folder)?;
    }
    let begun = Instant::now();
    let stop = StopFlag::default();
    stop_on_signal(&stop, None);
    let measured = match &args.live {
        Some(address) => args.running(address, &stop)?,
        None => args.replays(&stop)?,
    };
    let machine = Machine::read(&Root::host()).ok();
    let requirements = measured.requirements;
    let report = Qualification {
        karoo: ground::karoo_version().to_owned(),
        processor: machine.map_or(String::new(), |machine| machine.model),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        time: unix_now(),
        seconds: begun.elapsed().as_secs_f64(),
        adc_sample_rate: args.live.is_none().then_some(args.adc_sample_rate),
        passed: !requirements.is_empty() && requirements.iter().all(Requirement::passed),
        requirements,
        ..measured
    };
    if let Some(folder) = &args.report {
        write_qualification(folder, &report).map_err(Failure::data)?;
        print_page(folder, &BROWSERS);
    }
    if args.json {
        print_json(&report)?;
    }
    let failed = report.requirements.iter().filter(|of| !of.passed()).count();
    match (report.requirements.len(), failed) {
        (0, _) => Err(Failure::usage(
            "no requirement of --only concerns these outputs: leave it out, or see --list",
        )),
        (_, 0) => Ok(()),
        (all, failed) => Err(Failure::data(format!(
            "{failed} of {all} requirements are not met"
        ))),
    }
}

fn numbers(numbers: &[&str]) -> String {
    match numbers {
        [] => String::new(),
        numbers => format!(" ({})", numbers.join(", ")),
    }
}

/// One line for a requirement, and one for each figure that is beyond its limit.
fn tell(requirement: &Requirement, output: &str) {
    let (style, word) = match requirement.passed() {
        true => (colour::GOOD, "met    "),
        false => (colour::BAD, "NOT MET"),
    };
    let word = colour::paint(style, word, colour::on_stdout());
    println!("{word} {output}: {}", requirement.title);
    if let Some(error) = &requirement.error {
        println!("        not measured: {error}");
    }
    for figure in &requirement.figures {
        let limit = match figure.limit {
            Limit::AtMost(limit) => format!(", at most {}", number(limit)),
            Limit::AtLeast(limit) => format!(", at least {}", number(limit)),
            Limit::None => String::new(),
        };
        let Checked {
            name, value, unit, ..
        } = figure;
        let value = format!("{} {unit}", number(*value));
        println!("        {name}: {}{limit}", value.trim_end());
    }
}

/// The page as PDF, if a browser can make one. One that an earlier run left is of no use.
fn print_page(folder: &Path, browsers: &[&str]) {
    let Ok(page) = folder.join("report.html").canonicalize() else {
        return;
    };
    let pdf = page.with_extension("pdf");
    match fs::remove_file(&pdf) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("{} cannot be made anew: {error}", pdf.display());
            return;
        }
        _ => {}
    }
    for browser in browsers {
        let made = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-pdf-header-footer",
            ])
            .arg(format!("--print-to-pdf={}", pdf.display()))
            .arg(format!("file://{}", page.display()))
            .output();
        if made.is_ok_and(|made| made.status.success()) && pdf.exists() {
            return;
        }
    }
    tracing::warn!(
        "no report.pdf: it takes chromium; or print {} from a browser",
        page.display()
    );
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    /// A page of another run would stand beside this one's.
    #[test]
    fn a_page_that_is_not_printed_leaves_no_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let [page, pdf] = ["report.html", "report.pdf"].map(|name| folder.path().join(name));
        for path in [&page, &pdf] {
            fs::write(path, "old").unwrap();
        }
        print_page(folder.path(), &["no/such/browser"]);
        assert!(page.exists() && !pdf.exists());
    }

    #[test]
    fn rates_that_no_digitiser_has_are_refused_before_anything_runs() {
        let subjects = |rate: &str| {
            let line = [
                "qualify",
                "--wideband=name=w,channels=64,dst=239.1.1.1",
                rate,
            ];
            let command = QualifyArgs::augment_args(Command::new("qualify"));
            let matches = command.try_get_matches_from(line).expect("a command line");
            QualifyArgs::from_arg_matches(&matches).unwrap().subjects()
        };
        for rate in ["0", "-1", "inf", "nan"] {
            let error = subjects(&format!("--adc-sample-rate={rate}")).expect_err(rate);
            assert!(matches!(error, Failure::Usage(_)), "{error}");
            assert!(
                error.to_string().starts_with("--adc-sample-rate"),
                "{error}"
            );
        }
        assert_eq!(subjects("--adc-sample-rate=1M").unwrap().len(), 1);
    }
}

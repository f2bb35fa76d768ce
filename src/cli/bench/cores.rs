//! `karoo bench cores`: how far apart CPUs are.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::Args;
use ground::files::write_whole;
use ground::os::allowed_cpus;
use host::topology::{CpuList, Machine, Root};
use indicatif::ProgressBar;

use crate::bench::cores::{Tables, measure};
use crate::cli::{Failure, NewFile, examples, unwritten};
use crate::report::document::to_json_line;

/// Measure how far apart CPUs are: the time that a cache line takes from one to another, and the
/// rate at which one reads what another wrote
///
/// On a host that does nothing else. karoo plan and karoo fgpu use the figures that --output
/// /var/lib/karoo/cores.json leaves, or those of --cores-file. Exit codes: 0 measured; 2 the
/// command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::BENCH_CORES)]
pub struct CoresArgs {
    /// CPUs to measure between [default: those of this process]
    #[arg(long, value_name = "CPU,…")]
    cpus: Option<CpuList>,
    /// Milliseconds for each figure; a pair has three
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    milliseconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write JSON to a file, for karoo plan
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &CoresArgs) -> Result<(), Failure> {
    let machine = Machine::read(&Root::host()).map_err(Failure::usage)?;
    let cpus = match &args.cpus {
        Some(cpus) => cpus.iter().collect(),
        None => allowed_cpus(),
    };
    let failed = |path: &Path, error| unwritten("--output", path, &error);
    if let Some(path) = &args.output {
        check(path).map_err(|error| failed(path, error))?;
    }
    let bar = match args.json {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(0),
    };
    let time = Duration::from_millis(args.milliseconds);
    let times = measure(machine.model, &cpus, time, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let times = times.map_err(Failure::usage)?;
    let text = to_json_line(&times).map_err(Failure::data)?;
    match args.json {
        true => println!("{text}"),
        false => print!("{}", Tables(&times)),
    }
    match &args.output {
        Some(path) => write_whole(path, text).map_err(|error| failed(path, error)),
        None => Ok(()),
    }
}

/// Finds out whether a file can be written, before minutes of measurements, and makes its folder.
fn check(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|of| !of.as_os_str().is_empty());
    folder.map_or(Ok(()), fs::create_dir_all)?;
    NewFile::check(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_check_leaves_links_and_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["cores.json", "link"].map(|name| folder.path().join(name));
        symlink("cores.json", &link).unwrap();
        for path in [&link, &file] {
            check(path).unwrap();
            assert!(link.is_symlink() && !file.exists());
        }
        fs::write(&link, "{}").unwrap();
        check(&link).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"{}");
    }
}

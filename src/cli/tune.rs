//! `karoo tune`: is this host fit for engines, and what makes it so.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use host::topology::{CpuList, Machine, Root, is_address};
use host::tuning::{
    self, Applied, Change, Finding, Host, Journal, Outcome, Profile, Scope, explain, table,
};

use super::schema::Findings;
use super::{Failure, colour, examples, print_json};
use crate::config::List;

/// Check and change what a host needs so that nothing interrupts or slows its engines
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(subcommand)]
    what: Tune,
}

#[derive(Debug, Subcommand)]
enum Tune {
    /// Compare this host with a profile; changes nothing
    ///
    /// Exit codes: 0 all is as it should be; 1 something is not, or cannot be told; 2 the command
    /// line or the profile is wrong.
    #[command(after_help = examples::TUNE_CHECK)]
    Check(CheckArgs),
    /// Make this host what a profile says, and note what it was
    ///
    /// Each value is written down, with what it was, before it is changed. Exit codes: 0 all
    /// changes were made; 1 the system refused some; 2 the command line or the profile is wrong.
    #[command(after_help = examples::TUNE_APPLY)]
    Apply(ApplyArgs),
    /// Make this host what it was before the first apply
    ///
    /// Also after an apply that was interrupted. Exit codes: 0 all is as it was; 1 something is
    /// not; 2 the command line is wrong.
    #[command(after_help = examples::TUNE_REVERT)]
    Revert(RevertArgs),
}

#[derive(Debug, Args)]
struct Where {
    /// Folder with a recorded host's proc, sys and etc
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Folder of the journal [default: var/lib/karoo/tuning of the host]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Where {
    fn host(&self) -> Host {
        Host::new(Root::new(&self.root))
    }

    fn state(&self) -> PathBuf {
        let usual = || Root::new(&self.root).path("/var/lib/karoo/tuning");
        self.state.clone().unwrap_or_else(usual)
    }
}

#[derive(Debug, Args)]
struct About {
    /// runtime, appliance (that, the kernel's command line, and the firmware), firmware, or a
    /// file's name that ends in .toml
    #[arg(value_name = "PROFILE", default_value = "runtime")]
    profile: String,
    /// Interfaces that carry data; PCI addresses of NICs without one; none [default: those that are
    /// up with 10 Gb/s and more, and NICs at vfio-pci]
    #[arg(long, value_name = "IFACE,…")]
    interface: Option<List<String>>,
    /// CPUs for everything but lcores [default: those that are not isolated, else one core in 16]
    #[arg(long, value_name = "CPU,…")]
    housekeeping: Option<CpuList>,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    about: About,
    /// Print findings as JSON
    #[arg(long)]
    json: bool,
    /// Say what each entry is for, what was measured, and each of its values
    #[arg(long)]
    explain: bool,
}

#[derive(Debug, Args)]
struct ApplyArgs {
    #[command(flatten)]
    about: About,
    /// Show what would be changed, and end
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct RevertArgs {
    #[command(flatten)]
    at: Where,
}

/// Runs the command.
pub fn run(args: &TuneArgs) -> Result<(), Failure> {
    match &args.what {
        Tune::Check(args) => check(args),
        Tune::Apply(args) => apply(args),
        Tune::Revert(args) => revert(args),
    }
}

impl About {
    fn findings(&self) -> Result<(Scope, Vec<Finding>), Failure> {
        let profile = Profile::load(&self.profile).map_err(Failure::usage)?;
        let host = self.at.host();
        let machine = Machine::read(host.root()).map_err(Failure::usage)?;
        if let Some(cpus) = &self.housekeeping
            && cpus.and(&machine.online()).is_empty()
        {
            let online = machine.online();
            let text =
                format!("--housekeeping {cpus}: none of these is online; there are {online}");
            return Err(Failure::usage(text));
        }
        let interfaces = self.interface.clone().map(|List(names)| match &names[..] {
            [none] if none == "none" => Vec::new(),
            _ => names,
        });
        for name in interfaces.iter().flatten() {
            let of_kernel = || host.root().path(format!("/sys/class/net/{name}")).exists();
            let is_nic = machine.nics.iter().any(|nic| nic.name == *name);
            if !is_nic && (name.contains('/') || !of_kernel()) {
                let mut known = host.root().list("/sys/class/net");
                let nics = machine.nics.iter().map(|nic| nic.name.clone());
                known.extend(nics.filter(|name| is_address(name)));
                let known = known.join(", ");
                let text =
                    format!("--interface {name}: there is none of that name; there are {known}");
                return Err(Failure::usage(text));
            }
        }
        let scope = Scope::of(&machine, self.housekeeping.clone(), interfaces);
        let journal = Journal::peek(&self.at.state()).map_err(Failure::data)?;
        let findings = tuning::check(&profile, &host, &machine, &scope, &journal);
        Ok((scope, findings))
    }
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let (scope, findings) = args.about.findings()?;
    if args.json {
        print_json(&Findings {
            findings: &findings,
        })?;
    } else if args.explain {
        for finding in &findings {
            println!("{}", coloured(&explain(finding)));
        }
    } else {
        print!("{scope}\n{}", coloured(&table(&findings)));
    }
    let missed = findings.iter().filter(|finding| finding.status().is_miss());
    match missed.count() {
        0 => Ok(()),
        count => Err(Failure::data(format!(
            "{count} of {} entries are not as they should be: karoo tune check --explain says why, karoo tune apply \
             changes what it can",
            findings.len()
        ))),
    }
}

/// Findings with the words for how they are in colours.
fn coloured(text: &str) -> String {
    let words = [
        ("ok", colour::GOOD),
        ("MISS", colour::BAD),
        ("UNKNOWN", colour::DOUBTFUL),
        ("PENDING", colour::DOUBTFUL),
    ];
    colour::first_words(text, &words, colour::on_stdout())
}

/// Refuses to begin what only root can do on this host.
fn check_root(at: &Where, what: &str, instead: &str) -> Result<(), Failure> {
    // A process's own folder has its effective user.
    let is_root = fs::metadata("/proc/self").map_or(true, |process| process.uid() == 0);
    if is_root || at.root != Path::new("/") {
        return Ok(());
    }
    let text =
        format!("{what} changes the whole host: run it as root (sudo karoo tune …){instead}");
    Err(Failure::usage(text))
}

fn apply(args: &ApplyArgs) -> Result<(), Failure> {
    if !args.dry_run {
        let instead = ", or look at the changes with --dry-run";
        check_root(&args.about.at, "tune apply", instead)?;
    }
    let (scope, findings) = args.about.findings()?;
    println!("{scope}");
    let changes = tuning::changes(&findings);
    for change in &changes {
        println!("{}", announce(change));
    }
    for finding in &findings {
        let left = finding
            .values
            .iter()
            .filter(|v| v.status.is_miss() && v.change.is_none());
        for value in left {
            let why = value.remedy.as_deref().unwrap_or(&value.current);
            println!("left alone: {}: {why}", value.name);
        }
    }
    if changes.is_empty() {
        println!("nothing to change");
        return Ok(());
    }
    if args.dry_run {
        return Ok(());
    }
    if !args.yes && !agreed(changes.len())? {
        return Err(Failure::data("nothing was changed"));
    }
    let host = args.about.at.host();
    let mut journal = Journal::open(&args.about.at.state(), host.root()).map_err(Failure::data)?;
    let mut failed = 0;
    let outcome = tuning::apply(&host, &mut journal, &changes, |applied| {
        failed += usize::from(report(applied));
    });
    outcome.map_err(Failure::data)?;
    if changes.iter().any(|change| change.target.survives_reboot()) {
        println!("new files take effect with update-grub and a reboot, or with the next login");
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::data(format!(
            "{failed} of {} changes were not made",
            changes.len()
        ))),
    }
}

fn announce(change: &Change) -> String {
    match change.target.survives_reboot() {
        true => format!(
            "{}: will be\n    {}",
            change.target,
            change.value.trim_end().replace('\n', "\n    ")
        ),
        false => format!("{}: {} -> {}", change.target, change.current, change.value),
    }
}

fn agreed(changes: usize) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        let text = format!(
            "{changes} changes are to be made: give --yes to make them, or --dry-run to see them"
        );
        return Err(Failure::usage(text));
    }
    print!("make {changes} changes? [y/N] ");
    io::stdout().flush().map_err(Failure::data)?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(Failure::data)?;
    Ok(answer.trim().eq_ignore_ascii_case("y"))
}

fn revert(args: &RevertArgs) -> Result<(), Failure> {
    check_root(&args.at, "tune revert", "")?;
    let host = args.at.host();
    let known = Journal::peek(&args.at.state()).map_err(Failure::data)?;
    if known.is_empty() {
        // Without making a journal where there is none.
        println!("nothing to revert");
        return Ok(());
    }
    let mut journal = Journal::open(&args.at.state(), host.root()).map_err(Failure::data)?;
    let mut grub = false;
    let whole = tuning::revert(&host, &mut journal, |applied| {
        let failed = report(applied);
        grub |= applied.target.is_for_grub() && !failed;
    });
    if grub {
        println!(
            "/etc/default/grub.d/karoo.cfg is as it was; the boot menu is not yet: run update-grub, then reboot"
        );
    }
    match whole.map_err(Failure::data)? {
        true => Ok(()),
        false => Err(Failure::data(
            "not all is as it was: see above; the journal is kept",
        )),
    }
}

/// Says what became of a value; whether it is not what it was to be.
fn report(applied: &Applied) -> bool {
    let Applied {
        target,
        value,
        outcome,
    } = applied;
    let value = match value {
        Some(_) if target.survives_reboot() => "written",
        Some(value) => value.trim(),
        None => "removed",
    };
    match outcome {
        Outcome::Done => println!("done: {target}: {value}"),
        Outcome::Gone => println!("done: {target}: a reboot has undone it"),
        Outcome::Differs(now) => println!("DIFFERS: {target}: {now}, not {value}"),
        Outcome::Refused(why) => println!("REFUSED: {why}"),
        Outcome::Fixed(why) => println!("fixed: {why}: the kernel manages it itself"),
    }
    !matches!(outcome, Outcome::Done | Outcome::Gone | Outcome::Fixed(_))
}

#[cfg(test)]
mod tests {
    use host::tuning::Target;

    use super::*;

    /// Every host with NVMe has such interrupts: `karoo-host.service` is not to fail for them.
    #[test]
    fn what_the_kernel_manages_itself_is_no_failure() {
        let path = "/proc/irq/9/smp_affinity_list".to_owned();
        let mut applied = Applied {
            target: Target::Value { path },
            value: Some("0".to_owned()),
            outcome: Outcome::Fixed("refused".to_owned()),
        };
        assert!(!report(&applied));
        applied.outcome = Outcome::Refused("refused".to_owned());
        assert!(report(&applied));
    }
}

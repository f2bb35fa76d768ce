//! `karoo plan`: what would run where on this host, or on a recorded one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Command};
use ground::files::write_whole;
use ground::os::allowed_cpus;
use host;
use host::placement::{HostPlan, MAX_ENGINES, Memory, Warning, Wishes, picture};
use host::topology::{CoreTimes, CpuList, Machine, Root};

use super::{Failure, Files, colour, examples, print_json, unwritten};
use crate::assembly::Demand;
use crate::config::{EngineConfig, FgpuOptions, List, heading};
use crate::fgpu::{Payload, received_payload, sent_payload};
use crate::ports::{InterfaceError, check_mtu};

/// Show which thread would run on which CPU, and which buffer would be in which memory, and why
///
/// Starts nothing. For a single engine with all its options: karoo fgpu --print-plan. Exit codes: 0
/// also with warnings; 2 the command line is wrong, the host cannot be read, or has no such
/// interface.
#[derive(Debug, Args)]
#[command(after_help = examples::PLAN)]
pub struct PlanArgs {
    /// Engines on this host
    #[arg(long, value_name = "N", default_value = "1")]
    engines: Engines,
    /// rx lcores of each engine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    rx_lcores: u16,
    /// tx lcores of each engine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    tx_lcores: u16,
    /// Let engine and tx lcores share CPUs where their share of time allows
    #[arg(long)]
    share_cpus: bool,
    /// Interfaces to receive on, dealt out to the engines one after another; unless given, those
    /// that are fit for it
    #[arg(long, value_name = "IFACE,…")]
    recv_interface: Option<List<String>>,
    /// Interfaces to send on, dealt out to the engines one after another; unless given, those that
    /// they receive on
    #[arg(long, value_name = "IFACE,…")]
    send_interface: Option<List<String>>,
    /// CPUs that may be used; unless given, those of this process, or all of a recorded host
    #[arg(long, value_name = "CPU,…")]
    cpus: Option<CpuList>,
    /// Folder with a recorded host's proc and sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Distances between CPUs as karoo bench cores wrote them [default: /var/lib/karoo/cores.json
    /// if it is there]
    #[arg(long, value_name = "FILE")]
    cores_file: Option<PathBuf>,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Draw the plan, as SVG
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    Files::default()
        .reads("--cores-file", args.cores_file.as_deref())
        .writes("--picture", args.picture.as_deref())
        .check()?;
    let root = Root::new(&args.root);
    let machine = Machine::read(&root).map_err(Failure::usage)?;
    let allowed = match &args.cpus {
        Some(cpus) => cpus.and(&machine.online()),
        None => usable(&root, &machine),
    };
    if allowed.is_empty() {
        let online = machine.online();
        let text = format!("--cpus: none of these is online; there are {online}");
        return Err(Failure::usage(text));
    }
    for (option, names) in [
        ("--recv-interface", &args.recv_interface),
        ("--send-interface", &args.send_interface),
    ] {
        let names = names.iter().flat_map(|List(names)| names);
        known(&root, &machine, option, names).map_err(Failure::usage)?;
    }
    let cores = core_times(&root, args.cores_file.as_deref())?;
    let usual = usual_engine();
    let wishes: Vec<_> = (0..args.engines.0)
        .map(|engine| wishes(args, engine, usual.as_ref()))
        .collect();
    let mut plan = host::placement::plan(&machine, &wishes, &allowed, cores.as_ref());
    if let Some(usual) = &usual {
        let misfits = misfits(&root, &plan, &wishes, usual);
        warn_of_mtu(&mut plan, misfits);
    }
    if let Some(path) = &args.picture {
        write_whole(path, picture(&plan)).map_err(|error| unwritten("--picture", path, &error))?;
    }
    if args.json {
        print_json(&plan)?;
    } else {
        print!("{}", coloured(&plan));
    }
    Ok(())
}

/// Puts interfaces that packets do not fit in front of a plan's warnings, each with its largest
/// packets: no engine starts before they do.
pub fn warn_of_mtu(plan: &mut HostPlan, misfits: Vec<InterfaceError>) {
    let mut worst: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for misfit in misfits {
        let text = misfit.to_string();
        if let InterfaceError::Mtu { name, needed, .. } = misfit {
            let known = worst.entry(name).or_default();
            if needed > known.0 {
                *known = (needed, text);
            }
        }
    }
    let warning = |(_, text): (usize, String)| Warning { rule: "mtu", text };
    plan.warnings.splice(..0, worst.into_values().map(warning));
}

/// Why packets of engines like the usual one do not fit interfaces of the host under `root`.
fn misfits(
    root: &Root,
    plan: &HostPlan,
    wishes: &[Wishes],
    usual: &EngineConfig,
) -> Vec<InterfaceError> {
    let mut found = Vec::new();
    for (engine, wishes) in plan.engines.iter().zip(wishes) {
        for nic in engine.nics.iter().map(|&nic| &plan.machine.nics[nic]) {
            let names = |names: &[String]| {
                let mut names = names.iter();
                names.any(|name| *name == nic.name || *name == nic.pci.address)
            };
            // One that no option names is for both.
            let (to_receive, to_send) = (&wishes.recv_interfaces[..], &wishes.send_interfaces[..]);
            let receives = names(to_receive) || !names(to_send);
            let sends = names(to_send) || to_send.is_empty();
            let mtu = root.parse(format!("/sys/class/net/{}/mtu", nic.name));
            let received = receives.then(|| received_payload(usual));
            let sent = sends.then(|| sent_payload(usual));
            let payloads = received.into_iter().chain(sent);
            let misfit = |Payload { bytes, option }| check_mtu(&nic.name, mtu, bytes, option).err();
            found.extend(payloads.filter_map(misfit));
        }
    }
    found
}

/// The plan in words, its warnings in a colour.
pub fn coloured(plan: &HostPlan) -> String {
    let rules = plan.warnings.iter();
    let rules: Vec<_> = rules.map(|warning| format!("{}:", warning.rule)).collect();
    let rules = rules.iter().map(|rule| (&rule[..], colour::DOUBTFUL));
    let words: Vec<_> = rules.chain([("warnings", colour::DOUBTFUL)]).collect();
    colour::first_words(&plan.to_string(), &words, colour::on_stdout())
}

fn wishes(args: &PlanArgs, engine: usize, usual: Option<&EngineConfig>) -> Wishes {
    let dealt = |names: &Option<List<String>>| -> Vec<String> {
        let names = names
            .as_ref()
            .map_or(&[][..], |List(names)| names.as_slice());
        deal(names, engine, args.engines.0)
    };
    Wishes {
        rx: vec![None; args.rx_lcores.into()],
        tx_lcores: args.tx_lcores.into(),
        shares_cpus: args.share_cpus,
        recv_interfaces: dealt(&args.recv_interface),
        send_interfaces: dealt(&args.send_interface),
        memory: usual.map(usual_memory).unwrap_or_default(),
        ..Wishes::default()
    }
}

/// What is an engine's if names are dealt out: every engine has one, and the first ones more if
/// there are more.
fn deal(names: &[String], engine: usize, engines: usize) -> Vec<String> {
    if names.len() < engines {
        let name = names.iter().cycle().nth(engine);
        return name.into_iter().cloned().collect();
    }
    let names = names.iter().skip(engine);
    names.step_by(engines).cloned().collect()
}

/// An interface that the host does not have.
#[derive(Debug, thiserror::Error)]
#[error("{option} {name}: there is none of that name; there are {known}")]
struct UnknownInterface {
    option: &'static str,
    name: String,
    known: String,
}

/// Refuses interfaces that the host under `root` has neither by name nor by PCI address.
fn known<'a>(
    root: &Root,
    machine: &Machine,
    option: &'static str,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), UnknownInterface> {
    const NET: &str = "/sys/class/net";
    let nics = &machine.nics;
    // Those without a device, too. What is no folder is the bonding driver's.
    let mut known = root.list(NET);
    known.retain(|name| root.path(format!("{NET}/{name}")).is_dir());
    known.extend(nics.iter().map(|nic| nic.name.clone()));
    known.sort();
    known.dedup();
    let is_known =
        |name: &String| known.contains(name) || nics.iter().any(|nic| nic.pci.address == *name);
    match names.find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(UnknownInterface {
            option,
            name: name.clone(),
            known: match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            },
        }),
    }
}

/// An engine with the defaults of `karoo fgpu` and one output.
fn usual_engine() -> Option<EngineConfig> {
    const ARGS: [&str; 8] = [
        "fgpu",
        "239.102.0.64+15:7148",
        "--recv-interface=eth0",
        "--send-interface=eth0",
        "--adc-sample-rate=1712e6",
        "--sync-time=0",
        "--array-size=64",
        "--wideband=name=w,channels=4096,dst=239.10.0.0+63:7148",
    ];
    let command = FgpuOptions::with_defaults(FgpuOptions::augment_args(Command::new("fgpu")));
    let matches = command.try_get_matches_from(ARGS);
    let options = matches.and_then(|m| <FgpuOptions as clap::FromArgMatches>::from_arg_matches(&m));
    let config = options.ok()?.resolve().ok()?;
    Some(config.engine)
}

/// What an engine keeps in memory, interfaces apart.
fn usual_memory(usual: &EngineConfig) -> Vec<Memory> {
    let memory = |demand: Demand| Memory {
        what: demand.what,
        bytes: demand.bytes,
    };
    let demands = Demand::of(usual, 0, 0).into_iter();
    demands
        .filter(|demand| demand.bytes > 0)
        .map(memory)
        .collect()
}

/// Options of `karoo fgpu` about its place on the host.
#[derive(Debug, Args)]
pub struct PlaceOptions {
    /// This engine's number among those of its NUMA node, each of which is started with the same N:
    /// they get CPUs of their own without knowing of each other
    #[arg(long, value_name = "I/N", default_value = "0/1", help_heading = heading::PLACE)]
    engine_slot: Slot,
    /// Let engine and tx lcores, of all N engines, share CPUs where their share of time allows
    #[arg(long, help_heading = heading::PLACE)]
    share_cpus: bool,
    /// Distances between CPUs as karoo bench cores wrote them [default: /var/lib/karoo/cores.json
    /// if it is there]
    #[arg(long, value_name = "FILE", help_heading = heading::PLACE)]
    cores_file: Option<PathBuf>,
}

impl PlaceOptions {
    /// Whether this host shows a GPU.
    pub fn has_gpu(&self) -> bool {
        Machine::read(&Root::host()).is_ok_and(|machine| !machine.gpus.is_empty())
    }

    /// The plan of the engine and those that are like it, and which of them it is.
    pub fn plan(&self, wishes: Wishes) -> Result<(HostPlan, usize), Failure> {
        let root = Root::host();
        // Containers may hide the host; engines run there all the same.
        let machine = Machine::read(&root)
            .unwrap_or_else(|_| Machine::unknown(&allowed_cpus().into_iter().collect()));
        let cores = core_times(&root, self.cores_file.as_deref())?;
        let Slot { number, count } = self.engine_slot;
        let allowed = usable(&root, &machine);
        let wishes = Wishes {
            shares_cpus: self.share_cpus,
            ..wishes
        };
        // What the options of the others name is not known.
        let other = Wishes {
            rx: vec![None; wishes.rx.len()],
            tx: None,
            starting: false,
            ..wishes.clone()
        };
        let mut engines = vec![other; count];
        engines[number] = wishes;
        let plan = host::placement::plan(&machine, &engines, &allowed, cores.as_ref());
        Ok((plan, number))
    }
}

/// How many engines a host is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Engines(usize);

/// More engines than a host can have, or none.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "must be from 1 to {MAX_ENGINES}, more than any host has CPUs for: plan one host at a time"
)]
struct EnginesError;

impl FromStr for Engines {
    type Err = EnginesError;

    fn from_str(text: &str) -> Result<Self, EnginesError> {
        match text.parse() {
            Ok(count @ 1..=MAX_ENGINES) => Ok(Self(count)),
            _ => Err(EnginesError),
        }
    }
}

/// One of several engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    number: usize,
    count: usize,
}

/// Not one of several.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("must be I/N with I from 0 to N-1 and N at most {MAX_ENGINES}: 0/4 is the first of four")]
struct SlotError;

impl FromStr for Slot {
    type Err = SlotError;

    fn from_str(text: &str) -> Result<Self, SlotError> {
        let (number, count) = text.split_once('/').ok_or(SlotError)?;
        let slot = Self {
            number: number.parse().map_err(|_| SlotError)?,
            count: count.parse().map_err(|_| SlotError)?,
        };
        match slot.number < slot.count && slot.count <= MAX_ENGINES {
            true => Ok(slot),
            false => Err(SlotError),
        }
    }
}

/// CPUs that threads may be put on: this process's own, and isolated ones where it was kept off
/// nothing else.
fn usable(root: &Root, machine: &Machine) -> CpuList {
    let online = machine.online();
    if !root.is_host() {
        return online;
    }
    let allowed: CpuList = allowed_cpus().into_iter().collect();
    match allowed == online.without(&machine.isolated) {
        true => online,
        false => allowed,
    }
}

fn core_times(root: &Root, file: Option<&Path>) -> Result<Option<CoreTimes>, Failure> {
    let cache = Path::new(CoreTimes::CACHE);
    match file {
        Some(file) => CoreTimes::read(file).map(Some).map_err(Failure::usage),
        // A cache that cannot be used is none.
        None if root.is_host() && cache.exists() => Ok(CoreTimes::read(cache)
            .inspect_err(|error| tracing::warn!(%error, "measurements are left out"))
            .ok()),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_name_is_dealt_to_an_engine() {
        let names = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
        let dealt = |text: &str, engines: usize| -> Vec<String> {
            let hand = |engine| deal(&names(text), engine, engines).concat();
            (0..engines).map(hand).collect()
        };
        assert_eq!(dealt("ab", 1), ["ab"]);
        assert_eq!(dealt("abcde", 2), ["ace", "bd"]);
        assert_eq!(dealt("ab", 2), ["a", "b"]);
        assert_eq!(dealt("ab", 3), ["a", "b", "a"]);
        assert_eq!(dealt("", 2), ["", ""]);
    }

    #[test]
    fn interfaces_that_a_host_does_not_have_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let net = folder.path().join("sys/class/net");
        for name in ["eth1", "eth0"] {
            fs::create_dir_all(net.join(name)).unwrap();
        }
        fs::write(net.join("bonding_masters"), "").unwrap();
        let machine = Machine::unknown(&[0].into_iter().collect());
        let root = Root::new(folder.path());
        let check = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
            known(&root, &machine, "--recv-interface", names.iter())
        };
        assert!(check(&[]).is_ok() && check(&["eth0", "eth1"]).is_ok());
        let error = check(&["eth0", "eth7"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "--recv-interface eth7: there is none of that name; there are eth0, eth1"
        );
        let bare = Root::new(folder.path().join("sys"));
        let error = known(
            &bare,
            &machine,
            "--send-interface",
            ["eth0".to_owned()].iter(),
        );
        assert!(error.unwrap_err().to_string().ends_with("there are none"));
    }
}

//! What a profile's entries come to on a host.

mod files;
mod interrupts;

use std::collections::BTreeSet;

pub(super) use files::GRUB;

use super::{
    Entry, Finding, Host, Kind, Knob, Observation, Profile, Record, Scope, Status, Target, Want,
};
use crate::topology::Machine;

/// Looks at everything that `profile` is about. `journal` has what `apply` found to be fixed.
pub fn check(
    profile: &Profile,
    host: &Host,
    machine: &Machine,
    scope: &Scope,
    journal: &[Record],
) -> Vec<Finding> {
    let boot = host
        .root()
        .read("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default();
    let fixed = journal
        .iter()
        .filter(|record| record.fixed && record.boot == boot);
    let checker = Checker {
        host,
        machine,
        scope,
        fixed: fixed.map(|record| record.target.clone()).collect(),
        profile,
    };
    let finding = |entry: &Entry| Finding {
        entry: entry.clone(),
        survives_reboot: match entry.kind {
            Kind::KernelArgument { .. } | Kind::Limit { .. } => Some(true),
            Kind::NoProcess { .. } | Kind::Observed { .. } | Kind::Listed { .. } => None,
            _ => Some(false),
        },
        values: checker.values(entry),
    };
    profile.entries.iter().map(finding).collect()
}

/// A value with its lists of CPUs; `None` if a list is empty.
fn fill(value: &str, scope: &Scope) -> Option<String> {
    let mut text = value.to_owned();
    for (name, cpus) in [
        ("{lcores}", &scope.lcores),
        ("{housekeeping}", &scope.housekeeping),
    ] {
        if text.contains(name) && cpus.is_empty() {
            return None;
        }
        text = text.replace(name, &cpus.to_string());
    }
    Some(text)
}

struct Checker<'a> {
    host: &'a Host,
    machine: &'a Machine,
    scope: &'a Scope,
    fixed: BTreeSet<Target>,
    profile: &'a Profile,
}

impl Checker<'_> {
    fn values(&self, entry: &Entry) -> Vec<Knob> {
        let interfaces = || self.scope.interfaces.iter();
        match &entry.kind {
            Kind::Sysctl { name, want } => {
                let path = format!("/proc/sys/{}", name.replace('.', "/"));
                vec![self.value(name, Target::Value { path }, want)]
            }
            Kind::File { path, want } => {
                let paths = self.paths(path);
                let value = |path: String| self.value(&path.clone(), Target::Value { path }, want);
                paths.into_iter().map(value).collect()
            }
            Kind::KernelArgument { name, value } => vec![self.argument(&entry.id, name, value)],
            Kind::IrqAffinity {} => self.interrupts(),
            Kind::Ethtool { group, name, want } => {
                let target = |interface: &String| Target::Ethtool {
                    interface: interface.clone(),
                    group: *group,
                    name: name.clone(),
                };
                interfaces()
                    .map(target)
                    .map(|target| self.named(target, want))
                    .collect()
            }
            Kind::Pcie { field, want } => {
                let devices = self.scope.nics.iter().chain(&self.scope.gpus);
                let target = |address: &String| Target::Pcie {
                    address: address.clone(),
                    field: *field,
                };
                devices
                    .map(target)
                    .map(|target| self.named(target, want))
                    .collect()
            }
            Kind::Gpu { setting, want } => {
                let target = |address: &String| Target::Gpu {
                    address: address.clone(),
                    setting: *setting,
                };
                let gpus = self.scope.gpus.iter().map(target);
                gpus.map(|target| self.named(target, want)).collect()
            }
            Kind::Limit { limit, want } => vec![self.limit(*limit, want)],
            Kind::NoProcess { name, remedy } => vec![self.no_process(name, remedy)],
            Kind::Observed {
                observation,
                want,
                remedy,
            } => vec![self.observed(*observation, want, remedy)],
            Kind::Listed { remedy } => vec![Knob {
                name: entry.id.clone(),
                status: Status::Listed,
                current: String::new(),
                wanted: String::new(),
                change: None,
                remedy: Some(remedy.clone()),
            }],
        }
    }

    fn named(&self, target: Target, want: &Want) -> Knob {
        self.value(&target.to_string(), target, want)
    }

    fn value(&self, name: &str, target: Target, want: &Want) -> Knob {
        let mut knob = Knob {
            name: name.to_owned(),
            status: Status::Absent,
            current: String::new(),
            wanted: want.to_string(),
            change: None,
            remedy: None,
        };
        let want = match want {
            Want::Maximum => match self.host.maximum(&target) {
                Ok(Some(most)) => Want::Exactly(most.trim().to_owned()),
                Ok(None) => return knob,
                Err(error) => return unknown(knob, error.to_string()),
            },
            want => want.clone(),
        };
        knob.wanted = want.to_string();
        let current = match self.host.get(&target) {
            Ok(Some(current)) => current.trim().to_owned(),
            Ok(None) => return knob,
            Err(error) => return unknown(knob, error.to_string()),
        };
        knob.status = match want.is_met(&current) {
            Some(true) => Status::Ok,
            Some(false) => Status::Miss,
            None => {
                let text = format!("'{current}' is not of the form that is wanted: left alone");
                return unknown(knob, text);
            }
        };
        knob.current = current;
        knob.change = (knob.status == Status::Miss).then(|| (target, want.value()));
        knob
    }

    /// The files that a path with `{nic}` and `*` stands for.
    fn paths(&self, path: &str) -> Vec<String> {
        let mut paths: Vec<String> = match path.contains("{nic}") {
            true => {
                let interfaces = self.scope.interfaces.iter();
                interfaces.map(|nic| path.replace("{nic}", nic)).collect()
            }
            false => vec![path.to_owned()],
        };
        while let Some(index) = paths.iter().position(|path| path.contains('*')) {
            let path = paths.remove(index);
            let star = path.find('*').unwrap_or(0);
            let start = path[..star].rfind('/').map_or(0, |slash| slash + 1);
            let end = path[star..]
                .find('/')
                .map_or(path.len(), |slash| star + slash);
            let (before, after) = (&path[start..star], &path[star + 1..end]);
            let names = self.host.root().list(&path[..start]);
            let fits = names.into_iter().filter(|name| {
                name.len() >= before.len() + after.len()
                    && name.starts_with(before)
                    && name.ends_with(after)
                    && !name.contains('*')
            });
            let found = fits.map(|name| format!("{}{name}{}", &path[..start], &path[end..]));
            let exist = |path: &String| path.contains('*') || self.host.root().path(path).exists();
            paths.splice(index..index, found.filter(exist));
        }
        paths
    }

    fn no_process(&self, name: &str, remedy: &str) -> Knob {
        let root = self.host.root();
        let pids = root
            .list("/proc")
            .into_iter()
            .filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()));
        let runs =
            pids.filter(|pid| root.read(format!("/proc/{pid}/comm")).as_deref() == Some(name));
        let count = runs.count();
        Knob {
            name: format!("process {name}"),
            status: if count == 0 { Status::Ok } else { Status::Miss },
            current: if count == 0 { "does not run" } else { "runs" }.to_owned(),
            wanted: "does not run".to_owned(),
            change: None,
            remedy: (count > 0).then(|| remedy.to_owned()),
        }
    }

    /// What of the firmware's settings can be seen.
    fn observed(&self, observation: Observation, want: &Want, remedy: &str) -> Knob {
        let root = self.host.root();
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        let (name, seen) = match observation {
            Observation::NodesPerSocket => {
                let nodes = self.machine.nodes_per_package();
                ("NUMA nodes per socket", Some(nodes.to_string()))
            }
            Observation::Smt => {
                let active = root.read("/sys/devices/system/cpu/smt/active");
                (
                    "threads of a core",
                    active.map(|active| switch(active == "1")),
                )
            }
            Observation::Iommu => {
                let units = !root.list("/sys/class/iommu").is_empty();
                let line = root.read("/proc/cmdline").unwrap_or_default();
                // In pass-through mode devices' addresses are taken as they are.
                (
                    "translating IOMMU",
                    Some(switch(units && !line.contains("iommu=pt"))),
                )
            }
            Observation::X2apic => {
                let info = root.read("/proc/cpuinfo").unwrap_or_default();
                let flags = info.lines().find(|line| line.starts_with("flags"));
                (
                    "x2APIC",
                    flags
                        .map(|flags| switch(flags.split_whitespace().any(|flag| flag == "x2apic"))),
                )
            }
            Observation::SeparateBridges => {
                let behind = |bridge: &str| {
                    let mut nics = self.machine.nics.iter();
                    nics.any(|nic| {
                        nic.pci.root == bridge && self.scope.nics.contains(&nic.pci.address)
                    })
                };
                let apart = self.machine.gpus.iter().all(|gpu| !behind(&gpu.pci.root));
                let any = !self.scope.nics.is_empty() && !self.machine.gpus.is_empty();
                (
                    "NIC and GPU behind bridges of their own",
                    any.then(|| switch(apart)),
                )
            }
        };
        let current = seen.clone().unwrap_or_default();
        let status = match seen.map(|seen| want.is_met(&seen)) {
            None => Status::Absent,
            Some(Some(true)) => Status::Ok,
            Some(_) => Status::Miss,
        };
        Knob {
            name: name.to_owned(),
            status,
            current,
            wanted: want.to_string(),
            change: None,
            remedy: (status == Status::Miss).then(|| remedy.to_owned()),
        }
    }
}

fn unknown(knob: Knob, why: String) -> Knob {
    Knob {
        status: Status::Unknown,
        current: why,
        ..knob
    }
}

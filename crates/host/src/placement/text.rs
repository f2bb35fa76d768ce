//! A plan in words.

use std::fmt;

use ground::IdlePolicy;

use super::{EnginePlan, HostPlan, Role};
use crate::topology::{Machine, PciDevice};

impl fmt::Display for HostPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        machine(f, &self.machine)?;
        if self.measured {
            writeln!(
                f,
                "distances between CPUs as karoo bench cores measured them"
            )?;
        }
        for (number, engine) in self.engines.iter().enumerate() {
            writeln!(f, "\nengine {number} on node {}", engine.node)?;
            self.engine(f, engine)?;
            self.options(f, number)?;
        }
        if !self.warnings.is_empty() {
            writeln!(f, "\nwarnings")?;
        }
        for warning in &self.warnings {
            writeln!(f, "  {}: {}", warning.rule, warning.text)?;
        }
        Ok(())
    }
}

fn machine(f: &mut fmt::Formatter<'_>, machine: &Machine) -> fmt::Result {
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let distinct = |mut values: Vec<usize>| {
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let cpus = || machine.cpus.iter();
    let parts = [
        count(distinct(cpus().map(|(_, c)| c.package).collect()), "socket"),
        count(
            distinct(cpus().map(|(&id, _)| machine.core(id)).collect()),
            "core",
        ),
        count(machine.cpus.len(), "CPU"),
        count(
            distinct(cpus().map(|(_, c)| c.l3).collect()),
            "last-level cache",
        ),
        count(machine.nodes.len(), "NUMA node"),
    ];
    writeln!(f, "{}: {}", machine.model, parts.join(", "))?;
    if !machine.isolated.is_empty() {
        writeln!(f, "isolated CPUs {}", machine.isolated)?;
    }
    for (id, node) in &machine.nodes {
        let huge = node.huge_pages.iter().filter(|(_, (all, _))| *all > 0);
        let huge = huge.map(|(kib, (all, free))| {
            format!("; huge pages of {} MiB: {all}, {free} free", kib / 1024)
        });
        let huge: String = huge.collect();
        writeln!(
            f,
            "node {id}: {:.1} GiB{huge}",
            node.memory as f64 / f64::from(1 << 30)
        )?;
    }
    for nic in &machine.nics {
        let rate = match (nic.megabits, nic.up) {
            (_, Some(false)) => "link down".to_owned(),
            (Some(megabits), _) => format!("{} Gb/s", megabits as f64 / 1000.0),
            (None, _) => "speed unknown".to_owned(),
        };
        writeln!(
            f,
            "NIC {}: {}, {rate}, {}",
            nic.name,
            nic.driver,
            place(&nic.pci)
        )?;
    }
    for gpu in &machine.gpus {
        writeln!(f, "GPU {}: {}", gpu.name, place(&gpu.pci))?;
    }
    Ok(())
}

fn place(pci: &PciDevice) -> String {
    let node = pci
        .node
        .map_or(String::new(), |node| format!(", node {node}"));
    let link = pci.best_link.or(pci.link);
    let link = link.map_or(String::new(), |link| {
        format!(", {:.1} GB/s", link.gigabytes())
    });
    format!("{} behind {}{node}{link}", pci.address, pci.root)
}

impl HostPlan {
    fn engine(&self, f: &mut fmt::Formatter<'_>, engine: &EnginePlan) -> fmt::Result {
        for &nic in &engine.nics {
            writeln!(f, "  NIC {}", self.machine.nics[nic].name)?;
        }
        if let Some(choice) = &engine.gpu {
            let gpu = &self.machine.gpus[choice.index];
            let (address, why) = (&gpu.pci.address, &choice.why);
            writeln!(f, "  GPU {address}, which the engine opens: {why}")?;
        }
        for lcore in &engine.lcores {
            let idle = match lcore.idle {
                IdlePolicy::Poll => "polls",
                IdlePolicy::Share => "naps ",
            };
            let (name, cpu) = (&lcore.name, lcore.cpu);
            writeln!(f, "  {name:12} CPU {cpu:<4} {idle}  {}", lcore.why)?;
        }
        for worker in &engine.workers {
            let (name, cpu) = (&worker.name, worker.cpu);
            writeln!(f, "  {name:12} CPU {cpu:<4}        {}", worker.why)?;
        }
        let (cpus, why) = (engine.housekeeping.to_string(), &engine.housekeeping_why);
        writeln!(f, "  housekeeping CPU {cpus:<4}        {why}")?;
        for buffer in &engine.buffers {
            let (what, mib, node) = (&buffer.what, buffer.bytes.div_ceil(1 << 20), buffer.node);
            writeln!(f, "  {what}: {mib} MiB on node {node}")?;
        }
        Ok(())
    }

    /// What makes an engine that is started by itself run so.
    fn options(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let engine = &self.engines[number];
        let cpus = |wanted: fn(&Role) -> bool| {
            let lcores = engine.lcores.iter().filter(|lcore| wanted(&lcore.role));
            let cpus: Vec<_> = lcores.map(|lcore| lcore.cpu.to_string()).collect();
            cpus.join(",")
        };
        let (rx, tx) = (
            cpus(|role| matches!(role, Role::Rx(_))),
            cpus(|role| matches!(role, Role::Tx(_))),
        );
        let mut named = tx.split(',');
        let first = named.next();
        // A CPU that is named is all tx lcores', and shared with no other engine.
        let tx = match first.filter(|first| named.all(|other| other == *first)) {
            Some(cpu) if !engine.shares_cpus => format!(" --send-affinity {cpu}"),
            _ => String::new(),
        };
        let share = match engine.shares_cpus {
            true => " --share-cpus",
            false => "",
        };
        let on_node = |engines: &[EnginePlan]| {
            engines
                .iter()
                .filter(|other| other.node == engine.node)
                .count()
        };
        let slot = match on_node(&self.engines) {
            1 => String::new(),
            together => format!(
                ", or --engine-slot {}/{together}{share}",
                on_node(&self.engines[..number])
            ),
        };
        writeln!(f, "  as options: --recv-affinity {rx}{tx}{share}{slot}")
    }
}

#[cfg(test)]
mod tests {
    use crate::placement::{Wishes, plan};
    use crate::topology::Machine;

    /// The options of each engine of a plan for a machine with so many CPUs.
    fn options(wishes: &Wishes, engines: usize, cpus: usize) -> Vec<String> {
        let machine = Machine::unknown(&(0..cpus).collect());
        let plan = plan(
            &machine,
            &vec![wishes.clone(); engines],
            &machine.online(),
            None,
        );
        let text = plan.to_string();
        let lines = text
            .lines()
            .filter_map(|line| line.split_once("as options: "));
        lines.map(|(_, options)| options.to_owned()).collect()
    }

    /// A CPU that is named is all tx lcores' and no other's.
    #[test]
    fn options_lead_to_the_plan_that_they_stand_in() {
        let wishes = Wishes {
            rx: vec![None],
            tx_lcores: 1,
            ..Wishes::default()
        };
        let one = options(&wishes, 1, 16);
        assert!(one[0].contains("--recv-affinity ") && one[0].contains(" --send-affinity "));
        assert!(!one[0].contains("--share-cpus"), "{one:?}");
        let two = Wishes {
            tx_lcores: 2,
            ..wishes.clone()
        };
        let apart = options(&two, 1, 16);
        assert!(!apart[0].contains("--send-affinity"), "{apart:?}");
        // With a CPU by name, or too few, both are on one.
        let named = Wishes { tx: Some(5), ..two };
        let named = options(&named, 1, 16);
        assert!(named[0].ends_with(" --send-affinity 5"), "{named:?}");
        for few in options(&wishes, 2, 2) {
            assert!(few.contains(" --send-affinity "), "{few}");
            assert!(!few.contains("--share-cpus"), "{few}");
        }
        let shared = Wishes {
            shares_cpus: true,
            ..wishes
        };
        for line in options(&shared, 2, 16) {
            assert!(!line.contains("--send-affinity"), "{line}");
            let [own, slot] = line.split(", or ").collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert!(
                own.ends_with(" --share-cpus") && slot.ends_with("/2 --share-cpus"),
                "{line}"
            );
        }
    }
}

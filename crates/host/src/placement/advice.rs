//! What of a plan is not as it should be.

use std::collections::{BTreeMap, BTreeSet};

use ground::IdlePolicy;

use super::{EnginePlan, FULL, PACKET_BUFFERS, Warning, Wishes};
use crate::topology::{CpuList, Link, Machine, PciDevice};

/// What a quadrant of the I/O die of EPYC Rome and Milan carries between PCIe and memory, each way
/// (Merry 2023, 5.4.3).
const QUADRANT: f64 = 36.0;
/// Families and models of these processors.
const QUADRANT_PROCESSORS: [(u32, std::ops::RangeInclusive<u32>); 2] =
    [(0x17, 0x30..=0x3f), (0x19, 0x00..=0x0f)];

/// Gb/s of payload that one rx lcore was seen to place without loss, the most that was tried: 1.75
/// Gsample/s of both polarisations at 10 bits (docs/performance.md, "One rx lcore for an engine").
const RX_LCORE_GBPS: f64 = 35.0;

/// Share of a CPU's time that control, metrics and drivers take.
const HOUSEKEEPING: f64 = 0.1;

/// All warnings, in the order of the harm that they do.
pub(super) fn warnings(
    machine: &Machine,
    wishes: &[Wishes],
    engines: &[EnginePlan],
    allowed: &CpuList,
) -> Vec<Warning> {
    let mut warnings = Warnings::default();
    for wishes in wishes {
        warnings.receive_rate(wishes);
    }
    for engine in engines {
        warnings.bridge(machine, engine);
        warnings.nodes(machine, engine);
    }
    let shares = wishes.iter().any(|wishes| wishes.shares_cpus);
    warnings.cpus(machine, engines, allowed, shares);
    warnings.links(machine, engines);
    warnings.partition(machine);
    warnings.huge_pages(machine, wishes, engines);
    warnings.isolation(machine, engines);
    warnings.0
}

#[derive(Default)]
struct Warnings(Vec<Warning>);

impl Warnings {
    fn add(&mut self, rule: &'static str, text: String) {
        let warning = Warning { rule, text };
        // Engines that share devices say the same of them.
        if !self.0.contains(&warning) {
            self.0.push(warning);
        }
    }

    /// More input to each rx lcore than was seen to come in without loss.
    fn receive_rate(&mut self, wishes: &Wishes) {
        let Some(gbps) = wishes.input_gbps else {
            return;
        };
        let (has, needs) = (wishes.rx.len(), (gbps / RX_LCORE_GBPS).ceil() as usize);
        if has < needs {
            let entries = match needs {
                ..=8 => format!(", such as {}", vec!["-1"; needs].join(",")),
                _ => String::new(),
            };
            let text = format!(
                "{gbps:.1} Gb/s of payload come to {has} rx lcore{}: more than {RX_LCORE_GBPS} Gb/s for each was not \
                 measured. Give --recv-affinity {needs} entries{entries}",
                if has == 1 { "" } else { "s" }
            );
            self.add("receive-rate", text);
        }
    }

    /// NIC and GPU behind one host bridge.
    fn bridge(&mut self, machine: &Machine, engine: &EnginePlan) {
        let Some(gpu) = engine.gpu.as_ref().map(|gpu| &machine.gpus[gpu.index]) else {
            return;
        };
        let nics = engine.nics.iter().map(|&nic| &machine.nics[nic]);
        for nic in nics.filter(|nic| nic.pci.root == gpu.pci.root) {
            // The lanes that there are, at the speed that they can have.
            let rate = |pci: &PciDevice| {
                let link = pci.link.or(pci.best_link);
                link.map_or(0.0, |link| {
                    let best = pci.best_link.unwrap_or(link).gigatransfers;
                    let gigatransfers = best.max(link.gigatransfers);
                    Link {
                        gigatransfers,
                        ..link
                    }
                    .gigabytes()
                })
            };
            let together = rate(&nic.pci) + rate(&gpu.pci);
            let processor = &machine.processor;
            let known = processor.vendor == "AuthenticAMD"
                && QUADRANT_PROCESSORS.iter().any(|(family, models)| {
                    *family == processor.family && models.contains(&processor.model)
                });
            let who = format!(
                "{} and {} ({}) are behind one host bridge, {}",
                nic.name, gpu.name, gpu.pci.address, gpu.pci.root
            );
            let text = match known {
                true if together <= QUADRANT => continue,
                true => format!(
                    "{who}: their links carry {together:.1} GB/s each way, a quadrant of this processor {QUADRANT} GB/s; \
                     a tenth of the rate was measured so (Merry 2023, table 3). Move one to a slot of another quadrant"
                ),
                false => format!(
                    "{who}: their links carry {together:.1} GB/s each way, and what this processor's bridge carries is \
                     not known. Measure, or move one to a slot of another bridge"
                ),
            };
            self.add("shared-root", text);
        }
    }

    /// Threads and devices away from the engine's memory.
    fn nodes(&mut self, machine: &Machine, engine: &EnginePlan) {
        let node = engine.node;
        let nic = engine.nics.iter().map(|&nic| &machine.nics[nic]);
        let nic = nic.map(|nic| (nic.name.as_str(), nic.pci.node));
        let gpu = engine.gpu.iter().map(|gpu| &machine.gpus[gpu.index]);
        let gpu = gpu.map(|gpu| (gpu.pci.address.as_str(), gpu.pci.node));
        for (name, of) in nic.chain(gpu) {
            if let Some(of) = of.filter(|of| *of != node) {
                let text = format!(
                    "{name} is on node {of}, the engine's CPUs and memory on node {node}: every byte crosses the link \
                     between sockets. Give the engine devices and CPUs of one node"
                );
                self.add("remote-numa", text);
            }
        }
        for lcore in &engine.lcores {
            let of = machine.cpus.get(&lcore.cpu).map(|cpu| cpu.node);
            if let Some(of) = of.filter(|of| *of != node) {
                let text = format!(
                    "{} runs on CPU {} of node {of}, the engine's memory is on node {node}",
                    lcore.name, lcore.cpu
                );
                self.add("remote-numa", text);
            }
        }
    }

    /// CPUs and cores that are shared, or not there.
    fn cpus(&mut self, machine: &Machine, engines: &[EnginePlan], allowed: &CpuList, shares: bool) {
        let mut users: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        let mut lcores = CpuList::default();
        // CPUs that were to be shared, and are no fuller than they should be.
        let mut meant: BTreeMap<usize, f64> = BTreeMap::new();
        for (number, engine) in engines.iter().enumerate() {
            let name = |name: &str| match engines.len() {
                1 => name.to_owned(),
                _ => format!("{name} of engine {number}"),
            };
            for lcore in &engine.lcores {
                users
                    .entry(lcore.cpu)
                    .or_default()
                    .insert(name(&lcore.name));
                lcores.extend([lcore.cpu]);
                *meant.entry(lcore.cpu).or_insert(0.0) += lcore.role.share();
                if !machine.cpus.contains_key(&lcore.cpu) {
                    let text = format!(
                        "{} is to run on CPU {}, which is not online; there are {}",
                        lcore.name,
                        lcore.cpu,
                        machine.online()
                    );
                    self.add("no-such-cpu", text);
                }
            }
            for cpu in engine.housekeeping.iter() {
                *meant.entry(cpu).or_insert(0.0) += HOUSEKEEPING;
                users
                    .entry(cpu)
                    .or_default()
                    .insert("housekeeping".to_owned());
            }
        }
        let names = |cpus: &CpuList| {
            let names = cpus.iter().filter_map(|cpu| users.get(&cpu)).flatten();
            names.cloned().collect::<Vec<_>>().join(", ")
        };
        let is_meant = |cpu: &usize| shares && meant.get(cpu).is_some_and(|share| *share <= FULL);
        let crowded = |cpu: &usize| users[cpu].len() > 1 && !is_meant(cpu);
        for cpu in lcores.iter().filter(crowded) {
            let text = format!(
                "CPU {cpu} is shared by {}: they nap when idle, and hold each other up; {} CPUs may be used",
                names(&[cpu].into_iter().collect()),
                allowed.len()
            );
            self.add("too-few-cores", text);
        }
        for cpu in lcores.iter() {
            let siblings = machine.siblings(cpu);
            let busy: CpuList = siblings
                .iter()
                .filter(|cpu| users.contains_key(cpu))
                .collect();
            if busy.len() > 1 {
                let text = format!(
                    "CPUs {busy} are one core, shared by {}: each has about half of it",
                    names(&busy)
                );
                self.add("smt-siblings", text);
            }
        }
    }

    /// Devices with fewer lanes, or slower ones, than they have.
    fn links(&mut self, machine: &Machine, engines: &[EnginePlan]) {
        let nics = engines.iter().flat_map(|engine| &engine.nics);
        let nics = nics.map(|&nic| (&machine.nics[nic].name, &machine.nics[nic].pci, true));
        let gpus = engines.iter().flat_map(|engine| &engine.gpu);
        // A GPU that has nothing to do slows its link down by itself.
        let gpus = gpus.map(|gpu| {
            let gpu = &machine.gpus[gpu.index];
            (&gpu.pci.address, &gpu.pci, false)
        });
        for (name, pci, speed_counts) in nics.chain(gpus) {
            let (Some(link), Some(best)) = (pci.link, pci.best_link) else {
                continue;
            };
            let slow = speed_counts && link.gigatransfers < best.gigatransfers;
            if link.lanes < best.lanes || slow {
                let text = format!(
                    "{name} has {} lanes of {} GT/s, and could have {} of {}: another slot, or the firmware's settings",
                    link.lanes, link.gigatransfers, best.lanes, best.gigatransfers
                );
                self.add("slow-link", text);
            }
        }
    }

    /// Sockets cut into several nodes.
    fn partition(&mut self, machine: &Machine) {
        let nodes = machine.nodes_per_package();
        if nodes > 1 {
            let text = format!(
                "the firmware makes {nodes} NUMA nodes of each socket: with 2, 79 %, with 4, 44 % of the rate was \
                 measured (Merry 2023, table 1). Set NUMA nodes per socket to NPS1"
            );
            self.add("nodes-per-socket", text);
        }
    }

    /// DPDK's memory of an engine that starts, in what is free.
    fn huge_pages(&mut self, machine: &Machine, wishes: &[Wishes], engines: &[EnginePlan]) {
        /// The size of those that are advised, in KiB.
        const ADVISED: u64 = 2048;
        let mut needed: BTreeMap<usize, u64> = BTreeMap::new();
        let engines = engines.iter().zip(wishes);
        for (engine, _) in engines.filter(|(_, wishes)| wishes.starting) {
            let packets = engine.buffers.iter().filter(|b| b.what == PACKET_BUFFERS);
            for buffer in packets {
                *needed.entry(buffer.node).or_default() += buffer.bytes;
            }
        }
        for (node, bytes) in needed {
            let sizes = machine.nodes.get(&node).map(|node| &node.huge_pages);
            let free = sizes.into_iter().flatten();
            let free = free.map(|(kib, (_, free))| kib.saturating_mul(1024).saturating_mul(*free));
            let free = free.max().unwrap_or(0);
            if free < bytes {
                let (all, unused) = sizes
                    .and_then(|sizes| sizes.get(&ADVISED))
                    .copied()
                    .unwrap_or_default();
                // The number is that of all programs together: what others have stays theirs.
                let others = all.saturating_sub(unused);
                let pages = others.saturating_add(bytes.div_ceil(ADVISED << 10));
                let nodes = machine.nodes.len().max(1) as u64;
                let (where_to, spread, folder) = match nodes {
                    1 => (String::new(), "", "/sys/kernel/mm".to_owned()),
                    _ => (
                        format!(" on node {node}"),
                        ", which are spread over the nodes",
                        format!("/sys/devices/system/node/node{node}"),
                    ),
                };
                let text = format!(
                    "packet buffers on node {node} take {} MiB, {} MiB of huge pages are free there: they come from \
                     ordinary memory, which NICs that leave the kernel cannot use. Have {pages} huge pages of 2 MiB{where_to}: \
                     HUGE_PAGES_2M={} in /etc/karoo/host.conf{spread}, then systemctl restart karoo-host; or until the next \
                     boot: echo {pages} | sudo tee {folder}/hugepages/hugepages-{ADVISED}kB/nr_hugepages",
                    bytes >> 20,
                    free >> 20,
                    pages.saturating_mul(nodes),
                );
                self.add("huge-pages", text);
            }
        }
    }

    /// Polling lcores that the kernel's scheduler may interrupt.
    fn isolation(&mut self, machine: &Machine, engines: &[EnginePlan]) {
        let lcores = engines.iter().flat_map(|engine| &engine.lcores);
        let polling = lcores.filter(|lcore| lcore.idle == IdlePolicy::Poll);
        let open: CpuList = polling
            .map(|lcore| lcore.cpu)
            .filter(|&cpu| !machine.isolated.contains(cpu))
            .collect();
        if !open.is_empty() {
            let text = format!(
                "lcores poll on CPUs {open}, which the kernel gives to others too: isolate them (karoo tune apply \
                 appliance, update-grub, reboot)"
            );
            self.add("not-isolated", text);
        }
    }
}

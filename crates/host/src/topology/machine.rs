//! What a host is made of, as its `/sys` and `/proc` tell.

use std::collections::BTreeMap;

use serde::Serialize;

use super::pci::{self, Gpu, Nic};
use super::{CpuList, Root};

/// A host's topology.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The processor's name.
    pub model: String,
    /// Vendor, family and model of the processor.
    pub processor: Processor,
    /// CPUs that are online, by number.
    pub cpus: BTreeMap<usize, Cpu>,
    /// NUMA nodes, by number.
    pub nodes: BTreeMap<usize, Node>,
    /// CPUs that the kernel's scheduler leaves alone (`isolcpus`).
    pub isolated: CpuList,
    /// Network devices on a bus.
    pub nics: Vec<Nic>,
    /// NVIDIA GPUs.
    pub gpus: Vec<Gpu>,
}

/// Which processor it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Processor {
    /// `AuthenticAMD`, `GenuineIntel`…
    pub vendor: String,
    /// Family.
    pub family: u32,
    /// Model within the family.
    pub model: u32,
}

/// A logical CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cpu {
    /// Socket.
    pub package: usize,
    /// NUMA node.
    pub node: usize,
    /// Lowest CPU of those that share its last-level cache.
    pub l3: usize,
    /// CPUs of its core, itself among them.
    pub siblings: CpuList,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// Its memory in bytes.
    pub memory: u64,
    /// Its huge pages, by size in KiB: how many, and how many of these are free.
    pub huge_pages: BTreeMap<u64, (u64, u64)>,
    /// Its distances to all nodes, in the firmware's unit: 10 is itself.
    pub distances: Vec<u32>,
}

/// A host whose CPUs cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "--root {root}: {path} names no CPU; a recorded host is a folder that holds its proc and sys"
)]
pub struct MachineError {
    root: String,
    path: &'static str,
}

impl Machine {
    /// Reads the host under `root`. What it does not tell is taken to be simple: one node, one
    /// cache, no siblings.
    pub fn read(root: &Root) -> Result<Self, MachineError> {
        const ONLINE: &str = "/sys/devices/system/cpu/online";
        let online: CpuList = root.parse(ONLINE).unwrap_or_default();
        if online.is_empty() {
            return Err(MachineError {
                root: root.path("/").display().to_string(),
                path: ONLINE,
            });
        }
        let nodes = nodes(root);
        let node_of = |cpu| nodes.iter().find(|(_, (cpus, _))| cpus.contains(cpu));
        let cpus = online.iter().map(|id| {
            let node = node_of(id).map_or(0, |(&node, _)| node);
            (id, cpu(root, id, node, &online))
        });
        let (model, processor) = processor(root);
        Ok(Self {
            cpus: cpus.collect(),
            model,
            processor,
            isolated: root
                .parse("/sys/devices/system/cpu/isolated")
                .unwrap_or_default(),
            nics: pci::nics(root),
            gpus: pci::gpus(root),
            nodes: nodes
                .into_iter()
                .map(|(id, (_, node))| (id, node))
                .collect(),
        })
    }

    /// A host of which nothing is known but CPUs.
    pub fn unknown(cpus: &CpuList) -> Self {
        let first = cpus.first().unwrap_or(0);
        let cpu = |id| {
            let cpu = Cpu {
                package: 0,
                node: 0,
                l3: first,
                siblings: [id].into_iter().collect(),
            };
            (id, cpu)
        };
        let node = Node {
            memory: 0,
            huge_pages: BTreeMap::new(),
            distances: vec![10],
        };
        Self {
            model: "unknown processor".to_owned(),
            processor: Processor::default(),
            cpus: cpus.iter().map(cpu).collect(),
            nodes: [(0, node)].into(),
            isolated: CpuList::default(),
            nics: Vec::new(),
            gpus: Vec::new(),
        }
    }

    /// All CPUs.
    pub fn online(&self) -> CpuList {
        self.cpus.keys().copied().collect()
    }

    /// CPUs that `cpu` shares a core with, itself among them.
    pub fn siblings(&self, cpu: usize) -> CpuList {
        let siblings = self.cpus.get(&cpu).map(|cpu| cpu.siblings.clone());
        siblings.unwrap_or_else(|| [cpu].into_iter().collect())
    }

    /// The first of the CPUs that `cpu` shares a core with.
    pub fn core(&self, cpu: usize) -> usize {
        self.siblings(cpu).first().unwrap_or(cpu)
    }

    /// Last-level caches of `node`, by the lowest CPU of each.
    pub fn l3s(&self, node: usize) -> Vec<usize> {
        let cpus = self.cpus.values().filter(|cpu| cpu.node == node);
        let mut l3s: Vec<_> = cpus.map(|cpu| cpu.l3).collect();
        l3s.sort_unstable();
        l3s.dedup();
        l3s
    }

    /// How many NUMA nodes the firmware makes of each socket.
    pub fn nodes_per_package(&self) -> usize {
        let mut pairs: Vec<_> = self.cpus.values().map(|c| (c.package, c.node)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut packages: Vec<_> = pairs.iter().map(|(package, _)| package).collect();
        packages.dedup();
        pairs.len() / packages.len().max(1)
    }

    /// CPUs for everything that is not an lcore of an engine, if the kernel does not say which: one
    /// core in 16, of every socket, the lowest ones.
    pub fn housekeeping(&self) -> CpuList {
        const CORES: usize = 16;
        if !self.isolated.is_empty() {
            return self.online().without(&self.isolated);
        }
        let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&id, cpu) in &self.cpus {
            if self.core(id) == id {
                cores.entry(cpu.package).or_default().push(id);
            }
        }
        let lowest = cores
            .values()
            .flat_map(|cores| &cores[..cores.len().div_ceil(CORES)]);
        lowest
            .flat_map(|&cpu| self.siblings(cpu).iter().collect::<Vec<_>>())
            .collect()
    }
}

fn cpu(root: &Root, id: usize, node: usize, online: &CpuList) -> Cpu {
    let folder = format!("/sys/devices/system/cpu/cpu{id}");
    let topology = |name: &str| root.read(format!("{folder}/topology/{name}"));
    let list = |text: Option<String>| text.and_then(|text| text.parse::<CpuList>().ok());
    let cache = |index: u32| {
        let index = format!("{folder}/cache/index{index}");
        let level: u32 = root.parse(format!("{index}/level"))?;
        let kind = root.read(format!("{index}/type"))?;
        let shared = list(root.read(format!("{index}/shared_cpu_list")))?.first()?;
        (kind != "Instruction").then_some((level, shared))
    };
    // Where the last level is not shown, all CPUs of a node share it as far as anybody knows.
    let last = (0..8).filter_map(cache).filter(|(level, _)| *level >= 3);
    let l3 = last.max().map(|(_, first)| first);
    let siblings = list(topology("thread_siblings_list")).unwrap_or_default();
    let siblings = siblings.and(online);
    Cpu {
        package: topology("physical_package_id")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        node,
        l3: l3.unwrap_or_else(|| online.first().unwrap_or(id)),
        siblings: match siblings.contains(id) {
            true => siblings,
            false => [id].into_iter().collect(),
        },
    }
}

fn nodes(root: &Root) -> BTreeMap<usize, (CpuList, Node)> {
    const FOLDER: &str = "/sys/devices/system/node";
    let names = root.list(FOLDER);
    let ids = names
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse::<usize>().ok());
    let node = |id: usize| {
        let folder = format!("{FOLDER}/node{id}");
        let meminfo = root.read(format!("{folder}/meminfo")).unwrap_or_default();
        let total = meminfo.lines().find_map(|line| {
            let kib = line.split_once("MemTotal:")?.1.trim().strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()
        });
        let distances = root.read(format!("{folder}/distance")).unwrap_or_default();
        let node = Node {
            memory: total.unwrap_or(0).saturating_mul(1024),
            huge_pages: huge_pages(root, &format!("{folder}/hugepages")),
            distances: distances
                .split_whitespace()
                .filter_map(|d| d.parse().ok())
                .collect(),
        };
        let cpus = root.parse(format!("{folder}/cpulist")).unwrap_or_default();
        (id, (cpus, node))
    };
    let nodes: BTreeMap<_, _> = ids.map(node).collect();
    if !nodes.is_empty() {
        return nodes;
    }
    let node = Node {
        memory: 0,
        huge_pages: huge_pages(root, "/sys/kernel/mm/hugepages"),
        distances: vec![10],
    };
    [(0, (CpuList::default(), node))].into()
}

fn huge_pages(root: &Root, folder: &str) -> BTreeMap<u64, (u64, u64)> {
    let size = |name: &String| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let count = |file: &str| root.parse(format!("{folder}/{name}/{file}"));
        let pages = (count("nr_hugepages")?, count("free_hugepages")?);
        Some((kib.parse().ok()?, pages))
    };
    root.list(folder).iter().filter_map(size).collect()
}

fn processor(root: &Root) -> (String, Processor) {
    let info = root.read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        });
        value.unwrap_or_default()
    };
    let number = |name: &str| field(name).parse().unwrap_or(0);
    let processor = Processor {
        vendor: field("vendor_id"),
        family: number("cpu family"),
        model: number("model"),
    };
    (field("model name"), processor)
}

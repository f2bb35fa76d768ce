//! Placement: which thread runs on which CPU, and which buffer is in which memory.
//!
//! A placement is a value. It can be looked at before anything runs, a live engine executes it, and
//! its names label the engine's metrics.
//!
//! * [`Wishes`], [`plan`]: what there is to place, and where it goes;
//! * [`HostPlan`]: the outcome, with a reason for each choice and a [`Warning`] for each thing that
//!   is not as it should be;
//! * [`picture`]: the outcome drawn as SVG.

mod advice;
mod devices;
mod picture;
mod place;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use ground::IdlePolicy;
use serde::Serialize;

pub use picture::picture;
use place::{CpuPlacer, Home};

use crate::topology::{CoreTimes, CpuList, Distances, Machine};

/// Engines that a host may have: with three lcores each, more than there are CPUs in any.
pub const MAX_ENGINES: usize = 256;

/// What one engine needs.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// CPU of each rx lcore, if it matters.
    pub rx: Vec<Option<usize>>,
    /// CPU of the tx lcores, if it matters.
    pub tx: Option<usize>,
    /// tx lcores.
    pub tx_lcores: usize,
    /// Whether an lcore reads a capture.
    pub source: bool,
    /// Compute threads of the CPU backend, if their number matters.
    pub workers: Option<usize>,
    /// Whether engine and tx lcores, of other engines too, share CPUs where their share of time
    /// allows ([`Role::share`]).
    pub shares_cpus: bool,
    /// Gb/s of payload that it receives, if that is known.
    pub input_gbps: Option<f64>,
    /// Interface of each rx lcore; the last one counts for those beyond.
    pub recv_interfaces: Vec<String>,
    /// Interface of each tx lcore; the last one counts for those beyond.
    pub send_interfaces: Vec<String>,
    /// What it keeps in memory.
    pub memory: Vec<Memory>,
    /// Whether it is about to start, so that there must be free huge pages for it. The others of
    /// its plan may run already, and have theirs.
    pub starting: bool,
}

/// The use of memory that is DPDK's: there should be huge pages for it.
pub const PACKET_BUFFERS: &str = "packet buffers";

/// A use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What it is for.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

impl Wishes {
    /// The interface that an lcore serves.
    fn interface(&self, role: Role) -> Option<&str> {
        let (names, lane) = match role {
            Role::Rx(lane) => (&self.recv_interfaces, lane),
            Role::Tx(lane) => (&self.send_interfaces, lane),
            Role::Engine | Role::Source => return None,
        };
        names.get(lane).or(names.last()).map(String::as_str)
    }

    /// CPUs that options name.
    fn named(&self) -> CpuList {
        self.rx
            .iter()
            .chain([&self.tx])
            .flatten()
            .copied()
            .collect()
    }
}

/// What an lcore does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Receives: which of an engine's rx lcores it is.
    Rx(usize),
    /// Steers what computes.
    Engine,
    /// Sends: which of an engine's tx lcores it is.
    Tx(usize),
    /// Reads a capture.
    Source,
}

/// Up to which share of a CPU's time lcores are put together on it.
pub const FULL: f64 = 0.8;

impl Role {
    /// Share of a CPU's time for which it is at work, at the rate that one rx lcore places
    /// (docs/performance.md, "Ten antennas on one GPU").
    pub fn share(self) -> f64 {
        match self {
            Self::Rx(_) | Self::Source => 1.0,
            Self::Engine => 0.3,
            Self::Tx(_) => 0.15,
        }
    }

    /// Whether others may have its CPU too: it mostly waits.
    fn is_modest(self) -> bool {
        self.share() < FULL
    }

    /// The lcore's name, in metrics too, in an engine with so many tx lcores.
    pub fn name(self, tx_lcores: usize) -> String {
        match self {
            Self::Rx(lane) => format!("rx{lane}"),
            Self::Engine => "engine".to_owned(),
            Self::Tx(_) if tx_lcores == 1 => "tx".to_owned(),
            Self::Tx(lane) => format!("tx{lane}"),
            Self::Source => "capture".to_owned(),
        }
    }
}

/// An lcore and its CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lcore {
    /// Its name, in metrics too.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Its CPU.
    pub cpu: usize,
    /// It polls if it has a CPU that no other lcore and no housekeeping runs on.
    #[serde(serialize_with = "idle_name")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub idle: IdlePolicy,
    /// Why there.
    pub why: String,
}

fn idle_name<S: serde::Serializer>(idle: &IdlePolicy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match idle {
        IdlePolicy::Poll => "poll",
        IdlePolicy::Share => "share",
    })
}

/// A thread that is no lcore, and its CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Its CPU.
    pub cpu: usize,
    /// Why there.
    pub why: String,
}

/// Memory and its NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Buffer {
    /// What it is for.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
    /// NUMA node.
    pub node: usize,
}

/// A GPU and why it was taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuChoice {
    /// Which of [`Machine::gpus`].
    pub index: usize,
    /// Why.
    pub why: String,
}

/// Where one engine runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnginePlan {
    /// NUMA node of its memory.
    pub node: usize,
    /// Lcores, in the order in which they are started.
    pub lcores: Vec<Lcore>,
    /// Compute threads of the CPU backend; not started with a GPU.
    pub workers: Vec<Thread>,
    /// CPUs of all other threads: control, metrics, drivers.
    pub housekeeping: CpuList,
    /// Why these.
    pub housekeeping_why: String,
    /// Which of [`Machine::nics`] it receives and sends on.
    pub nics: Vec<usize>,
    /// Which GPU is best, if there is any.
    pub gpu: Option<GpuChoice>,
    /// What it keeps in memory.
    pub buffers: Vec<Buffer>,
    /// Whether its engine and tx lcores were to share CPUs.
    #[serde(skip)]
    pub shares_cpus: bool,
}

impl EnginePlan {
    /// The CPUs of all lcores, in the order in which they are started.
    pub fn lcore_cpus(&self) -> Vec<usize> {
        self.lcores.iter().map(|lcore| lcore.cpu).collect()
    }

    /// The CPUs of compute threads.
    pub fn worker_cpus(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.cpu).collect()
    }

    /// What the lcores with a role do when idle.
    pub fn idle(&self, wanted: impl Fn(Role) -> bool) -> Vec<IdlePolicy> {
        let lcores = self.lcores.iter().filter(|lcore| wanted(lcore.role));
        lcores.map(|lcore| lcore.idle).collect()
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// Which rule, in a word.
    pub rule: &'static str,
    /// What was found, what it does, and the way out.
    pub text: String,
}

/// Where everything runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPlan {
    /// The host.
    pub machine: Machine,
    /// Whether distances between CPUs were measured.
    pub measured: bool,
    /// Engines.
    pub engines: Vec<EnginePlan>,
    /// What is not as it should be.
    pub warnings: Vec<Warning>,
}

impl HostPlan {
    /// PCI address of the GPU of an engine, if there is any.
    pub fn gpu(&self, engine: usize) -> Option<&str> {
        let choice = self.engines[engine].gpu.as_ref()?;
        Some(&self.machine.gpus[choice.index].pci.address)
    }
}

/// Places the threads and buffers of engines on the CPUs in `allowed`, which is not empty.
///
/// Never refuses: what does not fit is shared, and a warning says so.
pub fn plan(
    machine: &Machine,
    engines: &[Wishes],
    allowed: &CpuList,
    measured: Option<&CoreTimes>,
) -> HostPlan {
    let distances = Distances::new(machine, measured);
    let mut placer = CpuPlacer::new(machine, &distances, allowed);
    let devices = devices::choose(machine, engines);
    let homes = homes(&placer, &devices, engines.len(), allowed);
    let mut placed: Vec<EnginePlan> = Vec::new();
    for ((wishes, devices), home) in engines.iter().zip(devices).zip(&homes) {
        let threads = placer.place(wishes, home, &wishes.named());
        let buffer = |memory: &Memory| Buffer {
            what: memory.what.clone(),
            bytes: memory.bytes,
            node: home.node,
        };
        placed.push(EnginePlan {
            node: home.node,
            lcores: threads.lcores,
            workers: threads.workers,
            housekeeping: threads.housekeeping,
            housekeeping_why: threads.housekeeping_why,
            gpu: devices::gpu(machine, &devices.nics, home.node, &placed),
            nics: devices.nics,
            buffers: wishes.memory.iter().map(buffer).collect(),
            shares_cpus: wishes.shares_cpus,
        });
    }
    set_idle(&mut placed);
    HostPlan {
        warnings: advice::warnings(machine, engines, &placed, allowed),
        machine: machine.clone(),
        measured: distances.are_measured(),
        engines: placed,
    }
}

/// Where engines are at home: on the node of their devices, in last-level caches of their own as
/// far as there are enough.
fn homes(
    placer: &CpuPlacer,
    devices: &[devices::Chosen],
    engines: usize,
    allowed: &CpuList,
) -> Vec<Home> {
    let nodes: Vec<_> = devices.iter().map(|d| placer.usable(d.node)).collect();
    let mut shares: Vec<CpuList> = Vec::new();
    for engine in 0..engines {
        let node = nodes[engine];
        let number = nodes[..engine]
            .iter()
            .filter(|other| **other == node)
            .count();
        let together = nodes.iter().filter(|other| **other == node).count();
        let share = placer.share(node, number, together);
        shares.push(if share.is_empty() {
            allowed.clone()
        } else {
            share
        });
    }
    let home = |engine: usize| {
        let mut others = CpuList::default();
        for share in shares.iter().enumerate().filter(|(e, _)| *e != engine) {
            others.extend(share.1.iter());
        }
        Home {
            node: nodes[engine],
            others: others.without(&shares[engine]),
            cpus: shares[engine].clone(),
        }
    };
    (0..engines).map(home).collect()
}

/// An lcore polls if no other lcore and no housekeeping has its CPU.
fn set_idle(engines: &mut [EnginePlan]) {
    let mut users: BTreeMap<usize, usize> = BTreeMap::new();
    for engine in engines.iter() {
        let cpus = engine.lcore_cpus().into_iter();
        for cpu in cpus.chain(engine.housekeeping.iter()) {
            *users.entry(cpu).or_insert(0) += 1;
        }
    }
    for lcore in engines.iter_mut().flat_map(|engine| &mut engine.lcores) {
        lcore.idle = match users.get(&lcore.cpu) {
            Some(1) => IdlePolicy::Poll,
            _ => IdlePolicy::Share,
        };
    }
}

//! How much memory an engine takes, compared with what there is before anything starts.
//!
//! Memory is only reserved when it is allocated: without this, a run that cannot fit would be
//! killed somewhere in its middle.

use std::fmt;
use std::path::{Path, PathBuf};

use host::topology::Root;

use crate::config::{EngineConfig, OutputConfig};
use crate::gpu;
use crate::memory::{BAR_SHARE, ChunkLayout, MemoryKind, OUTPUT_CHUNKS};
use crate::recv::{chunk_bytes, receive_bytes};

const MIB: u64 = 1 << 20;
/// Bytes of the program itself: its text, stacks, what control, metrics and the live page keep.
const PROGRAM: u64 = 96 << 20;
/// Bytes of the host's memory that CUDA takes for a process: its libraries, compiled kernels, the
/// driver's own.
const CUDA_ON_HOST: u64 = 400 << 20;
/// Bytes of the GPU's memory that CUDA takes for a process.
const CUDA_ON_GPU: u64 = 520 << 20;

/// An engine needs more memory than there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct DemandError(Box<Shortage>);

/// By how much, and what lowers it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} {}: {} would take {} MiB and the whole run {} MiB, but {available}; lower {}",
    .largest.option, .largest.value, .largest.what, .largest.bytes.div_ceil(MIB), .needed.div_ceil(MIB), .ways
)]
struct Shortage {
    /// The largest demand that an option lowers.
    largest: Demand,
    /// Bytes of all demands.
    needed: u64,
    /// What there is.
    available: Available,
    /// Options that lower it, and how much each stands for.
    ways: String,
}

/// Memory that this process may still take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// The control group that says so, if the host has more.
    pub group: Option<PathBuf>,
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB are available", self.bytes / MIB)?;
        match &self.group {
            Some(file) => write!(f, " ({})", file.display()),
            None => Ok(()),
        }
    }
}

/// One use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What it is for.
    pub what: String,
    /// How much.
    pub bytes: u64,
    /// The option that it follows from.
    pub option: String,
    /// The option's value.
    pub value: usize,
}

impl Demand {
    fn fixed(what: &str, bytes: u64, option: &str) -> Self {
        Self {
            what: what.to_owned(),
            bytes,
            option: option.to_owned(),
            value: 0,
        }
    }

    /// Demands of an engine with spare receive chunks and so many compute threads.
    pub fn of(engine: &EngineConfig, spare_chunks: usize, workers: usize) -> Vec<Self> {
        Self::on_host(engine, spare_chunks, workers, MemoryKind::Host)
    }

    /// What a live process takes beside its engine, on the host.
    pub fn of_process(on_gpu: bool) -> Vec<Self> {
        let cuda = on_gpu.then(|| Self::fixed("CUDA", CUDA_ON_HOST, ""));
        let program = Self::fixed("the program", PROGRAM, "");
        [program].into_iter().chain(cuda).collect()
    }

    /// Demands on the host's memory of an engine whose receive chunks are of `kind`.
    pub fn on_host(
        engine: &EngineConfig,
        spare_chunks: usize,
        workers: usize,
        kind: MemoryKind,
    ) -> Vec<Self> {
        let mut demands = match kind {
            MemoryKind::Bar => Vec::new(),
            MemoryKind::Host | MemoryKind::Pinned => Self::received(engine, spare_chunks, kind),
            MemoryKind::Mixed => Self::share(engine, spare_chunks, 1.0 - BAR_SHARE),
        };
        for output in &engine.outputs {
            demands.push(Self::output(engine, output));
            if kind == MemoryKind::Host {
                demands.extend(Self::cpu_pipeline(engine, output, workers));
            }
        }
        demands
    }

    /// Demands on a GPU's memory of an engine whose receive chunks are of `kind`.
    pub fn on_gpu(engine: &EngineConfig, spare_chunks: usize, kind: MemoryKind) -> Vec<Self> {
        let mut demands = vec![Self::fixed("CUDA", CUDA_ON_GPU, "")];
        match kind {
            MemoryKind::Bar => demands.extend(Self::received(engine, spare_chunks, kind)),
            MemoryKind::Mixed => demands.extend(Self::share(engine, spare_chunks, BAR_SHARE)),
            MemoryKind::Host | MemoryKind::Pinned => {}
        }
        if kind != MemoryKind::Bar {
            let layout = ChunkLayout::new(&engine.recv, engine.tail_samples());
            demands.push(Self {
                what: "copies of receive chunks".to_owned(),
                bytes: (gpu::COPIES * layout.bytes()) as u64,
                option: "--recv-chunk-samples".to_owned(),
                value: engine.recv.chunk_samples,
            });
        }
        for output in &engine.outputs {
            demands.push(Self::output(engine, output));
            let batches = engine.send.chunk_jones / output.jones_per_batch;
            demands.push(Self {
                what: format!("intermediates of '{}'", output.name),
                bytes: gpu::intermediate_bytes(output, batches) as u64,
                option: "--send-chunk-jones".to_owned(),
                value: engine.send.chunk_jones,
            });
        }
        demands
    }

    /// The share of mixed receive chunks that is of one kind, rounded up.
    fn share(engine: &EngineConfig, spare_chunks: usize, share: f64) -> Vec<Self> {
        let mut demands = Self::received(engine, spare_chunks, MemoryKind::Mixed);
        for demand in &mut demands {
            demand.bytes = (demand.bytes as f64 * share).ceil() as u64;
        }
        demands
    }

    fn received(engine: &EngineConfig, spare_chunks: usize, kind: MemoryKind) -> Vec<Self> {
        let (recv, tail) = (&engine.recv, engine.tail_samples());
        vec![
            Self {
                what: "receive chunks".to_owned(),
                bytes: receive_bytes(recv, tail, kind),
                option: "--recv-chunk-samples".to_owned(),
                value: recv.chunk_samples,
            },
            Self {
                what: "spare receive chunks".to_owned(),
                bytes: (spare_chunks as u64).saturating_mul(chunk_bytes(recv, tail)),
                option: "--recv-spare-chunks".to_owned(),
                value: spare_chunks,
            },
        ]
    }

    fn output(engine: &EngineConfig, output: &OutputConfig) -> Self {
        let batches = (engine.send.chunk_jones / output.jones_per_batch) as u64;
        Self {
            what: format!("output chunks of '{}'", output.name),
            bytes: (OUTPUT_CHUNKS as u64 * batches).saturating_mul(output.batch_bytes() as u64),
            option: "--send-chunk-jones".to_owned(),
            value: engine.send.chunk_jones,
        }
    }

    /// What the CPU computes an output in.
    fn cpu_pipeline(engine: &EngineConfig, output: &OutputConfig, workers: usize) -> Vec<Self> {
        let samples = engine.recv.chunk_samples + engine.tail_samples();
        let baseband = output.narrowband.as_ref().map(|_| Self {
            what: format!("the baseband of '{}'", output.name),
            // Two polarisations of complex numbers for each subsampled sample of a chunk and its
            // tail.
            bytes: 16 * (samples / output.subsampling()) as u64,
            option: "--recv-chunk-samples".to_owned(),
            value: engine.recv.chunk_samples,
        });
        let filters = Self {
            what: format!("filters of '{}'", output.name),
            bytes: filter_bytes(output, workers as u64),
            option: format!("{} taps of '{}'", output.option(), output.name),
            value: output.taps,
        };
        baseband.into_iter().chain([filters]).collect()
    }

    /// Refuses demands that together do not fit the memory that is available now.
    pub fn check(demands: Vec<Self>) -> Result<(), DemandError> {
        match Available::now() {
            Some(available) => compare(demands, available),
            None => Ok(()),
        }
    }

    /// Bytes of all of them.
    pub fn sum(demands: &[Self]) -> u64 {
        demands
            .iter()
            .fold(0, |sum, demand| sum.saturating_add(demand.bytes))
    }
}

fn compare(demands: Vec<Demand>, available: Available) -> Result<(), DemandError> {
    let needed = Demand::sum(&demands);
    if needed <= available.bytes {
        return Ok(());
    }
    let lowered = |demand: &&Demand| !demand.option.is_empty();
    let largest = demands
        .iter()
        .filter(lowered)
        .max_by_key(|demand| demand.bytes);
    let Some(largest) = largest.or(demands.first()) else {
        return Ok(());
    };
    Err(DemandError(Box::new(Shortage {
        largest: largest.clone(),
        needed,
        available,
        ways: ways(&demands),
    })))
}

/// Options in order of the memory that they stand for, the largest first; those that stand for
/// little are left out.
fn ways(demands: &[Demand]) -> String {
    const LITTLE: u64 = 32;
    let least = Demand::sum(demands) / LITTLE;
    let mut options: Vec<(&str, u64)> = Vec::new();
    for demand in demands.iter().filter(|demand| !demand.option.is_empty()) {
        match options.iter_mut().find(|(name, _)| *name == demand.option) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(demand.bytes),
            None => options.push((&demand.option, demand.bytes)),
        }
    }
    options.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let all = options.iter().enumerate();
    let some = all.filter(|(number, (_, bytes))| *number == 0 || *bytes >= least);
    let some = some.map(|(_, (name, bytes))| format!("{name} ({} MiB)", bytes.div_ceil(MIB)));
    some.collect::<Vec<_>>().join(", ")
}

/// Coefficients in both precisions, and each worker's rows: about what the CPU backend allocates.
fn filter_bytes(output: &OutputConfig, workers: u64) -> u64 {
    const GROUP: u64 = 16;
    const TILE: u64 = 128;
    let (channels, taps) = (output.channels as u64, output.taps as u64);
    let step = output.pfb_step() as u64;
    let weights = 12 * taps * step;
    // Wideband has both polarisations in one transform.
    let transforms = output.narrowband.as_ref().map_or(1, |_| 2);
    let rows = GROUP * (8 * step * transforms + 4 * channels);
    let samples = (GROUP + taps) * TILE * 8;
    weights.saturating_add(workers.saturating_mul(rows + samples))
}

impl Available {
    /// What this process may take now; `None` where the system does not tell.
    pub fn now() -> Option<Self> {
        Self::under(&Root::host())
    }

    /// Bytes that the system under `root`, and every control group that this process is in, still
    /// give.
    fn under(root: &Root) -> Option<Self> {
        let meminfo = root.read("/proc/meminfo")?;
        let system = meminfo.lines().find_map(|line| {
            let kib = line.strip_prefix("MemAvailable:")?.trim();
            kib.strip_suffix("kB")?.trim().parse::<u64>().ok()
        })? * 1024;
        let groups = root.read("/proc/self/cgroup").unwrap_or_default();
        let of = |version: &Version| {
            // A service's own group, and the slices that it is in. Containers see theirs as the
            // topmost.
            let own = groups.lines().find_map(|line| version.group(line));
            let groups = Path::new(own.unwrap_or("/")).ancestors();
            let left = groups.filter_map(|group| version.left(root, group));
            left.min_by_key(|left| left.bytes)
        };
        let whole = Self {
            bytes: system,
            group: None,
        };
        let left = VERSIONS.iter().filter_map(of);
        left.chain([whole]).min_by_key(|left| left.bytes)
    }
}

/// How a version of control groups tells of memory.
struct Version {
    /// The list of controllers in a line of `/proc/self/cgroup`.
    controllers: &'static str,
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Of cached files, in `memory.stat`.
    cached: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version {
        controllers: "",
        folder: "/sys/fs/cgroup",
        limit: "memory.max",
        used: "memory.current",
        cached: ["active_file", "inactive_file"],
    },
    Version {
        controllers: "memory",
        folder: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cached: ["total_active_file", "total_inactive_file"],
    },
];

impl Version {
    /// The group that a line of `/proc/self/cgroup` names, if it is of this version.
    fn group<'a>(&self, line: &'a str) -> Option<&'a str> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let ours = controllers.split(',').any(|name| name == self.controllers);
        ours.then_some(group)
    }

    /// Bytes that a control group still gives; `None` if it has no limit.
    fn left(&self, root: &Root, group: &Path) -> Option<Available> {
        let group = group.strip_prefix("/").unwrap_or(group);
        let folder = Path::new(self.folder).join(group);
        let file = folder.join(self.limit);
        let limit: u64 = root.parse(&file)?;
        let used: u64 = root.parse(folder.join(self.used)).unwrap_or(0);
        // Cached files count as used, and are given up when memory is needed: MemAvailable counts
        // them as available too.
        let stat = root.read(folder.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            let bytes: u64 = bytes.parse().ok()?;
            self.cached.contains(&name).then_some(bytes)
        });
        let used = used.saturating_sub(cached.sum());
        Some(Available {
            bytes: limit.saturating_sub(used),
            group: Some(file),
        })
    }
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;

//! How much memory an engine takes, compared with what there is before anything starts.
//!
//! Memory is only reserved when it is allocated: without this, a run that cannot fit would be
//! killed somewhere in its middle.

use std::path::Path;

use host::topology::Root;

use crate::config::{EngineConfig, OutputConfig};
use crate::memory::{MemoryKind, OUTPUT_CHUNKS};
use crate::recv::{chunk_bytes, receive_bytes};

/// An engine needs more memory than there is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{option} {value}: {what} would take {} MiB and the whole run {} MiB, but {} MiB are available; lower {option}",
    .bytes >> 20, .needed >> 20, .available >> 20
)]
pub struct DemandError {
    /// The largest demand.
    what: String,
    /// Its bytes.
    bytes: u64,
    /// The option that it follows from.
    option: String,
    /// The option's value.
    value: usize,
    /// Bytes of all demands.
    needed: u64,
    /// Bytes that there are.
    available: u64,
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
    /// Demands of an engine with spare receive chunks and so many compute threads.
    pub fn of(engine: &EngineConfig, spare_chunks: usize, workers: usize) -> Vec<Self> {
        let (recv, tail) = (&engine.recv, engine.tail_samples());
        let mut demands = vec![
            Self {
                what: "receive chunks".to_owned(),
                bytes: receive_bytes(recv, tail, MemoryKind::Host),
                option: "--recv-chunk-samples".to_owned(),
                value: recv.chunk_samples,
            },
            Self {
                what: "spare receive chunks".to_owned(),
                bytes: (spare_chunks as u64).saturating_mul(chunk_bytes(recv, tail)),
                option: "--recv-spare-chunks".to_owned(),
                value: spare_chunks,
            },
        ];
        for output in &engine.outputs {
            let batches = (engine.send.chunk_jones / output.jones_per_batch) as u64;
            demands.push(Self {
                what: format!("output chunks of '{}'", output.name),
                bytes: (OUTPUT_CHUNKS as u64 * batches).saturating_mul(output.batch_bytes() as u64),
                option: "--send-chunk-jones".to_owned(),
                value: engine.send.chunk_jones,
            });
            if output.narrowband.is_some() {
                // Two polarisations of complex numbers for each subsampled sample of a chunk and
                // its tail.
                let samples = (recv.chunk_samples + tail) / output.subsampling();
                demands.push(Self {
                    what: format!("the baseband of '{}'", output.name),
                    bytes: 16 * samples as u64,
                    option: "--recv-chunk-samples".to_owned(),
                    value: recv.chunk_samples,
                });
            }
            demands.push(Self {
                what: format!("filters of '{}'", output.name),
                bytes: filter_bytes(output, workers as u64),
                option: format!("{} taps of '{}'", output.option(), output.name),
                value: output.taps,
            });
        }
        demands
    }

    /// Refuses demands that together do not fit the memory that is available now.
    pub fn check(demands: Vec<Self>) -> Result<(), DemandError> {
        match available(&Root::host()) {
            Some(available) => compare(demands, available),
            None => Ok(()),
        }
    }
}

fn compare(demands: Vec<Demand>, available: u64) -> Result<(), DemandError> {
    let needed = demands
        .iter()
        .fold(0u64, |sum, demand| sum.saturating_add(demand.bytes));
    match demands.into_iter().max_by_key(|demand| demand.bytes) {
        Some(largest) if needed > available => Err(DemandError {
            what: largest.what,
            bytes: largest.bytes,
            option: largest.option,
            value: largest.value,
            needed,
            available,
        }),
        _ => Ok(()),
    }
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

/// Bytes that the system under `root`, and every control group that this process is in, still give.
fn available(root: &Root) -> Option<u64> {
    let meminfo = root.read("/proc/meminfo")?;
    let system = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.strip_suffix("kB")?.trim().parse::<u64>().ok()
    })? * 1024;
    // A service's own group, and the slices that it is in. Containers see theirs as the topmost.
    let groups = root.read("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let groups = Path::new(own.unwrap_or("/")).ancestors();
    let left = groups.filter_map(|group| left_in_group(root, group));
    Some(left.fold(system, u64::min))
}

/// Bytes that a control group still gives; `None` if it has no limit.
fn left_in_group(root: &Root, group: &Path) -> Option<u64> {
    let group = group.strip_prefix("/").unwrap_or(group);
    let folder = Path::new("/sys/fs/cgroup").join(group);
    let limit: u64 = root.parse(folder.join("memory.max"))?;
    let used: u64 = root.parse(folder.join("memory.current")).unwrap_or(0);
    // Cached files count as used, and are given up when memory is needed: MemAvailable counts them
    // as available too.
    let stat = root.read(folder.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        let bytes: u64 = bytes.parse().ok()?;
        ["active_file", "inactive_file"]
            .contains(&name)
            .then_some(bytes)
    });
    let used = used.saturating_sub(cached.sum());
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn demand(what: &str, bytes: u64) -> Demand {
        Demand {
            what: what.to_owned(),
            bytes,
            option: format!("--{what}"),
            value: 1,
        }
    }

    #[test]
    fn the_largest_demand_is_named_when_the_sum_does_not_fit() {
        let demands = || vec![demand("a", 1 << 20), demand("b", 3 << 20)];
        assert_eq!(compare(demands(), 4 << 20), Ok(()));
        let error = compare(demands(), (4 << 20) - 1).unwrap_err().to_string();
        assert!(
            error.contains("lower --b") && error.contains("3 MiB"),
            "{error}"
        );
        let endless = vec![demand("a", u64::MAX), demand("b", u64::MAX)];
        assert!(compare(endless, u64::MAX - 1).is_err());
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(available(&root), None);
        write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n");
        assert_eq!(available(&root), Some(8000 << 10));
        // A container without groups that it could be told of.
        write("sys/fs/cgroup/memory.max", "7000000\n");
        assert_eq!(available(&root), Some(7_000_000));
        let groups = "4:memory:/other\n0::/karoo.slice/karoo-engine.service\n";
        write("proc/self/cgroup", groups);
        assert_eq!(available(&root), Some(7_000_000));
        let slice = "sys/fs/cgroup/karoo.slice";
        write(&format!("{slice}/memory.max"), "6000000\n");
        write(&format!("{slice}/memory.current"), "3500000\n");
        assert_eq!(available(&root), Some(2_500_000));
        let stat = "anon 2000000\nfile 1500000\ninactive_file 1000000\nactive_file 500000\n";
        write(&format!("{slice}/memory.stat"), stat);
        assert_eq!(available(&root), Some(4_000_000));
        let service = format!("{slice}/karoo-engine.service");
        write(&format!("{service}/memory.current"), "10\n");
        write(&format!("{service}/memory.max"), "max\n");
        assert_eq!(available(&root), Some(4_000_000));
        write(&format!("{service}/memory.max"), "1000\n");
        assert_eq!(available(&root), Some(990));
        // More than a limit that was lowered since.
        write(&format!("{service}/memory.max"), "9\n");
        assert_eq!(available(&root), Some(0));
    }
}

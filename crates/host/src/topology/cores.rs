//! How far apart CPUs are: as `karoo bench cores` measured, or as the topology suggests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ground::files::read_text;
use serde::{Deserialize, Serialize};

use super::Machine;

/// What `karoo bench cores` measured between the CPUs of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CoreTimes {
    /// The processor's name.
    pub model: String,
    /// The CPUs, in the order of rows and columns.
    pub cpus: Vec<usize>,
    /// Nanoseconds from a store of the row's CPU until the column's sees it, as half a round trip;
    /// 0 on the diagonal.
    pub latency_ns: Vec<Vec<f64>>,
    /// 10⁹ bytes per second that the column's CPU reads of what the row's wrote last; on the
    /// diagonal, of its own.
    pub gigabytes_per_second: Vec<Vec<f64>>,
}

/// Measurements that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CoresError {
    /// The file cannot be read.
    #[error("--cores-file {path}: {source}; karoo bench cores --output FILE makes one")]
    Read {
        /// File.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what `karoo bench cores` writes.
    #[error("--cores-file {path}: {why}; karoo bench cores --output FILE makes one")]
    Format {
        /// File.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl CoreTimes {
    /// Where measurements of this host are kept.
    pub const CACHE: &str = "/var/lib/karoo/cores.json";

    /// Reads a file that `karoo bench cores` wrote.
    pub fn read(path: &Path) -> Result<Self, CoresError> {
        let text = read_text(path).map_err(|source| CoresError::Read {
            path: path.to_owned(),
            source,
        })?;
        let wrong = |why: String| CoresError::Format {
            path: path.to_owned(),
            why,
        };
        let times: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let square = |table: &[Vec<f64>]| {
            let count = times.cpus.len();
            let whole = |row: &Vec<f64>| row.len() == count && row.iter().all(|v| v.is_finite());
            table.len() == count && table.iter().all(whole)
        };
        if !square(&times.latency_ns) || !square(&times.gigabytes_per_second) {
            return Err(wrong(
                "its tables have not a row and a column for each CPU".to_owned(),
            ));
        }
        Ok(times)
    }

    fn latency(&self, from: usize, to: usize) -> Option<f64> {
        let index = |cpu| self.cpus.iter().position(|&other| other == cpu);
        let (from, to) = (index(from)?, index(to)?);
        // A round trip takes both ways.
        Some((self.latency_ns[from][to] + self.latency_ns[to][from]) / 2.0)
    }
}

/// Distances between CPUs.
#[derive(Debug)]
pub struct Distances<'a> {
    machine: &'a Machine,
    measured: Option<&'a CoreTimes>,
}

impl<'a> Distances<'a> {
    /// By measurement where there is one of this kind of host, else by topology.
    pub fn new(machine: &'a Machine, measured: Option<&'a CoreTimes>) -> Self {
        let measured = measured.filter(|times| times.model == machine.model);
        Self { machine, measured }
    }

    /// Whether anything was measured.
    pub fn are_measured(&self) -> bool {
        self.measured.is_some()
    }

    /// Nanoseconds between two CPUs. Where none were measured, what is usual between siblings,
    /// within a cache, within a socket and between sockets: only their order means anything.
    pub fn between(&self, a: usize, b: usize) -> f64 {
        if let Some(latency) = self.measured.and_then(|times| times.latency(a, b)) {
            return latency;
        }
        let cpus: &BTreeMap<_, _> = &self.machine.cpus;
        match (cpus.get(&a), cpus.get(&b)) {
            (Some(one), Some(_)) if one.siblings.contains(b) => 10.0,
            (Some(one), Some(other)) if one.l3 == other.l3 && one.node == other.node => 25.0,
            (Some(one), Some(other)) if one.package == other.package => 100.0,
            _ => 200.0,
        }
    }
}

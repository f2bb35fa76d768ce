//! How much memory an engine takes, compared with what there is before anything starts.
//!
//! Memory is only reserved when it is allocated: without this, a run that cannot fit would be killed
//! somewhere in its middle.

use std::fs;

use super::OUTPUT_CHUNKS;
use crate::config::{EngineConfig, OutputConfig};
use crate::memory::MemoryKind;
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
    /// Those of an engine with spare receive chunks and so many compute threads.
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
                // Two polarisations of complex numbers for each subsampled sample of a chunk and its tail.
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
        match available() {
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

/// Bytes that the system, and the control group if there is one, still give.
fn available() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let system = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.strip_suffix("kB")?.trim().parse::<u64>().ok()
    })? * 1024;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|limit| limit.trim().parse::<u64>().ok());
    Some(group.map_or(system, |limit| limit.min(system)))
}

#[cfg(test)]
mod tests {
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
}

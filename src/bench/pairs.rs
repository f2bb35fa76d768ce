//! What passes in queues between several pairs of CPUs at once, by size and by the way that blocks
//! pass.

use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use ground::os::run_on;
use karoo_flow::place::block_ends;
use karoo_flow::run::Transfer;
use schemars::JsonSchema;
use serde::Serialize;

use super::queues::name;

/// How long all pairs pass blocks in a measurement.
const TIME: Duration = Duration::from_millis(50);
/// Blocks in a queue.
const SLOTS: usize = 8;
/// Looks before a thread lets others run.
const LOOKS: u32 = 10_000;

/// Blocks of one size in one way, in all pairs at once.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PairsRow {
    /// How blocks pass, as in rows of one pair.
    pub transfer: String,
    /// Bytes of a block.
    pub bytes: u64,
    /// 10⁹ bytes a second of each pair, in the order of the pairs.
    pub gigabytes_per_second: Vec<f64>,
    /// Their sum.
    pub sum: f64,
    /// 10⁹ bytes a second of the first pair alone, measured in the same way.
    pub alone: f64,
}

/// Pairs could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PairsError {
    /// For a queue.
    #[error("no memory for blocks of {bytes} bytes: give fewer --pairs or smaller --bytes")]
    Memory {
        /// Bytes of a block.
        bytes: usize,
    },
    /// For an end of a queue.
    #[error("threads for --pairs cannot be started: {0}; give fewer pairs")]
    Thread(#[from] io::Error),
}

/// Measures all ways for blocks of some sizes, in bytes, from the first CPU of each pair to its
/// second one, in all pairs at the same time. Of so many `rounds` the one with the highest sum
/// counts. The first pair is measured alone, too.
///
/// # Errors
///
/// There is no memory for a queue, or no thread for an end of one.
pub fn measure_pairs(
    pairs: &[(usize, usize)],
    sizes: &[usize],
    rounds: usize,
) -> Result<Vec<PairsRow>, PairsError> {
    let sum = |rates: &Vec<f64>| rates.iter().sum::<f64>();
    let best = |bytes: usize, transfer: Transfer, pairs: &[(usize, usize)]| {
        let all = (0..rounds).map(|_| at_once(transfer, bytes, pairs));
        let all: Vec<Vec<f64>> = all.collect::<Result<_, _>>()?;
        let best = all.into_iter().max_by(|a, b| sum(a).total_cmp(&sum(b)));
        Ok::<_, PairsError>(best.unwrap_or_default())
    };
    let row = |(bytes, transfer): (usize, Transfer)| {
        let alone = best(bytes, transfer, &pairs[..pairs.len().min(1)])?;
        let rates = best(bytes, transfer, pairs)?;
        Ok(PairsRow {
            transfer: name(transfer).to_owned(),
            bytes: bytes as u64,
            sum: sum(&rates),
            gigabytes_per_second: rates,
            alone: sum(&alone),
        })
    };
    let all = sizes
        .iter()
        .flat_map(|bytes| Transfer::ALL.map(|way| (*bytes, way)));
    all.map(row).collect()
}

/// Where a measurement is.
const WAITS: u8 = 0;
const RUNS: u8 = 1;
const ENDS: u8 = 2;

/// What all threads of a measurement look at.
#[derive(Default)]
struct State {
    /// Threads that are on their CPUs.
    ready: AtomicUsize,
    phase: AtomicU8,
}

impl State {
    fn is(&self, phase: u8) -> bool {
        self.phase.load(Ordering::Acquire) == phase
    }

    /// Waits on the thread's CPU until all begin.
    fn begin(&self, cpu: usize) {
        let _ = run_on([cpu]);
        self.ready.fetch_add(1, Ordering::AcqRel);
        while self.is(WAITS) {
            thread::yield_now();
        }
    }

    /// Does something again and again until all end; how often it said that it was done.
    fn repeat(&self, mut done: impl FnMut() -> bool) -> u64 {
        let (mut count, mut looks) = (0, 0);
        while self.is(RUNS) {
            if done() {
                (count, looks) = (count + 1, 0);
            } else if looks < LOOKS {
                looks += 1;
                spin_loop();
            } else {
                thread::yield_now();
            }
        }
        count
    }
}

/// 10⁹ bytes a second of each pair.
fn at_once(
    transfer: Transfer,
    bytes: usize,
    pairs: &[(usize, usize)],
) -> Result<Vec<f64>, PairsError> {
    let state = State::default();
    thread::scope(|scope| {
        let begun = pairs
            .iter()
            .map(|&cpus| pair(scope, &state, transfer, bytes, cpus));
        let readers: Result<Vec<_>, PairsError> = begun.collect();
        if readers.is_ok() {
            while state.ready.load(Ordering::Acquire) < 2 * pairs.len() {
                thread::yield_now();
            }
            state.phase.store(RUNS, Ordering::Release);
            thread::sleep(TIME);
        }
        // Also where one thread could not be started: the others wait.
        state.phase.store(ENDS, Ordering::Release);
        let rates = readers?.into_iter().map(ScopedJoinHandle::join);
        Ok(rates.flatten().collect())
    })
}

/// Starts the threads of a pair; the second says how much came.
fn pair<'s>(
    scope: &'s Scope<'s, '_>,
    state: &'s State,
    transfer: Transfer,
    bytes: usize,
    (from, to): (usize, usize),
) -> Result<ScopedJoinHandle<'s, f64>, PairsError> {
    let words = bytes.div_ceil(8);
    let ends = block_ends(transfer, words, SLOTS);
    let (mut writer, mut reader) = ends.ok_or(PairsError::Memory { bytes })?;
    Builder::new().spawn_scoped(scope, move || {
        let mut own = vec![0; words];
        state.begin(from);
        state.repeat(|| writer.write(&mut own));
    })?;
    let reader = Builder::new().spawn_scoped(scope, move || {
        let (mut own, mut target) = (vec![0; words], vec![0; words]);
        state.begin(to);
        let begin = Instant::now();
        let blocks = state.repeat(|| {
            let came = reader.read(&mut own, &mut target);
            black_box(&target);
            came
        });
        let bytes = 8 * words as u64 * blocks;
        bytes as f64 / begin.elapsed().as_nanos().max(1) as f64
    })?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use ground::os::allowed_cpus;

    use super::*;

    #[test]
    fn every_pair_is_measured_in_every_way() {
        let cpus = allowed_cpus();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        let rows = measure_pairs(&[(first, last), (last, first)], &[64, 4096], 1).unwrap();
        let measured: Vec<(u64, &str)> = rows
            .iter()
            .map(|row| (row.bytes, row.transfer.as_str()))
            .collect();
        let of = |bytes| Transfer::ALL.map(|way| (bytes, name(way)));
        assert_eq!(measured, [of(64), of(4096)].concat());
        for row in &rows {
            let rates = &row.gigabytes_per_second;
            assert_eq!(rates.len(), 2, "{row:?}");
            assert_eq!(row.sum, rates[0] + rates[1]);
            assert!(row.alone > 0.0, "{row:?}");
        }
    }
}

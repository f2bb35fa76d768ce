//! Which way a block passes a queue fastest, by its size: measured between two cores.

use std::hint::{black_box, spin_loop};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::ends::block_ends;
use crate::run::Transfer;

/// Bytes of the blocks that are measured.
const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16_384, 65_536];
/// Bytes that pass in a measurement, and blocks at the least and at the most.
const BYTES: usize = 1 << 20;
const BLOCKS: (usize, usize) = (32, 1024);
/// Measurements of each: the least counts.
const ROUNDS: usize = 3;
/// Time for all. Where other programs take it, some sizes are left out.
const LONGEST: Duration = Duration::from_millis(300);
/// Blocks in the queue.
const CAPACITY: usize = 8;
/// Looks before a thread lets others run.
const LOOKS: u32 = 1000;
/// How much faster another way must be than the usual one.
const WORTH: f64 = 0.95;

/// What a block takes from one core to another, with what each end does to put signals into it and
/// to take them out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferCost {
    /// The way.
    pub transfer: Transfer,
    /// Bytes of the block.
    pub bytes: u64,
    /// Nanoseconds, when one follows the other.
    pub ns: f64,
}

/// The fastest way for blocks of some size; in place, where none is clearly faster.
pub fn fastest(costs: &[TransferCost], bytes: u64) -> Transfer {
    let usual = time(costs, Transfer::InPlace, bytes);
    let others = Transfer::ALL.iter().filter_map(|&transfer| {
        let time = time(costs, transfer, bytes)?;
        usual
            .is_none_or(|usual| time < WORTH * usual)
            .then_some((transfer, time))
    });
    others
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(Transfer::InPlace, |best| best.0)
}

/// What blocks take by the fastest way, by their bytes: none less than a shorter one.
pub(super) fn times(costs: &[TransferCost]) -> Vec<(f64, f64)> {
    let mut sizes: Vec<u64> = costs.iter().map(|cost| cost.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut least = 0.0f64;
    let of = |bytes: u64| {
        let own = costs.iter().filter(|cost| cost.bytes == bytes);
        let best = own.map(|cost| cost.ns).fold(f64::INFINITY, f64::min);
        least = least.max(best);
        (bytes as f64, least)
    };
    sizes
        .into_iter()
        .filter(|&bytes| bytes > 0)
        .map(of)
        .collect()
}

/// Nanoseconds of a block of some size, between those that were measured.
fn time(costs: &[TransferCost], transfer: Transfer, bytes: u64) -> Option<f64> {
    let own = || costs.iter().filter(|cost| cost.transfer == transfer);
    let below = own()
        .filter(|cost| cost.bytes <= bytes)
        .max_by_key(|cost| cost.bytes);
    let above = own()
        .filter(|cost| cost.bytes >= bytes)
        .min_by_key(|cost| cost.bytes);
    match (below, above) {
        (Some(a), Some(b)) if a.bytes < b.bytes => {
            let share = (bytes - a.bytes) as f64 / (b.bytes - a.bytes) as f64;
            Some(a.ns + share * (b.ns - a.ns))
        }
        (Some(one), _) | (None, Some(one)) => Some(one.ns),
        (None, None) => None,
    }
}

/// Measures all ways and some sizes from `cpu` to another CPU of this process, in a moment; nothing
/// if there is none.
pub(super) fn measure(cpu: Option<usize>) -> Vec<TransferCost> {
    let cpus: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect();
    let wanted = |known: usize| cpu.is_none_or(|cpu| cpu == known);
    let Some(&from) = cpus.iter().find(|&&known| wanted(known)) else {
        return Vec::new();
    };
    let Some(&to) = cpus.iter().find(|&&known| known != from) else {
        return Vec::new();
    };
    measure_transfers((from, to), &SIZES, ROUNDS, Some(LONGEST))
}

/// Measures all ways for blocks of some sizes, in bytes, from one CPU to another. Of so many
/// `rounds` the least counts. After the time `longest` sizes are left out.
pub fn measure_transfers(
    cpus: (usize, usize),
    sizes: &[usize],
    rounds: usize,
    longest: Option<Duration>,
) -> Vec<TransferCost> {
    let begin = Instant::now();
    let mut costs = Vec::new();
    for &bytes in sizes {
        let all = costs.len();
        for transfer in Transfer::ALL {
            if longest.is_some_and(|longest| begin.elapsed() > longest) {
                costs.truncate(all);
                return costs;
            }
            let once = |_| pass(transfer, bytes.max(8), cpus);
            let ns = (0..rounds).filter_map(once).fold(f64::INFINITY, f64::min);
            costs.extend(ns.is_finite().then_some(TransferCost {
                transfer,
                bytes: bytes as u64,
                ns,
            }));
        }
    }
    costs
}

fn until(mut ready: impl FnMut() -> bool) {
    for look in 0u32.. {
        if ready() {
            return;
        }
        if look < LOOKS {
            spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// Nanoseconds of a block between two CPUs.
fn pass(transfer: Transfer, bytes: usize, (from, to): (usize, usize)) -> Option<f64> {
    let words = bytes.div_ceil(8);
    let blocks = (BYTES / bytes).clamp(BLOCKS.0, BLOCKS.1);
    let (mut writer, mut reader) = block_ends(transfer, words, CAPACITY)?;
    let write = move |own: &mut [u64]| until(|| writer.write(own));
    let read = move |own: &mut [u64], target: &mut [u64]| until(|| reader.read(own, target));
    Some(time_of(blocks, words, (from, to), write, read))
}

/// Nanoseconds of a block, of so many, once both threads are on their CPUs.
fn time_of(
    blocks: usize,
    words: usize,
    (from, to): (usize, usize),
    mut write: impl FnMut(&mut [u64]) + Send,
    mut read: impl FnMut(&mut [u64], &mut [u64]) + Send,
) -> f64 {
    let pin = |id| core_affinity::set_for_current(core_affinity::CoreId { id });
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(from);
            let mut own = vec![0; words];
            (0..blocks + CAPACITY).for_each(|_| write(&mut own));
        });
        let reader = scope.spawn(move || {
            pin(to);
            let (mut own, mut target) = (vec![0; words], vec![0; words]);
            (0..CAPACITY).for_each(|_| read(&mut own, &mut target));
            let begin = Instant::now();
            for _ in 0..blocks {
                read(&mut own, &mut target);
                black_box(&target);
            }
            begin.elapsed().as_nanos() as f64 / blocks as f64
        });
        reader.join().unwrap_or(f64::INFINITY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(transfer: Transfer, bytes: u64, ns: f64) -> TransferCost {
        TransferCost {
            transfer,
            bytes,
            ns,
        }
    }

    #[test]
    fn the_fastest_way_is_found_between_the_sizes_that_were_measured() {
        let costs = [
            cost(Transfer::InPlace, 64, 20.0),
            cost(Transfer::InPlace, 4096, 400.0),
            cost(Transfer::Marked, 64, 10.0),
            cost(Transfer::Marked, 4096, 600.0),
            cost(Transfer::Streaming, 4096, 300.0),
        ];
        assert_eq!(fastest(&costs, 8), Transfer::Marked);
        assert_eq!(fastest(&costs, 100), Transfer::Marked);
        assert_eq!(fastest(&costs, 4096), Transfer::Streaming);
        assert_eq!(fastest(&costs, 1 << 20), Transfer::Streaming);
        assert_eq!(fastest(&costs[..2], 100), Transfer::InPlace);
        // Hardly faster is not faster.
        let near = [
            cost(Transfer::InPlace, 64, 20.0),
            cost(Transfer::Copying, 64, 19.5),
        ];
        assert_eq!(fastest(&near, 64), Transfer::InPlace);
        assert_eq!(fastest(&[], 64), Transfer::InPlace);
    }

    #[test]
    fn every_way_is_measured_between_two_cpus() {
        let cpus = core_affinity::get_core_ids().unwrap_or_default();
        let [from, to, ..] = &cpus[..] else {
            assert!(measure(None).is_empty());
            return;
        };
        // A busy machine may take long.
        let costs = measure_transfers((from.id, to.id), &[64, 4096], 1, None);
        let measured: Vec<_> = costs
            .iter()
            .map(|cost| (cost.bytes, cost.transfer))
            .collect();
        let of = |bytes| Transfer::ALL.map(|transfer| (bytes, transfer));
        assert_eq!(measured, [of(64), of(4096)].concat());
        assert!(costs.iter().all(|cost| cost.ns > 0.0));
    }
}

//! What blocks take from one CPU to another, by size and by the way that they pass.

use std::thread;
use std::time::Instant;

use ground::os::run_on;
use karoo_flow::place::{TransferCost, measure_transfers};
use karoo_flow::queue::{marked, queue};
use karoo_flow::run::Transfer;
use schemars::JsonSchema;
use serde::Serialize;

use super::until;

/// Blocks that go there and back.
const ROUND_TRIPS: usize = 500;

/// Blocks of one size in one way.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct QueueRow {
    /// How blocks pass: `in_place`, `copying` and `streaming` through a ring with counts, `marked`
    /// and `marked_copying` through one whose slots tell that they are full.
    pub transfer: String,
    /// Bytes of a block.
    pub bytes: u64,
    /// Nanoseconds of a block when one follows the other, with its copies from signals and to them.
    pub ns: f64,
    /// 10⁹ bytes a second.
    pub gigabytes_per_second: f64,
    /// Nanoseconds of a block to the other CPU and back, through two queues; of copies alone.
    pub there_and_back_ns: Option<f64>,
}

/// Measures all ways for some sizes from one CPU to another. The least of `rounds` counts.
pub fn measure_queues(cpus: (usize, usize), sizes: &[usize], rounds: usize) -> Vec<QueueRow> {
    let row = |cost: TransferCost| {
        let bytes = cost.bytes as usize;
        let back = || {
            let times = (0..rounds).filter_map(|_| there_and_back(cost.transfer, bytes, cpus));
            times.fold(f64::INFINITY, f64::min)
        };
        let back = match cost.transfer {
            Transfer::Copying | Transfer::MarkedCopying => Some(back()),
            _ => None,
        };
        QueueRow {
            transfer: name(cost.transfer).to_owned(),
            bytes: cost.bytes,
            ns: cost.ns,
            gigabytes_per_second: cost.bytes as f64 / cost.ns,
            there_and_back_ns: back.filter(|time| time.is_finite()),
        }
    };
    let costs = measure_transfers(cpus, sizes, rounds, None);
    costs.into_iter().map(row).collect()
}

/// The way's name in JSON and in tables.
pub fn name(transfer: Transfer) -> &'static str {
    match transfer {
        Transfer::InPlace => "in_place",
        Transfer::Copying => "copying",
        Transfer::Streaming => "streaming",
        Transfer::Marked => "marked",
        Transfer::MarkedCopying => "marked_copying",
    }
}

/// Nanoseconds of a block there and back.
fn there_and_back(transfer: Transfer, bytes: usize, cpus: (usize, usize)) -> Option<f64> {
    const SLOTS: usize = 8;
    let words = bytes.div_ceil(8);
    if transfer.marks() {
        let (mut there, mut seen) = marked::<u64>(SLOTS, words, &[]).ok()?;
        let (mut answer, mut back) = marked::<u64>(SLOTS, words, &[]).ok()?;
        let ask = move |own: &mut [u64]| {
            until(|| there.push(own));
            until(|| back.pop(own));
        };
        let reply = move |own: &mut [u64]| {
            until(|| seen.pop(own));
            until(|| answer.push(own));
        };
        return Some(timed(words, cpus, ask, reply));
    }
    let (mut there, mut seen) = queue::<u64>(SLOTS, words, &[]).ok()?;
    let (mut answer, mut back) = queue::<u64>(SLOTS, words, &[]).ok()?;
    let ask = move |own: &mut [u64]| {
        until(|| there.push(own) > 0);
        until(|| back.pop(own) > 0);
    };
    let reply = move |own: &mut [u64]| {
        until(|| seen.pop(own) > 0);
        until(|| answer.push(own) > 0);
    };
    Some(timed(words, cpus, ask, reply))
}

fn timed(
    words: usize,
    (asks, replies): (usize, usize),
    mut ask: impl FnMut(&mut [u64]) + Send,
    mut reply: impl FnMut(&mut [u64]) + Send,
) -> f64 {
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = run_on([replies]);
            let mut own = vec![0; words];
            (0..ROUND_TRIPS + 1).for_each(|_| reply(&mut own));
        });
        let asked = scope.spawn(move || {
            let _ = run_on([asks]);
            let mut own = vec![0; words];
            ask(&mut own);
            let begin = Instant::now();
            (0..ROUND_TRIPS).for_each(|_| ask(&mut own));
            begin.elapsed().as_nanos() as f64 / ROUND_TRIPS as f64
        });
        asked.join().unwrap_or(f64::INFINITY)
    })
}

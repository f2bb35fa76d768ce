//! The queue without a handshake: its rate, and how long it holds.

use std::sync::atomic::{AtomicBool, Ordering};

use karoo_flow::queue::{Pacing, paced};

use super::contest::both;

/// Blocks of a trial at most.
const BLOCKS: u64 = 200_000;

struct Trial {
    blocks: u64,
    nanoseconds: f64,
}

fn trial(cpus: (usize, usize), words: usize, pacing: Option<Pacing>) -> Trial {
    let (mut producer, mut consumer) = paced(62, words, pacing).unwrap();
    let over = AtomicBool::new(false);
    let mut read = 0;
    let seconds = both(
        cpus,
        || {
            let mut block = vec![7; words];
            for number in 0..BLOCKS + 62 {
                block[0] = number;
                if !producer.push(std::hint::black_box(&block)) || over.load(Ordering::Relaxed) {
                    break;
                }
            }
        },
        || {
            let mut block = vec![0; words];
            while read < BLOCKS && consumer.pop(&mut block).is_ok() {
                std::hint::black_box(&mut block);
                read += 1;
            }
            over.store(true, Ordering::Relaxed);
        },
    );
    Trial {
        blocks: read,
        nanoseconds: seconds * 1e9 / read.max(1) as f64,
    }
}

/// Prints, for each size, the longest of some trials without a slip.
pub fn show(cpus: (usize, usize), sizes: &[usize]) {
    println!(
        "\nwithout a handshake: 62 blocks, the longest of 20 trials of {BLOCKS} blocks at most"
    );
    let loops = [
        ("open loop", None),
        (
            "closed, every 4",
            Some(Pacing {
                every: 4,
                proportional: 2.0,
                integral: 0.02,
            }),
        ),
        ("closed, every 16", Some(Pacing::default())),
        (
            "closed, every 16, stiff",
            Some(Pacing {
                every: 16,
                proportional: 8.0,
                integral: 0.2,
            }),
        ),
    ];
    for &bytes in sizes.iter().filter(|&&bytes| bytes <= 1024) {
        for (name, pacing) in loops {
            let best = (0..20)
                .map(|_| trial(cpus, bytes / 8, pacing))
                .max_by(|a, b| {
                    let rank = |trial: &Trial| (trial.blocks as f64, -trial.nanoseconds);
                    rank(a)
                        .partial_cmp(&rank(b))
                        .unwrap_or(std::cmp::Ordering::Equal)
                });
            if let Some(Trial {
                blocks,
                nanoseconds,
            }) = best
            {
                println!(
                    "{bytes:>8} B: {name:24} {blocks:>7} blocks, {nanoseconds:8.2} ns for one"
                );
            }
        }
    }
}

//! Queues between two threads, beside `rtrb` and `crossbeam`, in one run.
//!
//! `cargo bench -p karoo-flow --bench queues [SECONDS]`: for each size of block the rate of each
//! queue, in GB/s and in million blocks a second. Each figure is the median of five runs, taken in
//! turn. Both threads spin; with fewer cores than two free the figures say nothing.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use karoo_flow::queue::queue;

/// Bytes in each queue, at least 16 blocks of them.
const BYTES: usize = 64 << 10;

fn slots(words: usize) -> usize {
    (BYTES / (8 * words)).clamp(16, 4096)
}

/// Runs both ends at once and gives the time for all blocks.
fn timed(
    blocks: u64,
    mut write: impl FnMut(u64) + Send,
    mut read: impl FnMut(u64) -> u64,
) -> Duration {
    std::thread::scope(|scope| {
        let start = Instant::now();
        scope.spawn(move || (0..blocks).for_each(&mut write));
        for number in 0..blocks {
            assert_eq!(read(number), number);
        }
        start.elapsed()
    })
}

fn copying<const WORDS: usize>(blocks: u64) -> Duration {
    let (mut producer, mut consumer) = queue::<u64>(slots(WORDS), WORDS, &[]).unwrap();
    let mut block = [0; WORDS];
    timed(
        blocks,
        move |number| {
            while producer.push(&[number; WORDS]) == 0 {
                spin_loop();
            }
        },
        move |_| {
            while consumer.pop(&mut block) == 0 {
                spin_loop();
            }
            block[WORDS - 1]
        },
    )
}

fn in_place<const WORDS: usize>(blocks: u64) -> Duration {
    let (mut producer, mut consumer) = queue::<u64>(slots(WORDS), WORDS, &[]).unwrap();
    timed(
        blocks,
        move |number| loop {
            if let Some(mut grant) = producer.reserve(1) {
                grant.slices().0.fill(number);
                break grant.commit(1);
            }
            spin_loop();
        },
        move |_| loop {
            if let Some(view) = consumer.peek(1) {
                // All of the block is read, as by the copies.
                let last = view.slices().0.iter().fold(0, |all: u64, word| all | word);
                view.release(1);
                break last;
            }
            spin_loop();
        },
    )
}

fn rtrb<const WORDS: usize>(blocks: u64) -> Duration {
    let (mut producer, mut consumer) = ::rtrb::RingBuffer::<u64>::new(slots(WORDS) * WORDS);
    let mut block = [0; WORDS];
    timed(
        blocks,
        move |number| {
            if WORDS == 1 {
                while producer.push(number).is_err() {
                    spin_loop();
                }
                return;
            }
            while producer.slots() < WORDS {
                spin_loop();
            }
            let chunk = producer.write_chunk_uninit(WORDS).unwrap();
            chunk.fill_from_iter([number; WORDS]);
        },
        move |_| {
            if WORDS == 1 {
                loop {
                    if let Ok(word) = consumer.pop() {
                        return word;
                    }
                    spin_loop();
                }
            }
            while consumer.slots() < WORDS {
                spin_loop();
            }
            let chunk = consumer.read_chunk(WORDS).unwrap();
            let (first, rest) = chunk.as_slices();
            block[..first.len()].copy_from_slice(first);
            block[first.len()..].copy_from_slice(rest);
            chunk.commit_all();
            block[WORDS - 1]
        },
    )
}

fn crossbeam<const WORDS: usize>(blocks: u64) -> Duration {
    let queue = ArrayQueue::<[u64; WORDS]>::new(slots(WORDS));
    let queue = &queue;
    timed(
        blocks,
        move |number| {
            while queue.push([number; WORDS]).is_err() {
                spin_loop();
            }
        },
        move |_| loop {
            if let Some(block) = queue.pop() {
                break block[WORDS - 1];
            }
            spin_loop();
        },
    )
}

type Run = fn(u64) -> Duration;

fn compare(words: usize, seconds: f64, runs: [(&str, Run); 4]) {
    let mut rates = [const { Vec::new() }; 4];
    // As many blocks as the first queue passes in the time of one run.
    let mut blocks = 1000;
    while runs[0].1(blocks) < Duration::from_secs_f64(seconds / 20.0) && blocks < 1 << 40 {
        blocks *= 2;
    }
    for _ in 0..5 {
        for (rates, (_, run)) in rates.iter_mut().zip(runs) {
            rates.push(blocks as f64 / run(blocks).as_secs_f64());
        }
    }
    print!("{:>7} B", 8 * words);
    for (rates, (name, _)) in rates.iter_mut().zip(runs) {
        rates.sort_by(f64::total_cmp);
        let rate = rates[2];
        print!(
            "   {name} {:7.2} GB/s {:8.2} M/s",
            rate * 8.0 * words as f64 / 1e9,
            rate / 1e6
        );
    }
    println!();
}

fn main() {
    // `cargo test --benches` asks for no measurement.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let seconds = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(1.0);
    macro_rules! sizes {
        ($($words:literal)*) => {
            $(compare($words, seconds, [
                ("copying", copying::<$words>),
                ("in place", in_place::<$words>),
                ("rtrb", rtrb::<$words>),
                ("crossbeam", crossbeam::<$words>),
            ]);)*
        };
    }
    sizes!(1 2 8 32 128 512 2048);
}

//! Queues against a list, and between two threads.

use std::collections::VecDeque;

use karoo_flow::queue::{Consumer, Producer, queue};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pop(usize),
    /// Reserves blocks, and commits some.
    Write(usize, usize),
    /// Peeks at blocks, and releases some.
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..20usize).prop_map(Step::Push),
        (0..20usize).prop_map(Step::Pop),
        (0..7usize, 0..7usize).prop_map(|(a, b)| Step::Write(a, b)),
        (0..7usize, 0..7usize).prop_map(|(a, b)| Step::Read(a, b)),
    ];
    proptest::collection::vec(step, 0..200)
}

fn written(producer: &mut Producer<u64>, reserve: usize, next: u64) -> bool {
    let Some(mut grant) = producer.reserve(reserve) else {
        return false;
    };
    let (first, rest) = grant.slices();
    first
        .iter_mut()
        .chain(rest)
        .zip(next..)
        .for_each(|(item, value)| *item = value);
    true
}

fn seen(consumer: &mut Consumer<u64>, blocks: usize) -> Option<Vec<u64>> {
    let view = consumer.peek(blocks)?;
    let (first, rest) = view.slices();
    Some(first.iter().chain(rest).copied().collect())
}

proptest! {
    #[test]
    fn a_queue_is_a_list_of_bounded_length(slots in 1..6usize, block in 1..5usize, initial in 0..6usize, steps in steps()) {
        let mut next = initial.min(slots) as u64 * block as u64;
        let mut list: VecDeque<u64> = (0..next).collect();
        let (mut producer, mut consumer) = queue(slots, block, list.make_contiguous()).unwrap();
        for step in steps {
            let room = slots - list.len() / block;
            match step {
                Step::Push(items) => {
                    let items: Vec<u64> = (next..next + items as u64).collect();
                    let taken = (items.len() / block).min(room) * block;
                    prop_assert_eq!(producer.push(&items), taken);
                    list.extend(&items[..taken]);
                    next += taken as u64;
                }
                Step::Pop(items) => {
                    let mut buffer = vec![u64::MAX; items];
                    let given = (items / block).min(list.len() / block) * block;
                    prop_assert_eq!(consumer.pop(&mut buffer), given);
                    let wanted: Vec<u64> = list.drain(..given).collect();
                    prop_assert_eq!(&buffer[..given], &wanted[..]);
                }
                Step::Write(reserve, commit) => {
                    prop_assert_eq!(written(&mut producer, reserve, next), reserve > 0 && reserve <= room);
                    // What was written and not committed is there still when the same room is
                    // reserved again.
                    if let Some(grant) = producer.reserve(reserve) {
                        grant.commit(commit);
                        let taken = (commit.min(reserve) * block) as u64;
                        list.extend(next..next + taken);
                        next += taken;
                    }
                }
                Step::Read(peek, release) => {
                    let wanted = (peek > 0 && peek <= list.len() / block)
                        .then(|| list.iter().take(peek * block).copied().collect::<Vec<u64>>());
                    prop_assert_eq!(seen(&mut consumer, peek), wanted);
                    if let Some(view) = consumer.peek(peek) {
                        view.release(release);
                        list.drain(..release.min(peek) * block);
                    }
                }
            }
            prop_assert_eq!(producer.room(), slots - list.len() / block);
            prop_assert_eq!(consumer.available(), list.len() / block);
        }
    }
}

#[test]
fn blocks_pass_between_threads_whole_and_in_order() {
    const BLOCKS: u64 = 2_000;
    let (mut producer, mut consumer) = queue::<u64>(7, 5, &[]).unwrap();
    let writer = std::thread::spawn(move || {
        for value in 0..BLOCKS {
            while producer.push(&[value; 5]) == 0 {
                std::thread::yield_now();
            }
        }
    });
    for value in 0..BLOCKS {
        let mut block = [0; 5];
        while consumer.pop(&mut block) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(block, [value; 5]);
    }
    writer.join().unwrap();
    assert!(consumer.is_abandoned());
}

#[test]
fn slots_begin_at_a_cache_line_and_sizes_are_checked() {
    let (mut producer, _consumer) = queue::<u8>(3, 64, &[]).unwrap();
    assert_eq!(
        producer.reserve(3).unwrap().slices().0.as_ptr().addr() % 64,
        0
    );
    assert!(producer.reserve(4).is_none());
    for (slots, block, initial) in [
        (0, 1, 0),
        (1, 0, 0),
        (usize::MAX, 2, 0),
        (2, 3, 4),
        (2, 3, 9),
    ] {
        let error = queue::<u8>(slots, block, &vec![0; initial]).err().unwrap();
        assert!(error.contains("at most"), "{error}");
    }
}

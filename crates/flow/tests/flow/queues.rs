//! Queues against a list, and between two threads.

use std::collections::VecDeque;

use karoo_flow::queue::{Consumer, Pacing, Producer, Slip, marked, paced, queue};
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

proptest! {
    #[test]
    fn marked_slots_are_a_list_of_bounded_length(slots in 1..6usize, block in 1..20usize, initial in 0..6usize, steps in steps()) {
        let mut next = (initial.min(slots) * block) as u64;
        let mut list: VecDeque<u64> = (0..next).collect();
        let (mut producer, mut consumer) = marked(slots, block, list.make_contiguous()).unwrap();
        for step in steps {
            let room = list.len() < slots * block;
            let given: Vec<u64> = (next..next + block as u64).collect();
            let took = match step {
                Step::Push(1) => {
                    let took = producer.push_one(next);
                    prop_assert_eq!(took, room && block == 1);
                    took
                }
                Step::Push(_) => {
                    let took = producer.push(&given);
                    prop_assert_eq!(took, room);
                    took
                }
                Step::Write(_, commit) => match producer.reserve() {
                    Some(mut grant) => {
                        prop_assert!(room);
                        grant.block().copy_from_slice(&given);
                        if commit > 0 {
                            grant.commit();
                        }
                        commit > 0
                    }
                    None => {
                        prop_assert!(!room);
                        false
                    }
                },
                Step::Pop(1) => {
                    let wanted = (block == 1).then(|| list.pop_front()).flatten();
                    prop_assert_eq!(consumer.pop_one(), wanted);
                    false
                }
                Step::Pop(_) => {
                    let mut buffer = vec![u64::MAX; block];
                    prop_assert_eq!(consumer.pop(&mut buffer), !list.is_empty());
                    if !list.is_empty() {
                        let wanted: Vec<u64> = list.drain(..block).collect();
                        prop_assert_eq!(&buffer, &wanted);
                    }
                    false
                }
                Step::Read(_, release) => {
                    if let Some(view) = consumer.peek() {
                        prop_assert!(view.block().iter().eq(list.iter().take(block)));
                        if release > 0 {
                            view.release();
                            list.drain(..block);
                        }
                    } else {
                        prop_assert!(list.is_empty());
                    }
                    false
                }
            };
            if took {
                list.extend(&given);
                next += block as u64;
            }
            prop_assert_eq!(consumer.has_block(), !list.is_empty());
            prop_assert_eq!(consumer.available(), list.len() / block);
        }
    }

    /// Sizes and places that begin and end anywhere in a cache line.
    #[test]
    fn streamed_blocks_are_what_was_written(block in 1..400usize, slots in 1..4usize, blocks in 1..9usize) {
        let (mut producer, mut consumer) = queue::<u8>(slots, block, &[]).unwrap();
        for number in 0..blocks {
            let wanted: Vec<u8> = (0..block).map(|at| (at * 7 + number) as u8).collect();
            prop_assert_eq!(producer.push_streaming(&wanted), block);
            let mut found = vec![0; block];
            prop_assert_eq!(consumer.pop(&mut found), block);
            prop_assert_eq!(found, wanted);
        }
    }
}

#[test]
fn items_pass_one_by_one_and_not_where_blocks_are_larger() {
    let (mut producer, mut consumer) = queue::<u16>(2, 1, &[5]).unwrap();
    assert!(producer.push_one(6));
    assert!(!producer.push_one(7));
    assert_eq!(
        [consumer.pop_one(), consumer.pop_one(), consumer.pop_one()],
        [Some(5), Some(6), None]
    );
    let (mut producer, mut consumer) = queue::<u16>(2, 2, &[1, 2]).unwrap();
    assert!(!producer.push_one(3));
    assert_eq!(consumer.pop_one(), None);
}

#[test]
fn marked_blocks_pass_between_threads_whole_and_in_order() {
    const BLOCKS: u64 = 2_000;
    let (mut producer, mut consumer) = marked::<u64>(7, 5, &[]).unwrap();
    let writer = std::thread::spawn(move || {
        for value in 0..BLOCKS {
            while !producer.push(&[value; 5]) {
                std::thread::yield_now();
            }
        }
    });
    for value in 0..BLOCKS {
        let mut block = [0; 5];
        while !consumer.pop(&mut block) {
            std::thread::yield_now();
        }
        assert_eq!(block, [value; 5]);
    }
    writer.join().unwrap();
    assert!(consumer.is_abandoned());
}

#[test]
fn a_queue_without_a_handshake_is_half_full_and_tells_of_slips() {
    let pacing = Some(Pacing {
        every: 1,
        ..Pacing::default()
    });
    let (mut producer, mut consumer) = paced(4, 2, pacing).unwrap();
    assert!(producer.push(&[1, 2]));
    let mut block = [9; 2];
    for wanted in [[0, 0], [0, 0], [1, 2]] {
        assert_eq!(consumer.pop(&mut block), Ok(()));
        assert_eq!(block, wanted);
    }
    assert_eq!(consumer.pop(&mut [0; 3]), Err(Slip::Length));
    assert!(!producer.has_failed());
    assert_eq!(consumer.pop(&mut block), Err(Slip::Empty));
    assert!(!producer.push(&[3, 4]));

    let (mut producer, mut consumer) = paced(2, 1, None).unwrap();
    assert!(producer.push(&[1]) && producer.push(&[2]));
    assert_eq!(consumer.pop(&mut [0]), Err(Slip::Overwritten));
    assert!(producer.has_failed());

    assert!(paced(1, 1, None).is_err() && paced(2, 0, None).is_err());
    assert!(paced(usize::MAX, 1, None).is_err());
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
        let error = marked::<u8>(slots, block, &vec![0; initial]).err().unwrap();
        assert!(error.contains("at most"), "{error}");
    }
}

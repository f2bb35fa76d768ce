//! The queues that take part.

use crossbeam_queue::ArrayQueue;
use karoo_flow::queue::{Consumer, Producer, marked, queue};
use rtrb::RingBuffer;

use super::contest::{Case, Contestant, one_way, one_way_items, there_and_back};

fn ours(name: &str, run: impl Fn(&Case, u32) -> Option<f64> + 'static) -> Contestant {
    Contestant {
        name: format!("karoo {name}"),
        ours: true,
        counts: true,
        run: Box::new(run),
    }
}

fn other(name: &str, run: impl Fn(&Case, u32) -> Option<f64> + 'static) -> Contestant {
    Contestant {
        name: name.into(),
        ours: false,
        counts: true,
        run: Box::new(run),
    }
}

fn copying(producer: &mut Producer<u64>, block: &[u64]) -> bool {
    producer.push(block) != 0
}

fn streaming(producer: &mut Producer<u64>, block: &[u64]) -> bool {
    producer.push_streaming(block) != 0
}

fn taking(consumer: &mut Consumer<u64>, block: &mut [u64]) -> bool {
    consumer.pop(block) != 0
}

/// Reads all of a block where it lies, and keeps the first word.
fn looking(consumer: &mut Consumer<u64>, block: &mut [u64]) -> bool {
    let Some(view) = consumer.peek(1) else {
        return false;
    };
    let slot = view.slices().0;
    std::hint::black_box(slot.iter().fold(0, |all: u64, word| all | word));
    block[0] = slot[0];
    view.release(1);
    true
}

fn counted(
    put: fn(&mut Producer<u64>, &[u64]) -> bool,
    get: fn(&mut Consumer<u64>, &mut [u64]) -> bool,
) -> impl Fn(&Case, u32) -> Option<f64> {
    move |case, pauses| {
        let (mut producer, mut consumer) = queue(case.slots, case.bytes / 8, &[]).unwrap();
        let put = move |block: &[u64]| put(&mut producer, block);
        let get = move |block: &mut [u64]| get(&mut consumer, block);
        one_way(case, pauses, put, get)
    }
}

fn rtrb_put(producer: &mut rtrb::Producer<u64>, block: &[u64]) -> bool {
    let Ok(mut chunk) = producer.write_chunk(block.len()) else {
        return false;
    };
    let (first, rest) = chunk.as_mut_slices();
    let (head, tail) = block.split_at(first.len());
    first.copy_from_slice(head);
    rest.copy_from_slice(tail);
    chunk.commit_all();
    true
}

fn rtrb_get(consumer: &mut rtrb::Consumer<u64>, block: &mut [u64]) -> bool {
    let Ok(chunk) = consumer.read_chunk(block.len()) else {
        return false;
    };
    let (first, rest) = chunk.as_slices();
    let (head, tail) = block.split_at_mut(first.len());
    head.copy_from_slice(first);
    tail.copy_from_slice(rest);
    chunk.commit_all();
    true
}

fn rtrb_chunks(case: &Case, pauses: u32) -> Option<f64> {
    let words = case.bytes / 8;
    let (mut producer, mut consumer) = RingBuffer::new(case.slots * words);
    let put = move |block: &[u64]| rtrb_put(&mut producer, block);
    let get = move |block: &mut [u64]| rtrb_get(&mut consumer, block);
    one_way(case, pauses, put, get)
}

/// Queues of items whose size the compiler knows.
fn items<const WORDS: usize>() -> Vec<Contestant>
where
    [u64; WORDS]: Default,
{
    vec![
        ours("counted, items", |case, pauses| {
            let (mut producer, mut consumer) = queue::<[u64; WORDS]>(case.slots, 1, &[]).ok()?;
            let put = move |item| producer.push_one(item);
            one_way_items(case, pauses, put, move || consumer.pop_one())
        }),
        ours("marked, items", |case, pauses| {
            let (mut producer, mut consumer) = marked::<[u64; WORDS]>(case.slots, 1, &[]).ok()?;
            let put = move |item| producer.push_one(item);
            one_way_items(case, pauses, put, move || consumer.pop_one())
        }),
        other("rtrb, items", |case, pauses| {
            let (mut producer, mut consumer) = RingBuffer::<[u64; WORDS]>::new(case.slots);
            let put = move |item| producer.push(item).is_ok();
            one_way_items(case, pauses, put, move || consumer.pop().ok())
        }),
        other("crossbeam, items", |case, pauses| {
            let queue = ArrayQueue::<[u64; WORDS]>::new(case.slots);
            let queue = &queue;
            let put = move |item| queue.push(item).is_ok();
            one_way_items(case, pauses, put, move || queue.pop())
        }),
    ]
}

fn crossbeam_large<const WORDS: usize>() -> Vec<Contestant> {
    vec![other("crossbeam, items", |case, pauses| {
        let queue = ArrayQueue::<[u64; WORDS]>::new(case.slots);
        let queue = &queue;
        let put = move |item| queue.push(item).is_ok();
        one_way_items(case, pauses, put, move || queue.pop())
    })]
}

/// One block at a time.
pub fn singles(words: usize) -> Vec<Contestant> {
    let mut all = vec![
        ours("counted, copying", counted(copying, taking)),
        ours("counted, streaming", counted(streaming, taking)),
        ours("marked, copying", |case, pauses| {
            let (mut producer, mut consumer) = marked(case.slots, case.bytes / 8, &[]).ok()?;
            let put = move |block: &[u64]| producer.push(block);
            let get = move |block: &mut [u64]| consumer.pop(block);
            one_way(case, pauses, put, get)
        }),
        Contestant {
            counts: false,
            ..ours("counted, in place", counted(copying, looking))
        },
        Contestant {
            counts: false,
            ..ours("marked, in place", |case, pauses| {
                let (mut producer, mut consumer) =
                    marked::<u64>(case.slots, case.bytes / 8, &[]).ok()?;
                let put = move |block: &[u64]| producer.push(block);
                let get = move |block: &mut [u64]| {
                    let Some(view) = consumer.peek() else {
                        return false;
                    };
                    let slot = view.block();
                    std::hint::black_box(slot.iter().fold(0, |all: u64, word| all | word));
                    block[0] = slot[0];
                    view.release();
                    true
                };
                one_way(case, pauses, put, get)
            })
        },
        other("rtrb, chunks", rtrb_chunks),
    ];
    all.extend(match words {
        1 => items::<1>(),
        2 => items::<2>(),
        4 => items::<4>(),
        8 => items::<8>(),
        16 => items::<16>(),
        32 => items::<32>(),
        64 => crossbeam_large::<64>(),
        128 => crossbeam_large::<128>(),
        256 => crossbeam_large::<256>(),
        512 => crossbeam_large::<512>(),
        1024 => crossbeam_large::<1024>(),
        2048 => crossbeam_large::<2048>(),
        _ => Vec::new(),
    });
    all
}

/// Items of 8 bytes, several with one transaction, in queues of items.
pub fn batches(_items: usize) -> Vec<Contestant> {
    let batch = |put: fn(&mut Producer<u64>, &[u64]) -> bool| {
        move |case: &Case, pauses: u32| {
            let room = (case.slots * case.items).max(4096);
            let (mut producer, mut consumer) = queue(room, 1, &[]).ok()?;
            let items = case.items;
            // A transaction is all or nothing, as rtrb's chunks are.
            let put = move |block: &[u64]| producer.room_for(items) && put(&mut producer, block);
            let get = move |block: &mut [u64]| consumer.holds(items) && consumer.pop(block) != 0;
            one_way(case, pauses, put, get)
        }
    };
    vec![
        ours("counted, copying", batch(copying)),
        ours("counted, streaming", batch(streaming)),
        other("rtrb, chunks", |case, pauses| {
            let room = (case.slots * case.items).max(4096);
            let (mut producer, mut consumer) = RingBuffer::new(room);
            let put = move |block: &[u64]| rtrb_put(&mut producer, block);
            let get = move |block: &mut [u64]| rtrb_get(&mut consumer, block);
            one_way(case, pauses, put, get)
        }),
    ]
}

/// There and back.
pub fn trips(words: usize) -> Vec<Contestant> {
    vec![
        ours("counted, copying", move |case, _| {
            let (mut to, mut far) = queue(16, words, &[]).ok()?;
            let (mut back, mut near) = queue(16, words, &[]).ok()?;
            there_and_back(
                case,
                (
                    move |b: &[u64]| to.push(b) != 0,
                    move |b: &mut [u64]| near.pop(b) != 0,
                ),
                (
                    move |b: &[u64]| back.push(b) != 0,
                    move |b: &mut [u64]| far.pop(b) != 0,
                ),
            )
        }),
        ours("marked, copying", move |case, _| {
            let (mut to, mut far) = marked(16, words, &[]).ok()?;
            let (mut back, mut near) = marked(16, words, &[]).ok()?;
            there_and_back(
                case,
                (
                    move |b: &[u64]| to.push(b),
                    move |b: &mut [u64]| near.pop(b),
                ),
                (
                    move |b: &[u64]| back.push(b),
                    move |b: &mut [u64]| far.pop(b),
                ),
            )
        }),
        other("rtrb, chunks", move |case, _| {
            let (mut to, mut far) = RingBuffer::new(16 * words);
            let (mut back, mut near) = RingBuffer::new(16 * words);
            there_and_back(
                case,
                (
                    move |b: &[u64]| rtrb_put(&mut to, b),
                    move |b: &mut [u64]| rtrb_get(&mut near, b),
                ),
                (
                    move |b: &[u64]| rtrb_put(&mut back, b),
                    move |b: &mut [u64]| rtrb_get(&mut far, b),
                ),
            )
        }),
        other("crossbeam, boxes", move |case, _| {
            // Blocks of any size in an array queue: what moves is the box of a vector.
            let (to, back) = (ArrayQueue::new(16), ArrayQueue::new(16));
            let put = |queue: &ArrayQueue<Box<[u64]>>, b: &[u64]| queue.push(b.into()).is_ok();
            let get = |queue: &ArrayQueue<Box<[u64]>>, b: &mut [u64]| {
                queue.pop().is_some_and(|block| {
                    b.copy_from_slice(&block);
                    true
                })
            };
            there_and_back(
                case,
                (|b: &[u64]| put(&to, b), |b: &mut [u64]| get(&back, b)),
                (|b: &[u64]| put(&back, b), |b: &mut [u64]| get(&to, b)),
            )
        }),
    ]
}

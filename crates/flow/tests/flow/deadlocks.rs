//! What stands still is refused, and nothing else: executors beside a search of all interleavings.

use std::collections::HashSet;

use karoo_flow::run::{Between, Transfer};
use karoo_flow::{Builder, Cause, Executor, Graph, Interpreter, Number, Settings, Type, Value};
use proptest::prelude::*;

use crate::executor::samples;
use crate::partitionings::{bytes, cases};

/// Where a signal goes from one partition to another, and its delay.
#[derive(Clone, Copy, Debug)]
struct Arc {
    from: usize,
    to: usize,
    delay: usize,
}

/// Partitions that sum what comes in, halve it and pass it on. The first has the input, the last
/// the output.
fn graph(count: usize, arcs: &[Arc]) -> Graph {
    let g = Builder::new("net");
    let x = g.input("x", Type::F32);
    let mut late = Vec::new();
    for (index, arc) in arcs.iter().enumerate().filter(|(_, arc)| arc.delay > 0) {
        let past = g.scope(&format!("late{index}"), || {
            g.partition(arc.to as u32);
            g.feedback("past", Type::F32, arc.delay, 0.5)
        });
        late.push((index, past));
    }
    let mut outs = Vec::new();
    for part in 0..count {
        let ins = arcs.iter().enumerate().filter(|(_, arc)| arc.to == part);
        let ins: Vec<_> = ins
            .map(
                |(index, arc)| match late.iter().find(|late| late.0 == index) {
                    Some((_, past)) => past.out(),
                    None => outs[arc.from],
                },
            )
            .collect();
        let out = g.scope(&format!("part{part}"), || {
            g.partition(part as u32);
            let own = (part == 0).then_some(x);
            let sum = own.into_iter().chain(ins).reduce(|a, b| a + b).unwrap();
            sum.gain(0.25)
        });
        outs.push(out);
    }
    for (index, past) in late {
        past.close(outs[arcs[index].from]);
    }
    g.output("y", outs[count - 1]);
    g.build().unwrap()
}

/// Blocks in a queue, and slots that an end has in its hands.
type State = (Vec<bool>, Vec<(usize, usize, usize)>);

/// Whether any order of beginnings and ends of blocks leads to a state in which nobody can go on.
/// `block` and `capacity` are those of all queues. A partition begins with a block if all its
/// queues have one for it; in place it also needs room in all queues behind it, and it keeps both
/// until it ends. With copies it needs room when it ends.
fn stands_still(count: usize, arcs: &[Arc], block: usize, capacity: usize, copies: bool) -> bool {
    let queues = arcs.iter().map(|arc| {
        // Whole blocks of the delay are in the queue, and one slot at least is not.
        let initial = (arc.delay / block).min(capacity - 1);
        (initial, 0, 0)
    });
    let start: State = (vec![false; count], queues.collect());
    let (mut known, mut open) = (HashSet::from([start.clone()]), vec![start]);
    while let Some((works, queues)) = open.pop() {
        let mut goes_on = false;
        for part in 0..count {
            let of =
                |end: fn(&Arc) -> usize| (0..arcs.len()).filter(move |&at| end(&arcs[at]) == part);
            let room = |at: usize| {
                let (full, reading, writing) = queues[at];
                full + reading + writing < capacity
            };
            let (mut works, mut queues_then) = (works.clone(), queues.clone());
            let ready = if works[part] {
                !copies || of(|arc| arc.from).all(room)
            } else {
                of(|arc| arc.to).all(|at| queues[at].0 > 0)
                    && (copies || of(|arc| arc.from).all(room))
            };
            if !ready {
                continue;
            }
            goes_on = true;
            for at in of(|arc| arc.to) {
                let (full, reading, _) = &mut queues_then[at];
                match (works[part], copies) {
                    (false, true) => *full -= 1,
                    (false, false) => (*full, *reading) = (*full - 1, 1),
                    (true, _) => *reading = 0,
                }
            }
            for at in of(|arc| arc.from) {
                let (full, _, writing) = &mut queues_then[at];
                match works[part] {
                    false => *writing = usize::from(!copies),
                    true => (*full, *writing) = (*full + 1, 0),
                }
            }
            works[part] = !works[part];
            let then = (works, queues_then);
            if known.insert(then.clone()) {
                open.push(then);
            }
        }
        if !goes_on {
            return true;
        }
    }
    false
}

/// A chain, and arcs beside it and back.
fn nets() -> impl Strategy<Value = (usize, Vec<Arc>)> {
    (2..5usize).prop_flat_map(|count| {
        let chain = proptest::collection::vec(0..60usize, count - 1);
        let more = proptest::collection::vec((0..count, 0..count, 0..90usize), 0..4);
        (chain, more).prop_map(move |(chain, more)| {
            let chain = chain.iter().enumerate().map(|(from, &delay)| Arc {
                from,
                to: from + 1,
                // Most have none.
                delay: delay.saturating_sub(40),
            });
            let mut arcs: Vec<Arc> = chain.collect();
            for (from, to, delay) in more {
                let delay = if from < to { delay / 2 } else { delay + 1 };
                let known = arcs.iter().any(|arc| (arc.from, arc.to) == (from, to));
                if from != to && !known {
                    arcs.push(Arc { from, to, delay });
                }
            }
            (count, arcs)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]
    #[test]
    fn a_graph_is_refused_if_and_only_if_some_order_stands_still(
        (count, arcs) in nets(), block in 1..40u64, capacity in 1..4usize,
        kind in 0..Transfer::ALL.len(), step in 1..50u64,
    ) {
        let graph = graph(count, &arcs);
        let transfer = Transfer::ALL[kind];
        let settings = Settings { block, capacity, step, transfer, ..Settings::default() };
        let wanted = stands_still(count, &arcs, block as usize, capacity, transfer.copies());
        match Executor::new(&graph, settings) {
            Err(problems) => {
                prop_assert_eq!(problems.count(Cause::Loop), 1, "{}", problems);
                prop_assert!(wanted, "{} {:?}", problems, arcs);
            }
            Ok(executor) => {
                prop_assert!(!wanted, "{}\n{:?}", executor, arcs);
                let inputs = [samples(300, 3)];
                let whole = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
                prop_assert_eq!(bytes(&executor.run_values(&inputs).unwrap()), bytes(&whole));
            }
        }
    }
}

/// What goes round in it is looked at no further than one pass over it could do.
#[test]
fn a_loop_of_20000_gains_has_an_executor() {
    let g = Builder::new("long");
    let x = g.input("x", Type::F32);
    let past = g.feedback("past", Type::F32, 1, 0);
    let mut wire = x + past.out();
    for _ in 0..20_000 {
        wire = wire.gain(0.99);
    }
    past.close(wire);
    g.output("y", wire);
    let graph = g.build().unwrap();
    Executor::new(&graph, Settings::default()).unwrap();
}

/// Two partitions in a loop with so many samples of delay, which the second begins with.
fn loop_of(kind: Type, length: usize) -> Graph {
    let g = Builder::new("loop");
    let x = g.input("x", kind);
    let late = g.scope("b", || {
        g.partition(1);
        g.feedback("late", kind, length, 1)
    });
    let sum = g.scope("a", || {
        g.partition(0);
        x + late.out()
    });
    late.close(sum);
    g.output("y", sum);
    g.build().unwrap()
}

/// However many numbers are in the delay.
#[test]
fn a_delay_of_more_numbers_than_a_parameter_has_is_no_deadlock() {
    let blocks = |graph: &Graph, block| {
        let settings = Settings {
            block,
            ..Settings::default()
        };
        let shape = Executor::new(graph, settings).unwrap().shape();
        let queues = shape.queues.iter();
        queues.map(|queue| queue.initial).max()
    };
    assert_eq!(blocks(&loop_of(Type::F32.vector(1024), 1025), 16), Some(7));
    assert_eq!(blocks(&loop_of(Type::F32, (1 << 20) + 1), 1024), Some(7));
    assert_eq!(blocks(&loop_of(Type::F32, 1 << 24), 1), Some(7));

    let graph = loop_of(Type::F32.vector(1024), 1025);
    let settings = Settings {
        block: 16,
        ..Settings::default()
    };
    let value = |at: usize| {
        let number = |element: usize| Number::F64((at * 1024 + element) as f64);
        Value::build(Type::F32.vector(1024), |element| {
            (number(element), Number::Int(0))
        })
    };
    let inputs = [(0..1100).map(value).collect()];
    let whole = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    let executor = Executor::new(&graph, settings).unwrap();
    assert_eq!(bytes(&executor.run_values(&inputs).unwrap()), bytes(&whole));
}

/// Partitions in a row: what is in front of the loop and behind it is not in it.
#[test]
fn the_partitions_of_the_loop_are_named_and_no_others() {
    let arc = |from, to, delay| Arc { from, to, delay };
    let arcs = [
        arc(0, 1, 0),
        arc(1, 2, 0),
        arc(2, 1, 20),
        arc(2, 3, 0),
        arc(3, 4, 0),
    ];
    let refused = |block| {
        let settings = Settings {
            block,
            ..Settings::default()
        };
        Executor::new(&graph(5, &arcs), settings)
            .map(drop)
            .map_err(|told| told.to_string())
    };
    let told = refused(64).unwrap_err();
    let wanted = "net: would stand still: partition 1, partition 2 wait for one another; \
                  partition 2 -> partition 1 has no block of 64 ticks, partition 1 -> partition 2 \
                  has no block of 64 ticks. Way out: put whole blocks of delay into the loop, \
                  make its blocks smaller, or put its nodes into one partition";
    assert_eq!(told, wanted);
    assert_eq!(refused(20), Ok(()));
}

/// A loop of partitions that is none of nodes has no delay that could be blocks: no block is short
/// enough, and no queue long enough.
#[test]
fn ways_out_that_do_not_help_are_not_given() {
    let g = Builder::new("back");
    let x = g.input("x", Type::F32);
    let first = g.scope("a", || {
        g.partition(0);
        x.gain(2)
    });
    let second = g.scope("b", || {
        g.partition(1);
        first.gain(3)
    });
    let third = g.scope("c", || {
        g.partition(0);
        second.gain(5)
    });
    g.output("y", third);
    let told = Executor::new(&g.build().unwrap(), Settings::default());
    let told = told.unwrap_err().to_string();
    let ways = "Way out: put whole blocks of delay into the loop, or put its nodes into one \
                partition";
    assert!(told.ends_with(ways), "{told}");
}

/// Blocks that have no common round that could be played through, where nothing can wait for
/// itself.
#[test]
fn partitions_without_two_ways_between_them_are_never_refused() {
    let sizes = [1021, 1019, 1013];
    let arc = |from, to| Arc { from, to, delay: 0 };
    let between = |(arc, block): (&Arc, u64)| Between {
        from: arc.from as u32,
        to: arc.to as u32,
        block,
        capacity: 2,
        transfer: Transfer::default(),
    };
    let executor = |graph: &Graph, arcs: &[Arc]| {
        let settings = Settings {
            between: arcs.iter().zip(sizes).map(between).collect(),
            ..Settings::default()
        };
        Executor::new(graph, settings)
    };
    let ring = [arc(0, 1), arc(1, 2), arc(0, 2)];
    let refused = executor(&graph(3, &ring), &ring).unwrap_err().to_string();
    assert!(refused.contains("no common round"), "{refused}");
    let chain = [arc(0, 1), arc(1, 2), arc(2, 3)];
    let graph = graph(4, &chain);
    let executor = executor(&graph, &chain).unwrap();
    let inputs = [samples(5000, 3)];
    let whole = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    assert_eq!(bytes(&executor.run_values(&inputs).unwrap()), bytes(&whole));
}

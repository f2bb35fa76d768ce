//! The analysis against enumeration of all cycles, and against networks that are run.

use karoo_flow::Cause;
use karoo_flow::analysis::{Dependence, Network, Partition, Period, Queue, maximum_cycle_ratio};
use proptest::prelude::*;

/// All simple cycles, as indices of arcs.
fn all_cycles(nodes: usize, arcs: &[Dependence]) -> Vec<Vec<usize>> {
    fn go(
        arcs: &[Dependence],
        start: usize,
        at: usize,
        path: &mut Vec<usize>,
        seen: &mut [bool],
        all: &mut Vec<Vec<usize>>,
    ) {
        for (index, arc) in arcs.iter().enumerate().filter(|(_, arc)| arc.from == at) {
            path.push(index);
            if arc.to == start {
                all.push(path.clone());
            } else if arc.to > start && !seen[arc.to] {
                seen[arc.to] = true;
                go(arcs, start, arc.to, path, seen, all);
                seen[arc.to] = false;
            }
            path.pop();
        }
    }
    let mut all = vec![];
    for start in 0..nodes {
        go(
            arcs,
            start,
            start,
            &mut vec![],
            &mut vec![false; nodes],
            &mut all,
        );
    }
    all
}

/// Fires what can fire, until every partition has fired `rounds` times or nothing can.
fn runs(network: &Network, rounds: u64) -> bool {
    let mut fill: Vec<u64> = network.queues.iter().map(|queue| queue.initial).collect();
    let mut fired = vec![0; network.partitions.len()];
    while fired.iter().any(|&count| count < rounds) {
        let ready = (0..fired.len())
            .filter(|&at| fired[at] < rounds)
            .find(|&at| {
                network.queues.iter().zip(&fill).all(|(queue, &fill)| {
                    let own = queue.from == at && queue.to == at;
                    (queue.to != at || fill > 0)
                        && (queue.from != at || fill < queue.capacity || own)
                })
            });
        let Some(at) = ready else { return false };
        for (queue, fill) in network.queues.iter().zip(&mut fill) {
            *fill = *fill + u64::from(queue.from == at) - u64::from(queue.to == at);
        }
        fired[at] += 1;
    }
    true
}

fn networks() -> impl Strategy<Value = Network> {
    (1..5usize).prop_flat_map(|count| {
        let partitions = proptest::collection::vec(0..50u64, count);
        let queue = (0..count, 0..count, 0..4u64, 0..3u64, 0..9u64);
        (partitions, proptest::collection::vec(queue, 0..7)).prop_map(|(busy, queues)| Network {
            partitions: busy
                .into_iter()
                .enumerate()
                .map(|(at, busy)| Partition {
                    name: format!("p{at}"),
                    busy,
                })
                .collect(),
            queues: queues
                .into_iter()
                .map(|(from, to, initial, room, latency)| {
                    // A partition takes before it puts: a queue to itself needs no room beyond what
                    // is in it.
                    let room = if from == to { room.max(1) } else { room };
                    Queue {
                        from,
                        to,
                        initial,
                        capacity: (initial + room).max(1),
                        latency,
                        bytes: 8,
                    }
                })
                .collect(),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_network_is_refused_if_and_only_if_it_stands_still(network in networks()) {
        let live = network.analyse(None);
        prop_assert_eq!(live.is_ok(), runs(&network, 20), "{:?}", live);
        if let Err(problems) = live {
            prop_assert_eq!(problems.count(Cause::Loop), problems.0.len());
        }
    }

    #[test]
    fn the_period_is_that_of_the_slowest_of_all_cycles(network in networks()) {
        let Ok(report) = network.analyse(None) else { return Ok(()) };
        let arcs = network.dependences();
        let ratio = |cycle: &Vec<usize>| Period {
            time: cycle.iter().map(|&arc| arcs[arc].time).sum(),
            tokens: cycle.iter().map(|&arc| arcs[arc].tokens).sum(),
        };
        let wanted = all_cycles(network.partitions.len(), &arcs).iter().map(ratio).max().unwrap();
        prop_assert!(report.period.cmp(&wanted).is_eq(), "{:?} where {:?} is right", report.period, wanted);
    }

    #[test]
    fn the_period_is_that_of_a_run_as_soon_as_possible(network in networks()) {
        let Ok(report) = network.analyse(None) else { return Ok(()) };
        // start(k) of a partition is the latest of what it waits for, by the arcs alone.
        const ROUNDS: usize = 400;
        let arcs = network.dependences();
        let mut start = vec![vec![0u64; network.partitions.len()]; ROUNDS];
        for k in 0..ROUNDS {
            for _ in 0..network.partitions.len() {
                for arc in &arcs {
                    let Some(before) = k.checked_sub(arc.tokens as usize) else { continue };
                    start[k][arc.to] = start[k][arc.to].max(start[before][arc.from] + arc.time);
                }
            }
        }
        let last = *start[ROUNDS - 1].iter().max().unwrap() as f64;
        let once: u64 = arcs.iter().map(|arc| arc.time).sum();
        let tokens: u64 = arcs.iter().map(|arc| arc.tokens).sum();
        let slack = once as f64 + tokens as f64 * report.period.nanoseconds();
        let expected = report.period.nanoseconds() * ROUNDS as f64;
        prop_assert!((last - expected).abs() <= slack, "{} where {} ± {} was expected", last, expected, slack);
    }

    #[test]
    fn missing_blocks_are_the_fewest_that_reach_the_period(network in networks(), wanted in 1..80u64) {
        let Ok(report) = network.analyse(Some(wanted)) else { return Ok(()) };
        prop_assert!(report.complete);
        let queues: Vec<Dependence> =
            network.queues.iter().map(|q| Dependence { from: q.from, to: q.to, time: 0, tokens: 0 }).collect();
        prop_assert_eq!(report.cycles.len(), all_cycles(network.partitions.len(), &queues).len());
        for cycle in &report.cycles {
            let reaches = |blocks: u64| blocks > 0 && cycle.period.time <= wanted * blocks;
            prop_assert!(reaches(cycle.blocks + cycle.missing));
            prop_assert!(cycle.missing == 0 || !reaches(cycle.blocks + cycle.missing - 1));
        }
    }

    #[test]
    fn latencies_are_those_of_the_slowest_ways_with_the_least_delay(network in networks()) {
        let Ok(report) = network.analyse(None) else { return Ok(()) };
        for latency in &report.latencies {
            // Every simple way, as the cycles of a network that is closed from the end to the
            // beginning.
            let mut arcs: Vec<Dependence> = network.queues.iter().map(|queue| Dependence {
                from: queue.from,
                to: queue.to,
                time: queue.latency + network.partitions[queue.to].busy,
                tokens: queue.initial,
            }).collect();
            arcs.push(Dependence { from: latency.to, to: latency.from, time: network.partitions[latency.from].busy, tokens: 0 });
            let closing = arcs.len() - 1;
            let ways = all_cycles(network.partitions.len(), &arcs);
            let sum = |way: &Vec<usize>| {
                let tokens: u64 = way.iter().map(|&arc| arcs[arc].tokens).sum();
                (tokens, std::cmp::Reverse(way.iter().map(|&arc| arcs[arc].time).sum::<u64>()))
            };
            let best = ways.iter().filter(|way| way.contains(&closing)).map(sum).min().unwrap();
            prop_assert_eq!((latency.blocks, latency.empty), (best.0, best.1.0));
        }
    }
}

fn partition(name: &str) -> Partition {
    Partition {
        name: name.into(),
        busy: 100,
    }
}

fn pair(initial: u64) -> Network {
    let queue = |from, to, initial| Queue {
        from,
        to,
        initial,
        capacity: 3,
        latency: 10,
        bytes: 16,
    };
    Network {
        partitions: vec![partition("a"), partition("b \"q\"")],
        queues: vec![queue(0, 1, 0), queue(1, 0, initial)],
    }
}

#[test]
fn a_deadlock_names_its_cycle_and_what_is_missing() {
    let problems = pair(0).analyse(None).unwrap_err();
    let wanted = "a: waits for itself for ever: a -> b \"q\" -> a; put at least 1 initial block, a whole block of delay, \
                  into one of its queues";
    assert_eq!(problems.to_string(), wanted);
}

#[test]
fn reports_are_text_json_and_dot() {
    let report = pair(1).analyse(None).unwrap();
    let text = report.to_string();
    assert!(
        text.starts_with(
            "period   220.0 ns a block, set by a -> b \"q\" -> a\nmemory   96 bytes in 2 queues\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "cycle    a -> b \"q\" -> a: 1 block, 0.50 a partition, 220.0 ns; 2 more are needed"
        ),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["cycles"][0]["missing"], 2);
    assert_eq!(json["period"]["time"], 220);
    let dot = report.to_dot();
    assert!(
        dot.contains(r#"p1 [label="b \"q\"\n100 ns", color=red];"#),
        "{dot}"
    );
    assert!(
        dot.contains(r#"p1 -> p0 [label="1/3", color=red];"#),
        "{dot}"
    );
}

/// The way by the second partition waits for the room that the third leaves in the short queue
/// beside it.
#[test]
fn a_queue_whose_room_sets_the_period_is_drawn_as_such() {
    let queue = |from, to, capacity| Queue {
        from,
        to,
        initial: 0,
        capacity,
        latency: 0,
        bytes: 16,
    };
    let network = Network {
        partitions: ["a", "b", "c"].map(partition).to_vec(),
        queues: vec![queue(0, 1, 9), queue(1, 2, 9), queue(0, 2, 1)],
    };
    let report = network.analyse(None).unwrap();
    assert_eq!((report.period.time, report.critical.len()), (300, 3));
    let dot = report.to_dot();
    for arrow in [
        "p0 -> p1 [label=\"0/9\"",
        "p1 -> p2 [label=\"0/9\"",
        "p0 -> p2 [label=\"0/1\"",
    ] {
        assert!(dot.contains(&format!("{arrow}, color=red];")), "{dot}");
    }
    assert!(!report.to_svg().contains("#555"), "all arrows are red");
}

#[test]
fn figures_out_of_range_are_refused() {
    let mut network = pair(1);
    network.queues[0].to = 7;
    network.queues[1].initial = 4;
    network.partitions[0].busy = u64::MAX;
    let problems = network.analyse(None).unwrap_err();
    assert_eq!(problems.0.len(), 3, "{problems}");
}

#[test]
fn cycles_of_no_time_have_a_period_of_nothing() {
    let arcs = [Dependence {
        from: 0,
        to: 0,
        time: 0,
        tokens: 2,
    }];
    let (period, cycle) = maximum_cycle_ratio(1, &arcs).unwrap();
    assert_eq!((period.nanoseconds(), cycle), (0.0, vec![0]));
    assert_eq!(maximum_cycle_ratio(3, &[]), None);
}

#[test]
fn a_large_network_with_countless_cycles_is_analysed_still() {
    let partitions: Vec<Partition> = (0..60)
        .map(|at| Partition {
            name: format!("p{at}"),
            busy: 10 + at,
        })
        .collect();
    let every = (0..60)
        .flat_map(|from| (0..60).map(move |to| (from, to)))
        .filter(|(from, to)| from != to);
    let queues = every
        .map(|(from, to)| Queue {
            from,
            to,
            initial: 1,
            capacity: 2,
            latency: 5,
            bytes: 1,
        })
        .collect();
    let report = Network { partitions, queues }.analyse(None).unwrap();
    assert!(!report.complete);
    // A block there and a block back between the two slowest: (68 + 69 + 2 · 5) / 2, more than the
    // slowest alone takes.
    assert_eq!(report.period.nanoseconds(), 73.5);
}

#[test]
fn of_many_ends_some_latencies_are_listed() {
    // From each of so many ends to each of so many others.
    let network = |ends: usize| {
        let partition = |at: usize| Partition {
            name: format!("p{at}"),
            busy: 1,
        };
        let queue = |from: usize, to: usize| Queue {
            from,
            to,
            initial: 0,
            capacity: 4,
            latency: 0,
            bytes: 1,
        };
        let queues = (1..=2 * ends).map(|at| match at <= ends {
            true => queue(at, 0),
            false => queue(0, at),
        });
        Network {
            partitions: (0..=2 * ends).map(partition).collect(),
            queues: queues.collect(),
        }
    };
    let few = network(30).analyse(None).unwrap();
    assert_eq!((few.latencies.len(), few.latencies_complete), (900, true));
    let many = network(1000).analyse(None).unwrap();
    assert_eq!(
        (many.latencies.len(), many.latencies_complete),
        (1000, false)
    );
    let text = many.to_string();
    assert!(text.contains("\nlatency  there are more than are listed\n"));
    assert!(text.lines().count() < 1010);
}

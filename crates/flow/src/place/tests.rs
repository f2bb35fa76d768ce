//! Placement against all placements, and periods against a run in time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::blocks::{CostNetwork, End, Link, Outside};
use super::costs::{Cost, Costs};
use super::evaluate::{Look, NOWHERE, Sizes};
use super::model::{Item, Model, Pass, QueueCosts, Signal};
use super::placement::place;
use super::search::search;
use super::{Cores, Wishes};

/// Cores with any tables.
fn cores(count: usize) -> impl Strategy<Value = Cores> {
    let cells = proptest::collection::vec((5..200u32, 2..40u32), count * count);
    (cells, any::<bool>()).prop_map(move |(cells, alike)| {
        if alike {
            return Cores::alike((0..count).collect(), 40.0, 8.0);
        }
        let cell = |row: usize, col: usize| cells[row * count + col];
        let table = |of: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
            (0..count)
                .map(|row| (0..count).map(|col| of(row, col)).collect())
                .collect()
        };
        Cores {
            model: String::new(),
            cpus: (0..count).collect(),
            latency_ns: table(&|row, col| {
                if row == col {
                    0.0
                } else {
                    f64::from(cell(row, col).0)
                }
            }),
            gigabytes_per_second: table(&|row, col| f64::from(cell(row, col).1)),
            paces: (0..count)
                .map(|at| [1.0, 0.5][at * cell(0, at).1 as usize % 2])
                .collect(),
        }
    })
}

/// Items in the order of data, with some signals back that have delays.
fn models(items: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Model> {
    items.prop_flat_map(|count| {
        let work = proptest::collection::vec((0..80u32, 0..300u32), count);
        let signal = (
            0..count,
            0..count,
            0..count,
            1..20u32,
            0..900u64,
            any::<bool>(),
        );
        (work, proptest::collection::vec(signal, 1..12)).prop_map(move |(work, signals)| Model {
            items: work
                .into_iter()
                .enumerate()
                .map(|(at, (per_tick, per_step))| Item {
                    name: format!("i{at}"),
                    per_tick: f64::from(per_tick) / 8.0,
                    per_step: f64::from(per_step),
                    ..Item::default()
                })
                .collect(),
            signals: signals
                .into_iter()
                .map(|(from, a, b, bytes, delay, out)| {
                    let mut to = vec![a, b];
                    to.sort_unstable();
                    to.dedup();
                    // What goes back has a delay, as every loop of a graph has.
                    let back = to.iter().any(|&to| to <= from);
                    Signal {
                        from: (from + a > 0 || back).then_some(from),
                        to,
                        out,
                        bytes: f64::from(bytes),
                        complex: false,
                        delay: if back { delay + 1 } else { 0 },
                    }
                })
                .collect(),
            passes: vec![Pass {
                items: (0..count.div_ceil(2)).collect(),
                per_tick: 1.5,
                per_step: 40.0,
            }],
            round: 1,
            queues: QueueCosts::default(),
            transfers: vec![(64.0, 30.0), (512.0, 700.0), (4096.0, 900.0)],
        })
    })
}

fn sizes(block: u64) -> Sizes {
    Sizes {
        block,
        capacity: 4,
        step: 64,
    }
}

/// The least period of all placements.
fn exhaustive(model: &Model, look: &Look, cores: usize) -> f64 {
    let count = model.items.len();
    let mut best = f64::INFINITY;
    for mut number in 0..cores.pow(count as u32) {
        let mut place = vec![0; count];
        for at in &mut place {
            *at = number % cores;
            number /= cores;
        }
        best = best.min(look.period(&place));
    }
    best
}

fn model_and_cores() -> impl Strategy<Value = (Model, Cores)> {
    let two = (models(1..=10), cores(2)).boxed();
    let three = (models(1..=7), cores(3)).boxed();
    let four = (models(1..=5), cores(4)).boxed();
    prop_oneof![two, three, four]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_placement_of_at_most_ten_items_is_faster((model, cores) in model_and_cores(), block in 1..300u64) {
        let wishes = Wishes { block: Some(block), capacity: 4, step: 64, looks: 20_000, ..Wishes::default() };
        let found = place(&model, &cores, &wishes);
        let look = Look::new(&model, &cores, found.sizes);
        let best = exhaustive(&model, &look, cores.cpus.len());
        let period = look.period(&found.cores);
        prop_assert!(period <= best * 1.05, "{} where {} is possible", period, best);
        prop_assert!(!found.proved || period <= best * (1.0 + 1e-9), "{} is not the best: {}", period, best);
    }

    #[test]
    fn the_search_without_proof_is_near_the_best((model, cores) in model_and_cores(), block in 1..300u64) {
        let look = Look::new(&model, &cores, sizes(block));
        let best = exhaustive(&model, &look, cores.cpus.len());
        let found = search(&model, &cores, &look, 1, 3000);
        prop_assert!(found.period <= best * 1.05, "{} where {} is possible", found.period, best);
        prop_assert_eq!(found.period, look.period(&found.place));
        prop_assert_eq!(found, search(&model, &cores, &look, 1, 3000));
    }
}

proptest! {
    #[test]
    fn some_items_are_never_slower_than_all(
        (model, cores) in model_and_cores(), block in 1..300u64, dice in any::<[u8; 20]>()
    ) {
        let look = Look::new(&model, &cores, sizes(block));
        let count = cores.cpus.len();
        let mut place: Vec<usize> =
            (0..model.items.len()).map(|item| usize::from(dice[item]) % count).collect();
        let mut last = look.period(&place);
        for item in 0..model.items.len() {
            place[(item + usize::from(dice[19])) % model.items.len()] = NOWHERE;
            let less = look.period(&place);
            prop_assert!(less <= last * (1.0 + 1e-9), "{} and {} without {}", last, less, item);
            last = less;
        }
    }

    #[test]
    fn blocks_of_one_size_have_the_period_of_the_simple_rule(
        (model, cores) in model_and_cores(), block in 1..300u64, dice in any::<[u8; 20]>()
    ) {
        let count = cores.cpus.len();
        let place: Vec<usize> =
            (0..model.items.len()).map(|item| usize::from(dice[item]) % count).collect();
        // Queues of the outside have no part in the simple rule but the time that they take.
        let look = Look::new(&model, &cores, sizes(block));
        let mut network = CostNetwork::new(&model, &cores, &place, sizes(block), Outside::default());
        network.links.retain(|link| {
            matches!(link.from, End::Core(_)) && matches!(link.to, End::Core(_))
        });
        // A core without queues has no block that would limit its steps.
        prop_assume!(place.iter().all(|&core| network.links.iter().any(|link| {
            link.from == End::Core(core) || link.to == End::Core(core)
        })));
        let bare = Model {
            signals: model.signals.iter().filter(|signal| signal.from.is_some()).cloned()
                .map(|signal| Signal { out: false, ..signal }).collect(),
            ..model.clone()
        };
        // What leaves the graph is read there too, and its delay is not absorbed.
        if model.signals.iter().all(|signal| !signal.out || signal.delay == 0) {
            prop_assert_eq!(look.crossings(&place).len(), network.links.len());
            let simple = Look::new(&bare, &cores, sizes(block)).period(&place);
            let exact = network.speed().period;
            let same = simple == exact || (simple - exact).abs() <= 1e-3 * simple.max(0.01);
            prop_assert!(same, "{} and {}", simple, exact);
        }
    }
}

/// A delay fills a queue only while one core reads it. The search places one item after another and
/// drops what is slower already, so what it has placed must not seem slower for its initial blocks.
#[test]
fn room_that_initial_blocks_take_is_no_bound() {
    const BLOCK: u64 = 100;
    let signal = |from: usize, to: &[usize], delay: u64| Signal {
        from: Some(from),
        to: to.to_vec(),
        out: false,
        bytes: 1.0,
        complex: false,
        delay,
    };
    let model = Model {
        items: vec![Item::default(); 4],
        // From item 0 to item 1 by way of item 2, and directly through a queue that holds a block.
        signals: vec![
            signal(0, &[1, 3], BLOCK),
            signal(0, &[2], 0),
            signal(2, &[1], 0),
        ],
        round: 1,
        queues: QueueCosts::default(),
        ..Model::default()
    };
    let cores = Cores::alike(vec![0, 1, 2], 1000.0, 8.0);
    let look = Look::new(&model, &cores, sizes(BLOCK));
    let all = look.period(&[0, 1, 2, 2]);
    let without = look.period(&[0, 1, 2, NOWHERE]);
    assert!(
        without <= all,
        "{without} without the second reader, {all} with it"
    );
}

/// A row of gains that are one pass: each does next to nothing, and the pass and the queues take
/// all the time.
fn gains(count: usize) -> Model {
    Model {
        items: vec![
            Item {
                per_tick: 0.01,
                ..Item::default()
            };
            count
        ],
        passes: vec![Pass {
            items: (0..count).collect(),
            per_tick: 0.25,
            per_step: 0.0,
        }],
        signals: (0..count)
            .map(|at| Signal {
                from: at.checked_sub(1),
                to: vec![at],
                out: false,
                bytes: 4.0,
                complex: false,
                delay: 0,
            })
            .collect(),
        round: 1,
        queues: QueueCosts {
            send_ns: 0.0,
            receive_ns: 0.0,
            byte_ns: 0.0,
            ..QueueCosts::default()
        },
        transfers: vec![(1024.0, 400.0), (4096.0, 1024.0)],
    }
}

#[test]
fn each_core_has_a_pass_of_its_own() {
    let model = gains(8);
    let cores = Cores::alike(vec![0, 1], 0.0, 1e9);
    let look = Look::new(&model, &cores, sizes(1024));
    let loads = look.loads(&[0, 0, 0, 0, 0, 0, 1, 1], &[]);
    // Six gains and two of a hundredth, each with a pass of a quarter, for 1024 ticks.
    for (load, wanted) in loads.iter().zip([0.31, 0.27]) {
        assert!((load / 1024.0 - wanted).abs() < 1e-6, "{loads:?}");
    }
    let network = CostNetwork::new(
        &model,
        &cores,
        &[0, 0, 0, 0, 0, 0, 1, 1],
        sizes(1024),
        Outside::default(),
    );
    let busy = network.speed().busy;
    assert!(
        (busy[0] - 0.31).abs() < 1e-6 && (busy[1] - 0.27).abs() < 1e-6,
        "{busy:?}"
    );
}

#[test]
fn no_partition_is_faster_than_its_queues() {
    let model = gains(64);
    let cores = Cores::alike((0..8).collect(), 0.0, 1e9);
    // 1024 floats are 4096 bytes, and take 1024 ns from core to core, with both ends at once.
    let look = Look::new(&model, &cores, sizes(1024));
    let apart: Vec<usize> = (0..64).map(|item| item / 8).collect();
    assert!((look.period(&apart) - 1.0).abs() < 1e-6);
    let network = CostNetwork::new(&model, &cores, &apart, sizes(1024), Outside::default());
    let speed = network.speed();
    assert!((speed.period - 1.0).abs() < 1e-6, "{speed:?}");
    assert!(matches!(speed.critical[..], [End::Core(a), End::Core(b)] if b == a + 1));
    // One core takes 0.89 ns for all, which is less.
    let wishes = Wishes {
        block: Some(1024),
        ..Wishes::default()
    };
    let found = place(&model, &cores, &wishes).cores;
    assert!(found.iter().all(|&core| core == found[0]), "{found:?}");
}

#[test]
fn what_a_pass_takes_is_taken_out_of_its_nodes() {
    let g = crate::Builder::new("two");
    g.output("y", g.input("x", crate::Type::F32).gain(2.0).gain(3.0));
    let mut costs = Costs::guessed(&g.build().unwrap());
    let cost = |per_tick: f64, per_step: f64| Cost { per_tick, per_step };
    costs.nodes = [("a", 1.0), ("b", 3.0)]
        .map(|(path, per_tick)| (path.to_string(), cost(per_tick, 20.0)))
        .into();
    let unit = || vec![vec!["a".to_string(), "b".to_string()]];
    let mut little = costs.clone();
    little.share(unit(), cost(0.5, 100.0));
    // Of 4 ns a tick an eighth is the pass; of 40 ns a step all.
    assert_eq!(little.passes[0].cost, cost(0.5, 40.0));
    assert_eq!(little.nodes["a"], cost(0.875, 0.0));
    assert_eq!(little.nodes["b"], cost(2.625, 0.0));
    costs.share(unit(), cost(9.0, 0.0));
    assert_eq!(costs.passes[0].cost, cost(4.0, 0.0));
    assert_eq!(costs.nodes["b"], cost(0.0, 20.0));
}

/// Runs a network in time: each end begins as soon as its queues let it. The period of the second
/// half, in nanoseconds for each tick.
fn in_time(network: &CostNetwork, busy: &[f64], ticks: u64) -> Option<f64> {
    let index = |end: End| match end {
        End::Core(core) => core,
        End::Inputs => network.cores.cpus.len(),
        End::Outputs => network.cores.cpus.len() + 1,
    };
    let mut unit = vec![0u64; busy.len()];
    for link in &network.links {
        for end in [index(link.from), index(link.to)] {
            let (mut a, mut b) = (unit[end], link.block);
            while b > 0 {
                (a, b) = (b, a % b);
            }
            unit[end] = a;
        }
    }
    // Times at which each end has done so many ticks.
    let mut done: Vec<BTreeMap<u64, f64>> = vec![BTreeMap::from([(0, 0.0)]); busy.len()];
    let mut at = vec![0u64; busy.len()];
    let used: Vec<usize> = (0..busy.len()).filter(|&end| unit[end] > 0).collect();
    loop {
        let mut moved = false;
        for &end in &used {
            while at[end] < ticks {
                let begin = at[end];
                let mut start = done[end][&begin];
                let mut ready = true;
                let mut wait = |on: usize, before: i64, latency: f64| {
                    if before <= 0 {
                        return;
                    }
                    match done[on].range(before as u64..).next() {
                        Some((_, &time)) => start = start.max(time + latency),
                        None => ready = false,
                    }
                };
                for link in &network.links {
                    let (from, to) = (index(link.from), index(link.to));
                    let latency = match (link.from, link.to) {
                        (End::Core(a), End::Core(b)) => network.cores.latency_ns[a][b],
                        _ => 0.0,
                    };
                    let block = link.block as i64;
                    if to == end && begin.is_multiple_of(link.block) {
                        let behind = begin as i64 / block + 1 - link.initial() as i64;
                        wait(from, behind * block, latency);
                    }
                    if from == end && (begin + unit[end]).is_multiple_of(link.block) {
                        let free = (begin + unit[end]) as i64 / block + link.initial() as i64
                            - link.capacity as i64;
                        wait(to, free * block, latency);
                    }
                }
                if !ready {
                    break;
                }
                at[end] = begin + unit[end];
                done[end].insert(at[end], start + busy[end] * unit[end] as f64);
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    if used.iter().any(|&end| at[end] < ticks) {
        return None;
    }
    let time = |tick: u64| used.iter().map(|&end| done[end][&tick]).fold(0.0, f64::max);
    Some((time(ticks) - time(ticks / 2)) / (ticks / 2) as f64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn the_period_with_blocks_of_many_sizes_is_that_of_a_run(
        work in proptest::collection::vec(1..60u32, 3),
        links in proptest::collection::vec((0..3usize, 0..3usize, 0..4u32, 0..5u64, 1..4u64), 1..6),
    ) {
        let model = Model {
            items: work.iter().map(|&time| Item {
                per_tick: f64::from(time), ..Item::default()
            }).collect(),
            round: 1,
            queues: QueueCosts { send_ns: 3.0, receive_ns: 2.0, byte_ns: 0.1, read_byte_ns: 0.2, step_ns: 5.0 },
            ..Model::default()
        };
        let cores = Cores::alike(vec![0, 1, 2], 7.0, 4.0);
        let place = [0, 1, 2];
        let mut network = CostNetwork::new(&model, &cores, &place, sizes(1), Outside::default());
        for (from, to, power, blocks, capacity) in links {
            let known = network.links.iter().any(|link| link.from == End::Core(from) && link.to == End::Core(to));
            if from == to || known {
                continue;
            }
            let block = 1u64 << power;
            // A writer that is at work on a block has its slot: one more than the blocks inside.
            network.links.push(Link {
                from: End::Core(from), to: End::Core(to),
                signals: vec![(8.0, blocks * block)], block, capacity: capacity + blocks.min(1),
            });
        }
        prop_assume!(!network.links.is_empty());
        let speed = network.speed();
        let ticks = 8 * 512;
        match in_time(&network, &speed.busy, ticks) {
            None => prop_assert_eq!(speed.period, f64::INFINITY),
            Some(run) => {
                // Cores without queues run by themselves.
                let alone = (0..3).filter(|&core| network.links.iter().all(|link| {
                    link.from != End::Core(core) && link.to != End::Core(core)
                }));
                let alone = alone.map(|core| speed.busy[core]).fold(0.0, f64::max);
                let wanted = run.max(alone);
                prop_assert!((speed.period - wanted).abs() <= 0.02 * wanted, "{} and {}", speed.period, wanted);
            }
        }
    }
}

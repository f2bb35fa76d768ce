//! Plans of random graphs, and that executors follow them.

use karoo_flow::place::{
    Cores, Cost, Costs, Grouping, Plan, QueueCosts, Wishes, longest_block, measure, plan,
};
use karoo_flow::{Builder, Executor, Graph, Interpreter, Settings, Type};
use proptest::prelude::*;

use crate::executor::samples;
use crate::partitionings::{Turn, bytes, random_graph};

/// As an executor follows a plan on a machine that may not have its CPUs.
fn settings(plan: &Plan, graph: &Graph) -> Settings {
    let mut settings = plan.settings(graph).unwrap();
    settings.cpus.clear();
    settings
        .copies
        .values_mut()
        .for_each(|cpus| cpus.fill(None));
    settings
}

/// A loop over two filters with a delay of `delay` samples.
fn a_loop(delay: usize) -> Graph {
    let g = Builder::new("loop");
    let x = g.input("x", Type::F32);
    let past = g.feedback("past", Type::F32, delay, 0);
    let there = (x + past.out()).fir([0.01; 300]).named("there");
    let back = there.fir([0.01; 300]).named("back");
    past.close(back);
    g.output("y", there);
    g.build().unwrap()
}

#[test]
fn blocks_of_long_samples_are_short() {
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    // Samples of 16 bytes, of 400 KB, and of 4 MB, and a queue's ticks at most.
    for (floats, most) in [(4, 1024), (100_000, 2), (1_000_000, 1)] {
        let g = Builder::new("long");
        let kind = Type::F32.vector(floats);
        g.output("y", g.input("x", kind).gain(0.5).gain(0.5));
        let graph = g.build().unwrap();
        let plan = plan(&graph, &Costs::guessed(&graph), &cores, &Wishes::default()).unwrap();
        assert!(!plan.queues.is_empty(), "{plan}");
        assert!(
            plan.queues.iter().all(|queue| queue.block == most),
            "{plan}"
        );
        assert_eq!(longest_block(&graph, 1024), most);
    }
}

/// Imaginary parts lie in a block by themselves, each part in whole cache lines.
#[test]
fn queues_of_complex_numbers_have_the_bytes_that_their_plan_says() {
    let g = Builder::new("complex");
    let x = g.input("x", Type::F32.complex());
    g.output("y", x.fir([0.5; 9]).fir([0.5; 9]));
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0, 1], 1.0, 1000.0);
    let wishes = Wishes {
        block: Some(3),
        ..Wishes::default()
    };
    let plan = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap();
    let executor = Executor::new(&graph, settings(&plan, &graph)).unwrap();
    assert!(plan.queues.iter().all(|queue| queue.bytes == 128), "{plan}");
    assert!(
        executor
            .shape()
            .queues
            .iter()
            .all(|queue| queue.bytes == 128)
    );
}

#[test]
fn a_loop_is_split_with_blocks_that_its_delay_holds_twice() {
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    for (delay, partitions) in [(2048, 2), (100, 2), (1, 1)] {
        let graph = a_loop(delay);
        let costs = Costs::guessed(&graph);
        let plan = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
        assert_eq!(plan.partitions.len(), partitions, "{plan}");
        let blocks: u64 = plan
            .queues
            .iter()
            .filter(|queue| queue.from.is_some() && queue.to.is_some())
            .map(|queue| queue.initial)
            .sum();
        assert!(partitions == 1 || blocks >= 2, "{plan}");
        // The executor makes the same queues of it.
        let executor = Executor::new(&graph, settings(&plan, &graph)).unwrap();
        for queue in &executor.shape().queues {
            let id = |at: usize| executor.shape().partitions[at].id;
            let planned = plan
                .queues
                .iter()
                .find(|planned| planned.from == id(queue.from) && planned.to == id(queue.to));
            let planned = planned.expect("a queue of the plan");
            if planned.from.is_some() && planned.to.is_some() {
                assert_eq!(
                    (planned.block, planned.initial),
                    (queue.block, queue.initial as u64)
                );
            }
        }
    }
}

#[test]
fn what_is_pinned_stays_where_it_is_and_what_cannot_be_is_refused() {
    let graph = a_loop(4096);
    let costs = Costs::guessed(&graph);
    let cores = Cores::alike(vec![4, 6], 50.0, 10.0);
    let pinned = |pins: &[(&str, usize)]| {
        let pins = pins
            .iter()
            .map(|(path, cpu)| (path.to_string(), *cpu))
            .collect();
        plan(
            &graph,
            &costs,
            &cores,
            &Wishes {
                pins,
                ..Wishes::default()
            },
        )
    };
    let cpu = |plan: &Plan, path: &str| {
        let has = |partition: &&karoo_flow::place::Partition| {
            partition.nodes.iter().any(|node| node == path)
        };
        plan.partitions.iter().find(has).unwrap().cpu
    };
    let made = pinned(&[("there", 6), ("back", 6)]).unwrap();
    assert_eq!(
        (cpu(&made, "there"), cpu(&made, "back")),
        (Some(6), Some(6))
    );
    let made = pinned(&[("there", 6)]).unwrap();
    assert_eq!(
        (cpu(&made, "there"), cpu(&made, "back")),
        (Some(6), Some(4))
    );
    for (pin, wanted) in [(("there", 5), "there are 4, 6"), (("their", 4), "no node")] {
        let error = pinned(&[pin]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_plan_reads_back_what_it_writes_and_knows_its_graph() {
    let graph = a_loop(256);
    let costs = Costs::guessed(&graph);
    let kept = Costs::from_json(&costs.to_json(), &graph);
    assert_eq!(kept.as_ref(), Some(&costs));
    assert_eq!(Costs::from_json(&costs.to_json(), &a_loop(255)), None);
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    assert_eq!(Plan::from_json(&made.to_json()).unwrap(), made);
    let named = |name: &str| {
        let g = Builder::new(name);
        g.output("y", g.input("x", Type::F32).gain(2).named("here"));
        g.build().unwrap()
    };
    let refused = |made: &Plan, graph: &Graph| made.settings(graph).unwrap_err().to_string();
    let text = refused(&made, &named("other"));
    assert!(text.contains("this is other"), "{text}");
    let text = refused(&made, &named(graph.name()));
    assert!(text.contains("here"), "{text}");
    assert!(Plan::from_json("{}").is_err());
    for picture in [made.to_dot(), made.to_svg()] {
        assert!(
            picture.contains("partition 1") && picture.contains("there"),
            "{picture}"
        );
    }
}

#[test]
fn a_longer_filter_is_measured_to_cost_more() {
    let g = Builder::new("filters");
    let x = g.input("x", Type::F32);
    let short = x.fir([0.1; 2]).named("short");
    g.output("y", short.fir([0.1; 400]).named("long"));
    let graph = g.build().unwrap();
    let costs = measure(&graph, Default::default()).unwrap();
    let cost = |path: &str| costs.nodes[path].per_tick + costs.nodes[path].per_step / 256.0;
    assert!(
        costs.measured && cost("long") > cost("short") && cost("short") > 0.0,
        "{costs:?}"
    );
}

#[test]
fn marked_partitions_stay_together() {
    let g = Builder::new("marked");
    let x = g.input("x", Type::F32);
    let sum = g.scope("a", || {
        g.partition(3);
        x.gain(2).named("two").gain(3).named("three")
    });
    let y = g.scope("b", || {
        g.partition(7);
        sum.gain(4).named("four")
    });
    g.output("y", y);
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0, 1, 2], 50.0, 10.0);
    let wishes = Wishes {
        grouping: Grouping::Marked,
        ..Wishes::default()
    };
    let plan = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap();
    let with = |path: &str| {
        let has = |partition: &&karoo_flow::place::Partition| {
            partition.nodes.iter().any(|node| node == path)
        };
        plan.partitions.iter().find(has).unwrap().id
    };
    assert_eq!(with("a/two"), with("a/three"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn executors_follow_plans_of_random_graphs_to_the_same_bytes(
        turns in proptest::collection::vec(any::<Turn>(), 1..20),
        loops in proptest::collection::vec(any::<(u8, u8)>(), 0..3),
        seed in any::<u64>(),
        lengths in (0..500usize, 0..500usize),
    ) {
        let graph = random_graph(&turns, &loops);
        let cores = Cores::alike(vec![0, 1, 2], 50.0, 10.0);
        let wishes = Wishes { seed, looks: 300, longest_block: 64, ..Wishes::default() };
        let plan = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap();
        prop_assert!(plan.period_ns.is_finite());
        let inputs = [samples(lengths.0, 1), samples(lengths.1, 77)];
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        let executor = match Executor::new(&graph, settings(&plan, &graph)) {
            Ok(executor) => executor,
            Err(problems) => {
                prop_assert!(false, "{}\n{}", problems, plan);
                return Ok(());
            }
        };
        let shape = executor.shape();
        for queue in &shape.queues {
            let ends = [queue.from, queue.to].map(|at| shape.partitions[at].id);
            let planned = plan.queues.iter().find(|of| [of.from, of.to] == ends);
            let of = planned.map(|of| (of.initial, of.block, of.bytes));
            let made = (queue.initial as u64, queue.block, queue.bytes as u64);
            prop_assert_eq!(of, Some(made), "{}", plan);
        }
        let found = executor.run_values(&inputs).unwrap();
        prop_assert_eq!(bytes(&found), bytes(&wanted), "{}", plan);
    }
}

/// The costs of a graph whose nodes take what `of` says of their kinds, in nanoseconds a tick.
fn costs_of(graph: &Graph, queues: QueueCosts, of: impl Fn(&str) -> f64) -> Costs {
    let mut costs = Costs::guessed(graph);
    costs.queues = queues;
    costs.nodes = graph
        .ids()
        .map(|id| {
            let per_tick = of(graph.node(id).node.kind());
            let per_step = 0.0;
            (graph.path(id), Cost { per_tick, per_step })
        })
        .collect();
    costs
}

/// By itself the queue between the two would cost more than it gains: on one core they take 161 ns,
/// on two 61 and 180, of which copies take their parts.
#[test]
fn what_has_no_state_gets_copies_apart_from_what_has() {
    let g = Builder::new("both");
    let x = g.input("x", Type::F32);
    g.output("y", x.fir([0.5; 9]).gain(0.5));
    let graph = g.build().unwrap();
    let queues = QueueCosts {
        send_ns: 0.0,
        receive_ns: 0.0,
        byte_ns: 10.0,
        ..QueueCosts::default()
    };
    let costs = costs_of(&graph, queues, |kind| match kind {
        "fir" => 1.0,
        "gain" => 100.0,
        _ => 0.0,
    });
    let cores = Cores::alike((0..5).collect(), 0.0, 0.1);
    let alone = Wishes {
        copies: false,
        ..Wishes::default()
    };
    let made = plan(&graph, &costs, &cores, &alone).unwrap();
    assert_eq!((made.partitions.len(), made.period_ns.round()), (1, 161.0));
    let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    assert_eq!(made.partitions.len(), 2);
    assert_eq!(made.partitions[1].copies.len(), 2);
    assert_eq!(made.period_ns.round(), 61.0);
}

#[test]
fn threads_of_the_outside_have_cores_where_there_are_many() {
    let g = Builder::new("twelve");
    let mut wire = g.input("x", Type::F32);
    for _ in 0..12 {
        wire = wire.fir([0.5; 9]);
    }
    g.output("y", wire);
    let graph = g.build().unwrap();
    let costs = costs_of(&graph, QueueCosts::default(), |kind| match kind {
        "fir" => 100.0,
        _ => 0.0,
    });
    let used = |count: usize| {
        let cores = Cores::alike((0..count).collect(), 0.0, 10.0);
        let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
        made.partitions.len()
    };
    assert_eq!([used(6), used(8), used(14)], [6, 6, 12]);
}

/// A long filter behind short ones, which by themselves are not worth a core.
pub fn long_and_short(taps: usize) -> Graph {
    let g = Builder::new("long and short");
    let x = g.input("x", Type::F32);
    g.output("y", x.fir(vec![0.1; taps].as_slice()).fir([0.1; 2000]));
    g.build().unwrap()
}

#[test]
fn a_partition_that_gains_next_to_nothing_is_not_made() {
    let cores = Cores::alike(vec![0, 1, 2, 3], 50.0, 10.0);
    let wishes = Wishes {
        copies: false,
        ..Wishes::default()
    };
    for (taps, partitions) in [(4, 1), (1000, 2)] {
        let graph = long_and_short(taps);
        let costs = Costs::guessed(&graph);
        let made = plan(&graph, &costs, &cores, &wishes).unwrap();
        assert_eq!(made.partitions.len(), partitions, "{taps} taps: {made}");
    }
}

#[test]
fn more_work_goes_to_the_cpu_that_computes_faster() {
    let graph = long_and_short(1000);
    let costs = Costs::guessed(&graph);
    let alike = Cores::alike(vec![4, 7], 50.0, 10.0);
    let wishes = Wishes {
        copies: false,
        ..Wishes::default()
    };
    let made = |paces: Vec<f64>| {
        let cores = alike.clone().with_paces(paces);
        plan(&graph, &costs, &cores, &wishes).unwrap()
    };
    for (paces, fast) in [(vec![0.5, 1.0], 7), (vec![1.0, 0.5], 4)] {
        let plan = made(paces);
        let heaviest = plan.partitions.iter().max_by_key(|part| {
            let long = |path: &&String| path.contains("fir2");
            part.nodes.iter().filter(long).count()
        });
        assert_eq!(heaviest.unwrap().cpu, Some(fast), "{plan}");
    }
    // All CPUs at half the pace take twice the time, and one so slow is left alone.
    let (whole, half) = (made(vec![1.0, 1.0]), made(vec![0.5, 0.5]));
    let ratio = half.period_ns / whole.period_ns;
    assert!((ratio - 2.0).abs() < 0.01, "{ratio}: {half}");
    assert_eq!(made(vec![1.0, 0.05]).partitions.len(), 1);
}

/// What `expected` says of the plan's own costs and cores.
fn again(plan: &Plan, graph: &Graph, costs: &Costs, cores: &Cores) -> Plan {
    plan.expected(graph, costs, cores).unwrap()
}

#[test]
fn a_plan_is_expected_to_do_what_it_was_made_to_do() {
    let graph = long_and_short(1000);
    let costs = Costs::guessed(&graph);
    let cores = Cores::alike(vec![2, 4, 5, 7], 50.0, 10.0);
    for copies in [false, true] {
        for grouping in [Grouping::Free, Grouping::Marked] {
            let wishes = Wishes {
                copies,
                grouping,
                ..Wishes::default()
            };
            let made = plan(&graph, &costs, &cores, &wishes).unwrap();
            let read = Plan::from_json(&made.to_json()).unwrap();
            assert_eq!(again(&read, &graph, &costs, &cores), made);
        }
    }
}

#[test]
fn a_plan_is_expected_to_be_as_fast_as_its_cpus_and_its_costs() {
    let graph = long_and_short(1000);
    let costs = costs_of(&graph, QueueCosts::default(), |kind| match kind {
        "fir" => 100.0,
        _ => 0.0,
    });
    let cores = Cores::alike(vec![0, 1, 2], 0.0, 10.0);
    let wishes = Wishes {
        copies: false,
        ..Wishes::default()
    };
    let made = plan(&graph, &costs, &cores, &wishes).unwrap();
    assert_eq!(made.partitions.len(), 2, "{made}");
    let with = |paces: Vec<f64>| {
        let cores = cores.clone().with_paces(paces);
        again(&made, &graph, &costs, &cores).period_ns / made.period_ns
    };
    let slow = made.partitions[0].cpu.unwrap();
    let paces = |pace: f64| {
        let mut paces = vec![1.0; 3];
        paces[slow] = pace;
        paces
    };
    // The slower of two partitions that have the same to do; the third CPU does nothing.
    assert!((with(paces(0.8)) - 1.25).abs() < 0.01);
    assert!((with(vec![2.0; 3]) - 0.5).abs() < 0.01);
    // Costs of half.
    let mut half = costs.clone();
    for cost in half.nodes.values_mut() {
        cost.per_tick /= 2.0;
    }
    let ratio = again(&made, &graph, &half, &cores).period_ns / made.period_ns;
    assert!((0.5..0.52).contains(&ratio), "{ratio}");
}

#[test]
fn a_plan_of_other_cpus_or_another_graph_is_refused() {
    let graph = long_and_short(1000);
    let costs = Costs::guessed(&graph);
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let mut made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    let told = |made: &Plan, graph: &Graph, cores: &Cores| {
        let refused = made.expected(graph, &costs, cores).unwrap_err();
        refused.to_string()
    };
    let others = Cores::alike(vec![5, 6], 50.0, 10.0);
    assert!(told(&made, &graph, &others).contains("CPU 0, which is not among those given"));
    assert!(told(&made, &a_loop(64), &cores).contains("make it anew"));
    let mut twice = made.clone();
    twice.partitions[0].copies = vec![Some(1)];
    assert!(told(&twice, &graph, &cores).contains("used already"));
    let mut long = made.clone();
    let mut inner = long.queues.iter_mut();
    let inner = inner.find(|queue| queue.from.is_some() && queue.to.is_some());
    inner.unwrap().block = u64::MAX;
    assert!(told(&long, &graph, &cores).contains("at most"));
    let inner = made.queues.iter_mut();
    let mut inner = inner.filter(|queue| queue.from.is_some() && queue.to.is_some());
    inner.next().unwrap().block = 1021;
    assert!(told(&made, &graph, &cores).contains("no short round"));
    made.partitions[0].cpu = None;
    assert!(told(&made, &graph, &cores).contains("no CPU"));
}

//! Plans that are followed: changed by hand, and of graphs that have nothing to place.

use karoo_flow::analysis::Network;
use karoo_flow::nodes::{Function, FunctionOf, Unknown};
use karoo_flow::place::{
    Cores, Cost, Costs, Pass, Plan, PlanError, Queue, QueueCosts, TransferCost, Wishes, network,
    plan,
};
use karoo_flow::run::{Between, Transfer};
use karoo_flow::{Builder, Cause, Executor, Graph, Settings, Type, Value};

use super::placement::long_and_short;

/// A queue between two partitions.
fn inner(plan: &mut Plan) -> &mut Queue {
    let mut queues = plan.queues.iter_mut();
    let found = queues.find(|queue| queue.from.is_some() && queue.to.is_some());
    found.unwrap()
}

/// The queue from the inputs.
fn outer(plan: &mut Plan) -> &mut Queue {
    let mut queues = plan.queues.iter_mut();
    queues.find(|queue| queue.from.is_none()).unwrap()
}

#[test]
fn a_plan_that_was_changed_is_followed_in_all_or_refused() {
    let graph = long_and_short(1000);
    let costs = Costs::guessed(&graph);
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    made.settings(&graph).unwrap();
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Plan));
    let changes: [Change; 21] = [
        ("make it anew", &|plan| plan.graph = "another".into()),
        ("two partitions", &|plan| {
            plan.partitions[1].id = plan.partitions[0].id
        }),
        ("twice: leave it in one", &|plan| {
            let node = plan.partitions[0].nodes[0].clone();
            plan.partitions[1].nodes.push(node);
        }),
        ("no partition", &|plan| inner(plan).to = Some(77)),
        ("begins where it ends", &|plan| {
            let queue = inner(plan);
            queue.to = queue.from;
        }),
        ("is there twice", &|plan| {
            let queue = inner(plan).clone();
            plan.queues.push(queue);
        }),
        ("at least 1", &|plan| inner(plan).block = 0),
        ("must all have blocks", &|plan| outer(plan).block += 1),
        ("one capacity", &|plan| outer(plan).capacity += 1),
        ("one `transfer`", &|plan| {
            outer(plan).transfer = Transfer::Streaming
        }),
        ("a `step` of 0", &|plan| plan.step = 0),
        ("a `block` of 0 ticks: give 1 to", &|plan| plan.block = 0),
        ("4194305 ticks: give at most 4194304", &|plan| {
            inner(plan).block = (1 << 22) + 1
        }),
        ("a `period_ns` of 0", &|plan| {
            (plan.measured, plan.period_ns) = (true, 0.0)
        }),
        ("a `period_ns` of -5", &|plan| {
            (plan.measured, plan.period_ns) = (true, -5.0)
        }),
        ("`critical` names 77", &|plan| plan.critical.push(77)),
        ("0; write 0, or change the graph", &|plan| {
            inner(plan).initial = 5
        }),
        ("0; write 0, or change the graph", &|plan| {
            outer(plan).initial = 1
        }),
        ("from 1 to 0 carries nothing", &|plan| {
            let mut queue = inner(plan).clone();
            (queue.from, queue.to) = (queue.to, queue.from);
            plan.queues.push(queue);
        }),
        ("is left out, and the graph needs it", &|plan| {
            plan.queues.retain(|queue| queue.to.is_none());
        }),
        ("is left out, and the graph needs it", &|plan| {
            plan.queues.retain(|queue| queue.to.is_some());
        }),
    ];
    for (wanted, change) in changes {
        let mut changed = made.clone();
        change(&mut changed);
        let text = changed.settings(&graph).unwrap_err().to_string();
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// Who writes a plan by hand may leave the queues to the executor.
#[test]
fn a_plan_without_queues_has_the_usual_ones() {
    let graph = long_and_short(1000);
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let costs = Costs::guessed(&graph);
    let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    let mut text: serde_json::Value = serde_json::from_str(&made.to_json()).unwrap();
    text.as_object_mut().unwrap().remove("queues");
    text["block"] = 60.into();
    let plan = Plan::from_json(&text.to_string()).unwrap();
    let mut settings = plan.settings(&graph).unwrap();
    settings.cpus.clear();
    let shape = Executor::new(&graph, settings).unwrap().shape();
    assert_eq!(shape.queues.len(), made.queues.len());
    let usual = Settings::default().capacity;
    for queue in &shape.queues {
        assert!(queue.block == 60 && queue.capacity >= usual, "{queue:?}");
    }
    assert!(plan.expected(&graph, &costs, &cores).unwrap().rate() > 0.0);
}

#[test]
fn all_of_a_plan_is_followed() {
    let graph = long_and_short(1000);
    let costs = Costs::guessed(&graph);
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let mut made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    for queue in &mut made.queues {
        queue.transfer = match (queue.from, queue.to) {
            (Some(_), Some(_)) => Transfer::Marked,
            _ => Transfer::Copying,
        };
    }
    inner(&mut made).block = 64;
    let mut settings = made.settings(&graph).unwrap();
    settings.cpus.clear();
    let shape = Executor::new(&graph, settings).unwrap().shape();
    let id = |at: usize| shape.partitions[at].id;
    for queue in &shape.queues {
        let ends = (id(queue.from), id(queue.to));
        let planned = made.queues.iter().find(|of| (of.from, of.to) == ends);
        let planned = planned.unwrap();
        assert_eq!(
            (queue.block, queue.transfer, queue.initial as u64),
            (planned.block, planned.transfer, planned.initial)
        );
    }
    assert_eq!(shape.queues.len(), made.queues.len());
}

/// Ways were measured between partitions, and those of the outside told, but not taken.
#[test]
fn queues_of_the_outside_are_in_place() {
    let graph = long_and_short(1000);
    let mut costs = Costs::guessed(&graph);
    let cost = |transfer, ns| TransferCost {
        transfer,
        bytes: 64,
        ns,
    };
    costs.transfers = vec![
        cost(Transfer::InPlace, 20.0),
        cost(Transfer::Streaming, 10.0),
    ];
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
    for queue in &made.queues {
        let wanted = match (queue.from, queue.to) {
            (Some(_), Some(_)) => Transfer::Streaming,
            _ => Transfer::InPlace,
        };
        assert_eq!(queue.transfer, wanted);
    }
    made.settings(&graph).unwrap();
}

/// A loop over two gains of a hundred samples.
fn two_gains() -> Graph {
    let g = Builder::new("two gains");
    let x = g.input("x", Type::F32);
    let past = g.feedback("past", Type::F32, 100, 0);
    let there = (x + past.out()).gain(0.5).named("there");
    let back = there.gain(0.5).named("back");
    past.close(back);
    g.output("y", back);
    g.build().unwrap()
}

#[test]
fn what_would_stand_still_is_no_plan() {
    let graph = two_gains();
    let cores = Cores::alike(vec![4, 6], 50.0, 10.0);
    let with = |block: Option<u64>, pins: &[(&str, usize)]| {
        let wishes = Wishes {
            pins: pins.iter().map(|&(path, cpu)| (path.into(), cpu)).collect(),
            block,
            ..Wishes::default()
        };
        plan(&graph, &Costs::guessed(&graph), &cores, &wishes)
    };
    let apart = [("there", 4), ("back", 6)];
    let told = with(Some(256), &apart).unwrap_err();
    let PlanError::Graph(problems) = &told else {
        panic!("{told}");
    };
    assert_eq!(problems.0[0].cause, Cause::Loop);
    let text = told.to_string();
    for wanted in [
        "two gains: would stand still with blocks of 256 ticks: `there` and what else is on CPU 4, \
         `back` and what else is on CPU 6 wait for one another",
        "; blocks of 64 ticks would do",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    let made = with(Some(64), &apart).unwrap();
    assert!(made.period_ns.is_finite());
    // Where blocks are chosen, such are chosen.
    assert!(with(None, &apart).unwrap().period_ns.is_finite());
    // A way there and back has no delay at all.
    let g = Builder::new("back");
    let x = g.input("x", Type::F32).gain(2.0).named("a");
    g.output("y", x.gain(2.0).named("b").gain(2.0).named("c"));
    let graph = g.build().unwrap();
    let wishes = Wishes {
        pins: [("a", 4), ("b", 6), ("c", 4)]
            .map(|(path, cpu)| (path.into(), cpu))
            .into(),
        ..Wishes::default()
    };
    let told = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap_err();
    assert!(
        told.to_string().contains("no block is short enough"),
        "{told}"
    );
}

/// With marks or pins a loop may go over copies of a partition, turn by turn.
#[test]
fn a_loop_is_told_once_round() {
    let graph = two_gains();
    let cores = Cores::alike((0..8).collect(), 50.0, 10.0);
    let wishes = Wishes {
        pins: vec![("there".into(), 0), ("back".into(), 1)],
        ..Wishes::default()
    };
    let made = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap();
    let mut critical = made.critical.clone();
    critical.sort_unstable();
    critical.dedup();
    assert_eq!(critical.len(), made.critical.len(), "{made}");
}

/// Copies are threads too: a partition with four of them and two threads of the outside are more
/// than four CPUs.
#[test]
fn copies_count_among_the_threads_that_share_cpus() {
    let g = Builder::new("sine");
    let x = g.input("x", Type::F32);
    g.output(
        "y",
        x.then(Function {
            of: FunctionOf::Sin,
        })
        .named("s"),
    );
    let graph = g.build().unwrap();
    let cost = |per_tick: f64| Cost {
        per_tick,
        per_step: 0.0,
    };
    let mut costs = Costs::guessed(&graph);
    costs.nodes = [("s".to_string(), cost(12.0))].into();
    (costs.inputs, costs.outputs) = (cost(2.5), cost(2.5));
    let made = |cpus: usize| {
        let cores = Cores::alike((0..cpus).collect(), 50.0, 10.0);
        let made = plan(&graph, &costs, &cores, &Wishes::default()).unwrap();
        let again = made.expected(&graph, &costs, &cores).unwrap();
        assert_eq!(again.period_ns, made.period_ns);
        (made.period_ns, made.partitions[0].copies.len())
    };
    // All of the work on all of the CPUs.
    assert!(made(4).0 >= 17.0 / 4.0, "{:?}", made(4));
    assert!(made(2).0 >= 17.0 / 2.0, "{:?}", made(2));
    // No copies more than make it faster.
    assert!(made(4).1 <= 2, "{:?}", made(4));
    // With CPUs for all threads, the outside's own time is no part of the partition's.
    let many = made(10);
    assert!((2.5..4.0).contains(&many.0), "{many:?}");
}

/// Each delay walked the whole row: for an hour.
#[test]
fn a_row_of_many_delays_has_a_plan() {
    let g = Builder::new("delays");
    let mut wire = g.input("x", Type::F32).gain(0.5);
    for _ in 0..150_000 {
        wire = wire.delay(1, 0);
    }
    g.output("y", wire.gain(0.5));
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let wishes = Wishes {
        looks: 100,
        ..Wishes::default()
    };
    let made = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap();
    let nodes: usize = made.partitions.iter().map(|part| part.nodes.len()).sum();
    assert_eq!(nodes, 150_002);
}

/// What `flow check` looks at.
fn checked(graph: &Graph, costs: &Costs, settings: Settings) -> Network {
    network(&Executor::new(graph, settings).unwrap().shape(), costs)
}

#[test]
fn passes_steps_and_queues_are_part_of_a_partitions_time() {
    let g = Builder::new("gains");
    let x = g.input("x", Type::F32);
    g.output("y", x.gain(2.0).named("a").gain(3.0).named("b"));
    let graph = g.build().unwrap();
    let mut costs = Costs::guessed(&graph);
    let cost = |per_tick: f64, per_step: f64| Cost { per_tick, per_step };
    costs.nodes = [("a", 1.0), ("b", 2.0)]
        .map(|(path, per_tick)| (path.to_string(), cost(per_tick, 0.0)))
        .into();
    costs.passes = vec![Pass {
        nodes: vec!["a".into(), "b".into()],
        cost: cost(5.0, 64.0),
    }];
    costs.queues = QueueCosts {
        send_ns: 100.0,
        receive_ns: 10.0,
        byte_ns: 0.5,
        read_byte_ns: 0.25,
        step_ns: 36.0,
    };
    let settings = Settings {
        block: 1024,
        step: 512,
        ..Settings::default()
    };
    let one = checked(&graph, &costs, settings.clone());
    // Two steps; a queue from the inputs and one to the outputs, of 4096 bytes a block.
    let (steps, ends) = (2 * (64 + 36), 100 + 10 + 2048 + 1024);
    assert_eq!(one.partitions[0].busy, 1024 * (1 + 2 + 5) + steps + ends);
    // Apart, each has a pass of its own.
    let mut partitions = vec![0; graph.nodes().len()];
    partitions[graph.find("b").unwrap().index()] = 1;
    let two = Settings {
        partitions: Some(partitions),
        ..settings
    };
    let two = checked(&graph, &costs, two);
    assert_eq!(two.partitions[0].busy, 1024 * (1 + 5) + steps + ends);
    assert_eq!(two.partitions[1].busy, 1024 * (2 + 5) + steps + ends);
}

/// Half a block of the longest is no block, and a loop with none stands still.
#[test]
fn short_queues_of_a_loop_are_not_taken_to_be_empty() {
    let g = Builder::new("loop");
    let x = g.input("x", Type::F32);
    let past = g.feedback("past", Type::F32, 64, 0);
    let there = (x + past.out()).gain(0.5).named("there");
    let back = there.gain(0.5).named("back");
    past.close(back);
    g.output("y", back.gain(2.0).named("behind"));
    let graph = g.build().unwrap();
    let mut partitions = vec![0; graph.nodes().len()];
    for (path, partition) in [("back", 1), ("past", 1), ("behind", 2)] {
        partitions[graph.find(path).unwrap().index()] = partition;
    }
    let between = |from: u32, to: u32, block: u64| Between {
        from,
        to,
        block,
        capacity: 2,
        transfer: Transfer::default(),
    };
    let settings = Settings {
        partitions: Some(partitions),
        block: 256,
        between: vec![between(0, 1, 32), between(1, 0, 32), between(1, 2, 256)],
        ..Settings::default()
    };
    let found = checked(&graph, &Costs::guessed(&graph), settings);
    assert!(found.queues.iter().any(|queue| queue.initial > 0));
    found.analyse(None).unwrap();
}

#[test]
fn costs_that_are_no_times_are_not_taken() {
    let graph = two_gains();
    let costs = Costs::guessed(&graph);
    let read = |change: &dyn Fn(&mut Costs)| {
        let mut changed = costs.clone();
        change(&mut changed);
        Costs::from_json(&changed.to_json(), &graph)
    };
    assert_eq!(read(&|_| ()), Some(costs.clone()));
    let wrong: [&dyn Fn(&mut Costs); 9] = [
        &|costs| costs.queues.send_ns = -1e9,
        &|costs| costs.queues.receive_ns = 1e12,
        &|costs| costs.queues.byte_ns = -0.1,
        &|costs| costs.queues.read_byte_ns = -1.0,
        &|costs| costs.queues.step_ns = -1.0,
        &|costs| costs.inputs.per_tick = -5.0,
        &|costs| costs.outputs.per_step = 1e30,
        &|costs| costs.loops_per_second = Some(0.0),
        &|costs| {
            let (transfer, bytes, ns) = (Transfer::InPlace, 64, -3.0);
            costs.transfers = vec![TransferCost {
                transfer,
                bytes,
                ns,
            }];
        },
    ];
    for (at, change) in wrong.into_iter().enumerate() {
        assert_eq!(read(change), None, "{at}");
    }
}

#[test]
fn a_graph_without_work_has_a_plan() {
    let g = Builder::new("nothing");
    let x = g.input("x", Type::F32);
    g.output("y", x);
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0, 1, 2], 50.0, 10.0);
    let made = plan(&graph, &Costs::guessed(&graph), &cores, &Wishes::default()).unwrap();
    assert!(made.partitions.is_empty());
    let text = made.to_string();
    assert!(
        text.contains("expected: any rate") && !text.contains("inf"),
        "{text}"
    );
    let executor = Executor::new(&graph, made.settings(&graph).unwrap()).unwrap();
    let samples: Vec<Value> = (0..5000).map(|n| Value::from(n as f32)).collect();
    let out = executor.run_values(std::slice::from_ref(&samples)).unwrap();
    assert_eq!(out[0], samples);
}

/// Of another format, whose blocks are to be replaced one by one.
#[test]
fn a_graph_with_a_block_of_no_kind_has_a_plan_and_no_run() {
    let g = Builder::new("unknown");
    let x = g.input("x", Type::F32);
    let unknown = Unknown {
        called: "Warp".into(),
        inputs: 1,
        outputs: vec![Type::F32],
    };
    g.output("y", x.gain(2.0).then(unknown));
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let made = plan(&graph, &Costs::guessed(&graph), &cores, &Wishes::default()).unwrap();
    let refused = Executor::new(&graph, made.settings(&graph).unwrap()).err();
    let text = refused.unwrap().to_string();
    assert!(text.contains("no node of the kind \"Warp\""), "{text}");
}

#[test]
fn rates_that_are_too_far_apart_are_told_with_the_way_out() {
    let g = Builder::new("rates");
    let x = g.input("x", Type::I16);
    g.output("y", x.repeat(1 << 20).repeat(4096));
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0], 50.0, 10.0);
    let refused = plan(&graph, &Costs::guessed(&graph), &cores, &Wishes::default());
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("after more than 4194304 ticks: use smaller"),
        "{text}"
    );
}

#[test]
fn tables_that_have_a_cpu_twice_are_refused() {
    let twice = Cores::alike(vec![0, 1, 0], 50.0, 10.0).check().unwrap_err();
    assert!(twice.contains("CPU 0 is there twice"), "{twice}");
}

#[test]
fn a_row_of_20000_gains_has_a_plan() {
    let g = Builder::new("row");
    let mut wire = g.input("x", Type::F32);
    for _ in 0..20_000 {
        wire = wire.gain(0.99);
    }
    g.output("y", wire);
    let graph = g.build().unwrap();
    let cores = Cores::alike(vec![0, 1], 50.0, 10.0);
    let wishes = Wishes {
        looks: 2000,
        ..Wishes::default()
    };
    let made = plan(&graph, &Costs::guessed(&graph), &cores, &wishes).unwrap();
    let busy: Vec<f64> = made.partitions.iter().map(|part| part.busy_ns).collect();
    assert!(
        busy.len() == 2 && busy[0] / busy[1] > 0.9 && busy[1] / busy[0] > 0.9,
        "{busy:?}"
    );
}

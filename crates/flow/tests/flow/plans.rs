//! Plans that are followed: changed by hand, and of graphs that have nothing to place.

use karoo_flow::place::{Cores, Costs, Plan, Queue, Wishes, plan};
use karoo_flow::{Builder, Executor, Type, Value};

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
    let changes: [Change; 9] = [
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
    ];
    for (wanted, change) in changes {
        let mut changed = made.clone();
        change(&mut changed);
        let text = changed.settings(&graph).unwrap_err().to_string();
        assert!(text.contains(wanted), "{wanted}: {text}");
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
    let executor = Executor::new(&graph, made.settings(&graph).unwrap()).unwrap();
    let samples: Vec<Value> = (0..5000).map(|n| Value::from(n as f32)).collect();
    let out = executor.run_values(std::slice::from_ref(&samples)).unwrap();
    assert_eq!(out[0], samples);
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

//! Copies of partitions without state: the same bytes, whatever their number.

use karoo_flow::nodes::{Function, FunctionOf};
use karoo_flow::place::{Cores, Cost, Costs, Wishes, plan};
use karoo_flow::run::{Between, Transfer};
use karoo_flow::{Builder, Executor, Graph, Interpreter, Settings, Type};
use proptest::prelude::*;

use crate::executor::samples;
use crate::partitionings::bytes;

/// A filter, something without state at half the rate with a constant and two ways in, and a sum.
fn graph() -> Graph {
    let g = Builder::new("copied");
    let (x, y) = (g.input("x", Type::F32), g.input("y", Type::F32));
    let front = g.scope("front", || {
        g.partition(0);
        x.fir([0.5, 0.25, -0.125])
    });
    let middle = g.scope("middle", || {
        g.partition(1);
        let sine = (front * y).named("mixed").then(Function {
            of: FunctionOf::Sin,
        });
        (sine + g.constant(Type::F32, 0.25)).down(2).named("slow")
    });
    let back = g.scope("back", || {
        g.partition(2);
        let past = g.feedback("past", Type::F32, 3, 1);
        let sum = middle + past.out().gain(0.5);
        past.close(sum);
        sum
    });
    g.output("out0", back);
    g.output("out1", middle);
    g.build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::partitionings::cases(40)))]
    #[test]
    fn copies_give_the_interpreters_bytes(
        copies in 0..4usize, block in 1..60u64, capacity in 2..5usize, step in 1..40u64,
        kind in 0..Transfer::ALL.len(), lengths in (0..900usize, 0..900usize),
    ) {
        let graph = graph();
        let inputs = [samples(lengths.0, 5), samples(lengths.1, 9)];
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        let settings = Settings {
            block,
            capacity,
            step,
            transfer: Transfer::ALL[kind],
            copies: [(1, vec![None; copies])].into(),
            ..Settings::default()
        };
        let executor = Executor::new(&graph, settings).unwrap();
        prop_assert_eq!(executor.shape().partitions.len(), 5 + copies);
        prop_assert_eq!(bytes(&executor.run_values(&inputs).unwrap()), bytes(&wanted));
    }
}

#[test]
fn what_cannot_be_copied_is_refused_with_the_reason() {
    let graph = graph();
    let refused = |copies: &[(u32, usize)], between: Vec<Between>| {
        let copies = copies
            .iter()
            .map(|&(id, count)| (id, vec![None; count]))
            .collect();
        let settings = Settings {
            copies,
            between,
            ..Settings::default()
        };
        Executor::new(&graph, settings).unwrap_err().to_string()
    };
    assert!(refused(&[(0, 1)], vec![]).contains("has a state: give it a partition of its own"));
    assert!(refused(&[(7, 1)], vec![]).contains("there is none of this number"));
    let longer = Between {
        from: 1,
        to: 2,
        block: 4096,
        capacity: 8,
        transfer: Transfer::InPlace,
    };
    assert!(refused(&[(1, 2)], vec![longer]).contains("give them one size"));
}

#[test]
fn a_plan_copies_the_partition_that_limits_it() {
    let graph = graph();
    let mut costs = Costs::guessed(&graph);
    for (path, cost) in &mut costs.nodes {
        let per_tick = if path == "middle/mixed" { 60.0 } else { 2.0 };
        *cost = Cost {
            per_tick,
            per_step: 0.0,
        };
    }
    let cores = Cores::alike((0..5).collect(), 30.0, 20.0);
    let wishes = Wishes {
        looks: 3000,
        ..Wishes::default()
    };
    let made = plan(&graph, &costs, &cores, &wishes).unwrap();
    let copied: usize = made
        .partitions
        .iter()
        .map(|partition| partition.copies.len())
        .sum();
    assert!(copied >= 2, "{made}");
    // Three cores at 60 ns share what one would take.
    assert!(made.period_ns < 32.0, "{made}");
    let mut cpus: Vec<usize> = made
        .partitions
        .iter()
        .flat_map(|partition| {
            partition
                .cpu
                .iter()
                .chain(partition.copies.iter().flatten())
        })
        .copied()
        .collect();
    let all = cpus.len();
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), all, "each has a CPU of its own: {made}");
    let mut settings = made.settings(&graph).unwrap();
    settings.cpus.clear();
    settings
        .copies
        .values_mut()
        .for_each(|cpus| cpus.fill(None));
    let inputs = [samples(5000, 5), samples(5000, 9)];
    let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    let executor = Executor::new(&graph, settings).unwrap();
    assert_eq!(
        bytes(&executor.run_values(&inputs).unwrap()),
        bytes(&wanted)
    );
    let alone = plan(
        &graph,
        &costs,
        &cores,
        &Wishes {
            copies: false,
            ..wishes
        },
    )
    .unwrap();
    assert!(alone.period_ns >= 60.0 && alone.partitions.iter().all(|p| p.copies.is_empty()));
}

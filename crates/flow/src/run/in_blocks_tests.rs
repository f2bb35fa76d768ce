//! Which signals work in the blocks that they come in.

use super::super::link::Receiver;
use super::super::{Executor, Settings};
use crate::{Builder, Graph, Type};

/// Ports of the first partition that work in blocks.
fn in_blocks(graph: &Graph, settings: Settings) -> usize {
    let settings = Settings {
        partitions: Some(vec![0; graph.nodes().len()]),
        ..settings
    };
    let executor = Executor::new(graph, settings).unwrap();
    let readers = graph.inputs().map(|_| Box::new(std::io::empty()) as _);
    let writers = graph.outputs().map(|_| Box::new(std::io::sink()) as _);
    let run = executor.prepare(readers.collect(), writers.collect());
    let queues = &run.unwrap().workers[0].queues;
    queues.receivers.iter().map(Receiver::ports_in_blocks).sum()
}

fn steps(step: u64, block: u64) -> Settings {
    Settings {
        step,
        block,
        ..Settings::default()
    }
}

#[test]
fn what_comes_is_read_in_blocks() {
    let g = Builder::new("product");
    let (x, y) = (g.input("x", Type::F32), g.input("y", Type::F32));
    g.output("z", (x * y).gain(2.0));
    let graph = g.build().unwrap();
    assert_eq!(in_blocks(&graph, steps(256, 256)), 2);
    assert_eq!(in_blocks(&graph, steps(128, 256)), 2);
    // The second part of a block would begin within a cache line.
    assert_eq!(in_blocks(&graph, steps(8, 256)), 0);
    let copies = Settings {
        in_blocks: false,
        ..steps(256, 256)
    };
    assert_eq!(in_blocks(&graph, copies), 0);
}

#[test]
fn what_stays_is_copied() {
    // The filter looks at samples of the step before.
    let g = Builder::new("filter");
    g.output("y", g.input("x", Type::F32).fir([1.0, 2.0, 3.0].as_slice()));
    assert_eq!(in_blocks(&g.build().unwrap(), steps(256, 256)), 0);
    // The block has gone back when the signal goes on.
    let g = Builder::new("through");
    let x = g.input("x", Type::F32);
    g.output("same", x);
    g.output("late", x.delay(16, 0));
    assert_eq!(in_blocks(&g.build().unwrap(), steps(256, 256)), 0);
}

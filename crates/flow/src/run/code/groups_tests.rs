//! What operations filters become that are written as products, delays and sums.

use super::super::super::Settings;
use super::super::super::layout::{FIRST_PARTITION, Layout};
use super::super::{PartitionCode, Way};
use crate::kernels::Level;
use crate::{Builder, Graph, Ratio, Type};

/// The names of all operations of a graph, in one partition.
fn operations(graph: &Graph) -> Vec<String> {
    let settings = Settings {
        partitions: Some(vec![0; graph.nodes().len()]),
        ..Settings::default()
    };
    let mut layout = Layout::of(graph, &settings).unwrap();
    layout.cross();
    let code = PartitionCode::new(&layout.partitions[FIRST_PARTITION], Level::PORTABLE, false);
    let mut names = Vec::new();
    for unit in &code.units {
        let Way::Vector(ops) = &unit.way else {
            panic!("all of it goes over many samples");
        };
        let name = |text: String| text.split([' ', '{']).next().unwrap_or_default().to_owned();
        names.extend(ops.iter().map(|op| name(format!("{op:?}"))));
    }
    assert_eq!(
        code.lines.len(),
        names.iter().filter(|name| *name == "Begin").count()
    );
    names
}

/// A filter of 9 taps whose delays, behind the sums, begin with these numbers.
fn filter(begins: [f64; 8], oldest: f64) -> Graph {
    let g = Builder::new("filter");
    let x = g.input("x", Type::F32);
    let mut sum = x.gain(oldest);
    for begin in begins {
        sum = sum.delay(1, begin) + x.gain(0.3);
    }
    g.output("y", sum);
    g.build().unwrap()
}

#[test]
fn a_filter_is_one_operation_and_another_for_what_it_begins_with() {
    assert_eq!(operations(&filter([0.0; 8], 0.5)), ["Fir"]);
    let begins = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(operations(&filter(begins, 0.5)), ["Fir", "Begin"]);
    // Samples of 0 before the first would make it NaN.
    assert_eq!(
        operations(&filter([0.0; 8], f64::INFINITY)),
        ["Fir", "Begin"]
    );
}

/// The operations of a gain behind copies, which come out too if they are wanted.
fn repeated(by: u64, also: bool) -> Vec<String> {
    let g = Builder::new("repeated");
    let x = g.input_at("x", Type::F32, Ratio::new(1, by as _).unwrap());
    let all = x.repeat(by);
    g.output("y", all.gain(3.0));
    if also {
        g.output("also", all);
    }
    operations(&g.build().unwrap())
}

#[test]
fn a_pass_begins_with_the_numbers_that_are_repeated() {
    assert_eq!(repeated(256, false), ["Chain"]);
    // Few copies, or copies that are needed elsewhere.
    assert_eq!(repeated(255, false), ["Up", "Chain"]);
    assert_eq!(repeated(256, true), ["Up", "Chain"]);
}

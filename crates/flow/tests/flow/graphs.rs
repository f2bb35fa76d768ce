//! What is refused, and how it is named.

use std::sync::Arc;

use karoo_flow::nodes::{Comparison, Demodulate, Lookup, Lut, Machine, Output, Sum};
use karoo_flow::{
    Builder, Cause, Draft, MAX_LITERALS, Problems, Ratio, Scalar, ScopeId, Source, Type,
};

fn refused(g: Builder) -> Problems {
    g.build().expect_err("the graph is wrong")
}

#[test]
fn all_that_is_wrong_is_named_at_once() {
    let g = Builder::new("wrong");
    let x = g.input("x", Type::F32);
    let v = g.input("v", Type::F32.vector(3));
    let w = g.input("w", Type::F32.vector(4));
    g.scope("a", || {
        g.scope("b", || (x + g.input("n", Type::I16)).named("types"));
        (v + w).named("sizes");
        (x + x.down(3).named("down")).named("rates");
        x.looped("loop", "scaled");
    });
    g.add(
        Sum {
            signs: "++".into(),
            output: None,
        },
        [x],
    )
    .named("open");
    x.delay(1 << 30, 0).named("long");
    x.gain(1).named("x");
    let problems = refused(g);
    let text = problems.to_string();
    for (cause, path) in [
        (Cause::Type, "a/b/types: "),
        (
            Cause::Size,
            "a/sizes: input 2 has 4 elements where input 1 has 3",
        ),
        (
            Cause::Rate,
            "a/rates: takes `a/down` at rate 1/3 where its own rate is 1",
        ),
        (
            Cause::Loop,
            "a/scaled: depends on itself in the same cycle: a/scaled -> a/loop -> a/scaled",
        ),
        (Cause::Connection, "open: input 2 of 2 has no source"),
        (Cause::Parameter, "long: a delay of 1073741824 samples"),
        (Cause::Name, "x: a node has the path of another"),
    ] {
        assert_eq!(
            problems.count(cause),
            if cause == Cause::Connection { 2 } else { 1 },
            "{cause:?} in {text}"
        );
        assert!(
            text.lines().any(|line| line.starts_with(path)),
            "{path} in {text}"
        );
    }
}

#[test]
fn a_loop_through_a_delay_is_none() {
    for (length, loops) in [(0, 1), (1, 0), (7, 0)] {
        let g = Builder::new("loop");
        let x = g.input("x", Type::F64);
        let past = g.feedback("past", Type::F64, length, 0);
        let y = x + past.out().gain(0.5);
        past.close(y);
        g.output("y", y);
        let problems = g
            .build()
            .map_or_else(|problems| problems, |_| Problems::default());
        assert_eq!(
            problems.count(Cause::Loop),
            loops,
            "a delay of {length}: {problems}"
        );
    }
}

#[test]
fn each_loop_is_named_once() {
    let g = Builder::new("loops");
    let x = g.input("x", Type::F32);
    x.looped("a", "b");
    x.looped("c", "d");
    let problems = refused(g);
    assert_eq!(problems.count(Cause::Loop), 2, "{problems}");
    assert_eq!(
        problems.0.len(),
        2,
        "what only follows from the loops is not told: {problems}"
    );
}

#[test]
fn a_mistake_is_not_repeated_downstream() {
    let g = Builder::new("chain");
    let wrong = g.input("x", Type::F32) + g.input("n", Type::U8);
    let end = (0..20).fold(wrong, |wire, _| wire.gain(2).delay(1, 0));
    g.output("y", end);
    assert_eq!(refused(g).0.len(), 1);
}

#[test]
fn rates_are_found_against_the_flow_and_through_loops() {
    let g = Builder::new("rates");
    let x = g.input_at("x", Type::F32, Ratio::new(4, 1).unwrap());
    // The loop at a quarter of that learns its rate from `down`; the constant goes with any.
    let past = g.feedback("past", Type::F32, 1, 0);
    let y = (x.down(4) + past.out() * g.constant(Type::F32, 0.5)).named("slow");
    past.close(y);
    g.output("y", y.up(3).named("up"));
    let graph = g.build().unwrap();
    let rate = |path| {
        graph
            .node(graph.find(path).unwrap())
            .rate
            .map(|rate| rate.to_string())
    };
    assert_eq!(rate("past").as_deref(), Some("1"));
    assert_eq!(rate("slow").as_deref(), Some("1"));
    assert_eq!(rate("up").as_deref(), Some("3"));
    assert_eq!(rate("y").as_deref(), Some("3"));
}

#[test]
fn a_loop_without_a_type_asks_for_one() {
    let problems = {
        let g = Builder::new("untyped");
        let x = g.input("x", Type::F32);
        x.looped_by_delay();
        refused(g)
    };
    assert!(
        problems.to_string().contains("give the delay its type"),
        "{problems}"
    );
}

#[test]
fn signals_leave_an_enabled_subsystem_by_a_hold_alone() {
    let make = |hold: bool| {
        let g = Builder::new("enabled");
        let x = g.input("x", Type::F32);
        let on = g.input("on", Type::BOOL);
        let inside = g.enabled("sub", on, || {
            let y = x.gain(2).named("twice");
            if hold { y.hold(0) } else { y }
        });
        g.output("y", inside);
        g.build()
    };
    assert!(make(true).is_ok());
    let problems = make(false).unwrap_err();
    assert_eq!(problems.count(Cause::Context), 1);
    assert!(
        problems
            .to_string()
            .starts_with("sub/twice: leaves the enabled subsystem `sub` for `y`"),
        "{problems}"
    );
}

#[test]
fn an_enable_signal_is_a_bool_from_outside_and_rates_do_not_change_within() {
    let g = Builder::new("enabled");
    let x = g.input("x", Type::F32);
    g.enabled("number", x, || ());
    let on = x.compare(Comparison::Greater, g.constant(Type::F32, 0));
    g.enabled("rate", on, || x.down(2).named("down"));
    let problems = refused(g);
    assert_eq!(problems.count(Cause::Type), 1, "{problems}");
    assert!(
        problems
            .to_string()
            .contains("rate/down: changes the rate inside a subsystem"),
        "{problems}"
    );
}

#[test]
fn a_machine_says_which_port_does_not_fit() {
    let g = Builder::new("machine");
    let x = g.input("x", Type::F32.vector(2));
    let machine = Machine::new("m", [Type::F32], [Type::F32], || (), |(), _, _| {});
    g.add(machine, [x]).named("m");
    let problems = refused(g);
    assert_eq!(
        problems.to_string(),
        "m: input 1 of `m` is f32[2]: it must be f32"
    );
    assert_eq!(problems.0[0].cause, Cause::Size);
}

#[test]
fn wires_of_another_graph_are_refused() {
    let (one, other) = (Builder::new("one"), Builder::new("other"));
    let wire = other.input("x", Type::F32);
    one.output("y", wire);
    // Told once: the input is open for no other reason.
    assert_eq!(
        refused(one).to_string(),
        "y: a wire of another graph: make both nodes with one builder"
    );
}

#[test]
fn outputs_that_a_node_has_not_are_named_with_both_nodes() {
    let g = Builder::new("ports");
    let x = g.input("x", Type::F32);
    g.scope("deep", || (x + x.gain(2).named("twice").port(3)).named("k"));
    g.enabled("on", x.port(1), || x.gain(1).hold(0));
    assert_eq!(
        refused(g).to_string(),
        "on: its enable signal takes output 2 of `x`, which has 1\n\
         deep/k: input 2 takes output 4 of `deep/twice`, which has 1"
    );
    let mut long = Draft::new("long");
    let output = |draft: &mut Draft| draft.node("k", ScopeId::TOP, Arc::new(Output {}));
    let node = [(); 3].map(|()| output(&mut long))[2];
    let mut short = Draft::new("short");
    output(&mut short);
    short.nodes[0].from[0] = Some(Source { node, port: 0 });
    assert_eq!(
        short.check().unwrap_err().to_string(),
        "k: input 1 takes node 2: there are 1"
    );
}

#[test]
fn more_numbers_than_one_parameter_may_have_are_refused() {
    let many = vec![1.0f32; MAX_LITERALS + 1];
    let g = Builder::new("many");
    let x = g.input("x", Type::F32);
    x.fir(&many[..]).named("fir");
    x.delay(many.len(), &many[..]).named("delay");
    x.delay(0, &many[..]).named("short");
    x.then(Lut {
        first: 0.0,
        step: 1.0,
        table: many[..].into(),
        between: Lookup::Linear,
        output: Scalar::F32,
    })
    .named("lut");
    x.then(Demodulate {
        points: many[..].into(),
        output: Scalar::I32,
    })
    .named("demodulate");
    let problems = refused(g);
    assert_eq!(problems.count(Cause::Parameter), 5, "{problems:.1000}");
    for path in [
        "fir: taps",
        "delay: initial",
        "short: initial",
        "lut: table",
        "demodulate: points",
    ] {
        let text = format!("{path}: 1048577 numbers are given: give at most 1048576");
        assert!(problems.to_string().contains(&text), "{problems:.1000}");
    }
    let g = Builder::new("most");
    let x = g.input("x", Type::F32);
    g.output("y", x.fir(&many[1..]));
    g.build().unwrap();
}

#[test]
fn conversions_join_types() {
    let g = Builder::new("types");
    let n = g.input("n", Type::I16);
    let x = g.input("x", Type::F32.complex().vector(3));
    g.output("y", (x * n.to(Scalar::F32)).named("product"));
    let graph = g.build().unwrap();
    let product = graph.find("product").unwrap();
    assert_eq!(graph.node(product).outputs, [Type::F32.complex().vector(3)]);
}

/// Loops without a delay, or without a type.
trait Looped {
    fn looped(self, sum: &str, gain: &str);
    fn looped_by_delay(self);
}

impl Looped for karoo_flow::Wire<'_> {
    fn looped(self, sum: &str, gain: &str) {
        let g = self.builder();
        let open = g.open(
            gain,
            karoo_flow::nodes::Gain {
                gain: 0.5.into(),
                output: None,
            },
        );
        let y = (self + open.out()).named(sum);
        open.close(y);
    }
    fn looped_by_delay(self) {
        let g = self.builder();
        let open = g.open(
            "past",
            karoo_flow::nodes::Delay {
                length: 1,
                initial: 0.into(),
                of: None,
            },
        );
        let y = self + open.out();
        open.close(y);
    }
}

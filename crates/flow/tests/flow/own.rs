//! What nodes of one's own may do wrong: it is named, and changes nothing that comes out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use karoo_flow::nodes::Machine;
use karoo_flow::run::Failure;
use karoo_flow::{
    Builder, Cause, Executor, Graph, Interpreter, Mismatch, Node, Settings, Step, Type, Value,
};

use crate::edges::ramp;

/// Sums all that comes, under the name of a kind of the library.
#[derive(Debug)]
struct Total;

struct Totalling(f32);

impl Step for Totalling {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        self.0 += inputs[0].to_f64s()[0] as f32;
        outputs[0] = Value::from(self.0);
    }
}

impl Node for Total {
    fn kind(&self) -> &str {
        "gain"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(inputs.to_vec())
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Totalling(0.0))
    }
    fn parameters(&self) -> Option<toml::Table> {
        None
    }
}

#[test]
fn a_node_with_the_name_of_a_kind_of_the_library_is_not_copied_for_that() {
    let g = Builder::new("named");
    let x = g.input("x", Type::F32);
    let y = g.scope("s", || {
        g.partition(1);
        g.add(Total, [x]).named("total")
    });
    g.output("y", y);
    let settings = Settings {
        copies: BTreeMap::from([(1, vec![None])]),
        ..Settings::default()
    };
    let refused = Executor::new(&g.build().unwrap(), settings).unwrap_err();
    assert!(
        refused.to_string().contains("s/total has a state"),
        "{refused}"
    );
}

/// A machine `m` whose state comes from `initial`, with a gain behind it.
fn behind<S: Send + 'static>(
    of: Type,
    initial: impl Fn() -> S + Send + Sync + 'static,
    advance: impl Fn(&mut S, &[Value], &mut [Value]) + Send + Sync + 'static,
) -> Graph {
    let g = Builder::new("own");
    let x = g.input("x", Type::F32);
    let machine = Machine::new("m", [Type::F32], [of], initial, advance);
    g.output("y", g.add(machine, [x]).named("m").gain(2));
    g.build().unwrap()
}

fn failure(graph: &Graph) -> Failure {
    let executor = Executor::new(graph, Settings::default()).unwrap();
    executor.run_values(&[ramp(3)]).unwrap_err()
}

#[test]
fn samples_of_another_type_end_a_run_of_the_interpreter_as_one_of_an_executor() {
    let wide = Type::F32.vector(4);
    for (of, wrong) in [
        (Type::F32, Value::from(1.5f64)),
        (Type::F32, Value::from(true)),
        (Type::F32, Value::zero(wide)),
        (wide, Value::zero(Type::F32.vector(3))),
    ] {
        let text = format!("put out {} where its output is {of}", wrong.kind());
        let put = wrong.clone();
        let graph = behind(of, || (), move |(), _, outputs| outputs[0] = put.clone());
        assert_eq!(failure(&graph).to_string(), format!("m: {text}"));
        let mut interpreter = Interpreter::new(&graph).unwrap();
        let problems = interpreter.run(&[ramp(3)]).unwrap_err();
        assert_eq!(problems.to_string(), format!("m: {text}"));
        assert_eq!(problems.0[0].cause, Cause::Type);
        assert_eq!(interpreter.run_for(2).unwrap_err(), problems);
    }
}

#[test]
fn nodes_start_in_runs_alone_and_are_named_if_they_cannot() {
    let starts = Arc::new(AtomicUsize::new(0));
    let counts = starts.clone();
    let initial = move || {
        if counts.fetch_add(1, Ordering::Relaxed) == 1 {
            panic!("no second state");
        }
    };
    let graph = behind(Type::F32, initial, |(), inputs, outputs| {
        outputs[0] = inputs[0].clone();
    });
    let executor = Executor::new(&graph, Settings::default()).unwrap();
    let _ = executor.shape();
    assert_eq!(starts.load(Ordering::Relaxed), 0);
    assert_eq!(executor.run_values(&[ramp(3)]).unwrap()[0].len(), 3);
    let failure = executor.run_values(&[ramp(3)]).unwrap_err();
    assert_eq!(failure.to_string(), "m: no second state");
}

#[test]
fn a_panic_without_words_is_told_as_one() {
    let graph = behind(Type::F32, || (), |(), _, _| std::panic::panic_any(5));
    assert_eq!(failure(&graph).to_string(), "m: panicked");
}

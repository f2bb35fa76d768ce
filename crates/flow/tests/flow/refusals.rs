//! What an executor refuses of settings and inputs, and what it says.

use std::collections::BTreeMap;

use karoo_flow::run::UNMARKED;
use karoo_flow::{Builder, Executor, Graph, Settings, Type, Value};

use crate::edges::ramp;

fn doubled() -> Graph {
    let g = Builder::new("doubled");
    let x = g.input("x", Type::F32);
    g.output("y", x.gain(2));
    g.build().unwrap()
}

#[test]
fn as_many_streams_as_inputs_are_wanted() {
    let g = Builder::new("three");
    g.output("y", g.constant(Type::U8, 3));
    let three = g.build().unwrap();
    for (graph, given, inputs) in [(&three, 1, 0), (&doubled(), 0, 1), (&doubled(), 2, 1)] {
        let executor = Executor::new(graph, Settings::default()).unwrap();
        let failure = executor.run_values(&vec![ramp(2); given]).unwrap_err();
        let text = format!("run: {given} input streams are given: there are {inputs} inputs");
        assert_eq!(failure.to_string(), text);
    }
    let executor = Executor::new(&doubled(), Settings::default()).unwrap();
    assert_eq!(
        executor.run_values(&[ramp(1)]).unwrap(),
        [[Value::from(2f32)]]
    );
}

#[test]
fn priorities_that_no_thread_may_have_are_refused() {
    let made = |priority| {
        let settings = Settings {
            real_time: Some(priority),
            ..Settings::default()
        };
        Executor::new(&doubled(), settings).map(|_| ())
    };
    for priority in [1, 99] {
        made(priority).unwrap();
    }
    for priority in [0, 100, 255] {
        let text = format!("doubled: a real-time priority of {priority}: it must be 1 to 99");
        assert_eq!(made(priority).unwrap_err().to_string(), text);
    }
}

#[test]
fn cpus_that_a_pinned_thread_may_not_use_are_said_to_be_that_threads() {
    let cpus = core_affinity::get_core_ids().unwrap();
    let [own, other, ..] = cpus[..] else {
        println!("no second CPU");
        return;
    };
    let made = std::thread::spawn(move || {
        assert!(core_affinity::set_for_current(own));
        let settings = Settings {
            cpus: BTreeMap::from([(UNMARKED, other.id)]),
            ..Settings::default()
        };
        Executor::new(&doubled(), settings).map(|_| ())
    });
    let refused = made.join().unwrap().unwrap_err().to_string();
    let may = format!("the thread that makes the executor may use {};", own.id);
    assert!(refused.contains(&may), "{refused}");
}

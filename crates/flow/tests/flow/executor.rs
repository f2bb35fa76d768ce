//! Where the executor waits, how its runs end, and what it refuses.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};

use karoo_flow::nodes::{Compare, Comparison, Counter, Hold, Machine};
use karoo_flow::run::Failure;
use karoo_flow::{Builder, Executor, Graph, Interpreter, Scalar, Settings, Type, Value};

/// Numbers from −2 to 2 without a pattern.
pub fn samples(count: usize, seed: u32) -> Vec<Value> {
    let next = |n: usize| (n as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 12;
    (0..count)
        .map(|n| Value::from(next(n) as f32 / 262_144.0 - 2.0))
        .collect()
}
/// x -> a -> b -> y in two partitions, with a loop of `length` samples through both.
fn looped(length: usize) -> Graph {
    let g = Builder::new("loop");
    let x = g.input("x", Type::F32);
    let past = g.scope("b", || {
        g.partition(1);
        g.feedback("past", Type::F32, length, 0)
    });
    let sum = g.scope("a", || {
        g.partition(0);
        x + past.out()
    });
    let half = g.scope("b2", || {
        g.partition(1);
        sum.gain(0.5)
    });
    past.close(half);
    g.output("y", half);
    g.build().unwrap()
}

#[test]
fn delays_become_initial_blocks_by_whole_blocks_alone() {
    for (block, initial) in [(24, Some(2)), (50, Some(1)), (64, None)] {
        let settings = Settings {
            block,
            ..Settings::default()
        };
        let graph = looped(50);
        match (Executor::new(&graph, settings), initial) {
            (Ok(executor), Some(initial)) => {
                let text = executor.to_string();
                let line = format!(
                    "partition 1 -> partition 0: 1 signal, 8 blocks of {block} ticks, {initial} at the start"
                );
                assert!(text.contains(&line), "{text}");
                let inputs = [samples(333, 5)];
                let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
                assert_eq!(executor.run_values(&inputs).unwrap(), wanted);
            }
            (Err(problems), None) => {
                let text = problems.to_string();
                assert!(
                    text.contains("partition 0, partition 1 wait for one another"),
                    "{text}"
                );
                assert!(
                    text.contains("partition 1 -> partition 0 has no block of 64 ticks"),
                    "{text}"
                );
            }
            (found, _) => panic!("{block}: {found:?}"),
        }
    }
}

#[test]
fn a_queue_that_holds_too_little_is_refused_and_a_longer_one_runs() {
    // Two ways from a to c, one of them 3 blocks late: the other must hold as many.
    let make = |capacity| {
        let g = Builder::new("ways");
        let x = g.input("x", Type::F32);
        let a = g.scope("a", || {
            g.partition(0);
            x.gain(2)
        });
        let b = g.scope("b", || {
            g.partition(1);
            a.gain(3)
        });
        let c = g.scope("c", || {
            g.partition(2);
            b + a.delay(30, 1)
        });
        g.output("y", c);
        let settings = Settings {
            block: 10,
            capacity,
            ..Settings::default()
        };
        let graph = g.build().unwrap();
        let executor = Executor::new(&graph, settings).unwrap();
        let inputs = [samples(200, 9)];
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        assert_eq!(executor.run_values(&inputs).unwrap(), wanted, "{capacity}");
    };
    (1..6).for_each(make);
}

#[test]
fn a_graph_without_inputs_runs_up_to_its_limit() {
    let g = Builder::new("count");
    let count = g.add(
        Counter {
            period: 7,
            initial: 3,
            output: Scalar::U8,
        },
        [],
    );
    g.output("count", count);
    g.output("two", g.constant(Type::I16, 2));
    let graph = g.build().unwrap();
    let settings = |limit| Settings {
        block: 32,
        limit,
        ..Settings::default()
    };
    let out = Executor::new(&graph, settings(Some(100)))
        .unwrap()
        .run_values(&[])
        .unwrap();
    let wanted = Interpreter::new(&graph).unwrap().run_for(100);
    assert_eq!(out, wanted.unwrap());
    let failure = Executor::new(&graph, settings(None))
        .unwrap()
        .run_values(&[])
        .unwrap_err();
    assert!(failure.text.contains("give `limit`"), "{failure}");
}

#[test]
fn a_limit_ends_a_run_at_its_sample() {
    let graph = looped(50);
    for limit in [0, 1, 10, 11, 499] {
        let settings = Settings {
            block: 10,
            limit: Some(limit),
            ..Settings::default()
        };
        let inputs = samples(300, 4);
        let out = Executor::new(&graph, settings)
            .unwrap()
            .run_values(std::slice::from_ref(&inputs))
            .unwrap();
        let kept = &inputs[..(limit as usize).min(300)];
        assert_eq!(
            out,
            Interpreter::new(&graph)
                .unwrap()
                .run(&[kept.to_vec()])
                .unwrap()
        );
    }
}

/// 0 for ever.
struct Endless;

impl Read for Endless {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        bytes.fill(0);
        Ok(bytes.len())
    }
}

/// A chain of two partitions, the second with a machine that does `step`.
fn with_machine(step: impl Fn(&mut u32, &mut [Value]) + Send + Sync + 'static) -> Executor {
    let g = Builder::new("chain");
    let x = g.input("x", Type::F32);
    let first = g.scope("first", || {
        g.partition(0);
        x.gain(2)
    });
    let y = g.scope("second", || {
        g.partition(1);
        let machine = Machine::new(
            "m",
            [Type::F32],
            [Type::F32],
            || 0,
            move |n, _, o| step(n, o),
        );
        g.add(machine, [first]).named("machine")
    });
    g.output("y", y);
    Executor::new(&g.build().unwrap(), Settings::default()).unwrap()
}

fn run_endless(executor: &Executor, writer: Box<dyn Write>) -> Failure {
    executor
        .prepare(vec![Box::new(Endless)], vec![writer])
        .unwrap()
        .run()
        .unwrap_err()
}

#[test]
fn what_fails_is_named_and_everything_ends() {
    let panics = with_machine(|count, _| {
        *count += 1;
        assert!(*count < 5000, "counted too far");
    });
    let failure = run_endless(&panics, Box::new(std::io::sink()));
    assert_eq!(failure.path, "second/machine");
    assert!(failure.text.contains("counted too far"), "{failure}");

    let changes = with_machine(|_, outputs| outputs[0] = Value::from(1u8));
    let failure = run_endless(&changes, Box::new(std::io::sink()));
    assert_eq!(
        failure.to_string(),
        "second/machine: put out u8 where its output is f32"
    );

    let fine = with_machine(|_, _| {});
    let full: &mut [u8] = Box::leak(Box::new([0; 100]));
    let failure = run_endless(&fine, Box::new(Cursor::new(full)));
    assert!(
        failure.to_string().starts_with("y: cannot be written"),
        "{failure}"
    );

    let torn = fine.prepare(
        vec![Box::new(Cursor::new(vec![0; 4002]))],
        vec![Box::new(std::io::sink())],
    );
    let failure = torn.unwrap().run().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "x: ends 2 bytes into a sample of 4: give whole samples"
    );
}

/// A writer that ends the run once it has written so much.
struct Quits(std::rc::Rc<std::cell::RefCell<(Option<karoo_flow::run::Handle>, usize)>>);

impl Write for Quits {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut state = self.0.borrow_mut();
        state.1 += bytes.len();
        if state.1 > 100_000
            && let Some(handle) = &state.0
        {
            handle.quit();
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_run_that_is_to_quit_drains() {
    let executor = with_machine(|_, _| {});
    let written = std::rc::Rc::new(std::cell::RefCell::new((None, 0)));
    let run = executor
        .prepare(
            vec![Box::new(Endless)],
            vec![Box::new(Quits(written.clone()))],
        )
        .unwrap();
    written.borrow_mut().0 = Some(run.handle());
    let outcome = run.run().unwrap();
    assert_eq!(written.borrow().1 as u64, 4 * outcome.ticks);
    assert!(outcome.ticks.is_multiple_of(1024));
}

#[test]
fn telemetry_tells_ticks_of_each_partition_and_names_units() {
    let executor = with_machine(|_, _| {});
    let run = executor
        .prepare(
            vec![Box::new(Endless.take(4 * 1024 * 200))],
            vec![Box::new(std::io::sink())],
        )
        .unwrap();
    let outcome = run.run().unwrap();
    let telemetry = outcome.telemetry;
    assert_eq!(outcome.ticks, 1024 * 200);
    let names: Vec<&str> = telemetry
        .partitions
        .iter()
        .map(|part| part.name.as_str())
        .collect();
    assert_eq!(names, ["inputs", "outputs", "partition 0", "partition 1"]);
    for part in &telemetry.partitions {
        assert!(part.ticks >= outcome.ticks, "{part:?}");
        assert_eq!(
            part.busy + part.waiting,
            telemetry.elapsed.max(part.waiting),
            "{part:?}"
        );
    }
    assert_eq!(telemetry.partitions[3].units[0].0, "second/machine");
    assert!(telemetry.partitions[3].steps.count > 0);
    assert!(telemetry.latency.count > 0 && telemetry.latency.least > 0);
    assert_eq!(telemetry.queues.len(), 3);
    assert!(
        telemetry
            .queues
            .iter()
            .all(|queue| queue.fill.count > 0 && queue.fill.most <= 8)
    );
    assert!(telemetry.limit_in_words().is_some());
    let json: serde_json::Value = serde_json::from_str(&telemetry.to_json()).unwrap();
    assert_eq!(json["queues"][0]["capacity"], 8);
}

#[test]
fn a_cpu_that_there_is_not_is_refused() {
    let settings = Settings {
        cpus: BTreeMap::from([(0, 100_000)]),
        ..Settings::default()
    };
    let problems = Executor::new(&looped(2000), settings).unwrap_err();
    assert!(problems.to_string().contains("CPU 100000"), "{problems}");
}

#[test]
fn partitions_run_on_the_cpus_they_are_given() {
    let cpu = core_affinity::get_core_ids().unwrap().last().unwrap().id;
    let settings = Settings {
        cpus: BTreeMap::from([(0, cpu), (1, cpu)]),
        ..Settings::default()
    };
    let graph = looped(2000);
    let inputs = [samples(5000, 6)];
    let out = Executor::new(&graph, settings)
        .unwrap()
        .run_values(&inputs)
        .unwrap();
    assert_eq!(out, Interpreter::new(&graph).unwrap().run(&inputs).unwrap());
}

#[test]
fn a_comparison_of_two_kinds_crosses_partitions() {
    // An enable signal from another partition, and a subsystem in two of them.
    let g = Builder::new("enabled");
    let x = g.input("x", Type::F32);
    let on = g.scope("control", || {
        g.partition(0);
        g.add(
            Compare {
                relation: Comparison::Less,
            },
            [x, x.delay(1, 0)],
        )
    });
    let y = g.enabled("sub", on, || {
        let twice = g.scope("one", || {
            g.partition(1);
            x.gain(2).delay(2, 9)
        });
        g.scope("two", || {
            g.partition(2);
            (twice + x).hold(-3)
        })
    });
    g.output("y", y);
    let graph = g.build().unwrap();
    let inputs = [samples(1000, 3)];
    let settings = Settings {
        block: 48,
        step: 16,
        ..Settings::default()
    };
    let out = Executor::new(&graph, settings)
        .unwrap()
        .run_values(&inputs)
        .unwrap();
    assert_eq!(out, Interpreter::new(&graph).unwrap().run(&inputs).unwrap());
}

#[test]
fn a_run_that_is_stopped_at_a_sample_puts_out_all_up_to_there() {
    let executor = with_machine(|_, _| {});
    for tick in [0, 1, 1023, 1024, 5000] {
        let mut out = Vec::new();
        let run = executor
            .prepare(vec![Box::new(Endless)], vec![Box::new(&mut out)])
            .unwrap();
        run.handle().stop_at(tick);
        assert_eq!(run.run().unwrap().ticks, tick);
        assert_eq!(out.len() as u64, 4 * tick);
    }
}

/// The scheduling policy of the calling thread: 1 is that of real time.
fn policy() -> u32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let behind_the_name = &stat[stat.rfind(')').unwrap() + 2..];
    behind_the_name.split(' ').nth(38).unwrap().parse().unwrap()
}

#[test]
fn a_pinned_thread_gets_real_time_priority_or_says_why_not() {
    let g = Builder::new("policy");
    let x = g.input("x", Type::U32);
    let machine = Machine::new(
        "m",
        [Type::U32],
        [Type::U32],
        || (),
        |(), _, o| o[0] = Value::from(policy()),
    );
    g.output(
        "y",
        g.scope("s", || {
            g.partition(0);
            g.add(machine, [x])
        }),
    );
    let graph = g.build().unwrap();
    let cpu = core_affinity::get_core_ids().unwrap()[0].id;
    let settings = Settings {
        cpus: BTreeMap::from([(0, cpu)]),
        real_time: Some(1),
        ..Settings::default()
    };
    let executor = Executor::new(&graph, settings).unwrap();
    let mut out = Vec::new();
    let run = executor
        .prepare(
            vec![Box::new(Cursor::new(vec![0; 4]))],
            vec![Box::new(&mut out)],
        )
        .unwrap();
    let notes = run.run().unwrap().telemetry.notes;
    let real_time = out == 1u32.to_le_bytes();
    assert!(real_time == notes.is_empty(), "{out:?} {notes:?}");
}

#[test]
fn a_filter_longer_than_its_steps_has_the_interpreters_bits() {
    for (taps, step) in [(1500, 512), (1500, 16), (3000, 100)] {
        let g = Builder::new("long");
        let x = g.input("x", Type::F32);
        let taps: Vec<f64> = (0..taps).map(|k| 1.0 / (k + 1) as f64).collect();
        g.output("y", x.gain(0.5).fir(taps.as_slice()));
        g.output("late", x.delay(2000, 1).fir(&taps[..1300]));
        let graph = g.build().unwrap();
        let inputs = [samples(2500, 4)];
        let settings = Settings {
            step,
            ..Settings::default()
        };
        let executor = Executor::new(&graph, settings).unwrap();
        let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
        assert_eq!(executor.run_values(&inputs).unwrap(), wanted);
    }
}

/// The delay is worked on ahead of what it delays, since both are in a loop, and starts with
/// another value than the one that is held.
#[test]
fn a_value_that_is_held_from_the_start_is_delayed_in_a_loop() {
    let g = Builder::new("held");
    let x = g.input("x", Type::F32);
    let past = g.feedback("past", Type::F32, 131, 1);
    let never = x.compare(Comparison::Greater, x);
    let held = g.enabled("held", never, || {
        past.out().then(Hold {
            initial: (-1.0).into(),
        })
    });
    let delayed = held.delay(87, 0.25);
    past.close(delayed.gain(0.5));
    g.output("y", delayed);
    let graph = g.build().unwrap();
    let inputs = [samples(300, 3)];
    let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    let start = [
        vec![Value::from(0.25f32); 87],
        vec![Value::from(-1.0f32); 213],
    ]
    .concat();
    assert!(wanted == [start]);
    for step in [23, 87, 300] {
        let settings = Settings {
            step,
            ..Settings::default()
        };
        let executor = Executor::new(&graph, settings).unwrap();
        let found = executor.run_values(&inputs).unwrap();
        assert!(found == wanted, "in steps of {step}");
    }
}

#[test]
fn a_long_row_of_gains_and_sums_is_made_and_runs() {
    // Each operation has all before it as what only it needs.
    let g = Builder::new("a long row");
    let mut wire = g.input("x", Type::F32);
    for index in 0..4000 {
        wire = wire.gain(0.99) + g.constant(Type::F32, 0.001 * f64::from(index % 7));
    }
    g.output("y", wire);
    let graph = g.build().unwrap();
    let inputs = [samples(300, 3)];
    let wanted = Interpreter::new(&graph).unwrap().run(&inputs).unwrap();
    let executor = Executor::new(&graph, Settings::default()).unwrap();
    assert_eq!(executor.run_values(&inputs).unwrap(), wanted);
}

//! Partitions that no output needs: nodes that note what they get.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use karoo_flow::nodes::{Counter, Machine};
use karoo_flow::run::{Between, Handle, Transfer};
use karoo_flow::{Builder, Executor, Graph, Scalar, Settings, Type, Value};

use super::edges::ramp;

/// Notes what it gets.
fn notes(kind: Type, seen: &Arc<Mutex<Vec<Value>>>) -> Machine<()> {
    let seen = seen.clone();
    Machine::new(
        "notes",
        [kind],
        [],
        || (),
        move |_, inputs, _| {
            seen.lock().unwrap().push(inputs[0].clone());
        },
    )
}

/// An input in partition 0, and a node in partition 1 that notes twice its samples.
fn noted(has_output: bool, seen: &Arc<Mutex<Vec<Value>>>) -> Graph {
    let g = Builder::new("noted");
    let x = g.input("x", Type::F32);
    let y = g.scope("first", || {
        g.partition(0);
        x.gain(2)
    });
    g.scope("second", || {
        g.partition(1);
        g.add(notes(Type::F32, seen), [y]);
    });
    if has_output {
        g.output("y", y);
    }
    g.build().unwrap()
}

#[test]
fn partitions_that_no_output_needs_get_all_samples() {
    for (count, block) in [(1, 1024), (50_000, 64), (50_000, 4096)] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        // Longer blocks than the output's: they fill up behind the end.
        let between = Between {
            from: 0,
            to: 1,
            block: 8 * block,
            capacity: 2,
            transfer: Transfer::InPlace,
        };
        let settings = Settings {
            block,
            between: vec![between],
            ..Settings::default()
        };
        let executor = Executor::new(&noted(true, &seen), settings).unwrap();
        executor.run_values(&[ramp(count)]).unwrap();
        let seen = seen.lock().unwrap();
        let wanted = (1..=count).map(|n| Value::from(2.0 * n as f32));
        assert!(
            seen.iter().take(count).cloned().eq(wanted),
            "{count} {block}"
        );
        // Zeros fill the last step.
        assert!(
            seen[count..]
                .iter()
                .all(|value| *value == Value::from(0f32))
        );
    }
}

#[test]
fn a_graph_of_nothing_but_a_partition_that_notes_runs_to_its_end() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let g = Builder::new("noted");
    let x = g.input("x", Type::F32);
    g.add(notes(Type::F32, &seen), [x]);
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    executor.run_values(&[ramp(10_000)]).unwrap();
    assert_eq!(seen.lock().unwrap()[..10_000], ramp(10_000));
}

#[test]
fn a_partition_behind_copies_gets_all_samples() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let settings = Settings {
        block: 64,
        copies: BTreeMap::from([(0, vec![None, None])]),
        ..Settings::default()
    };
    let executor = Executor::new(&noted(false, &seen), settings).unwrap();
    executor.run_values(&[ramp(10_000)]).unwrap();
    let seen = seen.lock().unwrap();
    let wanted = (1..=10_000).map(|n| Value::from(2.0 * n as f32));
    assert!(seen.iter().take(10_000).cloned().eq(wanted));
    // No copy computes on what is behind the end.
    assert!(seen.len() <= 10_000 + 4 * 64, "{}", seen.len());
}

/// Asks for the end after some bytes.
struct Enough(Receiver<Handle>, usize);

impl Write for Enough {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1 += bytes.len();
        if self.1 > 20_000_000
            && let Ok(handle) = self.0.try_recv()
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
fn a_run_that_is_to_quit_does_not_wait_for_what_runs_free() {
    let count = || Counter {
        period: 1 << 32,
        initial: 0,
        output: Scalar::U64,
    };
    let done = Arc::new(Mutex::new(0u64));
    let told = done.clone();
    let g = Builder::new("free");
    g.scope("fast", || {
        g.partition(0);
        g.output("y", g.add(count(), []).gain(1));
    });
    let slow = g.scope("source", || {
        g.partition(1);
        g.add(count(), []).gain(1)
    });
    g.scope("slow", || {
        g.partition(2);
        let works = Machine::new(
            "works",
            [Type::of(Scalar::U64)],
            [],
            || (),
            move |_, _, _| {
                // Longer than an output takes by far.
                for n in 0..10_000 {
                    std::hint::black_box(n);
                }
                *told.lock().unwrap() += 1;
            },
        );
        g.add(works, [slow]);
    });
    let executor = Executor::new(&g.build().unwrap(), Settings::default()).unwrap();
    let (ended, wait) = channel();
    thread::spawn(move || {
        let (told, handle) = channel();
        let run = executor.prepare(vec![], vec![Box::new(Enough(handle, 0))]);
        let run = run.unwrap();
        told.send(run.handle()).unwrap();
        ended.send(run.run().unwrap().ticks).unwrap();
    });
    let ticks = wait.recv_timeout(Duration::from_secs(60)).expect("it ends");
    let done = *done.lock().unwrap();
    assert!(done < ticks, "{done} of {ticks}");
}

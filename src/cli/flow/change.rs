//! Changes of numbers that a command line asks for.

use std::io::{self, Read, Write};
use std::str::FromStr;

use karoo_flow::run::Handle;
use karoo_flow::{Executor, Graph, Literals};
use serde::Deserialize;

use crate::cli::Failure;

/// Other numbers for a node from a tick on.
#[derive(Clone, Debug)]
pub struct ChangeAt {
    pub path: String,
    pub numbers: Literals,
    pub tick: u64,
}

impl FromStr for ChangeAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Holder {
            numbers: Literals,
        }
        let form = || "write PATH=NUMBERS@TICK, such as low=[0.5, 0.5]@1000".to_owned();
        let (path, rest) = text.split_once('=').ok_or_else(form)?;
        let (numbers, tick) = rest.rsplit_once('@').ok_or_else(form)?;
        let tick = tick
            .trim()
            .parse()
            .map_err(|_| format!("`{tick}` is no tick; {}", form()))?;
        let read: Result<Holder, _> = toml::from_str(&format!("numbers = {numbers}"));
        let holder = read.map_err(|_| format!("`{numbers}` are no numbers; {}", form()))?;
        Ok(ChangeAt {
            path: path.trim().to_owned(),
            numbers: holder.numbers,
            tick,
        })
    }
}

/// Refuses changes of what is not there, or has no such numbers.
pub fn check(graph: &Graph, changes: &[ChangeAt]) -> Result<(), Failure> {
    for ChangeAt { path, numbers, .. } in changes {
        let refused = |why: &str| Failure::usage(format!("--change {path}: {why}"));
        let Some(id) = graph.find(path) else {
            let why = "there is no such node; give the path of a constant, a gain or a filter";
            return Err(refused(why));
        };
        let node = &graph.node(id).node;
        node.takes(numbers).map_err(|why| refused(&why))?;
        let is_output = |out| graph.node(out).from[0].node == id;
        if node.constant() && graph.outputs().any(is_output) {
            return Err(refused(
                "it is an output by itself; put a `pass` between them",
            ));
        }
    }
    Ok(())
}

/// Asks a run for changes.
pub fn put(handle: &Handle, changes: &[ChangeAt]) -> Result<(), Failure> {
    changes.iter().try_for_each(|change| {
        let done = handle.change(&change.path, change.numbers.clone(), change.tick);
        done.map(drop)
            .map_err(|error| Failure::usage(format!("--change {error}")))
    })
}

/// Asks a run that never begins for them: what it refuses is known before anything is opened.
pub fn try_out(graph: &Graph, executor: &Executor, changes: &[ChangeAt]) -> Result<(), Failure> {
    if changes.is_empty() {
        return Ok(());
    }
    let reader = |_| Box::new(io::empty()) as Box<dyn Read + Send>;
    let writer = |_| Box::new(io::sink()) as Box<dyn Write>;
    let (readers, writers) = (graph.inputs().map(reader), graph.outputs().map(writer));
    let run = executor.prepare(readers.collect(), writers.collect());
    put(&run.map_err(Failure::data)?.handle(), changes)
}

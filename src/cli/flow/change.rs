//! Changes of numbers that a command line asks for.

use std::collections::BTreeSet;
use std::str::FromStr;

use karoo_flow::run::{Handle, changeable};
use karoo_flow::{Executor, Graph, Literals};
use serde::Deserialize;

use crate::cli::Failure;
use crate::cli::numbers::whole_number;

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
        // Names may have an equals sign, numbers have none.
        let (path, rest) = text.rsplit_once('=').ok_or_else(form)?;
        let (numbers, tick) = rest.rsplit_once('@').ok_or_else(form)?;
        let tick = whole_number(tick.trim(), &form())?;
        let read: Result<Holder, _> = toml::from_str(&format!("numbers = {numbers}"));
        let holder =
            read.map_err(|_| format!("`{numbers}` is not a list of numbers: {}", form()))?;
        Ok(ChangeAt {
            path: path.trim().to_owned(),
            numbers: holder.numbers,
            tick,
        })
    }
}

/// Refuses changes of what is not there, or has no numbers, and two of one node at one tick.
pub fn check(graph: &Graph, changes: &[ChangeAt]) -> Result<(), Failure> {
    let mut known = BTreeSet::new();
    let mut ends = changes.iter().map(|change| (&change.path, change.tick));
    if let Some((path, tick)) = ends.find(|end| !known.insert(*end)) {
        return Err(Failure::usage(format!(
            "--change {path}=…@{tick}: this node has two changes at this tick; leave one out"
        )));
    }
    let paths: Vec<String> = changes.iter().map(|change| change.path.clone()).collect();
    let found = changeable(graph, &paths);
    found
        .map(drop)
        .map_err(|problems| Failure::usage(format!("--change {problems}")))
}

/// Refuses numbers that their nodes do not take.
pub fn check_numbers(executor: &Executor, changes: &[ChangeAt]) -> Result<(), Failure> {
    changes.iter().try_for_each(|change| {
        let takes = executor.takes(&change.path, &change.numbers);
        takes.map_err(|error| Failure::usage(format!("--change {error}")))
    })
}

/// Asks a run for changes.
pub fn put(handle: &Handle, changes: &[ChangeAt]) -> Result<(), Failure> {
    changes.iter().try_for_each(|change| {
        let done = handle.change(&change.path, change.numbers.clone(), change.tick);
        done.map(drop)
            .map_err(|error| Failure::usage(format!("--change {error}")))
    })
}

/// The changes that a run of so many ticks did not come to.
fn unreached(changes: &[ChangeAt], ticks: u64) -> impl Iterator<Item = &ChangeAt> {
    changes.iter().filter(move |change| change.tick >= ticks)
}

/// Warns of changes that a run of so many ticks did not come to.
pub fn tell_unreached(changes: &[ChangeAt], ticks: u64) {
    for change in unreached(changes, ticks) {
        tracing::warn!(
            "--change {}=…@{}: the run ended before, at tick {ticks}: give an earlier tick, or a \
             longer run",
            change.path,
            change.tick
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_the_end_of_a_run_or_behind_it_are_not_reached() {
        let at = |tick: u64| format!("a=1@{tick}").parse().unwrap();
        let changes: [ChangeAt; 4] = [0, 99, 100, 5000].map(at);
        let found: Vec<u64> = unreached(&changes, 100).map(|change| change.tick).collect();
        assert_eq!(found, [100, 5000]);
    }

    #[test]
    fn a_path_may_have_what_parts_it_from_the_numbers() {
        let change: ChangeAt = "in/a=b@c = [0.5, \"1+2i\"] @ 7".parse().unwrap();
        assert_eq!((&change.path[..], change.tick), ("in/a=b@c", 7));
        assert_eq!(change.numbers.len(), 2);
        for wrong in ["a", "a=1", "a@1", "a=1@x", "a=@1", "=1"] {
            assert!(wrong.parse::<ChangeAt>().is_err(), "{wrong}");
        }
    }
}

//! What a part runs in a step, in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::delay::{Line, Pass, Recall, Remember};
use super::lane::Signal;
use super::layout::Part;
use super::schedule::{self, Unit};
use super::slow::Stepping;

/// What a node did that it must not do.
#[derive(Debug)]
pub(super) struct Fault {
    /// The node's index in its part.
    pub item: usize,
    pub text: String,
}

/// One unit: called once for each step, with the signals of the part.
pub(super) trait Run: Send {
    fn run(&mut self, signals: &mut [Signal]) -> Result<(), Fault>;
}

/// A unit with the nodes in it.
pub(super) struct Running {
    pub run: Box<dyn Run>,
    pub items: Vec<usize>,
}

/// The units of a part in their initial state.
pub(super) fn start(part: &Part) -> Vec<Running> {
    let mut running = Vec::new();
    let mut lines = HashMap::new();
    for unit in schedule::units(part) {
        let (run, items): (Box<dyn Run>, Vec<usize>) = match unit {
            Unit::Whole(item) => (whole(part, item), vec![item]),
            Unit::BySample(items) => (Box::new(Stepping::new(part, &items)), items),
            Unit::Recall(item) => {
                let Some(line) = Line::new(part, item) else {
                    continue;
                };
                let line = Arc::new(Mutex::new(line));
                lines.insert(item, line.clone());
                (Box::new(Recall(line)), vec![item])
            }
            Unit::Remember(item) => match lines.remove(&item) {
                Some(line) => (Box::new(Remember(line)), vec![item]),
                None => continue,
            },
        };
        running.push(Running { run, items });
    }
    running
}

/// The fastest form of a node that works on a whole step.
fn whole(part: &Part, item: usize) -> Box<dyn Run> {
    let delay = part.items[item]
        .as_ref()
        .is_some_and(|item| item.plain_delay() > 0);
    if delay && let Some(line) = Line::new(part, item).filter(Line::serves) {
        return Box::new(Pass(line));
    }
    Box::new(Stepping::new(part, &[item]))
}

//! Nodes run as the interpreter runs them, one sample after the other: whatever has no faster form.

use std::sync::Arc;

use super::change::Due;
use super::lane::Slot;
use super::layout::{PartitionLayout, PartitionNode};
use super::unit::Fault;
use crate::interpreter::wrong;
use crate::kernels::lane::Lane;
use crate::node::{self, Step};
use crate::types::Type;
use crate::value::Value;

/// Nodes in an order in which each follows what it depends on in the same cycle.
pub(super) struct Stepping {
    nodes: Vec<Node>,
    /// The nodes at work, one for each; none before the start.
    steps: Vec<Box<dyn Step>>,
    /// The present value of each signal that is read or made here.
    values: Vec<Value>,
    /// What is made elsewhere.
    taken: Vec<Taken>,
    /// Constants that may change: the parameter of each, and its value.
    constants: Vec<(usize, usize)>,
    ticks: u64,
    /// Changes within the next step.
    due: Vec<Due>,
}

struct Node {
    item: usize,
    parameter: Option<usize>,
    node: Arc<dyn node::Node>,
    inputs: Vec<Type>,
    outputs: Vec<Type>,
    period: u64,
    from: Vec<usize>,
    to: Vec<Made>,
    enables: Vec<usize>,
}

struct Taken {
    slot: Slot,
    value: usize,
    period: u64,
}

#[derive(Clone, Copy)]
struct Made {
    slot: Slot,
    value: usize,
}

impl Stepping {
    pub fn new(partition: &PartitionLayout, members: &[usize], slots: &[Slot]) -> Stepping {
        let mut known: Vec<Option<usize>> = vec![None; partition.shapes.len()];
        let mut values = Vec::new();
        let mut value = |signal: usize| -> usize {
            *known[signal].get_or_insert_with(|| {
                values.push(partition.shapes[signal].rest.clone());
                values.len() - 1
            })
        };
        let items: Vec<(usize, &PartitionNode)> = members
            .iter()
            .filter_map(|&member| Some((member, partition.items[member].as_ref()?)))
            .collect();
        let made: Vec<usize> = items.iter().flat_map(|(_, item)| item.to.clone()).collect();
        let mut read: Vec<usize> = items
            .iter()
            .flat_map(|(_, item)| item.from.iter().chain(&item.enables).copied())
            .filter(|&signal| {
                !made.contains(&signal) && partition.shapes[signal].constant.is_none()
            })
            .collect();
        read.sort_unstable();
        read.dedup();
        let taken = |&signal: &usize| Taken {
            slot: slots[signal],
            value: value(signal),
            period: partition.shapes[signal].period,
        };
        let taken = read.iter().map(taken).collect();
        let nodes = items
            .iter()
            .map(|&(member, item)| Node {
                item: member,
                parameter: item.parameter,
                node: item.node.clone(),
                inputs: item.inputs.clone(),
                outputs: item.outputs.clone(),
                period: item.period,
                from: item.from.iter().map(|&signal| value(signal)).collect(),
                to: item
                    .to
                    .iter()
                    .map(|&signal| Made {
                        slot: slots[signal],
                        value: value(signal),
                    })
                    .collect(),
                enables: item.enables.iter().map(|&signal| value(signal)).collect(),
            })
            .collect();
        let constants = partition.shapes.iter().zip(&known);
        // Nodes whose numbers may change have a parameter as well, and signals of their own.
        let constants = constants.filter(|(shape, _)| shape.constant.is_some());
        let constants = constants.filter_map(|(shape, &value)| Some((shape.parameter?, value?)));
        Stepping {
            nodes,
            steps: Vec::new(),
            constants: constants.collect(),
            values,
            taken,
            ticks: partition.step,
            due: Vec::new(),
        }
    }

    /// Brings all nodes into their initial state. The code is somebody else's: whoever only looks
    /// at the code leaves it alone.
    pub fn start(&mut self) {
        let start = |node: &Node| node.node.start(&node.inputs, &node.outputs);
        self.steps = self.nodes.iter().map(start).collect();
    }

    /// Whether a parameter is of these nodes.
    pub fn has(&self, parameter: usize) -> bool {
        let nodes = self.nodes.iter().filter_map(|node| node.parameter);
        let constants = self.constants.iter().map(|constant| constant.0);
        nodes.chain(constants).any(|own| own == parameter)
    }

    /// Makes a change within the next step.
    pub fn change(&mut self, due: Due) {
        self.due.push(due);
    }

    fn apply(&mut self, tick: u64) {
        for due in self.due.extract_if(.., |due| due.offset == tick) {
            for (node, step) in self.nodes.iter().zip(&mut self.steps) {
                if node.parameter == Some(due.parameter) {
                    step.change(&due.numbers);
                }
            }
            for &(_, value) in self.constants.iter().filter(|own| own.0 == due.parameter) {
                let kind = self.values[value].kind();
                if let Ok(changed) = due.numbers.value(kind) {
                    self.values[value] = changed;
                }
            }
        }
    }

    fn cycle(&mut self, tick: u64) -> Result<(), Fault> {
        let values = &mut self.values;
        let runs = |node: &Node, values: &[Value]| {
            let enabled = |&enable: &usize| values[enable].first().is_true();
            tick.is_multiple_of(node.period) && node.enables.iter().all(enabled)
        };
        let gather = |node: &Node, values: &[Value]| -> Vec<Value> {
            node.from.iter().map(|&from| values[from].clone()).collect()
        };
        for (node, step) in self.nodes.iter().zip(&mut self.steps) {
            if !runs(node, values) {
                continue;
            }
            let inputs = if node.node.direct() {
                gather(node, values)
            } else {
                vec![]
            };
            let mut outputs: Vec<Value> = node
                .to
                .iter()
                .map(|made| values[made.value].clone())
                .collect();
            step.compute(&inputs, &mut outputs);
            for ((made, output), &kind) in node.to.iter().zip(outputs).zip(&node.outputs) {
                if let Some(text) = wrong(&output, kind) {
                    return Err(Fault {
                        item: node.item,
                        text,
                    });
                }
                values[made.value] = output;
            }
        }
        for (node, step) in self.nodes.iter().zip(&mut self.steps) {
            if runs(node, values) {
                step.update(&gather(node, values));
            }
        }
        Ok(())
    }
}

impl Stepping {
    pub fn run(&mut self, lanes: &mut [Lane]) -> Result<(), Fault> {
        for tick in 0..self.ticks {
            if !self.due.is_empty() {
                self.apply(tick);
            }
            for taken in &self.taken {
                let due = tick.is_multiple_of(taken.period);
                if due {
                    let sample = (tick / taken.period) as usize;
                    self.values[taken.value] = taken.slot.get(lanes, sample);
                }
            }
            self.cycle(tick)?;
            for node in self.nodes.iter().filter(|n| tick.is_multiple_of(n.period)) {
                let sample = (tick / node.period) as usize;
                for made in &node.to {
                    made.slot.set(lanes, sample, &self.values[made.value]);
                }
            }
        }
        Ok(())
    }
}

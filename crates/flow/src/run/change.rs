//! Numbers of nodes that change while a graph runs, from a tick on.

use std::fmt;
use std::sync::Arc;

use super::code::{PartitionCode, Running, Way};
use super::gate::Gate;
use super::lane::Store;
use crate::kernels::lane::Lane;
use crate::kernels::{self, Making, Op, Operation, View};
use crate::literal::Literals;
use crate::node::Node;
use crate::types::Scalar;

/// Why numbers were not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// No node of this path is among [`Settings::changeable`](super::Settings::changeable).
    Unknown {
        /// The path that was given.
        path: String,
        /// The paths that are changeable.
        known: Vec<String>,
    },
    /// The node does not take these numbers.
    Refused {
        /// The node.
        path: String,
        /// Why, and the way out.
        text: String,
    },
    /// A partition has begun with ticks behind the one that was given.
    Late {
        /// The node.
        path: String,
        /// The tick that was given.
        at: u64,
        /// The first tick that no partition had begun.
        first: u64,
    },
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ChangeError::Unknown { path, known } if known.is_empty() => write!(
                f,
                "{path}: no node is changeable: name it in the settings of the run"
            ),
            ChangeError::Unknown { path, known } => write!(
                f,
                "{path}: not among the changeable nodes, which are {}",
                known.join(", ")
            ),
            ChangeError::Refused { path, text } => write!(f, "{path}: {text}"),
            ChangeError::Late { path, at, first } => write!(
                f,
                "{path}: tick {at} has been begun: give {first} or a later one"
            ),
        }
    }
}

impl std::error::Error for ChangeError {}

/// A change that is due.
#[derive(Clone)]
struct Change {
    parameter: usize,
    at: u64,
    numbers: Arc<Literals>,
}

/// A change within a step.
#[derive(Clone)]
pub(super) struct Due {
    pub parameter: usize,
    /// Ticks from the beginning of the step.
    pub offset: u64,
    pub numbers: Arc<Literals>,
}

/// The changes of a run.
pub(super) struct Changes {
    nodes: Vec<(String, Arc<dyn Node>, Scalar)>,
    gate: Gate<Change>,
}

impl Changes {
    pub fn new(nodes: &[(String, Arc<dyn Node>, Scalar)], partitions: usize) -> Changes {
        Changes {
            nodes: nodes.to_vec(),
            gate: Gate::new(partitions),
        }
    }

    /// The place of a node that takes these numbers.
    pub fn find(&self, path: &str, numbers: &Literals) -> Result<usize, ChangeError> {
        let path = path.to_string();
        let Some(parameter) = self.nodes.iter().position(|node| node.0 == path) else {
            let known = self.nodes.iter().map(|node| node.0.clone()).collect();
            return Err(ChangeError::Unknown { path, known });
        };
        let (_, node, scalar) = &self.nodes[parameter];
        match node.takes(numbers).and_then(|()| numbers.fit(*scalar)) {
            Ok(()) => Ok(parameter),
            Err(text) => Err(ChangeError::Refused { path, text }),
        }
    }

    pub fn put(&self, path: &str, numbers: Literals, at: Option<u64>) -> Result<u64, ChangeError> {
        let parameter = self.find(path, &numbers)?;
        let numbers = Arc::new(numbers);
        let change = |at| Change {
            parameter,
            at,
            numbers,
        };
        let late = |first| ChangeError::Late {
            path: path.to_string(),
            at: at.unwrap_or(first),
            first,
        };
        self.gate.put(at, change).map_err(late)
    }
}

/// Which ticks the steps of a partition are.
pub(super) struct Clock {
    /// Ticks of a block, where blocks go round among copies.
    pub block: u64,
    pub copy: u64,
    pub copies: u64,
}

impl Clock {
    /// The tick of the partition's own `at`th.
    pub fn tick(&self, at: u64) -> u64 {
        if self.copies == 1 {
            return at;
        }
        (at / self.block * self.copies + self.copy) * self.block + at % self.block
    }
}

/// How a partition follows changes.
pub(super) struct Follower {
    pub changes: Arc<Changes>,
    pub partition: usize,
    pub clock: Clock,
    /// Ticks done.
    at: u64,
    /// Changes that it knows of.
    seen: usize,
    /// What is not due yet, the next first.
    open: Vec<Change>,
}

impl Follower {
    pub fn new(changes: Arc<Changes>, partition: usize, clock: Clock) -> Follower {
        let seen = changes.gate.follow(partition);
        Follower {
            changes,
            partition,
            clock,
            at: 0,
            seen,
            open: Vec::new(),
        }
    }

    /// What changes within the next step.
    pub fn begin(&mut self, step: u64) -> Vec<Due> {
        let now = self.clock.tick(self.at);
        let end = now + step;
        self.at += step;
        let new = self.changes.gate.begin(self.partition, end, self.seen);
        if !new.is_empty() {
            self.seen += new.len();
            self.open.extend(new);
            // Of two at one tick the later one stays the later.
            self.open.sort_by_key(|change| change.at);
        }
        let due = self.open.partition_point(|change| change.at < end);
        let due = self.open.drain(..due).map(|change| Due {
            parameter: change.parameter,
            // A copy may have left out the ticks in which it was.
            offset: change.at.saturating_sub(now),
            numbers: change.numbers,
        });
        due.collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.changes.gate.leave(self.partition);
    }
}

/// Numbers that are the same until they change.
struct ConstantSpan {
    parameter: usize,
    view: View,
    count: usize,
    period: u64,
    making: Making,
    /// What all samples of the next step are to be, where those of the last one differ.
    rest: Option<Arc<[u64]>>,
}

/// Taps in an operation of a unit.
struct Taps {
    parameter: usize,
    unit: usize,
    op: usize,
    term: usize,
    period: u64,
    making: Making,
}

/// Taps that change within the present step.
pub(super) struct Cut {
    unit: usize,
    /// The operation of the unit.
    pub op: usize,
    term: usize,
    /// From which sample on, where all ticks of the step have samples.
    sample: usize,
    taps: Arc<[u64]>,
}

impl Cut {
    /// Gives the operation that it is of the new taps.
    pub fn apply(&self, op: &mut Operation) {
        if let Op::Fir { terms, .. } = op {
            terms[self.term].taps = self.taps.clone();
        }
    }
}

/// What of a partition's code changes with numbers of nodes.
#[derive(Default)]
pub(super) struct Changing {
    spans: Vec<ConstantSpan>,
    taps: Vec<Taps>,
    cuts: Vec<Cut>,
}

impl Changing {
    /// Notes the numbers of a parameter.
    pub fn add_span(
        &mut self,
        changeable: &kernels::Changeable,
        view: View,
        count: usize,
        period: u64,
    ) {
        self.spans.push(ConstantSpan {
            parameter: changeable.parameter,
            view,
            count,
            period,
            making: changeable.making.clone(),
            rest: None,
        });
    }

    /// Notes the taps in the operations of a unit. Returns whether there are any.
    pub fn find(
        &mut self,
        changeable: &[kernels::Changeable],
        unit: usize,
        ops: &[Operation],
        period: u64,
    ) -> bool {
        let before = self.taps.len();
        for own in changeable {
            let kernels::Changing::Taps(taps) = &own.what else {
                continue;
            };
            for (op, terms) in ops.iter().enumerate().filter_map(|(index, op)| match op {
                Op::Fir { terms, .. } => Some((index, terms)),
                _ => None,
            }) {
                let is = |term: &kernels::Term<View>| Arc::ptr_eq(&term.taps, taps);
                let Some(term) = terms.iter().position(is) else {
                    continue;
                };
                self.taps.push(Taps {
                    parameter: own.parameter,
                    unit,
                    op,
                    term,
                    period,
                    making: own.making.clone(),
                });
            }
        }
        self.taps.len() > before
    }

    /// The cuts within this step in the operations of a unit, each with its sample, the first
    /// first. `present` are the samples that there are, under a condition.
    pub fn cuts_of(&self, unit: usize, present: Option<&[u32]>) -> Vec<(usize, &Cut)> {
        let sample = |cut: &Cut| match present {
            Some(samples) => samples.partition_point(|&sample| (sample as usize) < cut.sample),
            None => cut.sample,
        };
        let own = self.cuts.iter().filter(|cut| cut.unit == unit);
        own.map(|cut| (sample(cut), cut)).collect()
    }
}

impl ConstantSpan {
    fn fill(&self, store: &mut Store, from: usize, bits: &[u64]) {
        let View { lane, len, .. } = self.view;
        let lane: &mut Lane = &mut store.lanes[lane];
        for at in from * len..self.count * len {
            let bits = if bits.len() == 1 {
                bits[0]
            } else {
                bits[at % len]
            };
            lane.set(self.view.scalar, self.view.first + at, bits);
        }
    }
}

/// Whether any unit of the code has a parameter.
pub(super) fn changes(code: &PartitionCode, parameters: usize) -> bool {
    let slow = |unit: &Running| match &unit.way {
        Way::Slow(stepping) => (0..parameters).any(|parameter| stepping.has(parameter)),
        _ => false,
    };
    !code.changing.spans.is_empty() || !code.changing.taps.is_empty() || code.units.iter().any(slow)
}

/// Prepares the code for a step within which these changes are.
pub(super) fn prepare(code: &mut PartitionCode, due: &[Due]) {
    let PartitionCode {
        changing,
        store,
        units,
        ..
    } = code;
    changing.cuts.clear();
    for span in &mut changing.spans {
        if let Some(bits) = span.rest.take() {
            span.fill(store, 0, &bits);
        }
    }
    for due in due {
        let sample = |period: u64| due.offset.div_ceil(period) as usize;
        for span in &mut changing.spans {
            if span.parameter == due.parameter {
                let bits = span.making.make(&due.numbers);
                span.fill(store, sample(span.period), &bits);
                span.rest = Some(bits);
            }
        }
        for taps in changing
            .taps
            .iter()
            .filter(|own| own.parameter == due.parameter)
        {
            changing.cuts.push(Cut {
                unit: taps.unit,
                op: taps.op,
                term: taps.term,
                sample: sample(taps.period),
                taps: taps.making.make(&due.numbers),
            });
        }
        for unit in units.iter_mut() {
            if let Way::Slow(stepping) = &mut unit.way {
                stepping.change(due.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Gain;

    #[test]
    fn changes_are_kept_until_all_have_seen_them() {
        let node: Arc<dyn Node> = Arc::new(Gain {
            gain: 1.into(),
            output: None,
        });
        // A third partition, which has nothing that changes, never looks.
        let changes = Arc::new(Changes::new(&[("k".into(), node, Scalar::F32)], 3));
        let follower = |partition| {
            let clock = Clock {
                block: 1,
                copy: 0,
                copies: 1,
            };
            Follower::new(changes.clone(), partition, clock)
        };
        let (mut fast, mut slow) = (follower(0), follower(2));
        for at in 1..=100 {
            assert_eq!(changes.put("k", (at as f64).into(), None), Ok(at - 1));
            assert_eq!(fast.begin(1).len(), 1);
        }
        assert_eq!(changes.gate.kept(), 100);
        slow.begin(1);
        assert_eq!(changes.gate.kept(), 0);
        changes.put("k", 1.into(), None).unwrap();
        fast.begin(1);
        drop(slow);
        assert_eq!(changes.gate.kept(), 0);
        drop(fast);
        changes.put("k", 1.into(), None).unwrap();
        assert_eq!(changes.gate.kept(), 0);
    }
}

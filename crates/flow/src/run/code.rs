//! A partition as code, and where its runs lie in memory.
//!
//! A delay takes no work where the run that it delays keeps its last samples in front of the
//! present ones: then it is a view of that memory, further in front. So do filters and windows look
//! at what was. At the end of a step, last samples move to the front.

mod chains;
mod choices;
mod delays;
mod formulas;
mod groups;
mod in_place;
mod memory;
mod operations;
mod recur;

use std::collections::{HashMap, HashSet};

use super::bytes::Bytewise;
use super::change::Changing;
use super::improve::{self, Shelves};
use super::lane::{Slot, Store};
use super::layout::PartitionLayout;
use super::schedule::{self, Unit};
use super::slow::Stepping;
use crate::kernels::lane::{LINE, Lane};
use crate::kernels::{
    self, Code, Compiled, Initial, Level, Line, Op, Operation, Planes, Reg, SampleLoop, Term, View,
};
use crate::types::Scalar;

/// Bytes of past samples that are moved at the end of a step, if they are more than two steps.
const MOVED: usize = 4096;

/// How some nodes run.
pub(super) enum Way {
    /// Many samples with each operation.
    Vector(Vec<Operation>),
    /// All operations for each sample: as machine code where that could be made, or on words where
    /// all operations are known there.
    Loop {
        ops: Vec<Operation>,
        compiled: Option<Compiled>,
        on_words: Option<SampleLoop>,
    },
    /// One node, on bytes.
    Bytes(Bytewise),
    /// As the interpreter does it.
    Slow(Stepping),
}

/// Some nodes that run in one go.
pub(super) struct Running {
    pub way: Way,
    pub items: Vec<usize>,
    /// Samples of a step.
    pub count: usize,
    /// The condition that says which samples there are.
    pub context: Option<usize>,
}

impl Running {
    /// Brings nodes that run as the interpreter runs them into their initial state.
    pub fn start(&mut self) {
        if let Way::Slow(stepping) = &mut self.way {
            stepping.start();
        }
    }
}

/// Past samples that move to the front at the end of a step: bytes of a lane.
pub(super) struct Move {
    lane: usize,
    /// Where the present samples begin.
    first: usize,
    /// Bytes of the past samples, and of one.
    past: usize,
    sample: usize,
    count: usize,
    context: Option<usize>,
}

/// A partition that can run, in its initial state once its units have been started.
pub(super) struct PartitionCode {
    pub units: Vec<Running>,
    pub store: Store,
    pub lines: Vec<Line>,
    pub moves: Vec<Move>,
    /// The samples of each context in the present step.
    pub contexts: Vec<Vec<u32>>,
    pub scratch: Lane,
    pub level: Level,
    /// What changes with numbers of nodes.
    pub changing: Changing,
}

/// What is before the first sample of a run that other runs are views of.
#[derive(Default)]
struct History {
    /// Samples that are kept.
    past: usize,
    /// Bits of numbers by their distance from the first, as far as anyone has said.
    bits: HashMap<usize, u64>,
}

/// Some nodes that run in one go, as operations on runs that have no memory yet.
struct OpGroup {
    items: Vec<usize>,
    ops: Vec<Op<Reg>>,
    kind: Kind,
    period: u64,
    context: Option<usize>,
}

/// The place of an operation: its group, and its index there.
type At = (usize, usize);

/// A run that is another one, some samples later.
struct DelayedRun {
    of: Reg,
    by: usize,
    /// What comes out first.
    initial: Initial,
}

/// What says which samples some nodes have: all these signals are true.
struct Context {
    enables: Vec<usize>,
    period: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Vector,
    /// One delay, whose output is read before its input is there.
    Cut,
    Loop,
    Slow,
}

struct CodeBuilder<'a> {
    partition: &'a PartitionLayout,
    code: Code,
    /// The runs of each signal.
    signals: Vec<Planes>,
    /// The units, each as one group.
    units: Vec<OpGroup>,
    /// What comes behind all units.
    last: Vec<Op<Reg>>,
    delayed: HashMap<Reg, DelayedRun>,
    /// Runs that are views: of which, so many samples ago.
    views: HashMap<Reg, (Reg, usize)>,
    histories: HashMap<Reg, History>,
    lines: Vec<Line>,
    contexts: Vec<Context>,
    /// The samples of a signal that a context has.
    compacted: HashMap<(usize, usize), Planes>,
    /// The nodes of the present unit.
    now: Vec<usize>,
    /// The runs of signals that are made in a context.
    inner: HashMap<usize, (usize, Planes)>,
}

impl PartitionCode {
    pub fn new(partition: &PartitionLayout, level: Level, compile: bool) -> PartitionCode {
        kernels::prepare(level);
        let mut builder = CodeBuilder {
            partition,
            code: Code::default(),
            signals: Vec::new(),
            units: Vec::new(),
            last: Vec::new(),
            delayed: HashMap::new(),
            views: HashMap::new(),
            histories: HashMap::new(),
            lines: Vec::new(),
            contexts: Vec::new(),
            compacted: HashMap::new(),
            now: Vec::new(),
            inner: HashMap::new(),
        };
        for shape in &partition.shapes {
            let planes = builder.code.port(shape.kind);
            for reg in [Some(planes.re), planes.im].into_iter().flatten() {
                builder.code.set_period(reg, shape.period);
            }
            builder.signals.push(planes);
        }
        for unit in schedule::units(partition) {
            builder.add_unit(unit);
        }
        builder.delays();
        builder.lay(level, compile)
    }

    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.store
            .lanes
            .iter()
            .map(|lane| lane.bytes().len() as u64)
            .sum()
    }

    /// The lanes in which samples stay from step to step.
    pub fn moved(&self) -> impl Iterator<Item = usize> {
        self.moves.iter().map(|mv| mv.lane)
    }

    /// Moves last samples to the front.
    pub fn end_step(&mut self) {
        for mv in &self.moves {
            let present = |context: usize| self.contexts[context].len();
            let end = mv.first + mv.context.map_or(mv.count, present) * mv.sample;
            let bytes = self.store.lanes[mv.lane].bytes_mut();
            bytes.copy_within(end - mv.past..end, mv.first - mv.past);
        }
    }
}

impl CodeBuilder<'_> {
    fn samples(&self, period: u64) -> usize {
        (self.partition.step / period) as usize
    }
}

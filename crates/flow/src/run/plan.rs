//! A part as code, and where its runs lie in memory.
//!
//! A delay takes no work where the run that it delays keeps its last samples in front of the
//! present ones: then it is a view of that memory, further in front. So do filters and windows look
//! at what was. At the end of a step, last samples move to the front.

use std::collections::{HashMap, HashSet};

use super::improve::{self, Shelves};
use super::lane::{Slot, Store};
use super::layout::Part;
use super::schedule::{self, Unit};
use super::slow::Stepping;
use crate::kernels::lane::{LINE, Lane};
use crate::kernels::{
    self, Code, Compiled, Initial, Level, Line, Op, Operation, Planes, Reg, View,
};

/// Bytes of past samples that are moved at the end of a step, if they are more than two steps.
const MOVED: usize = 4096;

/// How some nodes run.
pub(super) enum Way {
    /// Many samples with each operation.
    Vector(Vec<Operation>),
    /// All operations for each sample, as machine code where that could be made.
    Loop {
        ops: Vec<Operation>,
        compiled: Option<Compiled>,
    },
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

/// A part that can run, in its initial state.
pub(super) struct Plan {
    pub units: Vec<Running>,
    pub store: Store,
    pub lines: Vec<Line>,
    pub moves: Vec<Move>,
    /// The samples of each context in the present step.
    pub contexts: Vec<Vec<u32>>,
    pub scratch: Lane,
    pub level: Level,
}

/// What is before the first sample of a run that other runs are views of.
#[derive(Default)]
struct History {
    /// Samples that are kept.
    past: usize,
    /// Bits of numbers by their distance from the first, as far as anyone has said.
    bits: HashMap<usize, u64>,
}

/// What a unit is before memory is laid out.
struct Draft {
    items: Vec<usize>,
    ops: Vec<Op<Reg>>,
    kind: Kind,
    period: u64,
    context: Option<usize>,
}

/// What runs in one go, in operations.
struct Group {
    items: Vec<usize>,
    ops: Vec<Op<Reg>>,
    kind: Kind,
    period: u64,
    context: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Vector,
    /// One delay, whose output is read before its input is there.
    Cut,
    Loop,
    Slow,
}

struct Planning<'a> {
    part: &'a Part,
    code: Code,
    /// The runs of each signal.
    signals: Vec<Planes>,
    drafts: Vec<Draft>,
    /// What comes behind all units.
    last: Vec<Op<Reg>>,
    /// Runs that are delayed: of which, by how many samples, and what comes out first.
    delayed: HashMap<Reg, (Reg, usize, Initial)>,
    /// Runs that are views: of which, so many samples ago.
    views: HashMap<Reg, (Reg, usize)>,
    histories: HashMap<Reg, History>,
    lines: Vec<Line>,
    /// The enable signals of each context.
    contexts: Vec<Vec<usize>>,
    /// The samples of a signal that a context has.
    compacted: HashMap<(usize, usize), Planes>,
    /// The nodes of the present unit.
    now: Vec<usize>,
    /// The runs of signals that are made in a context.
    inner: HashMap<usize, (usize, Planes)>,
}

impl Plan {
    pub fn new(part: &Part, level: Level, compile: bool) -> Plan {
        let mut planning = Planning {
            part,
            code: Code::default(),
            signals: Vec::new(),
            drafts: Vec::new(),
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
        for shape in &part.shapes {
            let planes = planning.code.port(shape.kind);
            for reg in [Some(planes.re), planes.im].into_iter().flatten() {
                planning.code.set_period(reg, shape.period);
            }
            planning.signals.push(planes);
        }
        for unit in schedule::units(part) {
            planning.draft(unit);
        }
        planning.delays();
        planning.lay(level, compile)
    }

    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.store
            .lanes
            .iter()
            .map(|lane| lane.bytes().len() as u64)
            .sum()
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

impl Planning<'_> {
    fn samples(&self, period: u64) -> usize {
        (self.part.step / period) as usize
    }

    /// Takes a unit in, as code if all its nodes have some.
    fn draft(&mut self, unit: Unit) {
        let (items, kind) = match unit {
            Unit::Whole(item) => (vec![item], Kind::Vector),
            Unit::Recall(item) => (vec![item], Kind::Cut),
            Unit::BySample(items) => (items, Kind::Loop),
            // Made of the delay that was met before.
            Unit::Remember(_) => return,
        };
        let found = items
            .iter()
            .filter_map(|&item| self.part.items[item].as_ref());
        let Some(period) = found.clone().map(|item| item.period).next() else {
            return;
        };
        let enables = found.clone().map(|item| &item.enables).next();
        let alike = found
            .clone()
            .all(|item| Some(&item.enables) == enables && item.period == period);
        let context = enables.filter(|enables| alike && !enables.is_empty());
        let context = context.map(|enables| self.context(enables, period));
        let mark = self.code.mark();
        self.now = items.clone();
        if alike && items.iter().all(|&item| self.emit(item, context)) {
            let ops = std::mem::take(&mut self.code.ops);
            self.drafts.push(Draft {
                items: items.clone(),
                ops,
                kind,
                period,
                context,
            });
            self.hold(&items, period, context);
            return;
        }
        self.code.back_to(mark);
        self.compacted
            .retain(|_, planes| (planes.re.0 as usize) < mark.0);
        let part = self.part;
        let items_of = items.iter().filter_map(|&item| part.items[item].as_ref());
        for signal in items_of.flat_map(|item| &item.to) {
            self.inner.remove(signal);
        }
        let (ops, kind, context) = (vec![], Kind::Slow, None);
        self.drafts.push(Draft {
            items,
            ops,
            kind,
            period,
            context,
        });
    }

    /// The context of some enable signals; where it is new, its samples are found from here on.
    fn context(&mut self, enables: &[usize], period: u64) -> usize {
        if let Some(known) = self.contexts.iter().position(|known| known == enables) {
            return known;
        }
        let context = self.contexts.len();
        self.contexts.push(enables.to_vec());
        (self.code.period, self.code.context) = (period, None);
        let from = enables
            .iter()
            .map(|&signal| self.input(signal, None).re)
            .collect();
        self.drafts.push(Draft {
            items: vec![],
            ops: vec![Op::Enable { context, from }],
            kind: Kind::Vector,
            period,
            context: None,
        });
        context
    }

    /// What is made in a context, for all samples: each time the last that there was.
    fn hold(&mut self, items: &[usize], period: u64, context: Option<usize>) {
        let Some(context) = context else {
            return;
        };
        let part = self.part;
        let mut ops = Vec::new();
        for item in items.iter().filter_map(|&item| part.items[item].as_ref()) {
            for &signal in &item.to {
                let (outer, inner) = (self.signals[signal], self.inner[&signal].1);
                let (re, im) = Initial::of(std::slice::from_ref(&part.shapes[signal].rest));
                let mut expand = |d: Reg, a: Reg, initial: Initial| {
                    ops.push(Op::Expand { d, a, context });
                    (self.code.period, self.code.context) = (period, None);
                    // This asks for the room that the sample before lies in.
                    let plane = self.code.plane(d);
                    let past = self.code.reg(plane.scalar, plane.len);
                    ops.push(Op::Past {
                        d: past,
                        a: d,
                        by: 1,
                        initial,
                    });
                };
                expand(outer.re, inner.re, re);
                if let Some((d, a)) = outer.im.zip(inner.im) {
                    expand(d, a, im);
                }
            }
        }
        self.drafts.push(Draft {
            items: vec![],
            ops,
            kind: Kind::Vector,
            period,
            context: None,
        });
    }

    /// Whether a node has code, which is then taken.
    fn emit(&mut self, index: usize, context: Option<usize>) -> bool {
        let part = self.part;
        let Some(item) = part.items[index].as_ref() else {
            return true;
        };
        (self.code.period, self.code.context) = (item.period, context);
        let inputs: Vec<Planes> = item
            .from
            .iter()
            .map(|&signal| self.input(signal, context))
            .collect();
        let outputs: Vec<Planes> = item
            .to
            .iter()
            .map(|&signal| self.output(signal, context))
            .collect();
        item.node.emit(&mut self.code, &inputs, &outputs)
    }

    /// The runs of an output, made where they are needed first.
    fn output(&mut self, signal: usize, context: Option<usize>) -> Planes {
        let Some(context) = context else {
            return self.signals[signal];
        };
        if let Some(&(_, planes)) = self.inner.get(&signal) {
            return planes;
        }
        let planes = self.code.port(self.part.shapes[signal].kind);
        self.inner.insert(signal, (context, planes));
        planes
    }

    /// The runs of an input; a constant gets some of its reader's rate.
    fn input(&mut self, signal: usize, context: Option<usize>) -> Planes {
        if let Some(value) = &self.part.shapes[signal].constant {
            let kind = value.kind();
            let re = self.code.constant(kind.scalar, kind.len, value.re());
            let im = kind
                .complex
                .then(|| self.code.constant(kind.scalar, kind.len, value.im()));
            return Planes { kind, re, im };
        }
        let outer = self.signals[signal];
        let Some(context) = context else {
            return outer;
        };
        if self.makes(signal, context) {
            return self.output(signal, Some(context));
        }
        if let Some(&known) = self.compacted.get(&(signal, context)) {
            return known;
        }
        let planes = self.code.port(outer.kind);
        self.code.push(Op::Compact {
            d: planes.re,
            a: outer.re,
            context,
        });
        if let Some((d, a)) = planes.im.zip(outer.im) {
            self.code.push(Op::Compact { d, a, context });
        }
        self.compacted.insert((signal, context), planes);
        planes
    }

    /// Whether a signal is made in a context, of nodes that have code.
    fn makes(&self, signal: usize, context: usize) -> bool {
        let made = self.inner.get(&signal);
        made.is_some_and(|&(made, _)| made == context)
            || self.now.iter().any(|&item| {
                let item = self.part.items[item].as_ref();
                item.is_some_and(|item| item.to.contains(&signal))
            })
    }

    /// Makes views of delays, or work where a view is not possible.
    fn delays(&mut self) {
        for index in 0..self.drafts.len() {
            let kind = self.drafts[index].kind;
            let ops = std::mem::take(&mut self.drafts[index].ops);
            let mut kept = Vec::new();
            for op in ops {
                let Op::Past { d, a, by, initial } = op else {
                    kept.push(op);
                    continue;
                };
                let plane = self.code.plane(d);
                let bytes = by * plane.len * plane.scalar.bytes();
                if bytes <= MOVED || by <= 2 * self.samples(plane.period) || kind == Kind::Loop {
                    self.delayed.insert(d, (a, by, initial));
                    // Keeps its place for a copy.
                    kept.push(Op::Past {
                        d,
                        a,
                        by,
                        initial: Initial::all(0),
                    });
                    continue;
                }
                let line = self.lines.len();
                let count = by * plane.len;
                self.lines
                    .push(Line::new(plane.scalar, count, |at| initial.at(at)));
                if kind == Kind::Cut {
                    kept.push(Op::Recall { d, line });
                    self.last.push(Op::Remember { a, line });
                } else {
                    kept.push(Op::Pass { d, a, line });
                }
            }
            self.drafts[index].ops = kept;
        }
        for index in 0..self.drafts.len() {
            let kind = self.drafts[index].kind;
            let ops = std::mem::take(&mut self.drafts[index].ops);
            let mut kept = Vec::new();
            for op in ops {
                let Op::Past { d, a, .. } = op else {
                    kept.push(op);
                    continue;
                };
                if self.view(d).is_some() {
                    continue;
                }
                // A copy has a history of its own.
                let plane = self.code.plane(d);
                (self.code.period, self.code.context) = (plane.period, plane.context);
                let copy = self.code.reg(plane.scalar, plane.len);
                if let Some(delayed) = self.delayed.get_mut(&d) {
                    delayed.0 = copy;
                }
                self.view(d);
                let op = Op::Copy { d: copy, a };
                if kind == Kind::Cut {
                    self.last.push(op);
                } else {
                    kept.push(op);
                }
            }
            self.drafts[index].ops = kept;
        }
    }

    /// Which run a delayed one is a view of, if the history that it needs is nobody else's.
    fn view(&mut self, d: Reg) -> Option<(Reg, usize)> {
        let mut chain = vec![];
        let mut at = d;
        // From the delayed run to what is known already, or to a run of its own.
        let (root, mut ago) = loop {
            if let Some(&known) = self.views.get(&at) {
                break known;
            }
            let Some(&(a, ..)) = self.delayed.get(&at) else {
                break (at, 0);
            };
            if chain.contains(&at) {
                return None;
            }
            chain.push(at);
            at = a;
        };
        for &reg in chain.iter().rev() {
            let (_, by, initial) = self.delayed[&reg].clone();
            let len = self.code.plane(reg).len;
            let numbers = by * len;
            let history = self.histories.entry(root).or_default();
            let agrees = (0..numbers).all(|at| {
                let distance = ago * len + numbers - at;
                let said = history.bits.get(&distance);
                said.is_none_or(|&bits| bits == initial.at(at))
            });
            if !agrees {
                return None;
            }
            for at in 0..numbers {
                let distance = ago * len + numbers - at;
                history.bits.insert(distance, initial.at(at));
            }
            ago += by;
            history.past = history.past.max(ago);
            self.views.insert(reg, (root, ago));
        }
        Some((root, ago))
    }

    fn place(&self, reg: Reg) -> (Reg, usize) {
        self.views.get(&reg).copied().unwrap_or((reg, 0))
    }

    /// How many samples beyond its operands an operation reaches.
    fn reach(&self, op: &Op<Reg>) -> usize {
        match op {
            Op::Fir { terms, .. } => terms[0].count - 1,
            Op::Window { d, .. } => self.code.plane(*d).len - 1,
            _ => 0,
        }
    }

    /// The units in operations: loops without what is not of the loop, and without what nobody
    /// reads.
    fn groups(&mut self) -> Vec<Group> {
        let mut groups = Vec::new();
        for Draft {
            items,
            ops,
            kind,
            period,
            context,
        } in std::mem::take(&mut self.drafts)
        {
            let parts = match kind {
                Kind::Loop => improve::groups(ops, &|op| self.reach(op), &|reg| self.place(reg)),
                _ => vec![(false, ops)],
            };
            for (looped, ops) in parts {
                let kind = match kind {
                    Kind::Loop if !looped => Kind::Vector,
                    other => other,
                };
                let items = items.clone();
                groups.push(Group {
                    items,
                    ops,
                    kind,
                    period,
                    context,
                });
            }
        }
        for op in std::mem::take(&mut self.last) {
            let plane = match &op {
                Op::Remember { a: reg, .. } | Op::Copy { d: reg, .. } => self.code.plane(*reg),
                _ => continue,
            };
            groups.push(Group {
                items: vec![],
                ops: vec![op],
                kind: Kind::Vector,
                period: plane.period,
                context: plane.context,
            });
        }
        let kept = self.kept(&groups);
        let keeps = |reg: Reg| kept.contains(&reg);
        let place = |reg: Reg| self.place(reg);
        let loops: Vec<bool> = groups
            .iter()
            .map(|group| group.kind == Kind::Loop)
            .collect();
        let mut all: Vec<&mut Vec<Op<Reg>>> =
            groups.iter_mut().map(|group| &mut group.ops).collect();
        improve::prune(&mut all, &loops, &keeps, &place);
        let mut uses = improve::uses(&all, &place);
        // What is read elsewhere is not only for one sum.
        kept.iter()
            .for_each(|&reg| *uses.entry(reg).or_default() += 2);
        let scalar = |reg: Reg| {
            let plane = self.code.plane(reg);
            (plane.scalar, plane.len)
        };
        let mut vectors: Vec<&mut Vec<Op<Reg>>> = groups
            .iter_mut()
            .filter(|group| group.kind != Kind::Loop)
            .map(|group| &mut group.ops)
            .collect();
        improve::fuse(&mut vectors, &scalar, &uses, &place);
        let mut all: Vec<&mut Vec<Op<Reg>>> =
            groups.iter_mut().map(|group| &mut group.ops).collect();
        improve::prune(&mut all, &loops, &keeps, &place);
        groups.retain(|group| group.kind == Kind::Slow || !group.ops.is_empty());
        groups
    }

    /// Runs that keep their memory: those with a past, those that are constant, and those that
    /// others read or write.
    fn kept(&self, groups: &[Group]) -> HashSet<Reg> {
        let slow = groups.iter().filter(|group| group.kind == Kind::Slow);
        let items = slow.flat_map(|group| &group.items);
        let signals = items
            .filter_map(|&item| self.part.items[item].as_ref())
            .flat_map(|item| item.from.iter().chain(&item.to).chain(&item.enables))
            .chain(&self.part.crossing);
        let regs = signals.flat_map(|&signal| {
            let planes = self.signals[signal];
            [Some(planes.re), planes.im].into_iter().flatten()
        });
        let constants = self.code.constants.iter().enumerate();
        let constants = constants
            .filter(|(_, constant)| constant.is_some())
            .map(|(index, _)| Reg(index as u32));
        regs.map(|reg| self.place(reg).0)
            .chain(constants)
            .chain(self.histories.keys().copied())
            .collect()
    }

    /// Gives every run its memory, and every unit its operations.
    fn lay(mut self, level: Level, compile: bool) -> Plan {
        let groups = self.groups();
        let kept = self.kept(&groups);
        let mut store = Store::default();
        let mut moves = Vec::new();
        let mut places: HashMap<Reg, View> = HashMap::new();
        for &reg in &kept {
            places.insert(reg, self.lane(reg, &mut store, &mut moves));
        }
        // A run that is kept for a part of the step alone shares its memory with others.
        let mut last: HashMap<Reg, usize> = HashMap::new();
        let mut now = 0;
        let times = |group: &Group, op: usize| if group.kind == Kind::Loop { 0 } else { op };
        let length = |group: &Group| {
            if group.kind == Kind::Loop {
                1
            } else {
                group.ops.len()
            }
        };
        for group in &groups {
            for (index, op) in group.ops.iter().enumerate() {
                let (d, from) = op.ends();
                for reg in from.into_iter().chain(d) {
                    last.insert(self.place(reg).0, now + times(group, index));
                }
            }
            now += length(group);
        }
        let mut shelves = Shelves::default();
        let mut living: Vec<(usize, usize, usize)> = Vec::new();
        now = 0;
        for group in &groups {
            for (index, op) in group.ops.iter().enumerate() {
                let at = now + times(group, index);
                living.retain(|&(until, bytes, lane)| {
                    let lives = until >= at;
                    if !lives {
                        shelves.give(bytes, lane);
                    }
                    lives
                });
                let (d, from) = op.ends();
                for reg in d.into_iter().chain(from) {
                    let root = self.place(reg).0;
                    if places.contains_key(&root) {
                        continue;
                    }
                    let plane = self.code.plane(root);
                    let bytes = self.samples(plane.period) * plane.len * plane.scalar.bytes();
                    let bytes = bytes.next_multiple_of(LINE);
                    let lane = shelves.take(bytes, || {
                        store.lanes.push(Lane::new(bytes));
                        store.lanes.len() - 1
                    });
                    living.push((last[&root], bytes, lane));
                    let view = View {
                        lane,
                        first: 0,
                        len: plane.len,
                        scalar: plane.scalar,
                    };
                    places.insert(root, view);
                }
            }
            now += length(group);
        }
        let of = |reg: Reg| {
            let (root, ago) = self.place(reg);
            let plane = self.code.plane(reg);
            // What nobody reads or writes has no place, and needs none.
            let view = places.get(&root).copied().unwrap_or(View {
                lane: 0,
                first: ago * plane.len,
                len: plane.len,
                scalar: plane.scalar,
            });
            View {
                first: view.first - ago * plane.len,
                ..view
            }
        };
        store.slots = self
            .signals
            .iter()
            .map(|planes| Slot {
                kind: planes.kind,
                re: of(planes.re),
                im: planes.im.map(of),
            })
            .collect();
        let mut units = Vec::new();
        let mut scratch = 0;
        for Group {
            items,
            ops,
            kind,
            period,
            context,
        } in groups
        {
            let count = self.samples(period);
            for op in &ops {
                if let Op::Fir { d, terms, .. } = op {
                    let size = self.code.plane(*d).scalar.bytes();
                    let bytes = kernels::scratch(terms.len(), terms[0].count, count, size);
                    scratch = bytes.max(scratch);
                }
            }
            let ops: Vec<Operation> = ops.iter().map(|op| op.map(of)).collect();
            let way = match kind {
                Kind::Slow => Way::Slow(Stepping::new(self.part, &items, &store.slots)),
                Kind::Loop => Way::Loop {
                    compiled: compile.then(|| kernels::compile(&ops, count)).flatten(),
                    ops,
                },
                _ => Way::Vector(ops),
            };
            units.push(Running {
                way,
                items,
                count,
                context,
            });
        }
        Plan {
            units,
            scratch: Lane::new(scratch),
            store,
            lines: self.lines,
            moves,
            contexts: self
                .contexts
                .iter()
                .map(|_| Vec::with_capacity(self.part.step as usize))
                .collect(),
            level,
        }
    }

    /// The memory of a run that is no view: last samples, then those of a step.
    fn lane(&self, reg: Reg, store: &mut Store, moves: &mut Vec<Move>) -> View {
        let plane = self.code.plane(reg);
        let size = plane.scalar.bytes();
        let sample = plane.len * size;
        let count = self.samples(plane.period);
        let none = History::default();
        let history = self.histories.get(&reg).unwrap_or(&none);
        let past = history.past * sample;
        let before = past.next_multiple_of(LINE);
        let mut lane = Lane::new(before + count * sample);
        let first = before / size;
        for (&distance, &bits) in &history.bits {
            lane.set(plane.scalar, first - distance, bits);
        }
        if let Some(bits) = &self.code.constants[reg.0 as usize] {
            for at in 0..count * plane.len {
                let bits = if bits.len() == 1 {
                    bits[0]
                } else {
                    bits[at % plane.len]
                };
                lane.set(plane.scalar, first + at, bits);
            }
        }
        store.lanes.push(lane);
        let lane = store.lanes.len() - 1;
        if past > 0 {
            moves.push(Move {
                lane,
                first: before,
                past,
                sample,
                count,
                context: plane.context,
            });
        }
        View {
            lane,
            first,
            len: plane.len,
            scalar: plane.scalar,
        }
    }
}

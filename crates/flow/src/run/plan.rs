//! A part as code, and where its runs lie in memory.
//!
//! A delay takes no work where the run that it delays keeps its last samples in front of the
//! present ones: then it is a view of that memory, further in front. So do filters and windows look
//! at what was. At the end of a step, last samples move to the front.

use std::collections::HashMap;

use super::lane::{Slot, Store};
use super::layout::Part;
use super::schedule::{self, Unit};
use super::slow::Stepping;
use crate::kernels::lane::{LINE, Lane};
use crate::kernels::{self, Code, Initial, Level, Line, Op, Operation, Planes, Reg, View};

/// Bytes of past samples that are moved at the end of a step, if they are more than two steps.
const MOVED: usize = 4096;

/// How some nodes run.
pub(super) enum Way {
    /// Many samples with each operation.
    Vector(Vec<Operation>),
    /// All operations for each sample, for samples that are so many.
    Loop(Vec<Operation>),
    /// As the interpreter does it.
    Slow(Stepping),
}

/// Some nodes that run in one go.
pub(super) struct Running {
    pub way: Way,
    pub items: Vec<usize>,
    /// Samples of a step.
    pub count: usize,
}

/// Past samples that move to the front at the end of a step: bytes of a lane.
pub(super) struct Move {
    pub lane: usize,
    pub from: usize,
    pub to: usize,
    pub bytes: usize,
}

/// A part that can run, in its initial state.
pub(super) struct Plan {
    pub units: Vec<Running>,
    pub store: Store,
    pub lines: Vec<Line>,
    pub moves: Vec<Move>,
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
}

impl Plan {
    pub fn new(part: &Part, level: Level) -> Plan {
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
        planning.lay(level)
    }

    /// Moves last samples to the front.
    pub fn end_step(&mut self) {
        for mv in &self.moves {
            let bytes = self.store.lanes[mv.lane].bytes_mut();
            bytes.copy_within(mv.from..mv.from + mv.bytes, mv.to);
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
        let plain = found
            .clone()
            .all(|item| item.enables.is_empty() && item.period == period);
        let mark = self.code.mark();
        if plain && items.iter().all(|&item| self.emit(item)) {
            let ops = std::mem::take(&mut self.code.ops);
            self.drafts.push(Draft {
                items,
                ops,
                kind,
                period,
            });
            return;
        }
        self.code.back_to(mark);
        let (ops, kind) = (vec![], Kind::Slow);
        self.drafts.push(Draft {
            items,
            ops,
            kind,
            period,
        });
    }

    /// Whether a node has code, which is then taken.
    fn emit(&mut self, index: usize) -> bool {
        let Some(item) = self.part.items[index].as_ref() else {
            return true;
        };
        self.code.period = item.period;
        let inputs: Vec<Planes> = item.from.iter().map(|&signal| self.input(signal)).collect();
        let outputs: Vec<Planes> = item.to.iter().map(|&signal| self.signals[signal]).collect();
        item.node.emit(&mut self.code, &inputs, &outputs)
    }

    /// The runs of an input; a constant gets some of its reader's rate.
    fn input(&mut self, signal: usize) -> Planes {
        let Some(value) = &self.part.shapes[signal].constant else {
            return self.signals[signal];
        };
        let kind = value.kind();
        let re = self.code.constant(kind.scalar, kind.len, value.re());
        let im = kind
            .complex
            .then(|| self.code.constant(kind.scalar, kind.len, value.im()));
        Planes { kind, re, im }
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
                self.code.period = plane.period;
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

    /// Gives every run its memory, and every unit its operations.
    fn lay(mut self, level: Level) -> Plan {
        let mut store = Store::default();
        let mut moves = Vec::new();
        let mut places: Vec<Option<View>> = vec![None; self.code.planes.len()];
        for (index, place) in places.iter_mut().enumerate() {
            let reg = Reg(index as u32);
            if self.views.contains_key(&reg) {
                continue;
            }
            *place = Some(self.lane(reg, &mut store, &mut moves));
        }
        let of = |reg: Reg| {
            let (root, ago) = self.views.get(&reg).copied().unwrap_or((reg, 0));
            let plane = self.code.plane(reg);
            let view = places[root.0 as usize].unwrap_or(View {
                lane: 0,
                first: 0,
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
        let firs = self
            .drafts
            .iter()
            .flat_map(|draft| &draft.ops)
            .filter_map(|op| match op {
                Op::Fir { d, terms, .. } => {
                    let plane = self.code.plane(*d);
                    let count = self.samples(plane.period);
                    Some(kernels::scratch(
                        terms.len(),
                        terms[0].count,
                        count,
                        plane.scalar.bytes(),
                    ))
                }
                _ => None,
            });
        let scratch = firs.max().unwrap_or(0);
        for Draft {
            items,
            ops,
            kind,
            period,
        } in std::mem::take(&mut self.drafts)
        {
            let placed = |ops: Vec<Op<Reg>>| ops.iter().map(|op| op.map(of)).collect();
            let way = match kind {
                Kind::Slow => Way::Slow(Stepping::new(self.part, &items, &store.slots)),
                Kind::Loop => Way::Loop(placed(self.sorted(ops))),
                _ => Way::Vector(placed(ops)),
            };
            let count = self.samples(period);
            units.push(Running { way, items, count });
        }
        // What comes last goes with nothing in particular.
        for op in &self.last {
            let reg = match op {
                Op::Remember { a, .. } => *a,
                Op::Copy { d, .. } => *d,
                _ => continue,
            };
            units.push(Running {
                way: Way::Vector(vec![op.map(of)]),
                items: vec![],
                count: self.samples(self.code.plane(reg).period),
            });
        }
        Plan {
            units,
            scratch: Lane::new(scratch),
            store,
            lines: self.lines,
            moves,
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
                from: before + count * sample - past,
                to: before - past,
                bytes: past,
            });
        }
        View {
            lane,
            first,
            len: plane.len,
            scalar: plane.scalar,
        }
    }

    /// The operations of a loop, each behind what it needs of the same sample.
    fn sorted(&self, ops: Vec<Op<Reg>>) -> Vec<Op<Reg>> {
        let place = |reg: Reg| self.views.get(&reg).copied().unwrap_or((reg, 0));
        let mut writers: HashMap<Reg, Vec<usize>> = HashMap::new();
        for (index, op) in ops.iter().enumerate() {
            if let Some(d) = op.ends().0 {
                writers.entry(place(d).0).or_default().push(index);
            }
        }
        let mut follows = vec![Vec::new(); ops.len()];
        let mut waits = vec![0usize; ops.len()];
        for (index, op) in ops.iter().enumerate() {
            let reach = match op {
                Op::Fir { terms, .. } => terms[0].count - 1,
                Op::Window { d, .. } => self.code.plane(*d).len - 1,
                _ => 0,
            };
            for a in op.ends().1 {
                let (root, ago) = place(a);
                for &writer in writers.get(&root).iter().flat_map(|w| w.iter()) {
                    if ago <= reach && writer != index {
                        follows[writer].push(index);
                        waits[index] += 1;
                    }
                }
            }
        }
        let order = schedule::sorted(&follows, waits);
        order.into_iter().map(|index| ops[index].clone()).collect()
    }
}

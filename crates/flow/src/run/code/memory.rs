//! Runs get their memory.

use super::in_place::InPlace;
use super::*;

/// The memory of a part, and which runs have which of it.
struct CodeMemory {
    in_place: InPlace,
    store: Store,
    moves: Vec<Move>,
    /// The memory of runs that are no views and have their own places.
    places: HashMap<Reg, View>,
}

/// The operations of a step, each with the moment at which it runs: those of a loop have one.
fn moments(groups: &[OpGroup]) -> Vec<(usize, &Op<Reg>)> {
    let (mut moments, mut now) = (Vec::new(), 0);
    for group in groups {
        let last = now + group.ops.len();
        if group.kind == Kind::Loop {
            moments.extend(group.ops.iter().map(|op| (now, op)));
            now += 1;
        } else {
            moments.extend((now..last).zip(&group.ops));
            now = last;
        }
    }
    moments
}

impl CodeBuilder<'_> {
    /// Gives every run its memory, and every unit its operations.
    pub(super) fn lay(mut self, level: Level, compile: bool) -> PartitionCode {
        let groups = self.groups();
        let kept = self.kept(&groups);
        let mut memory = CodeMemory {
            in_place: self.in_place(&groups),
            store: Store::default(),
            moves: Vec::new(),
            places: HashMap::new(),
        };
        self.place_kept(&kept, &mut memory);
        self.place_others(&groups, &mut memory);
        let of = |reg: Reg| self.place_of(reg, &memory);
        let slots = self.signals.iter().map(|planes| Slot {
            kind: planes.kind,
            re: of(planes.re),
            im: planes.im.map(of),
        });
        let slots: Vec<Slot> = slots.collect();
        let outside = self.outside(&groups, &kept, &memory);
        let mut changing = self.changing(&memory);
        let mut units = Vec::new();
        let mut scratch = 0;
        for OpGroup {
            items,
            ops,
            kind,
            period,
            context,
        } in groups
        {
            let count = self.samples(period);
            scratch = scratch.max(self.scratch(&ops, count));
            let ops: Vec<Operation> = ops.iter().map(|op| op.map(of)).collect();
            // Machine code and loops on words have their taps in them.
            let fixed = !changing.find(&self.code.changeable, units.len(), &ops, period);
            let stored = |view: View| outside.contains(&(view.lane, view.first));
            let way = match kind {
                Kind::Slow => match Bytewise::new(self.partition, &items, &slots, count) {
                    Some(node) => Way::Bytes(node),
                    None => Way::Slow(Stepping::new(self.partition, &items, &slots)),
                },
                Kind::Loop => Way::Loop {
                    compiled: (compile && fixed)
                        .then(|| kernels::compile(&ops, &stored, count))
                        .flatten(),
                    on_words: fixed.then(|| SampleLoop::of(&ops)).flatten(),
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
        let CodeMemory {
            mut store, moves, ..
        } = memory;
        store.slots = slots;
        PartitionCode {
            units,
            scratch: Lane::new(scratch),
            store,
            lines: self.lines,
            moves,
            contexts: self
                .contexts
                .iter()
                .map(|_| Vec::with_capacity(self.partition.step as usize))
                .collect(),
            level,
            changing,
        }
    }

    /// The run whose memory this one is a view of, or works in.
    fn root(&self, reg: Reg, memory: &CodeMemory) -> Reg {
        memory.in_place.root(self.place(reg).0)
    }

    /// Gives memory of their own to runs that are kept from step to step.
    fn place_kept(&self, kept: &HashSet<Reg>, memory: &mut CodeMemory) {
        for &reg in kept {
            let reg = memory.in_place.root(reg);
            let (store, moves) = (&mut memory.store, &mut memory.moves);
            let lane = || self.lane(reg, store, moves);
            memory.places.entry(reg).or_insert_with(lane);
        }
    }

    /// Gives memory to all other runs: each needs it for a part of the step alone, and shares it
    /// with others.
    fn place_others(&self, groups: &[OpGroup], memory: &mut CodeMemory) {
        let moments = moments(groups);
        let mut last: HashMap<Reg, usize> = HashMap::new();
        for &(at, op) in &moments {
            let (d, from) = op.operands();
            for reg in from.into_iter().chain(d) {
                last.insert(self.root(reg, memory), at);
            }
        }
        let mut shelves = Shelves::default();
        let mut living: Vec<(usize, usize, usize)> = Vec::new();
        for (at, op) in moments {
            living.retain(|&(until, bytes, lane)| {
                let lives = until >= at;
                if !lives {
                    shelves.give(bytes, lane);
                }
                lives
            });
            let (d, from) = op.operands();
            for reg in d.into_iter().chain(from) {
                let root = self.root(reg, memory);
                if memory.places.contains_key(&root) {
                    continue;
                }
                let plane = self.code.plane(root);
                let bytes = self.samples(plane.period) * plane.len * plane.scalar.bytes();
                let bytes = bytes.next_multiple_of(LINE);
                let lane = shelves.take(bytes, || {
                    memory.store.lanes.push(Lane::new(bytes));
                    memory.store.lanes.len() - 1
                });
                living.push((last[&root], bytes, lane));
                let view = View {
                    lane,
                    first: 0,
                    len: plane.len,
                    scalar: plane.scalar,
                };
                memory.places.insert(root, view);
            }
        }
    }

    /// Where a run is.
    fn place_of(&self, reg: Reg, memory: &CodeMemory) -> View {
        let ago = self.place(reg).1;
        let plane = self.code.plane(reg);
        let place = memory.places.get(&self.root(reg, memory));
        // What nobody reads or writes has no place, and needs none.
        let view = place.copied().unwrap_or(View {
            lane: 0,
            first: ago * plane.len,
            len: plane.len,
            scalar: plane.scalar,
        });
        View {
            first: view.first - ago * plane.len,
            ..view
        }
    }

    /// Where the runs of loops are that are stored, because they are kept or others read them.
    fn outside(
        &self,
        groups: &[OpGroup],
        kept: &HashSet<Reg>,
        memory: &CodeMemory,
    ) -> HashSet<(usize, usize)> {
        let root = |reg: Reg| self.place(reg).0;
        // The group that reads a run, or none where several do.
        let mut readers: HashMap<Reg, Option<usize>> = HashMap::new();
        for (index, group) in groups.iter().enumerate() {
            for reg in group.ops.iter().flat_map(|op| op.operands().1).map(root) {
                let reader = readers.entry(reg).or_insert(Some(index));
                *reader = reader.filter(|&known| known == index);
            }
        }
        let mut outside = HashSet::new();
        for (index, group) in groups.iter().enumerate() {
            if group.kind != Kind::Loop {
                continue;
            }
            let made = group.ops.iter().filter_map(|op| op.operands().0).map(root);
            let seen = made.filter(|reg| {
                let own = readers.get(reg).is_none_or(|&reader| reader == Some(index));
                kept.contains(reg) || !own
            });
            let seen = seen.map(|reg| self.place_of(reg, memory));
            outside.extend(seen.map(|view| (view.lane, view.first)));
        }
        outside
    }

    /// The runs of numbers that may change, as far as they have memory.
    fn changing(&self, memory: &CodeMemory) -> Changing {
        let mut changing = Changing::default();
        for changeable in &self.code.changeable {
            if let kernels::Changing::Run(reg) = changeable.what
                && memory.places.contains_key(&reg)
            {
                let period = self.code.plane(reg).period;
                let view = self.place_of(reg, memory);
                changing.add_span(changeable, view, self.samples(period), period);
            }
        }
        changing
    }

    /// Bytes beside their runs that operations need for `count` samples.
    fn scratch(&self, ops: &[Op<Reg>], count: usize) -> usize {
        let bytes = ops.iter().filter_map(|op| match op {
            Op::Fir { d, terms, .. } => {
                let size = self.code.plane(*d).scalar.bytes();
                Some(kernels::scratch(terms.len(), terms[0].count, count, size))
            }
            _ => None,
        });
        bytes.max().unwrap_or(0)
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

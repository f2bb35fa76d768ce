//! Runs get their memory.

use super::*;

impl Planning<'_> {
    /// Gives every run its memory, and every unit its operations.
    pub(super) fn lay(mut self, level: Level, compile: bool) -> Plan {
        let groups = self.groups();
        let kept = self.kept(&groups);
        let in_place = self.in_place(&groups);
        let root = |reg: Reg| in_place.root(self.place(reg).0);
        let mut store = Store::default();
        let mut moves = Vec::new();
        let mut places: HashMap<Reg, View> = HashMap::new();
        for reg in kept.iter().map(|&reg| in_place.root(reg)) {
            let lane = || self.lane(reg, &mut store, &mut moves);
            places.entry(reg).or_insert_with(lane);
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
                    last.insert(root(reg), now + times(group, index));
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
                    let root = root(reg);
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
            let ago = self.place(reg).1;
            let plane = self.code.plane(reg);
            // What nobody reads or writes has no place, and needs none.
            let view = places.get(&root(reg)).copied().unwrap_or(View {
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
        // Of loops what is kept, or read by others, is stored.
        let mut outside: HashSet<(usize, usize)> = HashSet::new();
        for (index, group) in groups.iter().enumerate() {
            if group.kind != Kind::Loop {
                continue;
            }
            let roots = |reg: Reg| self.place(reg).0;
            let made: HashSet<Reg> = group
                .ops
                .iter()
                .filter_map(|op| op.ends().0)
                .map(roots)
                .collect();
            let others = groups
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let reads = others
                .flat_map(|(_, other)| &other.ops)
                .flat_map(|op| op.ends().1);
            let reads: HashSet<Reg> = reads.map(roots).collect();
            let seen = made
                .iter()
                .filter(|reg| kept.contains(reg) || reads.contains(reg));
            outside.extend(seen.map(|&reg| of(reg)).map(|view| (view.lane, view.first)));
        }
        let mut units = Vec::new();
        let mut changing = Changing::default();
        for changeable in &self.code.changeable {
            if let kernels::Changing::Run(reg) = changeable.what
                && places.contains_key(&reg)
            {
                let period = self.code.plane(reg).period;
                changing.run(changeable, of(reg), self.samples(period), period);
            }
        }
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
            // Machine code has its taps in it.
            let fixed = !changing.find(&self.code.changeable, units.len(), &ops, period);
            let stored = |view: View| outside.contains(&(view.lane, view.first));
            let way = match kind {
                Kind::Slow => match Bytewise::new(self.part, &items, &store.slots, count) {
                    Some(node) => Way::Bytes(node),
                    None => Way::Slow(Stepping::new(self.part, &items, &store.slots)),
                },
                Kind::Loop => Way::Loop {
                    compiled: (compile && fixed)
                        .then(|| kernels::compile(&ops, &stored, count))
                        .flatten(),
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
            changing,
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

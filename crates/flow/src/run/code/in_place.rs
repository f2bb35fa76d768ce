//! Chains that write over the numbers that they read.
//!
//! What a chain reads for the last time in a step is in the way of what it makes: with one place
//! for both, less memory goes through the nearest cache.

use super::*;

/// Runs and the runs whose places they take.
pub(super) struct InPlace(HashMap<Reg, Reg>);

/// When a run is read and written in a step, in operations from its begin.
#[derive(Default)]
struct Uses {
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// By others than operations on many samples.
    otherwise: bool,
}

impl InPlace {
    /// The run whose place this one has: maybe its own.
    pub fn root(&self, mut reg: Reg) -> Reg {
        while let Some(&before) = self.0.get(&reg) {
            reg = before;
        }
        reg
    }
}

impl CodeBuilder<'_> {
    /// Finds the chains that can work in place.
    pub(super) fn in_place(&self, groups: &[OpGroup]) -> InPlace {
        let mut uses: HashMap<Reg, Uses> = HashMap::new();
        let mut chains = Vec::new();
        for (now, (group, op)) in operations(groups).enumerate() {
            let (d, from) = op.operands();
            let whole = group.kind == Kind::Vector && group.context.is_none();
            for reg in from {
                let of = uses.entry(self.place(reg).0).or_default();
                of.reads.push(now);
                of.otherwise |= !whole;
            }
            if let Some(d) = d {
                let of = uses.entry(self.place(d).0).or_default();
                of.writes.push(now);
                of.otherwise |= !whole;
            }
            if let (true, Op::Chain { d, first, .. }) = (whole, op) {
                chains.push((now, *d, *first));
            }
        }
        for reg in self.slow(groups) {
            uses.entry(reg).or_default().otherwise = true;
        }
        // What came is in a block, where writing would wait for the other core.
        let received: HashSet<Reg> = self.runs(self.partition.received.iter()).collect();
        // One may be what came from another part.
        let sent: HashSet<Reg> = self.runs(self.partition.sent.iter()).collect();
        let fits = |now: usize, d: Reg, first: Reg| {
            let (read, written) = (&uses[&first], &uses[&d]);
            let free = !sent.contains(&first) && !received.contains(&first);
            let once = read.reads.iter().filter(|&&at| at == now).count() == 1;
            let last = read.reads.iter().chain(&read.writes).all(|&at| at <= now);
            let begins = written.writes == [now] && written.reads.iter().all(|&at| at > now);
            free && once && last && begins && !read.otherwise && !written.otherwise
        };
        let plain = |reg: Reg| {
            let constant = self.code.constants[reg.0 as usize].is_some();
            !constant && !self.code.changes(reg) && !self.histories.contains_key(&reg)
        };
        let found = chains.into_iter().filter_map(|(now, d, first)| {
            let ((d, late), (first, ago)) = (self.place(d), self.place(first));
            let alike = self.code.plane(d) == self.code.plane(first);
            let present = late == 0 && ago == 0 && d != first;
            let all = present && alike && plain(d) && plain(first);
            (all && fits(now, d, first)).then_some((d, first))
        });
        InPlace(found.collect())
    }
}

/// All operations, in the order of a step.
fn operations(groups: &[OpGroup]) -> impl Iterator<Item = (&OpGroup, &Op<Reg>)> {
    let of = |group| move |op| (group, op);
    groups
        .iter()
        .flat_map(move |group: &OpGroup| group.ops.iter().map(of(group)))
}

//! Whether a layout ever stands still: found by playing it through once.
//!
//! What is in the queues decides alone which partition can go on, and what one partition does takes
//! nothing from another: the order does not matter. After one round of all blocks the queues are as
//! at the start, so a layout that gets through one round runs for ever, and one that does not
//! stands still.

use num_integer::gcd;

use super::layout::{Edge, Layout, MAX_BLOCK, Turn};
use super::settings::Settings;
use crate::cycles;
use crate::problem::{Cause, Problems};
use crate::words::counted;

/// Steps that are played at most.
const MAX_STEPS: u64 = 1 << 22;
/// Blocks of queues of which more would not help.
const LONG: usize = 1 << 16;

struct Play<'a> {
    layout: &'a Layout,
    /// The queues that each partition reads, and those that it writes.
    reads: Vec<Vec<usize>>,
    writes: Vec<Vec<usize>>,
    /// Ticks to be done by each partition, and those done.
    goals: Vec<u64>,
    done: Vec<u64>,
    /// Whether a partition has computed a step and not sent it.
    sending: Vec<bool>,
    /// Blocks in each queue, and slots that are neither full nor in use.
    full: Vec<usize>,
    free: Vec<usize>,
}

/// One step of a partition: its ticks, and the queues that it reads and writes then.
struct Ends {
    begin: u64,
    end: u64,
    ins: Vec<usize>,
    outs: Vec<usize>,
}

/// Refuses queues without room, and layouts that stand still. `laid_out` gives the layout of the
/// graph `name` with other settings than these, if it has one.
pub(super) fn check(
    layout: &Layout,
    name: &str,
    settings: &Settings,
    laid_out: impl Fn(&Settings) -> Option<Layout>,
) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for edge in &layout.edges {
        if edge.capacity == 0 || edge.capacity as u64 > MAX_BLOCK {
            let path = format!("{name}: queue {}", queue_name(layout, edge.from, edge.to));
            let text = format!(
                "a capacity of {}: it must be 1 to {MAX_BLOCK} blocks",
                edge.capacity
            );
            problems.add(Cause::Limit, path, text);
        }
    }
    problems.unless(())?;
    let Some(round) = round(layout) else {
        if is_forest(layout) {
            return Ok(());
        }
        let text = "the blocks of its queues have no common round that is short enough to be \
                    checked: give them sizes that divide one another, shorter blocks or longer \
                    steps, or partitions fewer copies";
        return Err(Problems::one(Cause::Limit, name, text));
    };
    match Play::of(layout, round).stuck() {
        None => Ok(()),
        Some(ring) => {
            let text = in_words(layout, &ring, &ways_out(laid_out, settings, &ring));
            Err(Problems::one(Cause::Loop, name, text))
        }
    }
}

/// Ticks after which the blocks of all queues begin together; none if that is too long to be
/// played.
fn round(layout: &Layout) -> Option<u64> {
    let mut round: u128 = 1;
    // All copies of a partition have their turn in a round.
    for edge in &layout.edges {
        for turns in [edge.writes.turns, edge.reads.turns] {
            let ticks = u128::from(edge.block) * u128::from(turns);
            // One that has grown too long stays so.
            round = (round / gcd(round, ticks)).saturating_mul(ticks);
        }
    }
    let steps = layout
        .partitions
        .iter()
        .map(|partition| round / u128::from(partition.step))
        .fold(0, u128::saturating_add);
    (steps <= MAX_STEPS.into()).then_some(round as u64)
}

/// Whether no two partitions have more than one way between them, whichever way queues go: then
/// none waits for itself, and none for its turn.
fn is_forest(layout: &Layout) -> bool {
    let mut root: Vec<usize> = (0..layout.partitions.len()).collect();
    layout.edges.iter().all(|edge| {
        let of = |mut at: usize| {
            while root[at] != at {
                at = root[at];
            }
            at
        };
        let (from, to) = (of(edge.from), of(edge.to));
        root[from] = to;
        from != to && edge.writes == Turn::EVERY && edge.reads == Turn::EVERY
    })
}

/// What one partition waits for: a block in a queue, or room in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Block(usize),
    Room(usize),
}

/// What may be done about a ring of waits.
fn ways_out(
    laid_out: impl Fn(&Settings) -> Option<Layout>,
    settings: &Settings,
    ring: &[Wait],
) -> Vec<&'static str> {
    let runs = |block: Option<u64>, capacity: Option<usize>| {
        let mut other = settings.clone();
        other.block = block.unwrap_or(other.block);
        other.capacity = capacity.unwrap_or(0).max(other.capacity);
        for between in &mut other.between {
            between.block = block.unwrap_or(between.block);
            between.capacity = capacity.unwrap_or(0).max(between.capacity);
        }
        laid_out(&other).is_some_and(|layout| {
            let round = round(&layout);
            round.is_some_and(|round| Play::of(&layout, round).stuck().is_none())
        })
    };
    let lacks = ring.iter().any(|wait| matches!(wait, Wait::Block(_)));
    let ways = [
        (lacks, "put whole blocks of delay into the loop"),
        (runs(Some(1), None), "make its blocks smaller"),
        (runs(None, Some(LONG)), "let its queues hold more"),
        (true, "put its nodes into one partition"),
    ];
    let ways = ways.into_iter().filter(|(helps, _)| *helps);
    ways.map(|(_, way)| way).collect()
}

/// What a ring of waits is, and the ways out.
fn in_words(layout: &Layout, ring: &[Wait], ways_out: &[&str]) -> String {
    let edge = |wait: &Wait| match *wait {
        Wait::Block(edge) | Wait::Room(edge) => &layout.edges[edge],
    };
    let waiting = |wait: &Wait| match wait {
        Wait::Block(_) => layout.partitions[edge(wait).to].name(edge(wait).to),
        Wait::Room(_) => layout.partitions[edge(wait).from].name(edge(wait).from),
    };
    let lack = |wait: &Wait| {
        let Edge {
            from,
            to,
            block,
            capacity,
            ..
        } = edge(wait);
        let queue = queue_name(layout, *from, *to);
        match wait {
            Wait::Block(_) => format!("{queue} has no block of {}", counted(*block, "tick")),
            Wait::Room(_) => {
                let capacity = counted(*capacity as u64, "block");
                format!("{queue} has no room beside its {capacity}")
            }
        }
    };
    let names: Vec<String> = ring.iter().map(waiting).collect();
    let lacks: Vec<String> = ring.iter().map(lack).collect();
    let ways = match ways_out.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, [way])) => format!("{way}, or {last}"),
        Some((last, ways)) => format!("{}, or {last}", ways.join(", ")),
        None => String::new(),
    };
    format!(
        "would stand still: {} wait for one another; {}. Way out: {ways}",
        names.join(", "),
        lacks.join(", ")
    )
}

fn queue_name(layout: &Layout, from: usize, to: usize) -> String {
    let name = |partition: usize| layout.partitions[partition].name(partition);
    format!("{} -> {}", name(from), name(to))
}

impl<'a> Play<'a> {
    /// A layout at its start, and the ticks that it is to go on for.
    fn of(layout: &'a Layout, round: u64) -> Play<'a> {
        let of = |end: fn(&Edge) -> usize| {
            let mut all = vec![Vec::new(); layout.partitions.len()];
            for (index, edge) in layout.edges.iter().enumerate() {
                all[end(edge)].push(index);
            }
            all
        };
        let free = |edge: &Edge| edge.capacity - edge.initial;
        let partitions = 0..layout.partitions.len();
        Play {
            layout,
            reads: of(|edge| edge.to),
            writes: of(|edge| edge.from),
            // A copy does its share of a round alone.
            goals: partitions.map(|at| round / layout.sharers(at)).collect(),
            done: vec![0; layout.partitions.len()],
            sending: vec![false; layout.partitions.len()],
            full: layout.edges.iter().map(|edge| edge.initial).collect(),
            free: layout.edges.iter().map(free).collect(),
        }
    }

    /// Plays to the end. Returns a shortest ring of waits if some partition does not get there, in
    /// the order in which blocks go round.
    fn stuck(mut self) -> Option<Vec<Wait>> {
        let partitions = 0..self.layout.partitions.len();
        while partitions.clone().any(|partition| self.advance(partition)) {}
        let waits = |partition: usize| match self.done[partition] < self.goals[partition] {
            true => self.waits(partition, &self.ends(partition)),
            false => Vec::new(),
        };
        let waits: Vec<Vec<Wait>> = partitions.map(waits).collect();
        let other = |wait: &Wait| match *wait {
            Wait::Block(edge) => self.layout.edges[edge].from,
            Wait::Room(edge) => self.layout.edges[edge].to,
        };
        let next: Vec<Vec<usize>> = waits
            .iter()
            .map(|waits| waits.iter().map(other).collect())
            .collect();
        let first = cycles::components(&next).first().map(|part| part[0]);
        let Some(mut ring) = first.and_then(|first| cycles::shortest_loop(&next, first)) else {
            let all: Vec<Wait> = waits.into_iter().flatten().collect();
            return (!all.is_empty()).then_some(all);
        };
        // Whoever waits for a block comes behind whoever makes it.
        ring[1..].reverse();
        let before = |at: usize| ring[(at + ring.len() - 1) % ring.len()];
        let wait = |at: usize| {
            let waits = waits[ring[at]].iter();
            waits.copied().find(|wait| other(wait) == before(at))
        };
        (0..ring.len()).map(wait).collect()
    }

    /// What a partition waits for in front of its next step, or in front of sending it.
    fn waits(&self, partition: usize, ends: &Ends) -> Vec<Wait> {
        let copies = |edge: usize| self.layout.edges[edge].transfer.copies();
        let begins = |edge: usize| ends.begin.is_multiple_of(self.layout.edges[edge].block);
        let completes = |edge: usize| ends.end.is_multiple_of(self.layout.edges[edge].block);
        let sending = self.sending[partition];
        let block = |&edge: &usize| !sending && begins(edge) && self.full[edge] == 0;
        let room = |&edge: &usize| {
            let needs = match sending {
                true => copies(edge) && completes(edge),
                false => !copies(edge) && begins(edge),
            };
            needs && self.free[edge] == 0
        };
        let blocks = ends.ins.iter().copied().filter(block).map(Wait::Block);
        let rooms = ends.outs.iter().copied().filter(room).map(Wait::Room);
        blocks.chain(rooms).collect()
    }

    /// The next step of a partition, and the queues whose present block is its own.
    fn ends(&self, partition: usize) -> Ends {
        let begin = self.done[partition];
        let passing = |own: &[usize], turn: fn(&Edge) -> Turn| -> Vec<usize> {
            let edges = &self.layout.edges;
            let passes = |&edge: &usize| turn(&edges[edge]).has(begin / edges[edge].block);
            own.iter().copied().filter(passes).collect()
        };
        Ends {
            begin,
            end: begin + self.layout.partitions[partition].step,
            ins: passing(&self.reads[partition], |edge| edge.reads),
            outs: passing(&self.writes[partition], |edge| edge.writes),
        }
    }

    /// Lets a partition go on as far as it can. Returns whether it moved.
    fn advance(&mut self, partition: usize) -> bool {
        let mut moved = false;
        while self.done[partition] < self.goals[partition] && self.step(partition) {
            moved = true;
        }
        moved
    }

    /// One phase of one step, if nothing is missing for it.
    fn step(&mut self, partition: usize) -> bool {
        let ends = self.ends(partition);
        if !self.waits(partition, &ends).is_empty() {
            return false;
        }
        let Ends {
            begin,
            end,
            ins,
            outs,
        } = ends;
        let layout = self.layout;
        let copies = |edge: usize| layout.edges[edge].transfer.copies();
        let begins = |edge: usize| begin.is_multiple_of(layout.edges[edge].block);
        let completes = |edge: usize| end.is_multiple_of(layout.edges[edge].block);
        if !self.sending[partition] {
            for &edge in &ins {
                self.full[edge] -= usize::from(begins(edge));
                // A slot is free once all of it has been taken over.
                let taken = if copies(edge) {
                    begins(edge)
                } else {
                    completes(edge)
                };
                self.free[edge] += usize::from(taken);
            }
            for &edge in outs.iter().filter(|&&edge| begins(edge) && !copies(edge)) {
                self.free[edge] -= 1;
            }
            self.sending[partition] = true;
            return true;
        }
        for &edge in outs.iter().filter(|&&edge| completes(edge)) {
            self.free[edge] -= usize::from(copies(edge));
            self.full[edge] += 1;
        }
        self.sending[partition] = false;
        self.done[partition] = end;
        true
    }
}

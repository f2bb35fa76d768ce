//! The two ends of a queue between partitions: signals into blocks, blocks into signals.

use std::ptr::NonNull;
use std::sync::Arc;

use super::bell::Bell;
use super::block::{BlockSlice, slices};
use super::lane::Store;
use super::layout::{Edge, IN, Layout, Turn, is_outside};
use super::settings::Transfer;
use super::telemetry::QueueTimes;
use crate::queue::{Consumer, MarkedConsumer, MarkedProducer, Producer, marked, queue};

/// Blocks of a queue of which one can be held while a step computes.
const ENOUGH: usize = 3;

/// What both ends have.
struct QueueEnd {
    slices: Vec<BlockSlice>,
    transfer: Transfer,
    block: u64,
    step: u64,
    /// Ticks of the present block that are done.
    at: u64,
    /// The blocks that pass this queue, and the number of the present one.
    turn: Turn,
    number: u64,
    /// Blocks that the queue holds.
    capacity: usize,
    /// Whether signals work in the present block, and whether this step is the block's last.
    lent: bool,
    last: bool,
    /// The block of this end's own, where blocks are copied.
    own: Vec<u64>,
    /// The bell of the thread at the other end, and the blocks passed that it has not rung for.
    other: Arc<Bell>,
    unsaid: usize,
    /// So many such blocks, and the other end is woken if it is seen to sleep.
    most: usize,
    /// Whether it must be seen then: this thread may wait where it cannot say so before.
    sure: bool,
    times: Arc<QueueTimes>,
}

/// The end that writes.
pub(super) struct Sender {
    ring: Writing,
    end: QueueEnd,
}

/// The end that reads.
pub(super) struct Receiver {
    ring: Reading,
    end: QueueEnd,
}

/// The writing end of a ring.
enum Writing {
    Counted(Producer<u64>),
    Marked(MarkedProducer<u64>),
}

/// The reading end of a ring.
enum Reading {
    Counted(Consumer<u64>),
    Marked(MarkedConsumer<u64>),
}

impl Writing {
    fn has_room(&mut self) -> bool {
        match self {
            Writing::Counted(ring) => ring.reserve(1).is_some(),
            Writing::Marked(ring) => ring.reserve().is_some(),
        }
    }

    /// Writes into the next slot, which is the reader's from then on if that `completes` the block.
    fn write(&mut self, completes: bool, write: impl FnOnce(&mut [u64])) {
        match self {
            Writing::Counted(ring) => {
                let Some(mut grant) = ring.reserve(1) else {
                    return;
                };
                write(grant.slices().0);
                if completes {
                    grant.commit(1);
                }
            }
            Writing::Marked(ring) => {
                let Some(mut grant) = ring.reserve() else {
                    return;
                };
                write(grant.block());
                if completes {
                    grant.commit();
                }
            }
        }
    }

    fn push(&mut self, block: &[u64], streaming: bool) {
        match self {
            Writing::Counted(ring) if streaming => drop(ring.push_streaming(block)),
            Writing::Counted(ring) => drop(ring.push(block)),
            Writing::Marked(ring) => drop(ring.push(block)),
        }
    }
}

impl Reading {
    fn slot(&mut self) -> Option<NonNull<u64>> {
        match self {
            Reading::Counted(ring) => ring.slot(),
            Reading::Marked(ring) => ring.slot(),
        }
    }

    fn has_block(&mut self) -> bool {
        match self {
            Reading::Counted(ring) => ring.peek(1).is_some(),
            Reading::Marked(ring) => ring.has_block(),
        }
    }

    fn available(&mut self) -> usize {
        match self {
            Reading::Counted(ring) => ring.available(),
            Reading::Marked(ring) => ring.available(),
        }
    }

    /// Reads the next slot, which is the writer's from then on if that `completes` the block.
    fn read(&mut self, completes: bool, read: impl FnOnce(&[u64])) {
        match self {
            Reading::Counted(ring) => {
                let Some(view) = ring.peek(1) else {
                    return;
                };
                read(view.slices().0);
                if completes {
                    view.release(1);
                }
            }
            Reading::Marked(ring) => {
                let Some(view) = ring.peek() else {
                    return;
                };
                read(view.block());
                if completes {
                    view.release();
                }
            }
        }
    }

    fn pop(&mut self, block: &mut [u64]) {
        match self {
            Reading::Counted(ring) => drop(ring.pop(block)),
            Reading::Marked(ring) => drop(ring.pop(block)),
        }
    }
}

/// Bytes of a block.
pub(super) fn block_bytes(layout: &Layout, edge: &Edge) -> usize {
    let shapes = &layout.partitions[edge.to].shapes;
    8 * slices(shapes, edge, |crossing| edge.crossings[crossing].to).1
}

/// Makes the queue of an edge.
pub(super) fn link(
    layout: &Layout,
    edge: &Edge,
    bells: &[Arc<Bell>],
    times: &Arc<QueueTimes>,
) -> Result<(Sender, Receiver), String> {
    let shapes = &layout.partitions[edge.to].shapes;
    let (slices, words) = slices(shapes, edge, |crossing| edge.crossings[crossing].to);
    let mut initial = vec![0; words * edge.initial];
    for (slice, crossing) in slices.iter().zip(&edge.crossings) {
        let shape = &shapes[crossing.to];
        let samples = shape.samples(edge.block);
        let mut values = crossing.initial.iter();
        for block in 0..edge.initial {
            let mut store = Store::new(std::slice::from_ref(shape), edge.block);
            let slot = store.slots[0];
            for (sample, value) in values.by_ref().take(samples).enumerate() {
                slot.set(&mut store.lanes, sample, value);
            }
            let mut alone = *slice;
            alone.signal = 0;
            alone.write(
                &mut initial[block * words..][..words],
                &store,
                0,
                edge.block,
            );
        }
    }
    let (writing, reading) = if edge.transfer.marks() {
        let (producer, consumer) = marked(edge.capacity, words, &initial)?;
        (Writing::Marked(producer), Reading::Marked(consumer))
    } else {
        let (producer, consumer) = queue(edge.capacity, words, &initial)?;
        (Writing::Counted(producer), Reading::Counted(consumer))
    };
    let end = |partition: usize, other: usize, turn: Turn, slices| QueueEnd {
        slices,
        transfer: edge.transfer,
        block: edge.block,
        step: layout.partitions[partition].step,
        at: 0,
        turn,
        number: 0,
        capacity: edge.capacity,
        lent: false,
        last: false,
        own: match edge.transfer.copies() {
            true => vec![0; words],
            false => vec![],
        },
        other: bells[other].clone(),
        unsaid: 0,
        // The thread that reads samples may wait for them at any time: it says all at once.
        most: if partition == IN {
            1
        } else {
            edge.capacity.div_ceil(2)
        },
        sure: is_outside(partition),
        times: times.clone(),
    };
    let (written, _) = super::block::slices(shapes, edge, |crossing| edge.crossings[crossing].from);
    Ok((
        Sender {
            ring: writing,
            end: end(edge.from, edge.to, edge.writes, written),
        },
        Receiver {
            ring: reading,
            end: end(edge.to, edge.from, edge.reads, slices),
        },
    ))
}

impl QueueEnd {
    /// Whether the present block passes this queue.
    fn passes(&self) -> bool {
        self.turn.has(self.number)
    }

    fn begins_block(&self) -> bool {
        self.at == 0
    }

    fn completes_block(&self) -> bool {
        self.at + self.step == self.block
    }

    /// A block has passed. A thread that sleeps is not woken for one, if there may soon be more.
    ///
    /// A look at whether it sleeps costs nothing, and may come too early: then the next block's
    /// look, or what is said before this thread waits, wakes it. To be sure would take a fence,
    /// which waits for all lines of the block to come from the other core.
    fn passed(&mut self) {
        self.unsaid += 1;
        if self.unsaid >= self.most && (self.sure || self.other.is_asleep()) {
            self.wake_peer();
        }
    }

    /// Wakes the other end if it sleeps and has not been told of all blocks.
    fn wake_peer(&mut self) {
        if self.unsaid > 0 {
            self.unsaid = 0;
            self.other.ring();
        }
    }

    /// Signals no longer work in the block.
    fn give_back(&mut self, store: &mut Store) {
        self.lent = false;
        for slice in self.slices.iter().filter(|slice| slice.in_block) {
            slice.give_back(store);
        }
    }

    /// Has those signals work in blocks whose memory fits their slice there, if `may` agrees.
    fn use_blocks(&mut self, store: &Store, may: impl Fn(usize) -> bool) {
        if self.transfer.copies() || self.capacity < ENOUGH {
            return;
        }
        for slice in &mut self.slices {
            slice.in_block = slice.fits(store, self.step, self.block)
                && slice.views(store).all(|(view, _)| may(view.lane));
        }
    }

    /// The lanes of all signals.
    fn lanes(&self, store: &Store) -> impl Iterator<Item = usize> {
        let views = self.slices.iter().flat_map(|slice| slice.views(store));
        views.map(|(view, _)| view.lane)
    }

    fn advance(&mut self) {
        if self.completes_block() {
            self.at = 0;
            self.number = (self.number + 1) % self.turn.turns;
        } else {
            self.at += self.step;
        }
    }
}

impl Sender {
    /// The lanes of all signals.
    pub fn lanes(&self, store: &Store) -> impl Iterator<Item = usize> {
        self.end.lanes(store)
    }

    /// Whether a step may begin.
    pub fn may_begin(&mut self) -> bool {
        let now = !self.end.transfer.copies() && self.end.begins_block();
        !now || !self.end.passes() || self.ring.has_room()
    }

    /// Whether the step that has been computed may be sent.
    pub fn may_send(&mut self) -> bool {
        let now = self.end.transfer.copies() && self.end.completes_block();
        !now || !self.end.passes() || self.ring.has_room()
    }

    /// Makes the signals 0.
    pub fn clear(&self, store: &mut Store) {
        for slice in &self.end.slices {
            slice.clear(store);
        }
    }

    /// Sends what the signals have of this step.
    pub fn send(&mut self, store: &Store) {
        let end = &mut self.end;
        if !end.passes() {
            return end.advance();
        }
        let (at, step, completes) = (end.at, end.step, end.completes_block());
        let write = |block: &mut [u64], slices: &[BlockSlice]| {
            for slice in slices {
                slice.write(block, store, at, step);
            }
        };
        if end.transfer.copies() {
            write(&mut end.own, &end.slices);
            if completes {
                let streaming = end.transfer == Transfer::Streaming;
                self.ring.push(&end.own, streaming);
            }
        } else {
            self.ring
                .write(completes, |block| write(block, &end.slices));
        }
        if completes {
            end.passed();
        }
        end.advance();
    }

    /// Tells the other end of all blocks, before this one waits.
    pub fn wake_peer(&mut self) {
        self.end.wake_peer();
    }

    pub fn times(&self) -> &Arc<QueueTimes> {
        &self.end.times
    }
}

impl Receiver {
    /// Whether a step may begin.
    pub fn may_begin(&mut self) -> bool {
        !self.begins_block() || self.ring.has_block()
    }

    /// Whether the next step begins a block of this queue.
    pub fn begins_block(&self) -> bool {
        self.end.begins_block() && self.end.passes()
    }

    /// Blocks in the queue, at least.
    pub fn fill(&mut self) -> usize {
        self.ring.available()
    }

    /// Has these signals work in blocks, if they can.
    pub fn use_blocks(&mut self, store: &Store, may: impl Fn(usize) -> bool) {
        self.end.use_blocks(store, may);
    }

    /// The signals that work in blocks.
    #[cfg(test)]
    pub fn ports_in_blocks(&self) -> usize {
        self.end
            .slices
            .iter()
            .filter(|slice| slice.in_block)
            .count()
    }

    /// Gives the block back that signals have worked in.
    pub fn give_back(&mut self, store: &mut Store) {
        if self.end.lent {
            self.end.give_back(store);
            if self.end.last {
                self.ring.read(true, |_| ());
                self.end.passed();
            }
        }
    }

    /// Takes this step into the signals. Those that work in the block have it until
    /// [`Receiver::give_back`].
    #[allow(unsafe_code)]
    pub fn receive(&mut self, store: &mut Store) {
        let end = &mut self.end;
        if !end.passes() {
            return end.advance();
        }
        let (at, step, completes) = (end.at, end.step, end.completes_block());
        let any = end.slices.iter().any(|slice| slice.in_block);
        let slot = any.then(|| self.ring.slot()).flatten();
        end.lent = slot.is_some();
        let lent = end.lent;
        let mut read = |block: &[u64], slices: &[BlockSlice]| {
            for slice in slices.iter().filter(|slice| !(lent && slice.in_block)) {
                slice.read(block, store, at, step);
            }
        };
        if end.transfer.copies() {
            if end.begins_block() {
                self.ring.pop(&mut end.own);
                end.passed();
            }
            read(&end.own, &end.slices);
        } else {
            // A slot goes back once all of it has been taken over into signals; if some work in it,
            // in `give_back`.
            let done = completes && !lent;
            self.ring.read(done, |block| read(block, &end.slices));
            if done {
                end.passed();
            }
            end.last = completes;
            if let Some(block) = slot {
                for slice in end.slices.iter().filter(|slice| slice.in_block) {
                    // SAFETY: the slot is this end's own until it goes back, and signals are given
                    // back before. Nothing reads a signal whose partition has ended.
                    unsafe { slice.lend(block, store, at) };
                }
            }
        }
        end.advance();
    }

    /// Tells the other end of all blocks, before this one waits.
    pub fn wake_peer(&mut self) {
        self.end.wake_peer();
    }

    pub fn times(&self) -> &Arc<QueueTimes> {
        &self.end.times
    }
}

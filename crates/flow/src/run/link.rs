//! The two ends of a queue between parts: signals into blocks, blocks into signals.

use std::sync::Arc;

use super::bell::Bell;
use super::lane::{Shape, Store, first_byte};
use super::layout::{Edge, Layout, Turn};
use super::settings::Transfer;
use super::telemetry::QueueTimes;
use crate::kernels::View;
use crate::queue::{Consumer, Producer, queue};

/// Words in a cache line.
const LINE: usize = 8;

/// Where a signal lies in a block.
#[derive(Clone, Copy)]
struct Place {
    signal: usize,
    /// The first word of its real parts, and of its imaginary parts.
    re: usize,
    im: Option<usize>,
    bytes: usize,
    period: u64,
}

/// The places of an edge's signals, and the words of a block.
fn places(shapes: &[Shape], edge: &Edge, signal: impl Fn(usize) -> usize) -> (Vec<Place>, usize) {
    let mut words = 0;
    let mut next = |bytes: usize| {
        let first = words;
        words += bytes.div_ceil(8).next_multiple_of(LINE);
        first
    };
    let places = (0..edge.ports.len())
        .map(|port| {
            let shape = &shapes[edge.ports[port].to];
            let bytes = shape.lane_bytes();
            let lane = shape.samples(edge.block) * bytes;
            Place {
                signal: signal(port),
                re: next(lane),
                im: shape.kind.complex.then(|| next(lane)),
                bytes,
                period: shape.period,
            }
        })
        .collect();
    (places, words)
}

impl Place {
    /// Copies the ticks `from` to `to` of a block, between `lane` bytes of a signal and `block`.
    fn run(&self, from: u64, ticks: u64) -> (usize, usize) {
        let first = (from / self.period) as usize * self.bytes;
        (first, (ticks / self.period) as usize * self.bytes)
    }

    fn write(&self, block: &mut [u64], store: &Store, from: u64, ticks: u64) {
        let (first, bytes) = self.run(from, ticks);
        let block: &mut [u8] = bytemuck::cast_slice_mut(block);
        let slot = store.slots[self.signal];
        let mut copy = |word: usize, view: View| {
            let lane = &store.lanes[view.lane].bytes()[first_byte(view)..];
            block[8 * word + first..][..bytes].copy_from_slice(&lane[..bytes]);
        };
        copy(self.re, slot.re);
        if let Some((word, view)) = self.im.zip(slot.im) {
            copy(word, view);
        }
    }

    fn read(&self, block: &[u64], store: &mut Store, from: u64, ticks: u64) {
        let (first, bytes) = self.run(from, ticks);
        let block: &[u8] = bytemuck::cast_slice(block);
        let slot = store.slots[self.signal];
        let mut copy = |word: usize, view: View| {
            let lane = &mut store.lanes[view.lane].bytes_mut()[first_byte(view)..];
            lane[..bytes].copy_from_slice(&block[8 * word + first..][..bytes]);
        };
        copy(self.re, slot.re);
        if let Some((word, view)) = self.im.zip(slot.im) {
            copy(word, view);
        }
    }
}

/// What both ends have.
struct End {
    places: Vec<Place>,
    transfer: Transfer,
    block: u64,
    step: u64,
    /// Ticks of the present block that are done.
    at: u64,
    /// The blocks that pass this queue, and the number of the present one.
    turn: Turn,
    number: u64,
    /// The block of this end's own, where blocks are copied.
    own: Vec<u64>,
    /// The bell of the thread at the other end.
    other: Arc<Bell>,
    times: Arc<QueueTimes>,
}

/// The end that writes.
pub(super) struct Sender {
    producer: Producer<u64>,
    end: End,
}

/// The end that reads.
pub(super) struct Receiver {
    consumer: Consumer<u64>,
    end: End,
}

/// Bytes of a block.
pub(super) fn block_bytes(layout: &Layout, edge: &Edge) -> usize {
    let shapes = &layout.parts[edge.to].shapes;
    8 * places(shapes, edge, |port| edge.ports[port].to).1
}

/// Makes the queue of an edge.
pub(super) fn link(
    layout: &Layout,
    edge: &Edge,
    bells: &[Arc<Bell>],
    times: &Arc<QueueTimes>,
) -> Result<(Sender, Receiver), String> {
    let shapes = &layout.parts[edge.to].shapes;
    let (places, words) = places(shapes, edge, |port| edge.ports[port].to);
    let mut initial = vec![0; words * edge.initial];
    for (place, port) in places.iter().zip(&edge.ports) {
        let shape = &shapes[port.to];
        let samples = shape.samples(edge.block);
        for (block, values) in port.initial.chunks(samples).enumerate() {
            let mut store = Store::new(std::slice::from_ref(shape), edge.block);
            let slot = store.slots[0];
            for (sample, value) in values.iter().enumerate() {
                slot.set(&mut store.lanes, sample, value);
            }
            let alone = Place {
                signal: 0,
                ..*place
            };
            alone.write(
                &mut initial[block * words..][..words],
                &store,
                0,
                edge.block,
            );
        }
    }
    let (producer, consumer) = queue(edge.capacity, words, &initial)?;
    let end = |part: usize, other: usize, turn: Turn, places| End {
        places,
        transfer: edge.transfer,
        block: edge.block,
        step: layout.parts[part].step,
        at: 0,
        turn,
        number: 0,
        own: match edge.transfer {
            Transfer::Copying => vec![0; words],
            Transfer::InPlace => vec![],
        },
        other: bells[other].clone(),
        times: times.clone(),
    };
    let (written, _) = self::places(shapes, edge, |port| edge.ports[port].from);
    Ok((
        Sender {
            producer,
            end: end(edge.from, edge.to, edge.writes, written),
        },
        Receiver {
            consumer,
            end: end(edge.to, edge.from, edge.reads, places),
        },
    ))
}

impl End {
    /// Whether the present block passes this queue.
    fn passes(&self) -> bool {
        self.turn.has(self.number)
    }

    fn starts(&self) -> bool {
        self.at == 0
    }

    fn ends(&self) -> bool {
        self.at + self.step == self.block
    }

    fn advance(&mut self) {
        if self.ends() {
            self.at = 0;
            self.number = (self.number + 1) % self.turn.turns;
        } else {
            self.at += self.step;
        }
    }
}

impl Sender {
    /// Whether a step may begin.
    pub fn may_begin(&mut self) -> bool {
        let now = self.end.transfer == Transfer::InPlace && self.end.starts();
        !now || !self.end.passes() || self.producer.reserve(1).is_some()
    }

    /// Whether the step that has been computed may be sent.
    pub fn may_send(&mut self) -> bool {
        let now = self.end.transfer == Transfer::Copying && self.end.ends();
        !now || !self.end.passes() || self.producer.reserve(1).is_some()
    }

    /// Sends what the signals have of this step.
    pub fn send(&mut self, store: &Store) {
        let end = &mut self.end;
        if !end.passes() {
            return end.advance();
        }
        let mut grant = None;
        let block: &mut [u64] = match end.transfer {
            Transfer::Copying => &mut end.own,
            Transfer::InPlace => match self.producer.reserve(1) {
                Some(reserved) => grant.insert(reserved).slices().0,
                None => return,
            },
        };
        for place in &end.places {
            place.write(block, store, end.at, end.step);
        }
        if end.ends() {
            match grant {
                Some(grant) => grant.commit(1),
                None => drop(self.producer.push(&end.own)),
            }
            end.other.ring();
        }
        end.advance();
    }

    pub fn times(&self) -> &QueueTimes {
        &self.end.times
    }
}

impl Receiver {
    /// Whether a step may begin.
    pub fn may_begin(&mut self) -> bool {
        !self.starts() || self.consumer.peek(1).is_some()
    }

    /// Whether the next step begins a block of this queue.
    pub fn starts(&self) -> bool {
        self.end.starts() && self.end.passes()
    }

    /// Blocks in the queue, at least.
    pub fn fill(&mut self) -> usize {
        self.consumer.available()
    }

    /// Takes this step into the signals.
    pub fn receive(&mut self, store: &mut Store) {
        let end = &mut self.end;
        if !end.passes() {
            return end.advance();
        }
        if end.transfer == Transfer::Copying && end.starts() {
            self.consumer.pop(&mut end.own);
            end.other.ring();
        }
        let view = match end.transfer {
            Transfer::Copying => None,
            Transfer::InPlace => self.consumer.peek(1),
        };
        let block = view.as_ref().map_or(&end.own[..], |view| view.slices().0);
        for place in &end.places {
            place.read(block, store, end.at, end.step);
        }
        // A slot goes back once all of it has been taken over into signals.
        if let Some(view) = view
            && end.ends()
        {
            view.release(1);
            end.other.ring();
        }
        end.advance();
    }

    pub fn times(&self) -> &QueueTimes {
        &self.end.times
    }
}

//! The queue without a handshake: both ends go at one rate, and the queue is half full.
//!
//! Neither end looks whether there is room or a block. The producer writes its number, the block,
//! and its number again; the consumer reads them the other way round. If a number is not the one
//! whose turn it is, an end was too fast: the consumer says so, and the queue is done with.
//!
//! Why a block that is given is whole: the second number is stored with release and loaded with
//! acquire, so that whoever finds it finds the block, or words of a later one. A word of a later
//! one was stored behind a release fence that follows the first number of that one; it was loaded
//! before an acquire fence that the load of the first number follows. So that load finds the later
//! number and the block is refused. This is the sequence lock, and the words are relaxed atomics as
//! it needs them: no machine's order of stores is relied on.
//!
//! The rates are held equal by a controller in the producer. It sees every so many blocks how full
//! the queue is, and sets how long each end pauses behind a block: a proportional and an integral
//! part, half to each end. Without it, the loop is open, and something else keeps the rates equal.
//!
//! This is an option to be measured. A thread that the operating system stops for longer than half
//! a queue breaks it: it is for cores that nothing else runs on.

use super::memory::{Alone, MAX_BYTES};
use super::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// How rates are kept equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Blocks from one look to the next.
    pub every: u32,
    /// Pauses for each block above half full.
    pub proportional: f32,
    /// Pauses for each block above half full, at each look.
    pub integral: f32,
}

impl Default for Pacing {
    fn default() -> Pacing {
        Pacing {
            every: 16,
            proportional: 1.0,
            integral: 0.01,
        }
    }
}

/// An end was too fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// The block was not there yet.
    Empty,
    /// The block was written over before it was read.
    Overwritten,
    /// The block was asked for with another length than the queue's.
    Length,
}

struct Shared {
    /// Blocks read since the start.
    head: Alone<AtomicUsize>,
    /// The consumer's pause behind a block, as bits of an `f32`.
    pause: Alone<AtomicU32>,
    failed: Alone<AtomicBool>,
    slots: usize,
    /// Words of a block.
    block: usize,
    /// Slots: a number, the block, the number again.
    words: Box<[AtomicU64]>,
}

impl Shared {
    fn slot(&self, at: usize) -> &[AtomicU64] {
        let stride = self.block + 2;
        &self.words[at * stride..][..stride]
    }
}

/// Pauses by fractions: what is left of one goes to the next.
#[derive(Default)]
struct Pause {
    length: f32,
    left: f32,
}

impl Pause {
    fn pause(&mut self) {
        self.left += self.length;
        while self.left >= 1.0 {
            self.left -= 1.0;
            std::hint::black_box(());
        }
    }
}

/// The end that writes to a queue without a handshake.
#[repr(align(128))]
pub struct PacedProducer {
    shared: Arc<Shared>,
    count: u64,
    at: usize,
    pacing: Option<Pacing>,
    sum: f32,
    base: f32,
    pause: Pause,
    look: u32,
}

/// The end that reads from a queue without a handshake.
#[repr(align(128))]
pub struct PacedConsumer {
    shared: Arc<Shared>,
    count: u64,
    at: usize,
    pacing: Option<Pacing>,
    pause: Pause,
    look: u32,
}

/// The longest pause, against a controller that has lost its hold.
const LONGEST: f32 = 10_000.0;

/// A queue of `slots` blocks of `block` words each, half of them there already and zero.
pub fn paced(
    slots: usize,
    block: usize,
    pacing: Option<Pacing>,
) -> Result<(PacedProducer, PacedConsumer), String> {
    let words = block
        .checked_add(2)
        .and_then(|stride| stride.checked_mul(slots))
        .filter(|&words| slots > 1 && block > 0 && words <= MAX_BYTES / 8);
    let Some(words) = words else {
        return Err(format!(
            "{slots} blocks of {block} words: there must be 2 blocks and 1 word at least, and at most {MAX_BYTES} bytes"
        ));
    };
    if pacing.is_some_and(|pacing| pacing.every == 0) {
        return Err("a look every 0 blocks: give 1 at least".into());
    }
    let half = slots / 2;
    let stride = block + 2;
    let number = |word: usize| {
        let (slot, within) = (word / stride, word % stride);
        let is_number = within == 0 || within == stride - 1;
        if is_number && slot < half {
            slot as u64 + 1
        } else {
            0
        }
    };
    let shared = Arc::new(Shared {
        head: Alone(AtomicUsize::new(0)),
        pause: Alone(AtomicU32::new(0)),
        failed: Alone(AtomicBool::new(false)),
        slots,
        block,
        words: (0..words)
            .map(|word| AtomicU64::new(number(word)))
            .collect(),
    });
    let producer = PacedProducer {
        shared: shared.clone(),
        count: half as u64,
        at: half,
        pacing,
        sum: 0.0,
        base: 0.0,
        pause: Pause::default(),
        look: 0,
    };
    let consumer = PacedConsumer {
        shared,
        count: 0,
        at: 0,
        pacing,
        pause: Pause::default(),
        look: 0,
    };
    Ok((producer, consumer))
}

impl PacedProducer {
    /// Writes a block, whatever is there. `false`: the consumer has told of a slip, which is seen
    /// at the next look, or the block has another length than the queue's.
    #[inline]
    pub fn push(&mut self, block: &[u64]) -> bool {
        let shared = &*self.shared;
        if block.len() != shared.block {
            return false;
        }
        self.count += 1;
        let slot = shared.slot(self.at);
        let (before, rest) = slot.split_at(1);
        let (words, behind) = rest.split_at(block.len());
        before[0].store(self.count, Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, &from) in words.iter().zip(block) {
            to.store(from, Ordering::Relaxed);
        }
        behind[0].store(self.count, Ordering::Release);
        self.at = if self.at + 1 == shared.slots {
            0
        } else {
            self.at + 1
        };
        self.pause.pause();
        self.look += 1;
        let every = self.pacing.map_or(1024, |pacing| pacing.every);
        if self.look < every {
            return true;
        }
        self.look = 0;
        self.steer();
        !self.has_failed()
    }

    /// The controller.
    fn steer(&mut self) {
        let Some(pacing) = self.pacing else {
            return;
        };
        let read = self.shared.head.0.load(Ordering::Relaxed) as u64;
        let error = self.count.wrapping_sub(read) as f32 - self.shared.slots as f32 / 2.0;
        self.sum += error;
        let correction = pacing.proportional * error + pacing.integral * self.sum;
        let mut own = self.base + correction / 2.0;
        let mut other = self.base - correction / 2.0;
        // Nobody can pause for less than nothing: the rest goes to the other end.
        let lack = (-own).max(-other).max(0.0);
        own += lack;
        other += lack;
        self.base = (self.base + if lack > 0.0 { 0.01 } else { -0.01 }).clamp(0.0, LONGEST);
        self.pause.length = own.min(LONGEST);
        let other = other.min(LONGEST).to_bits();
        self.shared.pause.0.store(other, Ordering::Relaxed);
    }

    /// Whether the consumer has told of a slip.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.0.load(Ordering::Relaxed)
    }
}

impl PacedConsumer {
    /// Reads the next block, whether or not it is there. Behind a slip, what is in `block` means
    /// nothing, and every further block is a slip too.
    #[inline]
    pub fn pop(&mut self, block: &mut [u64]) -> Result<(), Slip> {
        let shared = &*self.shared;
        if block.len() != shared.block {
            return Err(Slip::Length);
        }
        let wanted = self.count + 1;
        let slot = shared.slot(self.at);
        let (before, rest) = slot.split_at(1);
        let (words, behind) = rest.split_at(block.len());
        let last = behind[0].load(Ordering::Acquire);
        for (to, from) in block.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let first = before[0].load(Ordering::Relaxed);
        if last != wanted || first != wanted {
            shared.failed.0.store(true, Ordering::Relaxed);
            return Err(if last < wanted {
                Slip::Empty
            } else {
                Slip::Overwritten
            });
        }
        self.count = wanted;
        self.at = if self.at + 1 == shared.slots {
            0
        } else {
            self.at + 1
        };
        self.pause.pause();
        if let Some(pacing) = self.pacing {
            self.look += 1;
            if self.look >= pacing.every {
                self.look = 0;
                shared.head.0.store(self.count as usize, Ordering::Relaxed);
                let pause = shared.pause.0.load(Ordering::Relaxed);
                self.pause.length = f32::from_bits(pause);
            }
        }
        Ok(())
    }
}

//! The ring whose slots tell that they are full.
//!
//! Each slot ends with a mark: the number of the lap in which it was written last. The producer
//! writes a block and then its mark; the consumer looks at the mark of the slot that is next. So a
//! block and the news of it travel on one cache line, where the ring of [`super::ring`] sends a
//! second one with the count. What was read is counted as there.
//!
//! Why this is sound: a slot belongs to the producer while `tail - head < slots` for its turn, and
//! to the consumer from the store of its mark to the store of `head` behind it. Both stores release
//! and both loads acquire. A mark differs from the one of the lap before, and the producer cannot
//! be two laps ahead: one look tells.

use std::ptr::NonNull;

use super::memory::{Ahead, Alone, LINE, Memory, Want, checked};
use super::sync::{Arc, AtomicBool, AtomicU32, AtomicUsize, Marks, Ordering, Watch};

const MARK: usize = size_of::<u32>();

struct Shared<T> {
    /// Blocks read since the start.
    head: Alone<AtomicUsize>,
    /// Whether the producer, or the consumer, is gone.
    abandoned: Alone<AtomicBool>,
    slots: usize,
    /// Items of a block.
    block: usize,
    /// Bytes from one slot to the next. Its last four are the mark.
    stride: usize,
    memory: Memory,
    marks: Marks,
    watches: Box<[Watch]>,
    item: std::marker::PhantomData<T>,
}

// SAFETY: marks and counts give each slot to one end at a time, see above. Items are `Send`, and
// `Sync` because threads may share a view.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: the memory belongs to the ring alone, and items are `Send`.
unsafe impl<T: Send> Send for Shared<T> {}

/// Bytes of a slot with so many bytes of items: no small one lies on two lines.
fn stride(bytes: usize) -> Option<usize> {
    let bytes = bytes.checked_next_multiple_of(MARK)?.checked_add(MARK)?;
    if bytes <= LINE {
        Some(bytes.next_power_of_two())
    } else {
        bytes.checked_next_multiple_of(LINE)
    }
}

impl<T: Copy> Shared<T> {
    #[inline(always)]
    fn items(&self, at: usize) -> *mut [T] {
        let first = self.memory.at(at * self.stride).cast::<T>();
        std::ptr::slice_from_raw_parts_mut(first, self.block)
    }

    #[inline(always)]
    fn watch(&self, at: usize) -> &Watch {
        // There is one at least, and those that watch nothing need no check of the index.
        &self.watches[if size_of::<Watch>() == 0 { 0 } else { at }]
    }

    #[inline(always)]
    fn mark(&self, at: usize) -> &AtomicU32 {
        let place = self.memory.at((at + 1) * self.stride - MARK);
        // SAFETY: strides are multiples of four. Items end before it: see `stride`.
        unsafe { self.marks.of(at, place.cast::<u32>()) }
    }
}

/// Where an end is.
#[derive(Clone)]
struct Position {
    /// Blocks passed.
    count: usize,
    /// The slot that is next.
    at: usize,
    /// The mark that this slot gets, or has when it is full.
    lap: u32,
}

impl Position {
    fn new(slots: usize, count: usize) -> Position {
        Position {
            count,
            at: count % slots,
            lap: 1 + (count / slots) as u32,
        }
    }

    #[inline(always)]
    fn advance(&mut self, slots: usize) {
        self.count = self.count.wrapping_add(1);
        self.at += 1;
        if self.at == slots {
            self.at = 0;
            self.lap = self.lap.wrapping_add(1);
        }
    }
}

/// The end that writes to a ring of marked slots.
#[repr(align(128))]
pub struct MarkedProducer<T> {
    shared: Arc<Shared<T>>,
    position: Position,
    /// Blocks read, as last seen.
    head: usize,
    ahead: Ahead,
}

/// The end that reads from a ring of marked slots.
#[repr(align(128))]
pub struct MarkedConsumer<T> {
    shared: Arc<Shared<T>>,
    position: Position,
}

/// A queue of `slots` blocks of `block` items each, with whole blocks of `initial` items in it,
/// whose slots carry marks. It passes one block at a time, and blocks below about 1 KiB faster than
/// [`super::queue`] does.
pub fn marked<T: Copy + Default + Send>(
    slots: usize,
    block: usize,
    initial: &[T],
) -> Result<(MarkedProducer<T>, MarkedConsumer<T>), String> {
    let bytes = checked::<T>(slots, block, initial.len(), stride)?;
    let stride = bytes / slots;
    let filled = initial.len() / block;
    let shared = Shared {
        head: Alone(AtomicUsize::new(0)),
        abandoned: Alone(AtomicBool::new(false)),
        slots,
        block,
        stride,
        memory: Memory::new(bytes),
        marks: Marks::new(slots),
        watches: (0..slots).map(|_| Watch::default()).collect(),
        item: std::marker::PhantomData,
    };
    for slot in 0..slots {
        for index in 0..block {
            let item = initial.get(slot * block + index);
            // SAFETY: within the items of the slot, whose memory nobody else has yet.
            unsafe {
                let first = shared.items(slot).cast::<T>();
                first.add(index).write(item.copied().unwrap_or_default());
            }
        }
        shared
            .mark(slot)
            .store(u32::from(slot < filled), Ordering::Relaxed);
    }
    let shared = Arc::new(shared);
    let producer = MarkedProducer {
        shared: shared.clone(),
        position: Position::new(slots, filled),
        head: 0,
        ahead: Ahead::new(stride),
    };
    Ok((
        producer,
        MarkedConsumer {
            shared,
            position: Position::new(slots, 0),
        },
    ))
}

impl<T: Copy> MarkedProducer<T> {
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        let full = |head: usize| self.position.count.wrapping_sub(head) >= self.shared.slots;
        if full(self.head) {
            self.head = self.shared.head.0.load(Ordering::Acquire);
        }
        !full(self.head)
    }

    /// Asks for lines that will be written soon.
    #[inline(always)]
    fn fetch(&mut self) {
        let shared = &*self.shared;
        let Position { count, at, .. } = self.position;
        let own = shared.slots - count.wrapping_sub(self.head);
        self.ahead
            .fetch(Want::Write, &shared.memory, shared.slots, count, at, own);
    }

    /// Room for one block, to write in place. It holds items that were there before.
    #[inline]
    pub fn reserve(&mut self) -> Option<MarkedGrant<'_, T>> {
        if !self.has_room() {
            return None;
        }
        self.shared.watch(self.position.at).write();
        Some(MarkedGrant { producer: self })
    }

    /// Copies one block, and says whether there was room. A block of another length has none.
    #[inline]
    pub fn push(&mut self, block: &[T]) -> bool {
        if block.len() != self.shared.block {
            return false;
        }
        let Some(mut grant) = self.reserve() else {
            return false;
        };
        grant.block().copy_from_slice(block);
        grant.commit();
        true
    }

    /// Writes one item, and says whether there was room. Blocks of several items have none.
    #[inline]
    pub fn push_one(&mut self, item: T) -> bool {
        if !self.has_room() || self.shared.block != 1 {
            return false;
        }
        let shared = &*self.shared;
        shared.watch(self.position.at).write();
        // SAFETY: the slot is the producer's, as in `MarkedGrant::block`.
        unsafe { shared.items(self.position.at).cast::<T>().write(item) };
        self.publish();
        true
    }

    #[inline(always)]
    fn publish(&mut self) {
        let mark = self.shared.mark(self.position.at);
        mark.store(self.position.lap, Ordering::Release);
        self.position.advance(self.shared.slots);
        self.fetch();
    }

    /// Whether the consumer is gone.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.0.load(Ordering::Acquire)
    }
}

/// Room for a block, to be written in place. Dropped without `commit`, it leaves the queue as it
/// was.
pub struct MarkedGrant<'a, T> {
    producer: &'a mut MarkedProducer<T>,
}

impl<T: Copy> MarkedGrant<'_, T> {
    /// The room.
    #[inline]
    pub fn block(&mut self) -> &mut [T] {
        // SAFETY: `reserve` found this slot to be the producer's, all items were written when the
        // queue was made, and the borrow of the grant keeps anyone from having them twice.
        unsafe { &mut *self.producer.shared.items(self.producer.position.at) }
    }

    /// Lets the consumer see the block.
    #[inline]
    pub fn commit(self) {
        self.producer
            .shared
            .watch(self.producer.position.at)
            .write();
        self.producer.publish();
    }
}

impl<T: Copy> MarkedConsumer<T> {
    /// Whether there is a block.
    #[inline(always)]
    pub fn has_block(&self) -> bool {
        self.shared.mark(self.position.at).load(Ordering::Acquire) == self.position.lap
    }

    /// How many blocks there are, by a look at the marks of all.
    pub fn available(&self) -> usize {
        let mut position = self.position.clone();
        let marked = |position: &Position| {
            self.shared.mark(position.at).load(Ordering::Acquire) == position.lap
        };
        let mut blocks = 0;
        while blocks < self.shared.slots && marked(&position) {
            position.advance(self.shared.slots);
            blocks += 1;
        }
        blocks
    }

    /// The next block, if there is one: memory that nobody else has until it is released. Models
    /// of interleavings do not see what is done there.
    pub(crate) fn slot(&mut self) -> Option<NonNull<T>> {
        let has = self.has_block();
        has.then(|| NonNull::new(self.shared.items(self.position.at).cast()))?
    }

    /// One block, to read in place.
    #[inline]
    pub fn peek(&mut self) -> Option<MarkedView<'_, T>> {
        if !self.has_block() {
            return None;
        }
        self.shared.watch(self.position.at).read();
        Some(MarkedView { consumer: self })
    }

    /// Copies one block, and says whether there was one. One of another length never is.
    #[inline]
    pub fn pop(&mut self, block: &mut [T]) -> bool {
        if block.len() != self.shared.block {
            return false;
        }
        let Some(view) = self.peek() else {
            return false;
        };
        block.copy_from_slice(view.block());
        view.release();
        true
    }

    /// Reads one item. Blocks of several items are not read so: there is never one.
    #[inline]
    pub fn pop_one(&mut self) -> Option<T> {
        if !self.has_block() || self.shared.block != 1 {
            return None;
        }
        let shared = &*self.shared;
        shared.watch(self.position.at).read();
        // SAFETY: the slot is the consumer's, as in `MarkedView::block`.
        let item = unsafe { shared.items(self.position.at).cast::<T>().read() };
        self.give_back();
        Some(item)
    }

    #[inline(always)]
    fn give_back(&mut self) {
        self.position.advance(self.shared.slots);
        let head = &self.shared.head.0;
        head.store(self.position.count, Ordering::Release);
    }

    /// Whether the producer is gone. What it wrote before can still be read: look at
    /// [`MarkedConsumer::has_block`] after this.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.0.load(Ordering::Acquire)
    }
}

/// A block in a queue, to be read in place. Dropped without `release`, it leaves it there.
pub struct MarkedView<'a, T> {
    consumer: &'a mut MarkedConsumer<T>,
}

impl<T: Copy> MarkedView<'_, T> {
    /// The block.
    #[inline]
    pub fn block(&self) -> &[T] {
        // SAFETY: `peek` found this slot to be the consumer's, all items were written when the
        // queue was made, and the producer gets it back only after the view is gone.
        unsafe { &*self.consumer.shared.items(self.consumer.position.at) }
    }

    /// Gives the room of the block back.
    #[inline]
    pub fn release(self) {
        self.consumer.shared.watch(self.consumer.position.at).read();
        self.consumer.give_back();
    }
}

impl<T> Drop for MarkedProducer<T> {
    fn drop(&mut self) {
        self.shared.abandoned.0.store(true, Ordering::Release);
    }
}

impl<T> Drop for MarkedConsumer<T> {
    fn drop(&mut self) {
        self.shared.abandoned.0.store(true, Ordering::Release);
    }
}

//! The ring that producer and consumer share.
//!
//! Both ends count the blocks that they have moved since the start, in numbers that wrap. The
//! difference is what is in the ring. Only the producer stores `tail`, only the consumer `head`.
//!
//! Why this is sound: a slot belongs to the producer while `tail - head < slots` for its turn, and
//! to the consumer from the store of `tail` behind it to the store of `head` behind it. Both stores
//! release and both loads acquire, so every access of an owner happens before every access of the
//! next one, on any machine with the memory model of C11 and Rust. The payload is no atomic.
//! `tests/loom.rs` checks all interleavings of small rings; what it does not prove is the
//! arithmetic of large ones, which property tests hold.

use std::ptr::NonNull;

use super::memory::{Ahead, Alone, Memory, Want, checked, stream};
use super::sync::{Arc, AtomicBool, AtomicUsize, Ordering, Watch};

struct Shared<T> {
    /// Blocks written since the start.
    tail: Alone<AtomicUsize>,
    /// Blocks read since the start.
    head: Alone<AtomicUsize>,
    /// Whether one of the ends is gone.
    abandoned: Alone<AtomicBool>,
    slots: usize,
    /// Items of a block.
    block: usize,
    /// `slots * block` items.
    memory: Memory,
    watches: Box<[Watch]>,
    item: std::marker::PhantomData<T>,
}

// SAFETY: the indices give each slot to one end at a time, see above. Items are `Send`, and `Sync`
// because threads may share a view.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: the memory belongs to the ring alone, and items are `Send`.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// The memory of `blocks` slots from slot `at` on, which do not reach beyond the last.
    #[inline(always)]
    fn items(&self, at: usize, blocks: usize) -> *mut [T] {
        debug_assert!(at + blocks <= self.slots);
        let start = self.memory.at(at * self.block * size_of::<T>()).cast::<T>();
        std::ptr::slice_from_raw_parts_mut(start, blocks * self.block)
    }

    /// The slots in two runs: up to the last slot, and from the first on.
    #[inline(always)]
    fn runs(&self, at: usize, blocks: usize) -> (usize, usize) {
        let before = blocks.min(self.slots - at);
        (before, blocks - before)
    }

    #[inline(always)]
    fn watch(&self, at: usize, blocks: usize, look: impl Fn(&Watch)) {
        if size_of::<Watch>() == 0 {
            return;
        }
        let (before, after) = self.runs(at, blocks);
        self.watches[at..at + before]
            .iter()
            .chain(&self.watches[..after])
            .for_each(look);
    }

    #[inline(always)]
    fn ahead(&self, at: usize, blocks: usize) -> usize {
        let next = at + blocks;
        if next >= self.slots {
            next - self.slots
        } else {
            next
        }
    }
}

/// The end that writes. Like the other end on cache lines of its own, wherever it lies: beside each
/// other on one, they would be four times as slow.
#[repr(align(128))]
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    /// Blocks written.
    tail: usize,
    /// The slot that is written next.
    at: usize,
    /// Blocks read, as last seen.
    head: usize,
    ahead: Ahead,
}

/// The end that reads.
#[repr(align(128))]
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    /// Blocks read.
    head: usize,
    /// The slot that is read next.
    at: usize,
    /// Blocks written, as last seen.
    tail: usize,
    ahead: Ahead,
}

/// A queue of `slots` blocks of `block` items each, with whole blocks of `initial` items in it.
pub fn queue<T: Copy + Default + Send>(
    slots: usize,
    block: usize,
    initial: &[T],
) -> Result<(Producer<T>, Consumer<T>), String> {
    let bytes = checked::<T>(slots, block, initial.len(), Some)?;
    let filled = initial.len() / block;
    let shared = Shared {
        tail: Alone(AtomicUsize::new(filled)),
        head: Alone(AtomicUsize::new(0)),
        abandoned: Alone(AtomicBool::new(false)),
        slots,
        block,
        memory: Memory::new(bytes),
        watches: (0..slots).map(|_| Watch::default()).collect(),
        item: std::marker::PhantomData,
    };
    let items = shared.items(0, slots);
    for index in 0..slots * block {
        let item = initial.get(index).copied().unwrap_or_default();
        // SAFETY: `index` is within the items, whose memory nobody else has yet.
        unsafe { items.cast::<T>().add(index).write(item) };
    }
    let shared = Arc::new(shared);
    let at = if filled == slots { 0 } else { filled };
    let producer = Producer {
        shared: shared.clone(),
        tail: filled,
        at,
        head: 0,
        ahead: Ahead::new(block * size_of::<T>()),
    };
    Ok((
        producer,
        Consumer {
            shared,
            head: 0,
            at: 0,
            tail: filled,
            ahead: Ahead::new(block * size_of::<T>()),
        },
    ))
}

impl<T: Copy> Producer<T> {
    /// Whether there is room for so many blocks. Looks at the consumer's index only if the last one
    /// seen denies it.
    #[inline]
    fn has_room(&mut self, blocks: usize) -> bool {
        let room = |head: usize| self.shared.slots - self.tail.wrapping_sub(head);
        if room(self.head) >= blocks {
            return true;
        }
        self.head = self.shared.head.0.load(Ordering::Acquire);
        room(self.head) >= blocks
    }

    /// Whether there is room for so many blocks.
    #[inline]
    pub fn room_for(&mut self, blocks: usize) -> bool {
        self.has_room(blocks)
    }

    /// Blocks that there is room for, at least.
    pub fn room(&mut self) -> usize {
        self.has_room(self.shared.slots);
        self.shared.slots - self.tail.wrapping_sub(self.head)
    }

    /// Room for so many blocks, to write in place. `None` if there is less, or if none is asked
    /// for. The room holds items that were there before.
    #[inline]
    pub fn reserve(&mut self, blocks: usize) -> Option<Grant<'_, T>> {
        if blocks == 0 || blocks > self.shared.slots || !self.has_room(blocks) {
            return None;
        }
        self.shared.watch(self.at, blocks, Watch::write);
        Some(Grant {
            producer: self,
            blocks,
        })
    }

    /// Asks for lines that will be written soon.
    #[inline(always)]
    fn fetch(&mut self) {
        let shared = &*self.shared;
        let own = shared.slots - self.tail.wrapping_sub(self.head);
        self.ahead.fetch(
            Want::Write,
            &shared.memory,
            shared.slots,
            self.tail,
            self.at,
            own,
        );
    }

    /// Copies whole blocks, as many as are given and have room. Returns how many items were taken.
    #[inline]
    pub fn push(&mut self, items: &[T]) -> usize {
        let taken = self.push_by(items, |from, to| to.copy_from_slice(from));
        self.fetch();
        taken
    }

    /// [`Producer::push`] past the caches of this core, where the processor can do that (x86-64
    /// can). It pays for blocks of 1 KiB or more between cores that share no cache; elsewhere it
    /// costs.
    #[inline]
    pub fn push_streaming(&mut self, items: &[T]) -> usize
    where
        T: bytemuck::NoUninit,
    {
        self.push_by(items, |from, to| {
            // SAFETY: both are slices of one length, one of them exclusive; items have no bytes
            // that are not initialised.
            unsafe {
                stream(
                    from.as_ptr().cast(),
                    to.as_mut_ptr().cast(),
                    size_of_val(from),
                )
            }
        })
    }

    #[inline(always)]
    fn push_by(&mut self, items: &[T], copy: impl Fn(&[T], &mut [T])) -> usize {
        // One block is the usual case, and needs no division.
        let one = items.len() == self.shared.block;
        let wanted = if one {
            1
        } else {
            items.len() / self.shared.block
        };
        let blocks = if self.has_room(wanted) {
            wanted
        } else {
            self.shared.slots - self.tail.wrapping_sub(self.head)
        };
        let Some(mut grant) = self.reserve(blocks) else {
            return 0;
        };
        let (first, rest) = grant.slices();
        let taken = first.len() + rest.len();
        copy(&items[..first.len()], first);
        if !rest.is_empty() {
            copy(&items[first.len()..taken], rest);
        }
        grant.commit(blocks);
        taken
    }

    /// Writes one item, and says whether there was room. Blocks of several items are not written
    /// so: there is never room.
    #[inline]
    pub fn push_one(&mut self, item: T) -> bool {
        let shared = &*self.shared;
        if self.tail.wrapping_sub(self.head) >= shared.slots {
            self.head = shared.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head) >= shared.slots {
                return false;
            }
        }
        if shared.block != 1 {
            return false;
        }
        let slot = shared.items(self.at, 1).cast::<T>();
        shared.watch(self.at, 1, Watch::write);
        // SAFETY: the slot is the producer's, as in `Grant::slices`.
        unsafe { slot.write(item) };
        self.at = shared.ahead(self.at, 1);
        self.tail = self.tail.wrapping_add(1);
        shared.tail.0.store(self.tail, Ordering::Release);
        self.fetch();
        true
    }

    /// Whether the consumer is gone.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.0.load(Ordering::Acquire)
    }
}

/// Room in a queue, to be written in place. Dropped without `commit`, it leaves the queue as it
/// was.
pub struct Grant<'a, T> {
    producer: &'a mut Producer<T>,
    blocks: usize,
}

impl<T: Copy> Grant<'_, T> {
    /// The room: from one slot on, and what follows it at the beginning of the ring. Both are whole
    /// blocks.
    #[inline]
    pub fn slices(&mut self) -> (&mut [T], &mut [T]) {
        let Producer { shared, at, .. } = &*self.producer;
        let (before, after) = shared.runs(*at, self.blocks);
        // SAFETY: `reserve` found these slots to be the producer's, all items were written when the
        // queue was made, the two runs do not overlap, and the borrow of the grant keeps anyone
        // from having them twice.
        unsafe {
            (
                &mut *shared.items(*at, before),
                &mut *shared.items(0, after),
            )
        }
    }

    /// Lets the consumer see the first `blocks` blocks, at most all that were reserved.
    #[inline]
    pub fn commit(self, blocks: usize) {
        let blocks = blocks.min(self.blocks);
        let producer = self.producer;
        producer.shared.watch(producer.at, blocks, Watch::write);
        producer.tail = producer.tail.wrapping_add(blocks);
        producer.at = producer.shared.ahead(producer.at, blocks);
        producer
            .shared
            .tail
            .0
            .store(producer.tail, Ordering::Release);
    }
}

impl<T: Copy> Consumer<T> {
    /// Whether there are so many blocks. Looks at the producer's index only if the last one seen
    /// denies it.
    #[inline]
    fn has(&mut self, blocks: usize) -> bool {
        if self.tail.wrapping_sub(self.head) >= blocks {
            return true;
        }
        self.tail = self.shared.tail.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head) >= blocks
    }

    /// Whether so many blocks can be read.
    #[inline]
    pub fn holds(&mut self, blocks: usize) -> bool {
        self.has(blocks)
    }

    /// Blocks that can be read, at least.
    pub fn available(&mut self) -> usize {
        self.has(self.shared.slots);
        self.tail.wrapping_sub(self.head)
    }

    /// Asks for lines that will be read soon.
    #[inline(always)]
    fn fetch(&mut self) {
        let shared = &*self.shared;
        let own = self.tail.wrapping_sub(self.head);
        self.ahead.fetch(
            Want::Read,
            &shared.memory,
            shared.slots,
            self.head,
            self.at,
            own,
        );
    }

    /// The next block, if there is one: memory that nobody else has until it is released. Models
    /// of interleavings do not see what is done there.
    pub(crate) fn slot(&mut self) -> Option<NonNull<T>> {
        let has = self.has(1);
        has.then(|| NonNull::new(self.shared.items(self.at, 1).cast()))?
    }

    /// So many blocks, to read in place. `None` if there are fewer, or if none is asked for.
    #[inline]
    pub fn peek(&mut self, blocks: usize) -> Option<View<'_, T>> {
        if blocks == 0 || blocks > self.shared.slots || !self.has(blocks) {
            return None;
        }
        self.fetch();
        self.shared.watch(self.at, blocks, Watch::read);
        Some(View {
            consumer: self,
            blocks,
        })
    }

    /// Copies whole blocks, as many as there are and fit. Returns how many items were given.
    #[inline]
    pub fn pop(&mut self, items: &mut [T]) -> usize {
        let one = items.len() == self.shared.block;
        let wanted = if one {
            1
        } else {
            items.len() / self.shared.block
        };
        let blocks = if self.has(wanted) {
            wanted
        } else {
            self.tail.wrapping_sub(self.head)
        };
        let Some(view) = self.peek(blocks) else {
            return 0;
        };
        let (first, rest) = view.slices();
        let given = first.len() + rest.len();
        items[..first.len()].copy_from_slice(first);
        if !rest.is_empty() {
            items[first.len()..given].copy_from_slice(rest);
        }
        view.release(blocks);
        given
    }

    /// Reads one item. Blocks of several items are not read so: there is never one.
    #[inline]
    pub fn pop_one(&mut self) -> Option<T> {
        let shared = &*self.shared;
        if self.tail == self.head {
            self.tail = shared.tail.0.load(Ordering::Acquire);
            if self.tail == self.head {
                return None;
            }
        }
        if shared.block != 1 {
            return None;
        }
        self.fetch();
        let shared = &*self.shared;
        shared.watch(self.at, 1, Watch::read);
        // SAFETY: the slot is the consumer's, as in `View::slices`.
        let item = unsafe { shared.items(self.at, 1).cast::<T>().read() };
        self.at = shared.ahead(self.at, 1);
        self.head = self.head.wrapping_add(1);
        shared.head.0.store(self.head, Ordering::Release);
        Some(item)
    }

    /// Whether the producer is gone. What it wrote before can still be read: look at
    /// [`Consumer::available`] after this.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.0.load(Ordering::Acquire)
    }
}

/// Blocks in a queue, to be read in place. Dropped without `release`, it leaves them there.
pub struct View<'a, T> {
    consumer: &'a mut Consumer<T>,
    blocks: usize,
}

impl<T: Copy> View<'_, T> {
    /// The blocks: from one slot on, and what follows it at the beginning of the ring. Both are
    /// whole blocks.
    #[inline]
    pub fn slices(&self) -> (&[T], &[T]) {
        let Consumer { shared, at, .. } = &*self.consumer;
        let (before, after) = shared.runs(*at, self.blocks);
        // SAFETY: `peek` found these slots to be the consumer's, all items were written when the
        // queue was made, and the producer gets them back only after the view is gone.
        unsafe { (&*shared.items(*at, before), &*shared.items(0, after)) }
    }

    /// Gives the room of the first `blocks` blocks back, at most of all that were asked for.
    #[inline]
    pub fn release(self, blocks: usize) {
        let blocks = blocks.min(self.blocks);
        let consumer = self.consumer;
        consumer.shared.watch(consumer.at, blocks, Watch::read);
        consumer.head = consumer.head.wrapping_add(blocks);
        consumer.at = consumer.shared.ahead(consumer.at, blocks);
        consumer
            .shared
            .head
            .0
            .store(consumer.head, Ordering::Release);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.abandoned.0.store(true, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.abandoned.0.store(true, Ordering::Release);
    }
}

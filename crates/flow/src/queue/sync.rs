//! What the queues are made of. The model checker has others of the same names, in `tests/loom.rs`.

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Arc, Mutex};

/// Watches the accesses to one slot. Here nobody does.
#[derive(Default)]
pub struct Watch(());

impl Watch {
    #[inline(always)]
    pub fn read(&self) {}
    #[inline(always)]
    pub fn write(&self) {}
}

/// The marks of a ring's slots. Here they lie in the slots themselves; the model checker's atomics
/// cannot, and are kept aside.
pub struct Marks(());

impl Marks {
    pub fn new(_slots: usize) -> Marks {
        Marks(())
    }

    /// The mark of a slot, which lies at `place`.
    ///
    /// # Safety
    ///
    /// At `place` there are four bytes, aligned, that live as long as `self` and are accessed by
    /// this function alone.
    #[inline(always)]
    pub unsafe fn of(&self, _slot: usize, place: *mut u32) -> &AtomicU32 {
        // SAFETY: what this function asks for.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

//! The memory of a queue, and the ways to write to it.

use std::cell::UnsafeCell;

/// The most bytes of one queue.
pub const MAX_BYTES: usize = 1 << 32;

/// Bytes that travel from core to core at once.
pub(super) const LINE: usize = 64;

/// A value on cache lines of its own. Two lines of 64 bytes: processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Alone<T>(pub T);

/// Memory in whole cache lines.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Chunk([u8; LINE]);

/// Bytes from the start of a cache line on, zero at first.
pub(super) struct Memory(Box<[UnsafeCell<Chunk>]>);

// SAFETY: a reference to it gives pointers only. Who follows them answers for that.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        let chunks = 0..bytes.div_ceil(LINE);
        Memory(chunks.map(|_| UnsafeCell::new(Chunk([0; LINE]))).collect())
    }

    /// Where byte `at` lies, which is within the memory or at its end.
    #[inline(always)]
    pub fn at(&self, at: usize) -> *mut u8 {
        debug_assert!(at <= self.0.len() * LINE);
        let first = UnsafeCell::raw_get(self.0.as_ptr()).cast::<u8>();
        // SAFETY: within the memory or at its end, which is in one allocation.
        unsafe { first.add(at) }
    }
}

/// The bytes of a queue, or why there can be no such queue.
pub(super) fn checked<T>(
    slots: usize,
    block: usize,
    initial: usize,
    stride: impl FnOnce(usize) -> Option<usize>,
) -> Result<usize, String> {
    let bytes = block
        .checked_mul(size_of::<T>())
        .and_then(stride)
        .and_then(|stride| stride.checked_mul(slots))
        .filter(|&bytes| slots > 0 && block > 0 && size_of::<T>() > 0 && bytes <= MAX_BYTES);
    let Some(bytes) = bytes else {
        return Err(format!(
            "{slots} blocks of {block} items: there must be 1 at least of both, and at most {MAX_BYTES} bytes"
        ));
    };
    if align_of::<T>() > LINE {
        return Err(format!(
            "items aligned to {} bytes: at most {LINE}",
            align_of::<T>()
        ));
    }
    if !initial.is_multiple_of(block) || initial / block > slots {
        return Err(format!(
            "{initial} initial items: give whole blocks of {block}, and at most {slots}"
        ));
    }
    Ok(bytes)
}

/// What a cache line is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Write,
    Read,
}

/// Asks for a cache line before it is needed. Any address will do: nothing is accessed.
#[inline(always)]
fn fetch(line: *const u8, want: Want) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: hints, which do nothing that a program can see, whatever the address.
    unsafe {
        match want {
            Want::Write => {
                std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
            }
            Want::Read => {
                std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags));
            }
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        match want {
            Want::Write => {
                std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
            }
            Want::Read => {
                std::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags));
            }
        }
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = (line, want);
}

/// How far an end asks for the lines of slots that it knows to be its own, before it comes to them:
/// many lines are then on their way at once, where stores wait for each other, and loads for what
/// lies between them. Without it, blocks of 16 to 512 bytes take two to three times as long between
/// cores that share no cache.
pub(super) struct Ahead {
    /// Slots.
    far: usize,
    stride: usize,
    /// The count of the first slot that was not asked for.
    asked: usize,
}

impl Ahead {
    /// Bytes ahead of the slot in use that are asked for.
    const FAR: usize = 2048;
    /// Most bytes of one slot that are asked for.
    const MOST: usize = 4096;

    pub fn new(stride: usize) -> Ahead {
        Ahead {
            far: (Self::FAR / stride).max(1),
            stride,
            asked: 0,
        }
    }

    /// Asks for what was not asked for yet. `count` is that of slot `at`, which is next; from there
    /// on `own` slots belong to the end.
    #[inline(always)]
    pub fn fetch(
        &mut self,
        want: Want,
        memory: &Memory,
        slots: usize,
        count: usize,
        at: usize,
        own: usize,
    ) {
        let until = own.min(self.far);
        let asked = self.asked.wrapping_sub(count);
        // Behind `count`, the difference wraps.
        let asked = if asked > slots { 0 } else { asked };
        if asked >= until {
            return;
        }
        self.asked = count.wrapping_add(until);
        // In two parts where the slots go on at the beginning.
        let (first, end) = (at + asked, at + until);
        self.slots(want, memory, first, end.min(slots));
        self.slots(
            want,
            memory,
            first.max(slots) - slots,
            end.max(slots) - slots,
        );
    }

    /// Asks for the lines that begin in the slots from `first` to before `end`. A line that began
    /// before is asked for with the slot that it began in.
    #[inline(always)]
    fn slots(&self, want: Want, memory: &Memory, first: usize, end: usize) {
        if self.stride <= LINE {
            let lines = (first * self.stride).next_multiple_of(LINE)..end * self.stride;
            for line in lines.step_by(LINE) {
                fetch(memory.at(line), want);
            }
            return;
        }
        for slot in first..end {
            for line in (0..self.stride.min(Self::MOST)).step_by(LINE) {
                fetch(memory.at(slot * self.stride).wrapping_add(line), want);
            }
        }
    }
}

/// Copies bytes past the caches of this core, where the processor can do that; otherwise as usual.
/// The stores are done, for any core that sees a later store of this one, when it returns.
///
/// # Safety
///
/// `from` can be read and `to` written for so many bytes, the two do not overlap, and the bytes of
/// `from` are initialised.
pub(super) unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const WIDE: usize = size_of::<__m128i>();
        // Only whole lines are streamed: part of one would have to be merged in memory.
        let head = to.align_offset(LINE).min(bytes);
        let lines = (bytes - head) / LINE;
        let tail = head + lines * LINE;
        // SAFETY: the three parts are within what the caller allows; `to` is aligned to a line
        // behind the head. SSE2 is in every x86-64.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            for line in 0..lines {
                let at = head + line * LINE;
                let from = from.add(at).cast::<__m128i>();
                let to = to.add(at).cast::<__m128i>();
                for wide in 0..LINE / WIDE {
                    _mm_stream_si128(to.add(wide), _mm_loadu_si128(from.add(wide)));
                }
            }
            std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), bytes - tail);
            // Streaming stores are not in the order that the release store of an index relies on.
            _mm_sfence();
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: what this function asks for.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, bytes);
    }
}

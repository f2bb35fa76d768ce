//! Page-aligned memory for buffers that live as long as the engine.

use std::io;
use std::ptr::NonNull;

/// Zeroed, page-aligned memory, returned to the system on drop.
#[derive(Debug)]
pub struct Region {
    start: NonNull<[u8]>,
}

// SAFETY: a `Region` is plain memory that it owns alone, like a `Box<[u8]>`.
unsafe impl Send for Region {}
// SAFETY: shared access through `&Region` hands out only a raw pointer.
unsafe impl Sync for Region {}

impl Region {
    /// Alignment of every region, and of its length.
    pub const ALIGNMENT: usize = 4096;

    /// Maps `bytes` (at least one page) and asks the kernel to back them with huge pages.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(Self::ALIGNMENT)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped. A kernel without transparent huge pages refuses, which
        // costs speed only.
        unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(address.cast()).expect("mmap does not return null");
        Ok(Self {
            start: NonNull::slice_from_raw_parts(start, bytes),
        })
    }

    /// The memory. Zeroed at first; nothing else reads or writes it.
    pub fn as_ptr(&self) -> NonNull<[u8]> {
        self.start
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is whole, and whoever used the pointer is gone with its owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.start.len()) };
    }
}

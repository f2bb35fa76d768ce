//! Page-aligned memory for buffers that live as long as the engine.

use std::ptr::NonNull;

/// Memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot allocate {bytes} bytes for {what}: {source}; lower the chunk sizes or free memory")]
pub struct RegionError {
    what: &'static str,
    bytes: usize,
    source: std::io::Error,
}

/// Zeroed, page-aligned memory, returned to the system on drop.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a `Region` is plain memory that it owns alone, like a `Box<[u8]>`.
unsafe impl Send for Region {}
// SAFETY: shared access through `&Region` hands out only a raw pointer.
unsafe impl Sync for Region {}

impl Region {
    /// Alignment of every region.
    pub const ALIGNMENT: usize = 4096;

    /// Maps `bytes` (at least one page) and asks the kernel to back them with huge pages.
    pub fn new(what: &'static str, bytes: usize) -> Result<Self, RegionError> {
        let bytes = bytes.max(1).next_multiple_of(Self::ALIGNMENT);
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
            return Err(RegionError {
                what,
                bytes,
                source: std::io::Error::last_os_error(),
            });
        }
        // SAFETY: the range was just mapped. A kernel without transparent huge pages refuses, which
        // costs speed only.
        unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(address.cast()).expect("mmap does not return null");
        Ok(Self { start, bytes })
    }

    /// First byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The contents.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is valid for `bytes`, zeroed at first, and writes need `&mut self` or
        // are excluded by the caller of `as_ptr`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The contents, exclusively.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are those of the mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

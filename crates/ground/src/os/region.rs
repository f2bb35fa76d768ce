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

    /// A huge page, on which regions of at least as much begin: the kernel does not see to it
    /// before Linux 6.7.
    const HUGE_PAGE: usize = 2 << 20;

    /// Maps `bytes` (at least one page) and asks the kernel to back them with huge pages.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(Self::ALIGNMENT)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let spare = match bytes {
            Self::HUGE_PAGE.. => Self::HUGE_PAGE,
            _ => 0,
        };
        let mapped = bytes.checked_add(spare).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let head = match spare {
            0 => 0,
            spare => address.addr().wrapping_neg() % spare,
        };
        // SAFETY: all ranges are inside the one that was just mapped. A kernel without transparent
        // huge pages refuses the advice, which costs speed only.
        let address = unsafe {
            let start = address.byte_add(head);
            if head > 0 {
                libc::munmap(address, head);
            }
            if spare > head {
                libc::munmap(start.byte_add(bytes), spare - head);
            }
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
            start
        };
        let start = NonNull::new(address.cast()).expect("mmap does not return null");
        Ok(Self {
            start: NonNull::slice_from_raw_parts(start, bytes),
        })
    }

    /// Has the kernel find every page now, not when it is first written. A kernel before Linux 5.14
    /// cannot, which costs time later.
    pub fn enter_pages(&self) -> io::Result<()> {
        let start = self.start.as_ptr().cast();
        // SAFETY: the range is this mapping, whose contents stay as they are.
        match unsafe { libc::madvise(start, self.start.len(), libc::MADV_POPULATE_WRITE) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                error => Err(error),
            },
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_whole_and_begin_on_pages() {
        for bytes in [1, 4096, 5000, (2 << 20) - 4096, 2 << 20, (5 << 20) + 1] {
            let region = Region::new(bytes).unwrap();
            let start = region.as_ptr();
            let page = if bytes < 2 << 20 { 4096 } else { 2 << 20 };
            assert_eq!(start.addr().get() % page, 0, "{bytes}");
            assert_eq!(start.len(), bytes.next_multiple_of(4096));
            // SAFETY: the region is this test's alone.
            let contents = unsafe { &mut *start.as_ptr() };
            assert!(contents.iter().all(|&byte| byte == 0));
            contents.fill(1);
        }
    }

    #[test]
    fn pages_are_there_once_they_are_entered() {
        let region = Region::new(5 << 20).unwrap();
        let pages = || {
            let mut resident = vec![0; region.start.len() / Region::ALIGNMENT];
            let (start, bytes) = (region.start.as_ptr().cast(), region.start.len());
            // SAFETY: the range is the region's, and the vector has a byte for each of its pages.
            let done = unsafe { libc::mincore(start, bytes, resident.as_mut_ptr()) };
            assert_eq!(done, 0);
            resident.iter().filter(|&page| page & 1 == 1).count()
        };
        assert_eq!(pages(), 0);
        region.enter_pages().unwrap();
        assert_eq!(pages(), region.start.len() / Region::ALIGNMENT);
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        for bytes in [1 << 60, usize::MAX] {
            Region::new(bytes).unwrap_err();
        }
    }
}

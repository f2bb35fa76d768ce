//! The segment of shared memory: its names, and the bytes in its ring.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

use super::LOOKS;
use super::lock::{LOCKED, is_left, is_of_karoo, lock_as_reader, try_lock};
use super::semaphore::Semaphore;

/// Bytes of the count.
const COUNT: usize = size_of::<AtomicI64>();

pub(super) fn name(text: String) -> io::Result<CString> {
    CString::new(text).map_err(|_| ErrorKind::InvalidInput.into())
}

pub(super) fn in_use(name: &str) -> io::Error {
    let text = format!("another process writes to shm:{name}: give another name");
    io::Error::new(ErrorKind::AddrInUse, text)
}

/// Opens a segment by its name.
pub(super) fn open(name: &CString, flags: libc::c_int) -> io::Result<File> {
    // SAFETY: the name is a string that ends with 0.
    match unsafe { libc::shm_open(name.as_ptr(), flags, LOCKED) } {
        // SAFETY: the descriptor was just opened and belongs to nothing else.
        file @ 0.. => Ok(unsafe { File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a name leads to a segment.
fn is_at(segment: &File, name: &CString) -> io::Result<bool> {
    match open(name, libc::O_RDONLY) {
        Ok(there) => Ok(there.metadata()?.ino() == segment.metadata()?.ino()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes a segment's name away.
pub(super) fn unlink(name: &CString) {
    // SAFETY: the name is a string that ends with 0.
    unsafe { libc::shm_unlink(name.as_ptr()) };
}

/// Makes an empty segment that is locked; none where another has the name.
pub(super) fn hold(text: &str) -> io::Result<Option<File>> {
    let name = name(format!("/{text}"))?;
    let file = match open(&name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other?,
    };
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Until it was locked, a writer may have taken it for one that was left.
    Ok(is_at(&file, &name)?.then_some(file))
}

/// The mapped segment.
pub(super) struct Segment {
    /// Kept open, and with it the lock of this end.
    pub(super) file: File,
    start: NonNull<u8>,
    /// Bytes of the ring.
    pub(super) ring: usize,
    /// Where this end goes on.
    at: usize,
    pub(super) name: CString,
    /// What tells this segment from another of its name.
    inode: u64,
}

// SAFETY: the mapping is this value's own; what other processes do with it is what the protocol of
// its count is for.
unsafe impl Send for Segment {}

impl Segment {
    /// Takes away what a writer of this name has left. One that lives keeps it, which is an error.
    /// False where another holds it for a moment.
    pub(super) fn clear(text: &str) -> io::Result<bool> {
        let name = name(format!("/{text}"))?;
        let left = match open(&name, libc::O_RDWR) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            other => other.map_err(|error| {
                let text = format!("shm:{text} cannot be opened: {error}; give another name");
                io::Error::new(error.kind(), text)
            })?,
        };
        // Readers lock it too, for a moment.
        let locked = || (0..LOOKS).any(|_| try_lock(&left, libc::LOCK_EX));
        if is_of_karoo(&left)? && !locked() {
            // It is empty where a reader ends or a writer begins, and readers that look share it.
            return match left.metadata()?.len() == 0 || try_lock(&left, libc::LOCK_SH) {
                true => Ok(false),
                false => Err(in_use(text)),
            };
        }
        // Another writer may have taken it away, and made its own.
        if is_at(&left, &name)? {
            // No reader is to take what it said for its successor's.
            let there = Semaphore::open(format!("/{text}_TX"))?;
            while there.try_wait() {}
            unlink(&name);
        }
        Ok(true)
    }

    /// Makes a segment that is locked; none where another has the name.
    pub(super) fn make(text: &str, ring: usize) -> io::Result<Option<Segment>> {
        let Some(file) = hold(text)? else {
            return Ok(None);
        };
        let made = file.set_len((COUNT + ring) as u64);
        let made = made.and_then(|()| Segment::map(text, ring, file));
        if made.is_err() {
            unlink(&name(format!("/{text}"))?);
        }
        made.map(Some)
    }

    /// The segment that a writer has made; none where that writer is gone already.
    pub(super) fn find(text: &str, ring: usize) -> io::Result<Option<Segment>> {
        let file = match open(&name(format!("/{text}"))?, libc::O_RDWR) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if is_left(&file)? {
            return Ok(None);
        }
        // Before the writer is told that a reader is there: it looks once. Where files of memory
        // have no locks it does not learn that the reader is gone, as of Laminar's programs.
        if let Err(error) = lock_as_reader(&file)
            && error.kind() == ErrorKind::WouldBlock
        {
            let text = format!("another process reads shm:{text}: give another name");
            return Err(io::Error::new(ErrorKind::AddrInUse, text));
        }
        Segment::map(text, ring, file).map(Some)
    }

    fn map(text: &str, ring: usize, file: File) -> io::Result<Segment> {
        let whole = COUNT + ring;
        let about = file.metadata()?;
        if about.len() != whole as u64 {
            let has = about.len().saturating_sub(COUNT as u64);
            let text = format!(
                "the ring of {text} has {has} bytes where {ring} are expected: give both ends the \
                 same size="
            );
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory that
        // is in use.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Segment {
            file,
            start: NonNull::new(start.cast()).ok_or(ErrorKind::OutOfMemory)?,
            ring,
            at: 0,
            name: name(format!("/{text}"))?,
            inode: about.ino(),
        })
    }

    pub(super) fn count(&self) -> &AtomicI64 {
        // SAFETY: the mapping begins on a page and with the count, which all processes use as an
        // atomic alone.
        unsafe { self.start.cast().as_ref() }
    }

    /// Bytes in the ring, by the count.
    pub(super) fn full(&self) -> io::Result<usize> {
        let count = self.count().load(Ordering::Acquire);
        let wrong = || {
            let text = format!("a count of {count} bytes in a ring of {}", self.ring);
            io::Error::new(ErrorKind::InvalidData, text)
        };
        let full = usize::try_from(count).map_err(|_| wrong())?;
        if full > self.ring {
            Err(wrong())
        } else {
            Ok(full)
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        let first = bytes.len().min(self.ring - self.at);
        // SAFETY: both ranges are within the ring, and the count gives them to the writer alone.
        unsafe {
            let ring = self.start.as_ptr().add(COUNT);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.add(self.at), first);
            std::ptr::copy_nonoverlapping(bytes[first..].as_ptr(), ring, bytes.len() - first);
        }
        self.advance(bytes.len());
        self.count().fetch_add(bytes.len() as i64, Ordering::AcqRel);
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) {
        let first = bytes.len().min(self.ring - self.at);
        // SAFETY: both ranges are within the ring, and the count gives them to the reader alone.
        unsafe {
            let ring = self.start.as_ptr().add(COUNT);
            std::ptr::copy_nonoverlapping(ring.add(self.at), bytes.as_mut_ptr(), first);
            let rest = bytes.len() - first;
            std::ptr::copy_nonoverlapping(ring, bytes[first..].as_mut_ptr(), rest);
        }
        self.advance(bytes.len());
        self.count().fetch_sub(bytes.len() as i64, Ordering::AcqRel);
    }

    fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes) % self.ring;
    }

    /// Whether the writer has taken the name away, or has left it: nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        let own = |file: File| Ok(file.metadata()?.ino() == self.inode && !is_left(&file)?);
        let goes_on = open(&self.name, libc::O_RDONLY).and_then(own);
        !goes_on.unwrap_or(false)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is whole, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), COUNT + self.ring) };
    }
}

//! Memory shared with another process, laid out as BerkeleySharedMemoryFIFO does it: a program
//! that Laminar generates can be at the other end.
//!
//! A segment of POSIX shared memory `NAME` begins with the count of bytes that are in the ring, an
//! `atomic_int_fast32_t` (8 bytes on x86-64 and Arm with glibc), and the ring follows. The writer
//! makes it and posts the semaphore `/NAME_TX`; the reader waits for that, maps the segment and
//! posts `/NAME_RX`, for which the first write waits. Positions are private to each end. The writer
//! takes all names away when it ends.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io::{self, ErrorKind, Read, Write};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::time::{Duration, Instant};

use super::address::RING;
use super::stop::{LAST, Stop, takes_nothing};

/// Bytes of the count.
const COUNT: usize = size_of::<AtomicI64>();
/// Rights of what is made: the owner's alone.
const OWNER: libc::mode_t = 0o700;
/// Looks before a wait becomes a sleep, and the sleep.
const LOOKS: u32 = 2000;
const SLEEP: Duration = Duration::from_micros(50);

fn name(text: String) -> io::Result<CString> {
    CString::new(text).map_err(|_| ErrorKind::InvalidInput.into())
}

/// Waits a little, and more the longer it takes.
fn pause(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    if *looks < LOOKS {
        std::hint::spin_loop();
    } else {
        std::thread::sleep(SLEEP);
    }
}

/// A named semaphore.
struct Semaphore {
    semaphore: NonNull<libc::sem_t>,
    name: CString,
}

// SAFETY: POSIX semaphores are made for use by several threads.
unsafe impl Send for Semaphore {}

impl Semaphore {
    fn open(text: String) -> io::Result<Semaphore> {
        let name = name(text)?;
        // SAFETY: the name is a string that ends with 0; a semaphore that is made begins at 0.
        let semaphore = unsafe { libc::sem_open(name.as_ptr(), libc::O_CREAT, OWNER, 0) };
        if semaphore == libc::SEM_FAILED {
            return Err(io::Error::last_os_error());
        }
        let semaphore = NonNull::new(semaphore).ok_or(ErrorKind::Other)?;
        Ok(Semaphore { semaphore, name })
    }

    fn post(&self) -> io::Result<()> {
        // SAFETY: the semaphore is open as long as this value lives.
        match unsafe { libc::sem_post(self.semaphore.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes one, if there is one.
    fn try_wait(&self) -> bool {
        // SAFETY: the semaphore is open as long as this value lives.
        unsafe { libc::sem_trywait(self.semaphore.as_ptr()) == 0 }
    }

    fn unlink(&self) {
        // SAFETY: the name is a string that ends with 0.
        unsafe { libc::sem_unlink(self.name.as_ptr()) };
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        unsafe { libc::sem_close(self.semaphore.as_ptr()) };
    }
}

/// The mapped segment.
struct Segment {
    start: NonNull<u8>,
    /// Bytes of the ring.
    ring: usize,
    /// Where this end goes on.
    at: usize,
    name: CString,
    /// What tells this segment from another of its name.
    inode: u64,
}

// SAFETY: the mapping is this value's own; what other processes do with it is what the protocol of
// its count is for.
unsafe impl Send for Segment {}

impl Segment {
    fn map(text: &str, ring: usize, make: bool) -> io::Result<Segment> {
        if !RING.contains(&ring) {
            let text = format!(
                "a ring of {ring} bytes for {text}: give {} to {}",
                RING.start(),
                RING.end()
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let name = name(format!("/{text}"))?;
        let flags = libc::O_RDWR | if make { libc::O_CREAT } else { 0 };
        // SAFETY: the name is a string that ends with 0.
        let file = unsafe { libc::shm_open(name.as_ptr(), flags, OWNER) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and belongs to nothing else.
        let file = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(file) };
        let whole = COUNT + ring;
        if make {
            file.set_len(whole as u64)?;
        }
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
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Segment {
            start: NonNull::new(start.cast()).ok_or(ErrorKind::OutOfMemory)?,
            ring,
            at: 0,
            name,
            inode: std::os::unix::fs::MetadataExt::ino(&about),
        })
    }

    fn count(&self) -> &AtomicI64 {
        // SAFETY: the mapping begins on a page and with the count, which all processes use as an
        // atomic alone.
        unsafe { self.start.cast().as_ref() }
    }

    /// Bytes in the ring, by the count.
    fn full(&self) -> io::Result<usize> {
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

    fn write(&mut self, bytes: &[u8]) {
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

    fn read(&mut self, bytes: &mut [u8]) {
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

    /// Whether the writer has taken the name away: nothing more will come.
    fn is_unlinked(&self) -> bool {
        // SAFETY: the name is a string that ends with 0.
        let file = unsafe { libc::shm_open(self.name.as_ptr(), libc::O_RDONLY, OWNER) };
        if file < 0 {
            return true;
        }
        // SAFETY: the descriptor was just opened and belongs to nothing else.
        let file = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(file) };
        let inode = file
            .metadata()
            .map(|about| std::os::unix::fs::MetadataExt::ino(&about));
        inode.map_or(true, |inode| inode != self.inode)
    }

    fn unlink(&self) {
        // SAFETY: the name is a string that ends with 0.
        unsafe { libc::shm_unlink(self.name.as_ptr()) };
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is whole, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), COUNT + self.ring) };
    }
}

/// The end that writes. It makes the segment, and takes all names away when it is dropped.
pub struct SharedWriter {
    segment: Segment,
    there: Semaphore,
    taken: Semaphore,
    has_reader: bool,
    stop: Stop,
}

impl SharedWriter {
    /// Makes a ring of `bytes`, 64 to 2^30. The first write waits for a reader.
    pub fn create(name: &str, bytes: usize, stop: &Stop) -> io::Result<SharedWriter> {
        let there = Semaphore::open(format!("/{name}_TX"))?;
        let taken = Semaphore::open(format!("/{name}_RX"))?;
        let segment = Segment::map(name, bytes, true)?;
        segment.count().store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        there.post()?;
        Ok(SharedWriter {
            segment,
            there,
            taken,
            has_reader: false,
            stop: stop.clone(),
        })
    }
}

impl Write for SharedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut looks, begin) = (0, Instant::now());
        loop {
            self.has_reader = self.has_reader || self.taken.try_wait();
            let room = self.segment.ring - self.segment.full()?;
            if self.has_reader && (room > 0 || bytes.is_empty()) {
                let count = bytes.len().min(room);
                self.segment.write(&bytes[..count]);
                return Ok(count);
            }
            if self.stop.is_set() && !self.has_reader {
                return Err(io::Error::other("stopped before a reader came"));
            }
            pause(&mut looks);
            if looks >= LOOKS && self.stop.is_set() && begin.elapsed() > LAST {
                return Err(takes_nothing());
            }
        }
    }

    /// Waits until the reader has taken all, as its memory goes with this end. Gives up if that
    /// takes none for a second while all is to stop.
    fn flush(&mut self) -> io::Result<()> {
        if !self.has_reader {
            return Ok(());
        }
        let (mut looks, mut last, mut since) = (0, usize::MAX, Instant::now());
        loop {
            let full = self.segment.full()?;
            if full != last {
                (last, since) = (full, Instant::now());
            }
            if full == 0 || self.stop.is_set() && since.elapsed() > LAST {
                return Ok(());
            }
            pause(&mut looks);
        }
    }
}

impl Drop for SharedWriter {
    fn drop(&mut self) {
        self.segment.unlink();
        self.there.unlink();
        self.taken.unlink();
    }
}

/// The end that reads. It ends when the writer has taken the names away and all is read.
pub struct SharedReader {
    /// None where no writer has come in time.
    segment: Option<Segment>,
    idle: Option<Duration>,
    stop: Stop,
}

impl SharedReader {
    /// Waits for the writer of a ring of `bytes`, the same number. If none comes for as long as
    /// `idle`, there is nothing to read.
    pub fn open(
        name: &str,
        bytes: usize,
        idle: Option<Duration>,
        stop: &Stop,
    ) -> io::Result<SharedReader> {
        let there = Semaphore::open(format!("/{name}_TX"))?;
        let taken = Semaphore::open(format!("/{name}_RX"))?;
        let (mut looks, begin) = (0, Instant::now());
        while !there.try_wait() {
            if idle.is_some_and(|idle| begin.elapsed() >= idle) {
                return Ok(SharedReader {
                    segment: None,
                    idle,
                    stop: stop.clone(),
                });
            }
            if stop.is_set() {
                return Err(io::Error::other("stopped before a writer came"));
            }
            pause(&mut looks);
        }
        let segment = Segment::map(name, bytes, false)?;
        taken.post()?;
        Ok(SharedReader {
            segment: Some(segment),
            idle,
            stop: stop.clone(),
        })
    }
}

impl Read for SharedReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(segment) = &mut self.segment else {
            return Ok(0);
        };
        let (mut looks, begin) = (0, Instant::now());
        loop {
            let full = segment.full()?;
            if full > 0 || bytes.is_empty() {
                let count = bytes.len().min(full);
                segment.read(&mut bytes[..count]);
                return Ok(count);
            }
            pause(&mut looks);
            if looks < LOOKS {
                continue;
            }
            let idle = self.idle.is_some_and(|idle| begin.elapsed() >= idle);
            let gone = segment.is_unlinked() && segment.full()? == 0;
            if idle || gone || self.stop.is_set() {
                return Ok(0);
            }
        }
    }
}

//! Memory shared with another process, laid out as BerkeleySharedMemoryFIFO does it: a program
//! that Laminar generates can be at the other end.
//!
//! A segment of POSIX shared memory `NAME` begins with the count of bytes that are in the ring, an
//! `atomic_int_fast32_t` (8 bytes on x86-64 and Arm with glibc), and the ring follows. The writer
//! makes it and posts the semaphore `/NAME_TX`; the reader waits for that, maps the segment and
//! posts `/NAME_RX`, for which the first write waits. Positions are private to each end. The writer
//! takes all names away when it ends; so does a reader that ends before a writer has come.
//!
//! A writer that is killed leaves them. So that nobody takes what it left for its successor's, a
//! writer locks its segment for as long as it lives, and rights of their own tell such segments
//! from those of Laminar's programs, which lock nothing. A reader locks a byte of the segment. So a
//! writer that has seen this lock knows when its reader is gone; another program's may be, and the
//! writer waits for it.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::time::{Duration, Instant};

use self::lock::{LOCKED, has_reader, is_left, is_of_karoo, lock_as_reader, try_lock};
use self::semaphore::Semaphore;
use super::address::RING;
use super::stop::{LAST, Stop, takes_nothing};

mod lock;
mod semaphore;

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;

/// Bytes of the count.
const COUNT: usize = size_of::<AtomicI64>();
/// Looks before a wait becomes a sleep, and the sleep.
const LOOKS: u32 = 2000;
const SLEEP: Duration = Duration::from_micros(50);
/// How long a reader waits at semaphores before it looks whether another has taken them away.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a writer waits for those who hold its name only for a moment: they may lose their
/// CPUs meanwhile.
const MOMENT: Duration = Duration::from_millis(200);

fn name(text: String) -> io::Result<CString> {
    CString::new(text).map_err(|_| ErrorKind::InvalidInput.into())
}

fn wrong_ring(name: &str, bytes: usize) -> io::Error {
    let (least, most) = (RING.start(), RING.end());
    let text = format!("a ring of {bytes} bytes for {name}: give {least} to {most}");
    io::Error::new(ErrorKind::InvalidInput, text)
}

fn in_use(name: &str) -> io::Error {
    let text = format!("another process writes to shm:{name}: give another name");
    io::Error::new(ErrorKind::AddrInUse, text)
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

/// Opens a segment by its name.
fn open(name: &CString, flags: libc::c_int) -> io::Result<File> {
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
fn unlink(name: &CString) {
    // SAFETY: the name is a string that ends with 0.
    unsafe { libc::shm_unlink(name.as_ptr()) };
}

/// Makes an empty segment that is locked; none where another has the name.
fn hold(text: &str) -> io::Result<Option<File>> {
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
struct Segment {
    /// Kept open, and with it the lock of this end.
    file: File,
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
    /// Takes away what a writer of this name has left. One that lives keeps it, which is an error.
    /// False where another holds it for a moment.
    fn clear(text: &str) -> io::Result<bool> {
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
    fn make(text: &str, ring: usize) -> io::Result<Option<Segment>> {
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
    fn find(text: &str, ring: usize) -> io::Result<Option<Segment>> {
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

    /// Whether the writer has taken the name away, or has left it: nothing more will come.
    fn is_over(&self) -> bool {
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

/// The end that writes. It makes the segment, and takes all names away when it is dropped.
pub struct SharedWriter {
    segment: Segment,
    there: Semaphore,
    taken: Semaphore,
    has_reader: bool,
    /// Whether the reader holds its lock as long as it lives.
    reader_locks: bool,
    /// Whether it was flushed before.
    ended: bool,
    stop: Stop,
}

impl SharedWriter {
    /// Makes a ring of `bytes`, 64 to 2^30. The first write waits for a reader.
    pub fn create(name: &str, bytes: usize, stop: &Stop) -> io::Result<SharedWriter> {
        if !RING.contains(&bytes) {
            return Err(wrong_ring(name, bytes));
        }
        let begin = Instant::now();
        let segment = loop {
            if Segment::clear(name)?
                && let Some(segment) = Segment::make(name, bytes)?
            {
                break segment;
            }
            // Readers that look or end, and other writers that begin.
            if stop.is_set() {
                let text = format!("stopped before shm:{name} was free");
                return Err(io::Error::other(text));
            }
            if begin.elapsed() > MOMENT {
                return Err(in_use(name));
            }
            std::thread::sleep(SLEEP);
        };
        // Not before the segment is there: until then a writer that ends may take them away.
        let there = Semaphore::open(format!("/{name}_TX"))?;
        let taken = Semaphore::open(format!("/{name}_RX"))?;
        // Its reader is another's.
        while taken.try_wait() {}
        segment.count().store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        there.post()?;
        Ok(SharedWriter {
            segment,
            there,
            taken,
            has_reader: false,
            reader_locks: false,
            ended: false,
            stop: stop.clone(),
        })
    }

    /// Whether the reader has come.
    fn look_for_reader(&mut self) -> bool {
        if !self.has_reader && self.taken.try_wait() {
            self.has_reader = true;
            self.reader_locks = has_reader(&self.segment.file);
        }
        self.has_reader
    }

    /// Whether the reader has come and is gone, as far as that can be known.
    fn reader_is_gone(&self) -> bool {
        self.reader_locks && !has_reader(&self.segment.file)
    }
}

fn reader_is_gone() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the reader has gone")
}

impl Write for SharedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (mut looks, begin) = (0, Instant::now());
        loop {
            let has_reader = self.look_for_reader();
            let room = self.segment.ring - self.segment.full()?;
            if has_reader && (room > 0 || bytes.is_empty()) {
                let count = bytes.len().min(room);
                self.segment.write(&bytes[..count]);
                return Ok(count);
            }
            if self.stop.is_set() && !has_reader {
                return Err(io::Error::other("stopped before a reader came"));
            }
            pause(&mut looks);
            if looks >= LOOKS && self.reader_is_gone() {
                return Err(reader_is_gone());
            }
            if looks >= LOOKS && self.stop.is_set() && begin.elapsed() > LAST {
                return Err(takes_nothing());
            }
        }
    }

    /// From the second time on, waits until the reader has taken all, as its memory goes with this
    /// end. Gives up if that takes none for a second while all is to stop. A reader that is gone
    /// before is an error.
    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.ended, true) || !self.has_reader {
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
            // It may have taken the last bytes before it went.
            if looks >= LOOKS && self.reader_is_gone() && self.segment.full()? > 0 {
                return Err(reader_is_gone());
            }
        }
    }
}

impl Drop for SharedWriter {
    fn drop(&mut self) {
        if self.ended {
            // Of one that was flushed once, too, the reader gets all.
            let _ = self.flush();
        }
        // The segment last: as long as it is there, no other writer begins.
        self.there.unlink();
        self.taken.unlink();
        unlink(&self.segment.name);
    }
}

/// Takes the semaphores away that a reader has waited at, unless a writer has come.
fn leave(name: &str, semaphores: [&Semaphore; 2]) {
    // As long as this segment is there, no writer begins. It stays empty, so that one waits.
    if let (Ok(own), Ok(Some(_held))) = (self::name(format!("/{name}")), hold(name)) {
        semaphores.iter().for_each(|semaphore| semaphore.unlink());
        unlink(&own);
    }
}

/// The end that reads. It ends when the writer has taken the names away, or was killed, and all is
/// read.
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
        if !RING.contains(&bytes) {
            return Err(wrong_ring(name, bytes));
        }
        let begin = Instant::now();
        let reader = |segment| SharedReader {
            segment,
            idle,
            stop: stop.clone(),
        };
        let mut looks = 0;
        loop {
            // Who ends takes them away: the next one makes others.
            let there = Semaphore::open(format!("/{name}_TX"))?;
            let taken = Semaphore::open(format!("/{name}_RX"))?;
            let opened = Instant::now();
            let came = loop {
                if there.try_wait() {
                    break true;
                }
                if idle.is_some_and(|idle| begin.elapsed() >= idle) {
                    leave(name, [&there, &taken]);
                    return Ok(reader(None));
                }
                if stop.is_set() {
                    leave(name, [&there, &taken]);
                    return Err(io::Error::other("stopped before a writer came"));
                }
                if opened.elapsed() > AGAIN {
                    break false;
                }
                pause(&mut looks);
            };
            // The writer says once that it is there, and the next reader may be right.
            let refused = |_: &io::Error| drop(there.post());
            if came && let Some(segment) = Segment::find(name, bytes).inspect_err(refused)? {
                taken.post()?;
                return Ok(reader(Some(segment)));
            }
        }
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
            let gone = segment.is_over() && segment.full()? == 0;
            if idle || gone || self.stop.is_set() {
                return Ok(0);
            }
        }
    }
}

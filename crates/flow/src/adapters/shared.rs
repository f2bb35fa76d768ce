//! Memory shared with another process, laid out as BerkeleySharedMemoryFIFO does it: a program
//! that Laminar generates can be at the other end. What the bytes in the ring are is not said by
//! that: such a program puts all ports of a bundle there by blocks, as
//! [`BlockLayout`](super::BlockLayout) has them.
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
//!
//! Here are the two ends. `segment` has the memory, `semaphore` and `lock` that by which the ends
//! find each other and know of each other.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use self::lock::has_reader;
use self::segment::{Segment, hold, in_use, name, unlink};
use self::semaphore::Semaphore;
use super::address::RING;
use super::stop::{LAST, Stop, takes_nothing};

mod lock;
mod segment;
mod semaphore;

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;

/// Looks before a wait becomes a sleep, and the sleep.
const LOOKS: u32 = 2000;
const SLEEP: Duration = Duration::from_micros(50);
/// How long a reader waits at semaphores before it looks whether another has taken them away.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a writer waits for those who hold its name only for a moment: they may lose their
/// CPUs meanwhile.
const MOMENT: Duration = Duration::from_millis(200);

fn wrong_ring(name: &str, bytes: usize) -> io::Error {
    let (least, most) = (RING.start(), RING.end());
    let text = format!("a ring of {bytes} bytes for {name}: give {least} to {most}");
    io::Error::new(ErrorKind::InvalidInput, text)
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

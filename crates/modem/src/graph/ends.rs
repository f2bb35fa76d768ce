//! The ends of a run: blocks that are read, records that are written.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;

/// Numbers of things in blocks that were read.
type Counts = Arc<Mutex<VecDeque<u32>>>;

/// How what is read becomes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// All blocks are full except the last. This many empty blocks follow it.
    Stream(usize),
    /// What is read at once is a block.
    Messages,
}

/// Readers of blocks of `size` things that `read` appends, each filled up with zeros, and of how
/// many there are in each.
pub(super) fn blocks<T: Pod, R>(read: R, size: usize, cut: Cut) -> (Blocks<T, R>, Used)
where
    R: FnMut(&mut Vec<T>) -> io::Result<usize>,
{
    let counts = Counts::default();
    let blocks = Blocks {
        read,
        size,
        things: Vec::new(),
        given: None,
        ended: false,
        cut,
        counts: counts.clone(),
    };
    let used = Used {
        counts,
        bytes: [0; 4],
        left: 0,
    };
    (blocks, used)
}

/// Blocks as bytes.
pub(super) struct Blocks<T, R> {
    read: R,
    size: usize,
    /// The present block, and what was read beyond it.
    things: Vec<T>,
    /// Bytes of the present block that were given.
    given: Option<usize>,
    ended: bool,
    cut: Cut,
    counts: Counts,
}

impl<T: Pod, R: FnMut(&mut Vec<T>) -> io::Result<usize>> Blocks<T, R> {
    /// Gets the next block; false if there is none.
    fn next(&mut self) -> io::Result<bool> {
        if self.given.take().is_some() {
            self.things.drain(..self.size);
        }
        while !self.ended && self.things.len() < self.size {
            self.ended = (self.read)(&mut self.things)? == 0;
            if self.cut == Cut::Messages {
                break;
            }
        }
        let count = self.things.len().min(self.size);
        if count == 0 {
            match &mut self.cut {
                Cut::Stream(flush @ 1..) => *flush -= 1,
                Cut::Stream(0) | Cut::Messages => return Ok(false),
            }
        }
        if count < self.size {
            self.things.resize(self.size, T::zeroed());
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.push_back(count as u32);
        self.given = Some(0);
        Ok(true)
    }
}

impl<T: Pod, R: FnMut(&mut Vec<T>) -> io::Result<usize>> Read for Blocks<T, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let whole = self.size * size_of::<T>();
        if self.given.is_none_or(|given| given == whole) && !self.next()? {
            return Ok(0);
        }
        let given = self.given.unwrap_or(0);
        let bytes: &[u8] = bytemuck::cast_slice(&self.things[..self.size]);
        let count = out.len().min(whole - given);
        out[..count].copy_from_slice(&bytes[given..given + count]);
        self.given = Some(given + count);
        Ok(count)
    }
}

/// How many things there are in each block. Blocks are read before.
pub(super) struct Used {
    counts: Counts,
    bytes: [u8; 4],
    left: usize,
}

impl Read for Used {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(count) = counts.pop_front() else {
                return Ok(0);
            };
            (self.bytes, self.left) = (count.to_le_bytes(), 4);
        }
        let from = 4 - self.left;
        let count = out.len().min(self.left);
        out[..count].copy_from_slice(&self.bytes[from..from + count]);
        self.left -= count;
        Ok(count)
    }
}

/// Hands on whole records.
pub(super) struct Records<F> {
    size: usize,
    begun: Vec<u8>,
    each: F,
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Records<F> {
    /// Records of `size` bytes.
    pub fn new(size: usize, each: F) -> Records<F> {
        Records {
            size,
            begun: Vec::new(),
            each,
        }
    }
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Records<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let missing = (self.size - self.begun.len()) % self.size;
        let (end, rest) = bytes.split_at(missing.min(bytes.len()));
        self.begun.extend_from_slice(end);
        if self.begun.len() == self.size {
            (self.each)(&self.begun)?;
            self.begun.clear();
        }
        let mut records = rest.chunks_exact(self.size);
        records.try_for_each(&mut self.each)?;
        self.begun.extend_from_slice(records.remainder());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

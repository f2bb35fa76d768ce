//! Received bytes, cut into lines.

use std::ops::Range;

/// Bytes of a line that need no permission, and that a buffer keeps room for.
pub const SHORT: usize = 64 << 10;

/// A line is longer than the reader allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

/// Bytes as they came from a connection. A line ends with a line feed or a carriage return.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes that were lines already.
    done: usize,
    /// Bytes in which there is no further end of a line.
    searched: usize,
    /// Bytes that a line may have, without its end.
    longest: usize,
}

impl LineBuffer {
    /// An empty buffer for lines of up to `longest` bytes.
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: Vec::new(),
            done: 0,
            searched: 0,
            longest,
        }
    }

    /// Finds the next line. `None` if its end has not come.
    pub fn find(&mut self) -> Result<Option<Range<usize>>, LineTooLong> {
        let rest = &self.bytes[self.searched..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let line = self.done..self.searched + end;
        self.searched = line.end + 1;
        self.done = self.searched;
        if line.len() > self.longest {
            return Err(LineTooLong(self.longest));
        }
        Ok(Some(line))
    }

    /// The line that [`find`](Self::find) found last, without its end.
    pub fn line(&self, found: Range<usize>) -> &[u8] {
        &self.bytes[found]
    }

    /// Bytes behind the line that was found last.
    pub fn rest(&self) -> usize {
        self.bytes.len() - self.done
    }

    /// Forgets all lines that were found. Returns how many bytes of the next line are here.
    pub fn compact(&mut self) -> usize {
        self.bytes.drain(..self.done);
        self.searched -= self.done;
        self.done = 0;
        if self.bytes.len() < SHORT {
            self.bytes.shrink_to(SHORT);
        }
        self.bytes.len()
    }

    /// Whether the line that has not ended is too long already. Asked after
    /// [`compact`](Self::compact).
    pub fn check(&self) -> Result<(), LineTooLong> {
        if self.bytes.len() > self.longest {
            return Err(LineTooLong(self.longest));
        }
        Ok(())
    }

    /// The bytes, for appending.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines that a buffer finds in pieces, up to one that is too long.
    fn lines(pieces: &[&[u8]], longest: usize) -> (Vec<Vec<u8>>, Result<(), LineTooLong>) {
        let mut buffer = LineBuffer::new(longest);
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.bytes_mut().extend_from_slice(piece);
            loop {
                match buffer.find() {
                    Ok(Some(found)) => lines.push(buffer.line(found).to_vec()),
                    Ok(None) => break,
                    Err(error) => return (lines, Err(error)),
                }
            }
            buffer.compact();
            if let Err(error) = buffer.check() {
                return (lines, Err(error));
            }
        }
        (lines, Ok(()))
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_pieces_they_come_in(
            bytes in prop::collection::vec(prop::sample::select(b"abc\n\r".to_vec()), 0..60),
            size in 1usize..9,
        ) {
            let expected = bytes.split(|byte| b"\n\r".contains(byte));
            let mut expected: Vec<_> = expected.map(<[u8]>::to_vec).collect();
            expected.pop();
            let fits = expected.iter().position(|line| line.len() > 5);
            let pieces: Vec<_> = bytes.chunks(size).collect();
            prop_assert_eq!(lines(&pieces, 100), (expected.clone(), Ok(())));
            let (short, end) = lines(&pieces, 5);
            let unfinished = bytes.iter().rev().position(|byte| b"\n\r".contains(byte));
            let tail_fits = unfinished.unwrap_or(bytes.len()) <= 5;
            prop_assert_eq!(end.is_ok(), fits.is_none() && tail_fits);
            prop_assert_eq!(&short[..], &expected[..fits.unwrap_or(expected.len())]);
        }
    }
}

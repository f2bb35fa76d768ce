//! Lines from a client's socket.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::server::ServerLimits;

/// Bytes of a line that every client may send at any time.
const SHORT: usize = 64 << 10;

/// A client's lines cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// A line has no end.
    #[error("a line is longer than {0} bytes: no request needs that much")]
    TooLong(usize),
    /// A long line takes too long.
    #[error("a long line did not end within {0} s: send it at once")]
    TooSlow(u64),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a client sends, by lines.
///
/// Long lines take one of a limited number of places, so that all clients together do not take more memory than there is
/// for them.
pub struct Lines {
    socket: OwnedReadHalf,
    limits: ServerLimits,
    places: Arc<Semaphore>,
    place: Option<(OwnedSemaphorePermit, Instant)>,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were lines already, and that hold no end of one.
    done: usize,
    searched: usize,
}

impl Lines {
    /// Of this socket.
    pub fn new(socket: OwnedReadHalf, limits: ServerLimits, places: Arc<Semaphore>) -> Self {
        Self {
            socket,
            limits,
            places,
            place: None,
            buffer: Vec::new(),
            done: 0,
            searched: 0,
        }
    }

    /// The next line without its end; `None` when the client will send no more.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        if let Some((_, until)) = &mut self.place {
            *until = Instant::now() + self.limits.line_time;
        }
        loop {
            if let Some(line) = self.find()? {
                return Ok(Some(&self.buffer[line]));
            }
            self.compact();
            if self.buffer.len() > self.limits.line {
                return Err(LineError::TooLong(self.limits.line));
            }
            if self.buffer.len() >= SHORT && self.place.is_none() {
                // Never closed.
                let Ok(place) = self.places.clone().acquire_owned().await else {
                    return Ok(None);
                };
                self.place = Some((place, Instant::now() + self.limits.line_time));
            }
            if self.read().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next line of what is here already, in this process or in the system; `None` if its end is not.
    pub fn received(&mut self) -> Result<Option<&[u8]>, LineError> {
        loop {
            if let Some(line) = self.find()? {
                return Ok(Some(&self.buffer[line]));
            }
            self.compact();
            if self.buffer.len() >= SHORT && self.place.is_none()
                || self.buffer.len() > self.limits.line
            {
                return Ok(None);
            }
            // Not by tokio, which may not know yet that there is something.
            let socket = self.socket.as_ref().as_raw_fd();
            let mut piece = [0; 4096];
            match recv(socket, &mut piece, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(_) => return Ok(None),
                Ok(bytes) => self.buffer.extend_from_slice(&piece[..bytes]),
            }
        }
    }

    /// Where the next line is in the buffer, if its end is.
    fn find(&mut self) -> Result<Option<Range<usize>>, LineError> {
        let rest = &self.buffer[self.searched..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r') else {
            self.searched = self.buffer.len();
            return Ok(None);
        };
        let line = self.done..self.searched + end;
        self.searched = line.end + 1;
        self.done = self.searched;
        if line.len() > self.limits.line {
            return Err(LineError::TooLong(self.limits.line));
        }
        Ok(Some(line))
    }

    /// Forgets the lines before the one that has not ended.
    fn compact(&mut self) {
        self.buffer.drain(..self.done);
        self.searched -= self.done;
        self.done = 0;
        if self.buffer.len() < SHORT {
            self.place = None;
            self.buffer.shrink_to(SHORT);
        }
    }

    async fn read(&mut self) -> Result<usize, LineError> {
        // Short lines never make the buffer larger than that; long ones double it, within what they may take.
        let most = match self.place {
            Some(_) => self.limits.line + 1,
            None => SHORT,
        };
        let step = self.buffer.len().clamp(4096, 1 << 20);
        let room = step.min(most.saturating_sub(self.buffer.len())).max(1);
        self.buffer.reserve_exact(room);
        let mut socket = (&mut self.socket).take(room as u64);
        let read = socket.read_buf(&mut self.buffer);
        Ok(match &self.place {
            None => read.await?,
            Some((_, until)) => timeout_at(*until, read)
                .await
                .map_err(|_| LineError::TooSlow(self.limits.line_time.as_secs()))??,
        })
    }
}

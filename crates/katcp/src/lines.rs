//! Lines from the socket of a server's client.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::limits::ServerLimits;
use crate::line_buffer::{LineBuffer, LineTooLong, SHORT};

/// The lines of a client cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// A line is longer than the limit.
    #[error("{0}: no request needs that much")]
    TooLong(#[from] LineTooLong),
    /// A line of more than 64 KiB takes too long.
    #[error("a long line did not end within {0} s: send it at once")]
    TooSlow(u64),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reader of a client's lines.
///
/// Lines of more than 64 KiB take one of a limited number of places, so that the memory of all
/// clients together is bounded.
pub struct Lines {
    socket: OwnedReadHalf,
    limits: ServerLimits,
    places: Arc<Semaphore>,
    place: Option<(OwnedSemaphorePermit, Instant)>,
    buffer: LineBuffer,
}

impl Lines {
    /// A reader of this socket; `places` are shared by all clients.
    pub fn new(socket: OwnedReadHalf, limits: ServerLimits, places: Arc<Semaphore>) -> Self {
        Self {
            socket,
            limits,
            places,
            place: None,
            buffer: LineBuffer::new(limits.line),
        }
    }

    /// Waits for the next line, without its end. `None` when the client will send no more.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, LineError> {
        if let Some((_, until)) = &mut self.place {
            *until = Instant::now() + self.limits.line_time;
        }
        let found = loop {
            if let Some(found) = self.buffer.find()? {
                break found;
            }
            let begun = self.compact();
            self.buffer.check()?;
            if begun >= SHORT && self.place.is_none() {
                // Never closed.
                let Ok(place) = self.places.clone().acquire_owned().await else {
                    return Ok(None);
                };
                self.place = Some((place, Instant::now() + self.limits.line_time));
            }
            if self.read(begun).await? == 0 {
                return Ok(None);
            }
        };
        Ok(Some(self.buffer.line(found)))
    }

    /// Forgets the line that was read last if it was a long one, so that it takes no memory and no
    /// place while its answer is on the way. If as much as a long line is here behind it, returns
    /// until when its place is kept for a client that does not read answers.
    pub fn forget(&mut self) -> Option<Instant> {
        // Moved once: what follows may be many lines.
        if self.place.is_some() && self.buffer.rest() < SHORT {
            self.compact();
        }
        let (_, until) = self.place.as_mut()?;
        *until = Instant::now() + self.limits.line_time;
        Some(*until)
    }

    /// The next line that is here already, in this process or in the system. `None` if its end is
    /// not.
    pub fn received(&mut self) -> Result<Option<&[u8]>, LineError> {
        let found = self.find_received()?;
        Ok(found.map(|found| self.buffer.line(found)))
    }

    fn find_received(&mut self) -> Result<Option<Range<usize>>, LineError> {
        loop {
            if let Some(found) = self.buffer.find()? {
                return Ok(Some(found));
            }
            let begun = self.compact();
            if begun >= SHORT && self.place.is_none() || self.buffer.check().is_err() {
                return Ok(None);
            }
            // Reads the socket itself: tokio may not know yet that bytes are there. Its sockets
            // never block.
            let mut piece = [0; 4096];
            match (&*SockRef::from(self.socket.as_ref())).read(&mut piece) {
                Ok(0) | Err(_) => return Ok(None),
                Ok(bytes) => self.buffer.bytes_mut().extend_from_slice(&piece[..bytes]),
            }
        }
    }

    /// Forgets lines that were read, and gives the place back that a long one needed. Returns how
    /// many bytes of the next line are here.
    fn compact(&mut self) -> usize {
        let begun = self.buffer.compact();
        if begun < SHORT {
            self.place = None;
        }
        begun
    }

    async fn read(&mut self, begun: usize) -> Result<usize, LineError> {
        // Short lines never enlarge the buffer beyond SHORT. Long lines double it, up to the limit.
        let most = match self.place {
            Some(_) => self.limits.line + 1,
            None => SHORT,
        };
        let step = begun.clamp(4096, 1 << 20);
        let room = step.min(most.saturating_sub(begun)).max(1);
        let bytes = self.buffer.bytes_mut();
        bytes.reserve_exact(room);
        let mut socket = (&mut self.socket).take(room as u64);
        let read = socket.read_buf(bytes);
        Ok(match &self.place {
            None => read.await?,
            Some((_, until)) => timeout_at(*until, read)
                .await
                .map_err(|_| LineError::TooSlow(self.limits.line_time.as_secs()))??,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    /// Else each would cost as much as all that are here.
    #[tokio::test]
    async fn lines_that_come_together_are_not_moved_one_by_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let (accepted, _) = listener.accept().await.expect("a client");
        let places = Arc::new(Semaphore::new(1));
        let limits = ServerLimits::default();
        let mut lines = Lines::new(accepted.into_split().0, limits, places.clone());
        let long = vec![b'x'; 3 * SHORT];
        let short = b"?watchdog\n".repeat(6 * SHORT / 10);
        let all = [&long[..], b"\n", &short].concat();
        let (sent, moved) = tokio::join!(client.write_all(&all), async {
            let (mut moved, mut answered) = (0, 0);
            while answered < 1 + short.len() / 10 {
                lines.next().await.expect("a line").expect("a line");
                answered += 1;
                let before = lines.buffer.bytes_mut().len();
                lines.forget();
                let here = lines.buffer.bytes_mut().len();
                moved += if here < before { here } else { 0 };
            }
            moved
        });
        sent.expect("all sent");
        assert!(moved <= SHORT, "{moved}");
        assert_eq!(places.available_permits(), 1);
    }
}

//! Connection of a client: messages in, lines out.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::error::ClientError;
use crate::line_buffer::LineBuffer;
use crate::message::{Message, OwnedMessage};
use crate::value::excerpt;

/// Bytes that are read at once, at most.
const PIECE: usize = 16 << 10;

/// Shortest time that a socket can wait: zero stands for ever.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: LineBuffer,
    closed: bool,
    /// The text of the server's `#disconnect`.
    farewell: Option<String>,
}

impl Connection {
    /// A connection by `stream`, for lines of up to `longest` bytes.
    pub fn new(stream: TcpStream, longest: usize) -> Self {
        // Requests are written whole: there is nothing to wait for.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            buffer: LineBuffer::new(longest),
            closed: false,
            farewell: None,
        }
    }

    /// Takes the next message that is here already. `None` if its end has not come.
    pub fn received(&mut self) -> Result<Option<OwnedMessage>, ClientError> {
        while !self.closed {
            let found = match self.buffer.find() {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.closing(error.into())),
            };
            let line = self.buffer.line(found);
            match Message::parse(line) {
                Ok(None) => {}
                Ok(Some(message)) => {
                    let message = message.to_owned();
                    if message.name() == "disconnect" {
                        self.farewell = message.texts().into_iter().next();
                    }
                    return Ok(Some(message));
                }
                Err(source) => {
                    let line = excerpt(line);
                    return Err(self.closing(ClientError::Malformed { line, source }));
                }
            }
        }
        Ok(None)
    }

    /// Waits for bytes of the server. False if none come within `wait`; `None` stands for ever.
    pub fn fill(&mut self, wait: Option<Duration>) -> Result<bool, ClientError> {
        if self.closed {
            return Err(self.is_closed());
        }
        self.buffer.compact();
        if let Err(error) = self.buffer.check() {
            return Err(self.closing(error.into()));
        }
        let wait = wait.map(|wait| wait.max(SHORTEST_WAIT));
        let mut piece = [0; PIECE];
        let read = self.stream.set_read_timeout(wait);
        match read.and_then(|()| self.stream.read(&mut piece)) {
            Ok(0) => Err(self.closing_by_server()),
            Ok(bytes) => {
                self.buffer.bytes_mut().extend_from_slice(&piece[..bytes]);
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(false),
                ErrorKind::Interrupted => Ok(true),
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
                    Err(self.closing_by_server())
                }
                _ => Err(self.closing(ClientError::Io(error))),
            },
        }
    }

    /// Writes a line. False if the server does not read it within `wait`; the connection is closed
    /// then, as a part of the line may have been written.
    pub fn send(&mut self, line: &[u8], wait: Duration) -> Result<bool, ClientError> {
        if self.closed {
            return Err(self.is_closed());
        }
        let ready = self.stream.set_write_timeout(Some(wait.max(SHORTEST_WAIT)));
        match ready.and_then(|()| self.stream.write_all(line)) {
            Ok(()) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    self.close();
                    Ok(false)
                }
                // Reading tells why, if the server did.
                ErrorKind::BrokenPipe
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted => Ok(true),
                _ => Err(self.closing(ClientError::Io(error))),
            },
        }
    }

    /// Closes the connection. Lines that have not been taken are lost.
    pub fn close(&mut self) {
        self.closed = true;
        // Fails if the server was first.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn closing(&mut self, error: ClientError) -> ClientError {
        self.close();
        error
    }

    fn closing_by_server(&mut self) -> ClientError {
        self.close();
        self.is_closed()
    }

    fn is_closed(&self) -> ClientError {
        let why = self.farewell.clone();
        ClientError::Closed { why }
    }
}

//! Pipes, terminals and whatever else may keep a thread waiting, read and written so that a wish to
//! stop is seen meanwhile.
#![allow(unsafe_code)]

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::stop::{LAST, LOOK, Stop, takes_nothing};

/// Bytes that a pipe which others opened takes without blocking when it is ready for any.
const AT_ONCE: usize = libc::PIPE_BUF;

/// Bytes that are written to a file at once.
const BUFFER: usize = 1 << 16;

/// An open file that may have nothing to read yet, or no room.
pub(super) struct Pipe {
    file: File,
    /// Bytes that are written at once at most.
    at_once: usize,
    stop: Stop,
}

/// Waits a moment for an event; says whether it or an end has come.
fn ready(file: &File, event: libc::c_short) -> io::Result<bool> {
    let mut looked = libc::pollfd {
        fd: file.as_raw_fd(),
        events: event,
        revents: 0,
    };
    // SAFETY: one descriptor that is open, in memory of this function's own.
    match unsafe { libc::poll(&mut looked, 1, LOOK.as_millis() as libc::c_int) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

/// Bytes written to a TCP connection that the peer's host has not confirmed. Its end counts as one.
pub(super) fn unsent(stream: &TcpStream) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: a descriptor that is open, and a number of this function's own that is written.
    match unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => Ok(bytes.max(0) as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether somebody writes a pipe, or has written what is still in it.
fn has_writer(pipe: &File) -> io::Result<bool> {
    let (_reader, other) = io::pipe()?;
    let (from, to) = (pipe.as_raw_fd(), other.as_raw_fd());
    // A byte is copied where there is one, and stays where it is.
    // SAFETY: two descriptors that are open, and no memory.
    match unsafe { libc::tee(from, to, 1, libc::SPLICE_F_NONBLOCK) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == ErrorKind::WouldBlock => Ok(true),
            error => Err(error),
        },
    }
}

fn is_pipe(path: &Path) -> bool {
    let about = path.metadata();
    about.is_ok_and(|about| about.file_type().is_fifo())
}

/// Named pipes that are to be read, for whoever has something to do only once their writers have
/// come.
#[derive(Default)]
pub struct Awaited(Vec<(PathBuf, File)>);

impl Awaited {
    /// Adds a path, if it is a named pipe. Its writer need not wait for a reader from now on.
    pub fn add(&mut self, path: &Path) -> io::Result<()> {
        if is_pipe(path) {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            self.0.push((path.to_owned(), options.open(path)?));
        }
        Ok(())
    }

    /// Waits for the first writer: it may serve one pipe after the other. Errors name a pipe, also
    /// where `stop` is set before.
    pub fn wait(self, stop: &Stop) -> io::Result<()> {
        let Some((first, _)) = self.0.first() else {
            return Ok(());
        };
        loop {
            for (path, pipe) in &self.0 {
                if has_come(pipe).map_err(|error| of(path, &error))? {
                    return Ok(());
                }
            }
            if stop.is_set() {
                return Err(of(first, &"stopped before a writer came"));
            }
        }
    }
}

/// Whether a pipe's writer has come. One that has gone is seen by the end that it has left.
fn has_come(pipe: &File) -> io::Result<bool> {
    Ok(has_writer(pipe)? || ready(pipe, libc::POLLIN)?)
}

fn of(path: &Path, why: &dyn Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

impl Pipe {
    fn new(file: File, at_once: usize, stop: &Stop) -> Pipe {
        Pipe {
            file,
            at_once,
            stop: stop.clone(),
        }
    }

    /// To read from what is open: a file is read as it is, for nothing has to be waited for.
    pub fn read_from(file: File, stop: &Stop) -> io::Result<Box<dyn Read + Send>> {
        Ok(match file.metadata()?.is_file() {
            true => Box::new(file),
            false => Box::new(Pipe::new(file, 0, stop)),
        })
    }

    /// To write to what others opened.
    pub fn write_to(file: File, stop: &Stop) -> io::Result<Box<dyn Write + Send>> {
        Ok(match file.metadata()?.is_file() {
            true => Box::new(file),
            false => Box::new(Pipe::new(file, AT_ONCE, stop)),
        })
    }

    /// Opens a path to read from. A named pipe without a writer is waited for when it is read.
    pub fn open(path: &Path, stop: &Stop) -> io::Result<Box<dyn Read + Send>> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        Pipe::read_from(options.open(path)?, stop)
    }

    /// Opens a path to write to: a file is made anew, and a named pipe waits for its reader. A file
    /// is written many blocks at once. A pipe is not, for its reader would wait for blocks that are
    /// there.
    pub fn create(path: &Path, stop: &Stop) -> io::Result<Box<dyn Write + Send>> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        options.custom_flags(libc::O_NONBLOCK);
        loop {
            match options.open(path) {
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe(path) => {
                    if stop.is_set() {
                        return Err(io::Error::other("stopped before a reader came"));
                    }
                    std::thread::sleep(LOOK);
                }
                opened => {
                    let file = opened?;
                    return Ok(match file.metadata()?.is_file() {
                        true => Box::new(BufWriter::with_capacity(BUFFER, file)),
                        false => Box::new(Pipe::new(file, usize::MAX, stop)),
                    });
                }
            }
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if ready(&self.file, libc::POLLIN)? {
                match self.file.read(bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => return done,
                }
            }
            if self.stop.is_set() {
                return Ok(0);
            }
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let begin = Instant::now();
        loop {
            if ready(&self.file, libc::POLLOUT)? {
                // No more than there is room for: a pipe that others opened may block.
                let some = &bytes[..bytes.len().min(self.at_once)];
                match self.file.write(some) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => return done,
                }
            }
            if self.stop.is_set() && begin.elapsed() > LAST {
                return Err(takes_nothing());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

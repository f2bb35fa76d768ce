//! Pipes, terminals and whatever else may keep a thread waiting, read and written so that a wish to
//! stop is seen meanwhile.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
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
        let is_pipe = || {
            path.metadata()
                .is_ok_and(|about| about.file_type().is_fifo())
        };
        loop {
            match options.open(path) {
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe() => {
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

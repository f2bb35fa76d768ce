//! Log messages as entries of the systemd journal, by its native protocol: a datagram of fields for
//! each.
//!
//! The text of an entry has the values behind it, as on standard error, because that is what
//! `journalctl` shows; each is a field of its own as well (`F_NAME`), so that `journalctl
//! F_REQUEST=…` finds it.

use std::fmt::{Debug, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// Bytes that may wait for the journal, where the kernel allows it: a burst is no reason to lose
/// any.
const BACKLOG: usize = 1 << 20;

/// Connection to the journal.
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// Entries that it had no room for since it last took one.
    lost: AtomicU64,
}

impl Journal {
    /// Fails where there is none.
    pub fn connect() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Self::on(socket, path)
    }

    fn on(socket: UnixDatagram, path: &Path) -> io::Result<Self> {
        // Whoever logs is not held up: the threads that move data do, too.
        socket.set_nonblocking(true)?;
        let _ = setsockopt(&socket, sockopt::SndBuf, &BACKLOG);
        Ok(Self {
            socket,
            path: path.to_owned(),
            lost: AtomicU64::new(0),
        })
    }

    /// Sends an entry. Where that cannot be, its `text` goes to standard error; where the journal
    /// has no room, it is counted.
    fn log(&self, entry: &[u8], text: &str) {
        let sent = match self.send(entry) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // The journal may have been started again with another socket.
            Err(_) => self
                .socket
                .connect(&self.path)
                .and_then(|()| self.send(entry)),
            sent => sent,
        };
        match sent {
            Ok(()) => self.tell_lost(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Standard error may be as full, so that only the first is told.
                if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!("the journal has no room: messages are counted until it has");
                }
            }
            Err(error) => eprintln!("{text} (the journal: {error})"),
        }
    }

    /// Says once how many were lost, when the journal takes entries again.
    fn tell_lost(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost == 0 {
            return;
        }
        let text = format!("{lost} messages were not logged: the journal had no room");
        let mut entry = begin("4", module_path!());
        put(&mut entry, "MESSAGE", &text);
        if self.send(&entry).is_err() {
            self.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }

    fn send(&self, entry: &[u8]) -> io::Result<()> {
        match self.socket.send(entry) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EMSGSIZE) => self.pass(entry),
            outcome => outcome.map(drop),
        }
    }

    /// Passes an entry that is too large for a datagram as a file that nobody changes any more.
    fn pass(&self, entry: &[u8]) -> io::Result<()> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create("karoo-journal", flags)?);
        file.write_all(entry)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
        let files = [file.as_raw_fd()];
        let files = [ControlMessage::ScmRights(&files)];
        let socket = self.socket.as_raw_fd();
        sendmsg::<()>(socket, &[], &files, MsgFlags::empty(), None)?;
        Ok(())
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        // As syslog counts: 3 is an error, 7 a debug message.
        let priority = match *metadata.level() {
            Level::ERROR => "3",
            Level::WARN => "4",
            Level::INFO => "6",
            Level::DEBUG | Level::TRACE => "7",
        };
        let mut entry = begin(priority, metadata.target());
        let text = format!("{}{}", fields.message, fields.values);
        put(&mut entry, "MESSAGE", text.trim_start());
        for (name, value) in &fields.list {
            put(&mut entry, name, value);
        }
        self.log(&entry, &text);
    }
}

/// What an event says.
#[derive(Default)]
struct Fields {
    message: String,
    /// ` name=value` for each of the others.
    values: String,
    list: Vec<(String, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let _ = write!(self.values, " {field}={value:?}");
            self.list.push((name(field), value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message.push_str(&text);
        } else {
            let _ = write!(self.values, " {field}={text}");
            self.list.push((name(field), text));
        }
    }
}

/// The journal takes capital letters, digits and underscores.
fn name(field: &Field) -> String {
    let letter = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let letters: String = field.name().chars().map(letter).collect();
    format!("F_{letters}")
}

/// An entry without its message.
fn begin(priority: &str, target: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    put(&mut entry, "PRIORITY", priority);
    put(&mut entry, "SYSLOG_IDENTIFIER", "karoo");
    put(&mut entry, "TARGET", target);
    entry
}

/// Adds a field; values of several lines have their length before them.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use nix::sys::socket::{ControlMessageOwned, recvmsg};

    use super::*;

    #[test]
    fn entries_too_large_for_a_datagram_are_passed_as_files() {
        let (ours, journal) = UnixDatagram::pair().unwrap();
        let mut entry = Vec::new();
        put(&mut entry, "MESSAGE", &"x".repeat(4 << 20));
        let ours = Journal::on(ours, Path::new(SOCKET)).unwrap();
        ours.send(&entry).unwrap();

        let (mut room, mut files) = ([0; 1], nix::cmsg_space!([i32; 1]));
        let mut room = [IoSliceMut::new(&mut room)];
        let none = MsgFlags::empty();
        let message =
            recvmsg::<()>(journal.as_raw_fd(), &mut room, Some(&mut files), none).unwrap();
        let passed = message.cmsgs().unwrap().next();
        let Some(ControlMessageOwned::ScmRights(passed)) = passed else {
            panic!("{passed:?}");
        };
        let path = format!("/proc/self/fd/{}", passed[0]);
        assert!(std::fs::read(&path).unwrap() == entry);
        let seals = fcntl(File::open(&path).unwrap(), FcntlArg::F_GET_SEALS).unwrap();
        assert_eq!(seals, SealFlag::all().bits());
    }

    #[test]
    fn a_journal_that_reads_nothing_holds_nobody_up() {
        let (ours, journal) = UnixDatagram::pair().unwrap();
        let ours = Journal::on(ours, Path::new(SOCKET)).unwrap();
        while ours.lost.load(Ordering::Relaxed) < 3 {
            ours.log(b"MESSAGE=lost\n", "lost");
        }
        journal.set_nonblocking(true).unwrap();
        let mut room = [0; 256];
        while journal.recv(&mut room).is_ok() {}

        // The next that it takes is followed by how many it did not.
        ours.log(b"MESSAGE=next\n", "next");
        ours.log(b"MESSAGE=last\n", "last");
        for expected in ["next", "3 messages", "last"] {
            let length = journal.recv(&mut room).unwrap();
            let entry = String::from_utf8_lossy(&room[..length]);
            assert!(entry.contains(expected), "{entry}");
        }
        assert!(journal.recv(&mut room).is_err());
    }

    #[test]
    fn a_journal_that_is_started_again_takes_entries_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut journal = UnixDatagram::bind(&path).unwrap();
        let ours = Journal::at(&path).unwrap();
        let mut room = [0; 16];
        for entry in [&b"MESSAGE=before\n"[..], b"MESSAGE=after\n"] {
            ours.log(entry, "an entry");
            let length = journal.recv(&mut room).unwrap();
            assert_eq!(&room[..length], entry);
            drop(journal);
            std::fs::remove_file(&path).unwrap();
            ours.log(b"MESSAGE=while there is none\n", "an entry");
            journal = UnixDatagram::bind(&path).unwrap();
        }
    }

    #[test]
    fn values_of_several_lines_have_their_length() {
        let mut entry = Vec::new();
        put(&mut entry, "A", "b=c");
        put(&mut entry, "MESSAGE", "d\ne");
        assert_eq!(entry, b"A=b=c\nMESSAGE\n\x03\0\0\0\0\0\0\0d\ne\n");
    }
}

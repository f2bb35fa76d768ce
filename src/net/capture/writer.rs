//! Writer of classic pcap files.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{CaptureError, ETHERNET, SNAPLEN};

/// Resolution of a pcap file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// The format that every reader knows.
    Microseconds,
    /// The format of the same name.
    Nanoseconds,
}

/// Writes frames to `PATH.part` and gives the file its name when it is finished,
/// so that no file that looks whole is left behind by a run that failed.
pub struct CaptureWriter {
    path: PathBuf,
    part: Option<PathBuf>,
    output: BufWriter<File>,
    precision: Precision,
}

impl CaptureWriter {
    /// Creates the file and writes its header.
    pub fn create(path: impl AsRef<Path>, precision: Precision) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let part = Self::part_of(path);
        let path = match &part {
            Some(_) => behind_links(path),
            None => path.to_owned(),
        };
        let file = match &part {
            Some(part) => Self::claim(part),
            // Where it is, for it may have something before the capture.
            None if is_stdout(&path) => {
                let own = io::stdout().as_fd().try_clone_to_owned();
                own.map(File::from)
            }
            None => File::options().write(true).open(&path),
        };
        let file = file.map_err(|source| CaptureError::Create {
            path: path.display().to_string(),
            source,
        })?;
        let mut writer = Self {
            path,
            part,
            output: BufWriter::with_capacity(1 << 20, file),
            precision,
        };
        let magic: u32 = match precision {
            Precision::Microseconds => 0xa1b2_c3d4,
            Precision::Nanoseconds => 0xa1b2_3c4d,
        };
        let words: [u32; 6] = [magic, 2 | 4 << 16, 0, 0, SNAPLEN, ETHERNET.into()];
        let header = words.map(u32::to_le_bytes);
        writer.put(&[header.as_flattened()])?;
        Ok(writer)
    }

    /// Opens an unfinished file that no other run writes to, and empties it.
    fn claim(part: &Path) -> io::Result<File> {
        loop {
            let mut options = File::options();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(part)?;
            if Self::empty(&file, part)? {
                return Ok(file);
            }
        }
    }

    /// Locks and empties an unfinished file. False, and nothing is done to it, if another run has
    /// finished and renamed it since it was opened.
    fn empty(file: &File, part: &Path) -> io::Result<bool> {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let why = format!(
                    "another run is writing {part:?}: wait for its end or choose another name"
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let there = is_at(file, part)?;
        if there {
            file.set_len(0)?;
        }
        Ok(there)
    }

    /// Where the file is until it is finished: beside the one that a link leads to, for a link is
    /// no file to be replaced. A pipe or a device cannot be renamed over, nor can
    /// standard output: its path may be a link to what is open.
    pub fn part_of(path: &Path) -> Option<PathBuf> {
        let special = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
        (!special && !is_stdout(path)).then(|| {
            let mut name = behind_links(path).into_os_string();
            name.push(".part");
            PathBuf::from(name)
        })
    }

    /// Bytes that a frame of `len` takes in the file.
    pub fn frame_bytes(len: usize) -> u64 {
        const HEADER: u64 = 16;
        HEADER + len as u64
    }

    /// Appends a frame, given in parts; its UNIX time is in nanoseconds, up to 2106.
    pub fn write_frame(&mut self, time_ns: u64, parts: &[&[u8]]) -> Result<(), CaptureError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let Some(length) = u32::try_from(len).ok().filter(|len| *len <= SNAPLEN) else {
            return Err(CaptureError::FrameTooLong { len });
        };
        let fraction = (time_ns % 1_000_000_000) as u32;
        let fraction = match self.precision {
            Precision::Microseconds => fraction / 1000,
            Precision::Nanoseconds => fraction,
        };
        let seconds = time_ns / 1_000_000_000;
        let Ok(seconds) = u32::try_from(seconds) else {
            return Err(CaptureError::FrameTooLate { seconds });
        };
        let words = [seconds, fraction, length, length];
        let record = words.map(u32::to_le_bytes);
        self.put(&[record.as_flattened()])?;
        self.put(parts)
    }

    /// Writes what is buffered and gives the file its name.
    pub fn finish(mut self) -> Result<(), CaptureError> {
        let flushed = self.output.flush();
        flushed.map_err(|source| self.failed(source))?;
        if let Some(part) = &self.part {
            fs::rename(part, &self.path).map_err(|source| self.failed(source))?;
            self.part = None;
        }
        Ok(())
    }

    fn put(&mut self, parts: &[&[u8]]) -> Result<(), CaptureError> {
        let mut put = || {
            parts
                .iter()
                .try_for_each(|part| self.output.write_all(part))
        };
        put().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> CaptureError {
        CaptureError::Write {
            path: self.path.display().to_string(),
            source,
        }
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Nothing more can be done about a file that cannot be removed.
            let _ = fs::remove_file(part);
        }
    }
}

/// Whether a path leads to standard output, where it is a pipe or a file: what is printed there
/// would be among what is written by the path, or over it.
pub fn is_stdout(path: &Path) -> bool {
    leads_to(path, "/proc/self/fd/1")
}

/// Whether a path leads to standard input, where it is a pipe or a file.
pub fn is_stdin(path: &Path) -> bool {
    leads_to(path, "/proc/self/fd/0")
}

fn leads_to(path: &Path, descriptor: &str) -> bool {
    let file = |about: fs::Metadata| (about.dev(), about.ino());
    let own = fs::metadata(descriptor);
    let own = own.ok().filter(|own| !own.file_type().is_char_device());
    own.is_some_and(|own| fs::metadata(path).is_ok_and(|there| file(there) == file(own)))
}

/// Where symbolic links lead, whether a file is there yet or not.
fn behind_links(path: &Path) -> PathBuf {
    // As many as the kernel follows.
    const MOST: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path
}

/// Whether the path leads to this open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let file = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (file.dev(), file.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_that_cannot_be_looked_at_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |path: &Path| is_at(file.as_file(), path).map_err(|error| error.kind());
        assert_eq!(of(file.path()), Ok(true));
        assert_eq!(of(Path::new("/dev/null")), Ok(false));
        assert_eq!(of(Path::new("/no/such/file")), Ok(false));
        assert_eq!(
            of(&file.path().join("x")),
            Err(io::ErrorKind::NotADirectory)
        );
    }

    #[test]
    fn one_run_at_a_time_writes_a_capture() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capture.pcap");
        let create = || CaptureWriter::create(&path, Precision::Nanoseconds);
        // What a killed run left.
        fs::write(folder.path().join("capture.pcap.part"), [7; 1000]).unwrap();
        let first = create().unwrap();
        let second = create().err().map(|error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            why.unwrap_or_default()
        });
        assert!(second.unwrap().starts_with("another run is writing"));
        first.finish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 24);
        create().unwrap().finish().unwrap();
    }

    /// Through two links: one to a file that is not there yet, and to one that is.
    #[test]
    fn a_link_stays_and_its_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("far")).unwrap();
        symlink("far/link.pcap", at("link.pcap")).unwrap();
        symlink("../file.pcap", at("far/link.pcap")).unwrap();
        for frames in [1, 2] {
            let mut writer =
                CaptureWriter::create(at("link.pcap"), Precision::Nanoseconds).unwrap();
            assert!(at("file.pcap.part").exists());
            for _ in 0..frames {
                writer.write_frame(0, &[b"frame"]).unwrap();
            }
            writer.finish().unwrap();
            assert!(at("link.pcap").is_symlink() && at("far/link.pcap").is_symlink());
            let bytes = 24 + frames * CaptureWriter::frame_bytes(5);
            assert_eq!(fs::metadata(at("file.pcap")).unwrap().len(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// The format has 32 bits for them.
    #[test]
    fn seconds_that_a_capture_has_not_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late.pcap");
        let mut writer = CaptureWriter::create(&path, Precision::Nanoseconds).unwrap();
        let end = (u64::from(u32::MAX) + 1) * 1_000_000_000;
        writer.write_frame(end - 1, &[b"frame"]).unwrap();
        let error = writer.write_frame(end, &[b"frame"]).unwrap_err();
        assert!(error.to_string().contains("4294967296"), "{error}");
        writer.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[24..28], [0xff; 4]);
        assert_eq!(bytes.len() as u64, 24 + CaptureWriter::frame_bytes(5));
    }

    #[test]
    fn what_was_finished_meanwhile_is_not_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let [part, whole] = ["a.part", "a"].map(|name| folder.path().join(name));
        fs::write(&part, "packets").unwrap();
        let opened = File::options().write(true).open(&part).unwrap();
        fs::rename(&part, &whole).unwrap();
        assert!(!CaptureWriter::empty(&opened, &part).unwrap());
        // Nor if another file has its name by then.
        File::create(&part).unwrap();
        assert!(!CaptureWriter::empty(&opened, &part).unwrap());
        assert_eq!(fs::read(&whole).unwrap(), b"packets");
        assert!(CaptureWriter::empty(&opened, &whole).unwrap());
        assert_eq!(fs::read(&whole).unwrap(), b"");
    }
}

//! Writer of classic pcap files.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ground::files::WholeFile;

use super::{CaptureError, ETHERNET, SNAPLEN};

/// Resolution of a pcap file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// The format that every reader knows.
    Microseconds,
    /// The format of the same name.
    Nanoseconds,
}

/// Writes frames to a [`WholeFile`].
pub struct CaptureWriter {
    path: PathBuf,
    output: BufWriter<WholeFile>,
    precision: Precision,
}

impl CaptureWriter {
    /// Creates the file and writes its header.
    pub fn create(path: impl AsRef<Path>, precision: Precision) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let file = WholeFile::create(path).map_err(|source| CaptureError::Create {
            path: path.display().to_string(),
            source,
        })?;
        let mut writer = Self {
            path: file.path().to_owned(),
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

    /// Where the file is until it is finished, as of any [`WholeFile`].
    pub fn part_of(path: &Path) -> Option<PathBuf> {
        WholeFile::part_of(path)
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
        let path = self.path;
        // Nothing is buffered any more.
        let finished = self.output.into_parts().0.finish();
        finished.map_err(|source| CaptureError::Write {
            path: path.display().to_string(),
            source,
        })
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

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
}

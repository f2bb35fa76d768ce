//! The file that a stream's spectra are written into.

use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use dsp::OutputBits;
use ground::N_POL;
use ground::files::WholeFile;

use super::files::npy_header;
use super::layout::Layout;
use super::{SinkError, SinkOptions, StreamReport};

/// Bytes of a Jones vector in the output file: two polarisations, real and imaginary part.
pub(super) const JONES: usize = N_POL * 2;
/// Zeros that are written at once.
const ZEROS: u64 = 1 << 20;

/// Those that a run may have no reason to make.
const OPTIONAL: [&str; 2] = ["spectrum.svg", "samples.npy"];

/// How the names of a stream's files end; those of samples, last, are made by a synthesis alone.
const ENDINGS: [&str; 6] = [
    "npy",
    "present.npy",
    "timestamps.npy",
    "spectrum.svg",
    "json",
    "samples.npy",
];

/// Refuses to write over the capture, before anything is written.
pub(super) fn spare(
    capture: &Path,
    layouts: &[Layout],
    options: &SinkOptions,
) -> Result<(), SinkError> {
    let (Some(dir), Some(read)) = (&options.output_dir, identity(capture)) else {
        return Ok(());
    };
    let made = match options.synthesis {
        Some(_) => &ENDINGS[..],
        None => &ENDINGS[..ENDINGS.len() - 1],
    };
    for layout in layouts {
        for ending in made {
            let path = dir.join(format!("{}.{ending}", layout.name));
            let part = WholeFile::part_of(&path);
            let paths = [Some(path), part].into_iter().flatten();
            let written = paths.into_iter().find(|path| identity(path) == Some(read));
            if let Some(written) = written {
                return Err(SinkError::OverCapture {
                    written: written.display().to_string(),
                    capture: capture.display().to_string(),
                });
            }
        }
    }
    Ok(())
}

/// Files of a stream that are written, but do not have their names yet.
#[derive(Default)]
pub(super) struct Unfinished(Vec<WholeFile>);

impl Unfinished {
    /// Adds one.
    pub fn push(&mut self, file: WholeFile) {
        self.0.push(file);
    }

    /// Gives them their names.
    pub fn finish(self) -> Result<(), SinkError> {
        self.0.into_iter().try_for_each(|file| {
            let path = file.path().to_owned();
            file.finish().map_err(|error| write_error(&path, error))
        })
    }
}

/// Removes what an earlier run made of these streams and this one did not, lest it seem to be of
/// this one. The capture stays, by whatever name.
pub(super) fn remove_old(
    capture: &Path,
    streams: &[StreamReport],
    options: &SinkOptions,
) -> Result<(), SinkError> {
    let Some(dir) = &options.output_dir else {
        return Ok(());
    };
    for stream in streams {
        for ending in OPTIONAL {
            let path = dir.join(format!("{}.{ending}", stream.name));
            let made = stream.files.contains(&path.display().to_string());
            let old = identity(&path);
            if !made && old.is_some() && old != identity(capture) {
                std::fs::remove_file(&path).map_err(|e| write_error(&path, e))?;
            }
        }
    }
    Ok(())
}

/// A file, by whatever path: links lead to the same one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.is_file());
    meta.map(|meta| (meta.dev(), meta.ino()))
}

/// The file of a stream's spectra, and its folder.
pub(super) struct Output {
    pub dir: PathBuf,
    pub path: PathBuf,
    file: WholeFile,
    /// Bytes before the spectra.
    pub header: u64,
}

impl Output {
    /// Creates it, all zeros.
    pub fn create(layout: &Layout, dir: &Path) -> Result<Self, SinkError> {
        std::fs::create_dir_all(dir).map_err(|e| write_error(dir, e))?;
        let path = dir.join(format!("{}.npy", layout.name));
        let shape = [
            layout.batches.len() as u64,
            layout.channels,
            layout.spectra_per_heap,
            N_POL as u64,
            2,
        ];
        let header = npy_header("|i1", &shape);
        let open = || {
            let mut file = WholeFile::create(&path)?;
            file.write_all(&header)?;
            let data = layout.batches.len() as u64;
            let length = data.checked_mul(layout.batch_bytes() * widening(layout.bits));
            let length = length.and_then(|n| n.checked_add(header.len() as u64));
            let length = length.ok_or(io::ErrorKind::FileTooLarge)?;
            file.file().set_len(length)?;
            Ok(file)
        };
        Ok(Self {
            dir: dir.to_owned(),
            file: open().map_err(|e| write_error(&path, e))?,
            header: header.len() as u64,
            path,
        })
    }

    /// Writes zeros, a part at a time: a heap may be as large as memory.
    pub fn clear(&self, from: u64, to: u64) -> Result<(), SinkError> {
        let zeros = vec![0; (to - from).min(ZEROS) as usize];
        let mut at = from;
        while at < to {
            let now = (to - at).min(ZEROS);
            self.write(&zeros[..now as usize], at)?;
            at += now;
        }
        Ok(())
    }

    /// Writes bytes at a place of the spectra.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<(), SinkError> {
        let file = self.file.file();
        let written = file.write_all_at(bytes, self.header + at);
        written.map_err(|e| write_error(&self.path, e))
    }

    /// Where the spectra can be read, until the file has its name.
    pub fn current_path(&self) -> &Path {
        self.file.current_path()
    }

    /// The file, whose spectra are all there.
    pub fn into_file(self) -> WholeFile {
        self.file
    }
}

/// Bytes of the output file for each on the wire.
pub(super) fn widening(bits: OutputBits) -> u64 {
    (JONES / bits.jones_bytes()) as u64
}

/// What is said of a file that cannot be written.
pub(super) fn write_error(path: &Path, source: io::Error) -> SinkError {
    SinkError::Write {
        path: path.display().to_string(),
        source,
    }
}

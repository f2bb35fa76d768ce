//! What was changed, written down before it is changed.
//!
//! One line of JSON for each change, on disk before the change is made: whatever ends `apply`, the
//! journal names every value that may differ from what it was. A line that is cut off stands for a
//! change that was not begun.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Target;
use super::host::sync_folder;
use crate::topology::Root;

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The entry that asked for it.
    pub entry: String,
    /// The value that was changed.
    pub target: Target,
    /// What it was; `None` for a file that was not there.
    pub old: Option<String>,
    /// What it was to be.
    pub new: String,
    /// The boot in which it was changed.
    pub boot: String,
    /// The system did not let us: nothing was changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// It will not let anybody in this boot: there is no use in trying again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
}

/// The changes that were made to a host since it was last as it was.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
    boot: String,
}

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system does not let us.
    #[error("journal {path}: {source}; --state names another folder")]
    System {
        /// File.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else is at it.
    #[error("journal {path}: another karoo tune is at work; wait for its end")]
    Busy {
        /// File.
        path: PathBuf,
    },
    /// It has lines that are not ours.
    #[error("journal {path}, line {line}: {why}; nothing is changed while it cannot be understood")]
    Line {
        /// File.
        path: PathBuf,
        /// Number, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl Journal {
    /// Opens the journal in `folder`, which is made if need be, and keeps others out until it is
    /// dropped.
    pub fn open(folder: &Path, root: &Root) -> Result<Self, JournalError> {
        let path = folder.join("journal.jsonl");
        let failed = |source| JournalError::System {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let options = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .clone();
        let mut file = options.open(&path).map_err(failed)?;
        for made in [&path, folder] {
            sync_folder(made).map_err(failed)?;
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(JournalError::Busy { path }),
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        let records = parse(&path, &text[..whole])?;
        let boot = root
            .read("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default();
        Ok(Self {
            path,
            file,
            records,
            boot,
        })
    }

    /// What is in the journal in `folder`, without keeping others out; nothing if there is none.
    pub fn peek(folder: &Path) -> Result<Vec<Record>, JournalError> {
        let path = folder.join("journal.jsonl");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let whole = text.rfind('\n').map_or(0, |end| end + 1);
                parse(&path, &text[..whole])
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(JournalError::System { path, source }),
        }
    }

    /// All records, oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// This boot.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// Writes a record, and returns when it is on disk.
    pub fn write(&mut self, record: Record) -> Result<(), JournalError> {
        let failed = |source| JournalError::System {
            path: self.path.clone(),
            source,
        };
        let mut line = serde_json::to_string(&record).map_err(|error| failed(error.into()))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(failed)?;
        self.file.sync_all().map_err(failed)?;
        self.records.push(record);
        Ok(())
    }

    /// Forgets everything: the host is as it was.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        let failed = |source| JournalError::System {
            path: self.path.clone(),
            source,
        };
        self.records.clear();
        self.file.set_len(0).map_err(failed)?;
        self.file.sync_all().map_err(failed)
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Record>, JournalError> {
    let record = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| JournalError::Line {
            path: path.to_owned(),
            line: index + 1,
            why: error.to_string(),
        })
    };
    text.lines().enumerate().map(record).collect()
}

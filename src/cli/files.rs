//! Files that a command reads and writes.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser};
use ground::files::WholeFile;

use super::Failure;
use crate::config::ConfigError;

/// Reads an argument that is an address or a path, and so may be no UTF-8: clap's own refusal names
/// neither the option nor a way out.
pub fn in_utf8<T: Clone + Send + Sync + 'static>(
    parse: fn(&str) -> Result<T, String>,
) -> impl TypedValueParser<Value = T> {
    let rule = "it is not UTF-8; lead to the file by a link with another name (ln -s)";
    OsStringValueParser::new().try_map(move |text: OsString| match text.to_str() {
        Some(text) => parse(text),
        None => Err(rule.to_owned()),
    })
}

/// Reads a path of a capture, which cannot be standard input, as `-` means elsewhere: a file of
/// that name is meant by nobody.
pub fn no_dash_to_read() -> impl TypedValueParser<Value = PathBuf> {
    no_dash(
        "- is not a standard stream here, as a capture is read twice: save it to a file and give its \
         name, or ./- for a file of that name",
    )
}

/// The same of a path that is written.
pub fn no_dash_to_write() -> impl TypedValueParser<Value = PathBuf> {
    no_dash("- is not a standard stream here: give /dev/stdout, or ./- for a file of that name")
}

fn no_dash(rule: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| match path.as_os_str() == "-" {
        true => Err(rule),
        false => Ok(path),
    })
}

/// One file that two options name, of which one writes it.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SharedFile {
    /// The other one reads it.
    #[error("{written}: it is {read}, which would be lost; name another file")]
    Read {
        /// The option that writes, with its value.
        written: String,
        /// What reads, with its value.
        read: String,
    },
    /// The other one writes it too.
    #[error("{written}: {other} is written there too; name another file")]
    Written {
        /// The option that writes, with its value.
        written: String,
        /// The other one, with its value.
        other: String,
    },
    /// The other one is to make a folder there.
    #[error("{written}: it is to be the folder of {folder}; name another file")]
    Folder {
        /// The option that writes, with its value.
        written: String,
        /// The option that makes the folder, with its value.
        folder: String,
    },
}

/// The files that a command is to read and to write. Whichever it does first, none is made anew
/// that it reads, nor twice.
#[derive(Debug, Default)]
pub struct Files {
    read: Vec<(String, Identity)>,
    written: Vec<(String, Identity)>,
    /// Those that are still to be made.
    folders: Vec<(String, Identity)>,
}

impl Files {
    /// Adds what an option, or an argument, reads, if it is given.
    pub fn reads(mut self, option: &str, path: Option<&Path>) -> Self {
        self.read.extend(given(option, path));
        self
    }

    /// Adds what an option writes, if it is given.
    pub fn writes(mut self, option: &str, path: Option<&Path>) -> Self {
        self.written.extend(given(option, path));
        self
    }

    /// Adds files of these names in the folder that an option writes into, if it is given.
    pub fn writes_into(mut self, option: &str, folder: Option<&Path>, names: &[&str]) -> Self {
        self.folders.extend(given(option, folder));
        for name in names {
            let path = folder.map(|folder| folder.join(name));
            self.written.extend(given(option, path.as_deref()));
        }
        self
    }

    /// Refuses to write over what is read, or twice.
    pub fn check(&self) -> Result<(), Failure> {
        self.find().map_or(Ok(()), |why| Err(Failure::usage(why)))
    }

    fn find(&self) -> Option<SharedFile> {
        self.written
            .iter()
            .enumerate()
            .find_map(|(at, (text, file))| {
                let written = text.clone();
                let same = |files: &[(String, Identity)]| {
                    let found = files.iter().find(|(_, other)| other == file);
                    found.map(|(text, _)| text.clone())
                };
                if let Some(read) = same(&self.read) {
                    return Some(SharedFile::Read { written, read });
                }
                if let Some(folder) = same(&self.folders) {
                    return Some(SharedFile::Folder { written, folder });
                }
                let other = same(&self.written[..at])?;
                Some(SharedFile::Written { written, other })
            })
    }
}

/// An option as it is given, with `=` behind it where a part of its value is before its path.
fn given(option: &str, path: Option<&Path>) -> Option<(String, Identity)> {
    let path = path?;
    let between = if option.ends_with('=') { "" } else { " " };
    let text = format!("{option}{between}{}", path.display());
    Some((text, Identity::of(path)?))
}

/// A file, by whatever path: links, hard or symbolic, lead to the same one.
#[derive(Debug, PartialEq)]
enum Identity {
    /// Device and inode.
    There(u64, u64),
    /// One that is still to be made, in a folder that is there.
    New(PathBuf),
}

impl Identity {
    /// None of what is not made anew, such as a pipe or a device, or where there is no folder.
    fn of(path: &Path) -> Option<Identity> {
        match fs::metadata(path) {
            Ok(meta) => meta.is_file().then(|| Self::There(meta.dev(), meta.ino())),
            Err(_) => {
                let folder = path.parent()?;
                let here = folder.as_os_str().is_empty();
                let folder = if here { Path::new(".") } else { folder };
                let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
                Some(Self::New(real.join(path.file_name()?)))
            }
        }
    }
}

/// Whether a path leads to a named pipe: opening it waits for the other end.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo())
}

/// Why a file that an option names was not written: where there is no room for it, the command line
/// is right.
pub fn unwritten(option: &str, path: &Path, error: &io::Error) -> Failure {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let text = format!("{option} {}: {error}", path.display());
    match error.kind() {
        FileTooLarge | QuotaExceeded | StorageFull => Failure::data(text),
        _ => Failure::usage(text),
    }
}

/// Makes the folder that an option names.
pub fn make_folder(option: &'static str, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| {
        let (folder, rule) = (folder.display(), format!("cannot be made: {error}"));
        Failure::usage(ConfigError::new(option, folder, rule, "name a folder"))
    })
}

/// A file that is made anew once all else is in order: what is in it stays there until then.
#[derive(Debug)]
pub struct NewFile(File);

impl NewFile {
    /// Opens it, and leaves what is in it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        file.map(Self)
    }

    /// Finds out whether [a whole file](WholeFile) can be written there, and leaves all as it was.
    pub fn check(path: &Path) -> io::Result<()> {
        match WholeFile::part_of(path) {
            Some(_) => WholeFile::create(path).map(drop),
            None if path.is_dir() => Self::open(path).map(drop),
            // The reader of a pipe would see an end.
            None => Ok(()),
        }
    }

    /// Empties it, unless it is a pipe or a device.
    pub fn begin(self) -> io::Result<File> {
        if self.0.metadata()?.is_file() {
            self.0.set_len(0)?;
        }
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn found(read: &Path, written: &Path) -> Option<SharedFile> {
        let files = Files::default().reads("GRAPH", Some(read));
        files.writes("--output", Some(written)).find()
    }

    #[test]
    fn a_file_is_the_same_by_each_of_its_paths() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let graph = at("graph");
        fs::write(&graph, "").unwrap();
        fs::create_dir(at("sub")).unwrap();
        fs::hard_link(&graph, at("hard")).unwrap();
        symlink(&graph, at("soft")).unwrap();
        for path in ["graph", "sub/../graph", "hard", "soft"] {
            let written = format!("--output {}", at(path).display());
            let read = format!("GRAPH {}", graph.display());
            let same = SharedFile::Read { written, read };
            assert_eq!(found(&graph, &at(path)), Some(same));
        }
        fs::write(at("other"), "").unwrap();
        for path in ["other", "new", "nowhere/graph"] {
            assert_eq!(found(&graph, &at(path)), None);
        }
    }

    #[test]
    fn a_file_that_is_still_to_be_made_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        let files = Files::default().writes_into("--report", Some(folder.path()), &["a", "b"]);
        let files = files.writes("--output y=", Some(&at("sub/../b")));
        let text = files.find().unwrap().to_string();
        let (written, other) = (at("sub/../b"), at("b"));
        let wanted = format!(
            "--output y={}: --report {} ",
            written.display(),
            other.display()
        );
        assert!(text.starts_with(&wanted), "{text}");
        let other = Files::default().writes("--svg", Some(&at("c")));
        assert_eq!(other.writes("--dot", Some(&at("d"))).find(), None);
    }

    /// Else the folder would be made, and the file refused for it, also the next time.
    #[test]
    fn no_file_is_written_where_a_folder_is_to_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let found = |written: &str| {
            let files = Files::default().writes("--output", Some(&at(written)));
            files.writes_into("--report", Some(&at("y")), &["a"]).find()
        };
        assert_eq!(found("z"), None);
        let why = found("y").unwrap().to_string();
        assert!(why.contains("the folder of --report"), "{why}");
    }

    #[test]
    fn devices_are_read_and_written_at_once() {
        let device = Path::new("/dev/null");
        assert_eq!(found(device, device), None);
    }

    #[test]
    fn a_file_keeps_what_it_has_until_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keep");
        fs::write(&path, "precious").unwrap();
        let new = NewFile::open(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        new.begin().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        NewFile::open(Path::new("/dev/null"))
            .unwrap()
            .begin()
            .unwrap();
        assert!(NewFile::open(folder.path()).is_err());
    }
}

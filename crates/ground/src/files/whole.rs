//! Files that appear whole or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is written to `PATH.part` and gets its name when it is finished, so that no run that
/// fails leaves a file that looks whole, or takes the place of a good one.
///
/// A pipe, a device or standard output is written through: there is nothing to be renamed.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    part: Option<PathBuf>,
    file: File,
}

impl WholeFile {
    /// Opens it, empty.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let part = Self::part_of(path);
        let file = match &part {
            Some(part) => claim(part)?,
            // Where it is, for it may have something in front.
            None if is_stdout(path) => io::stdout().as_fd().try_clone_to_owned()?.into(),
            None => File::options().write(true).open(path)?,
        };
        let path = match &part {
            Some(_) => behind_links(path),
            None => path.to_owned(),
        };
        Ok(Self { path, part, file })
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

    /// Where it will be, behind links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is until then.
    pub fn current_path(&self) -> &Path {
        self.part.as_deref().unwrap_or(&self.path)
    }

    /// What is written to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some(part) = &self.part {
            fs::rename(part, &self.path)?;
            self.part = None;
        }
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Nothing more can be done about a file that cannot be removed.
            let _ = fs::remove_file(part);
        }
    }
}

/// Writes a whole file: as [`WholeFile`].
pub fn write_whole(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes.as_ref())?;
    file.finish()
}

/// Opens an unfinished file that no other run writes to, and empties it.
fn claim(part: &Path) -> io::Result<File> {
    loop {
        // What a link leads to is somebody's.
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_NOFOLLOW)
            .open(part)
            .map_err(|error| with_way_out(part, error))?;
        if empty(&file, part)? {
            return Ok(file);
        }
    }
}

fn with_way_out(part: &Path, error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{part:?} cannot be made: make its folder writable or choose another place")
        }
        _ if error.raw_os_error() == Some(libc::ELOOP) => {
            format!("{part:?} is a symbolic link: remove it")
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// Locks and empties an unfinished file. False, and nothing is done to it, if another run has
/// finished and renamed it since it was opened.
fn empty(file: &File, part: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let why =
                format!("another run is writing {part:?}: wait for its end or choose another name");
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
    fn what_was_finished_meanwhile_is_not_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let [part, whole] = ["a.part", "a"].map(|name| folder.path().join(name));
        fs::write(&part, "packets").unwrap();
        let opened = File::options().write(true).open(&part).unwrap();
        fs::rename(&part, &whole).unwrap();
        assert!(!empty(&opened, &part).unwrap());
        // Nor if another file has its name by then.
        File::create(&part).unwrap();
        assert!(!empty(&opened, &part).unwrap());
        assert_eq!(fs::read(&whole).unwrap(), b"packets");
        assert!(empty(&opened, &whole).unwrap());
        assert_eq!(fs::read(&whole).unwrap(), b"");
    }

    /// As when the disk is full in the middle.
    #[test]
    fn what_was_not_finished_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "good").unwrap();
        symlink("old", at("link")).unwrap();
        for name in ["old", "link", "new"] {
            let mut file = WholeFile::create(at(name)).unwrap();
            file.write_all(b"ha").unwrap();
            assert!(file.current_path().exists() && file.current_path() != file.path());
        }
        assert_eq!(fs::read(at("old")).unwrap(), b"good");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        for (name, text) in [("old", "better"), ("link", "best")] {
            write_whole(at(name), text).unwrap();
            assert_eq!(fs::read_to_string(at("old")).unwrap(), text);
        }
        assert!(at("link").is_symlink());
        assert!(write_whole(folder.path(), "x").is_err());
    }

    #[test]
    fn what_an_unfinished_link_leads_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("other"), "good").unwrap();
        symlink("other", at("new.part")).unwrap();
        let error = write_whole(at("new"), "x").unwrap_err().to_string();
        assert!(
            error.ends_with("new.part\" is a symbolic link: remove it"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "good");
    }

    /// Not even root makes files there.
    #[test]
    fn a_folder_that_may_not_be_written_is_told() {
        let error = write_whole("/sys/new", "x").unwrap_err().to_string();
        let told =
            "\"/sys/new.part\" cannot be made: make its folder writable or choose another place";
        assert_eq!(error, told);
    }

    #[test]
    fn devices_are_written_through() {
        assert_eq!(WholeFile::part_of(Path::new("/dev/full")), None);
        write_whole("/dev/null", "x").unwrap();
        let error = write_whole("/dev/full", "x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(Path::new("/dev/full").exists());
    }
}

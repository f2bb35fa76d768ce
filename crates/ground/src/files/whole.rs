//! Files that appear whole or not at all.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// A file that is written to `PATH.part` and gets its name when it is finished, so that no run that
/// fails leaves a file that looks whole, or takes the place of a good one.
///
/// It has the owner and the mode of a file that is there already, which must be one that may be
/// written. Where it cannot have them, or its folder may not be written, that file is written in
/// place. A pipe, a device or standard output is written through: there is nothing to be renamed.
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
        let Some(part) = Self::part_of(path) else {
            let file = match is_stdout(path) {
                // Where it is, for it may have something in front.
                true => io::stdout().as_fd().try_clone_to_owned()?.into(),
                false => File::options().write(true).open(path)?,
            };
            let path = path.to_owned();
            return Ok(Self {
                path,
                part: None,
                file,
            });
        };
        let whole = Self::open(path, part)?;
        if whole.part.is_none() {
            lock(&whole.file, &whole.path)?;
            whole.file.set_len(0)?;
        }
        Ok(whole)
    }

    /// Whether it can be created; of one that is not written through. Leaves all as it was.
    pub fn check(path: &Path) -> io::Result<()> {
        match Self::part_of(path) {
            Some(part) => Self::open(path, part).map(drop),
            None => Ok(()),
        }
    }

    /// Opens the unfinished file or, where there can be none, what is there: that is not emptied.
    fn open(path: &Path, part: PathBuf) -> io::Result<Self> {
        let path = behind_links(path);
        let old = match File::options().write(true).open(&path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let error = match Self::beside(&path, &part, old.as_ref()) {
            Err(error) if is_for_want_of_rights(&error) => error,
            opened => return opened,
        };
        let way_out = match old {
            _ if part.exists() => format!("{part:?} is in the way"),
            Some(file) => {
                return Ok(Self {
                    path,
                    part: None,
                    file,
                });
            }
            None => {
                let folder = part.parent().filter(|folder| *folder != Path::new(""));
                let folder = folder.unwrap_or(Path::new("."));
                format!("make the folder {folder:?} writable, or name another")
            }
        };
        Err(io::Error::new(error.kind(), format!("{error}: {way_out}")))
    }

    /// Opens the unfinished file, with owner and mode of what is there.
    fn beside(path: &Path, part: &Path, old: Option<&File>) -> io::Result<Self> {
        let old = old.map(File::metadata).transpose()?;
        // Whoever may not read what is there may not read this.
        let mode = old.as_ref().map_or(0o666, |old| old.mode() & 0o777);
        let file = claim(part, mode)?;
        let whole = Self {
            path: path.to_owned(),
            part: Some(part.to_owned()),
            file,
        };
        if let Some(old) = old {
            // Also where a file system has no owners like that.
            liken(&whole.file, &old).map_err(|_| io::ErrorKind::PermissionDenied)?;
        }
        Ok(whole)
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

/// Whether there are no rights for what was tried, or the file system is read-only.
fn is_for_want_of_rights(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Opens an unfinished file that no other run writes to, and empties it. A new one has this mode.
fn claim(part: &Path, mode: u32) -> io::Result<File> {
    loop {
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode)
            .open(part)?;
        if empty(&file, part)? {
            return Ok(file);
        }
    }
}

/// Gives a file another's owner and mode.
fn liken(file: &File, other: &Metadata) -> io::Result<()> {
    let owner = |about: &Metadata| (about.uid(), about.gid());
    let own = file.metadata()?;
    if owner(&own) != owner(other) {
        fchown(file, Some(other.uid()), Some(other.gid()))?;
    }
    if own.mode() != other.mode() {
        file.set_permissions(other.permissions())?;
    }
    Ok(())
}

/// Locks and empties an unfinished file. False, and nothing is done to it, if another run has
/// finished and renamed it since it was opened.
fn empty(file: &File, part: &Path) -> io::Result<bool> {
    lock(file, part)?;
    let there = is_at(file, part)?;
    if there {
        file.set_len(0)?;
    }
    Ok(there)
}

/// Keeps other runs from writing to a file.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let why =
                format!("another run is writing {path:?}: wait for its end or choose another name");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
        // Some file systems have no locks.
        Err(TryLockError::Error(_)) | Ok(()) => Ok(()),
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
    let file = |about: Metadata| (about.dev(), about.ino());
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
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::thread;

    use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid};

    use super::*;

    const NOBODY: u32 = 65534;

    /// Runs with the rights to files that nobody has, where the tests run as root; else with one's
    /// own. These rights are a thread's.
    fn as_nobody(act: impl FnOnce() + Send) {
        let run = || {
            setfsgid(Gid::from_raw(NOBODY));
            setfsuid(Uid::from_raw(NOBODY));
            act();
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap());
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

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
    fn in_a_folder_that_may_not_be_written_files_are_written_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        for (name, mode) in [("open", 0o666), ("closed", 0o444)] {
            fs::write(at(name), "long and good").unwrap();
            set_mode(&at(name), mode);
        }
        symlink("open", at("link")).unwrap();
        set_mode(folder.path(), 0o555);
        as_nobody(|| {
            for name in ["open", "link"] {
                WholeFile::check(&at(name)).unwrap();
                assert!(read("open").starts_with("long"));
            }
            for (name, text) in [("open", "better"), ("link", "best")] {
                let mut file = WholeFile::create(at(name)).unwrap();
                assert_eq!(file.current_path(), file.path());
                let second = WholeFile::create(at(name)).unwrap_err();
                assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
                file.write_all(text.as_bytes()).unwrap();
                file.finish().unwrap();
                assert_eq!(read("open"), text);
            }
            let refused = |name: &str| {
                let checked = WholeFile::check(&at(name)).unwrap_err().to_string();
                let error = write_whole(at(name), "x").unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                assert_eq!(checked, error.to_string());
                checked
            };
            let way_out = format!("make the folder {:?} writable", folder.path());
            assert!(refused("new").contains(&way_out), "{}", refused("new"));
            refused("closed");
        });
        set_mode(folder.path(), 0o755);
        assert_eq!(read("closed"), "long and good");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn an_unfinished_file_that_may_not_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, mode) in [("old", 0o666), ("old.part", 0o444)] {
            fs::write(at(name), "good").unwrap();
            set_mode(&at(name), mode);
        }
        set_mode(folder.path(), 0o777);
        as_nobody(|| {
            let error = write_whole(at("old"), "x").unwrap_err().to_string();
            assert!(error.contains("old.part\" is in the way"), "{error}");
        });
        assert_eq!(fs::read(at("old")).unwrap(), b"good");
    }

    #[test]
    fn what_was_there_keeps_its_mode_and_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        fs::write(&path, "good").unwrap();
        let is_root = geteuid().is_root();
        if is_root {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let owner = || fs::metadata(&path).map(|about| (about.uid(), about.gid()));
        let before = owner().unwrap();
        for wanted in [0o600, 0o666, 0o640] {
            set_mode(&path, wanted);
            let file = WholeFile::create(&path).unwrap();
            assert_ne!(file.current_path(), path);
            assert_eq!(mode(file.current_path()), wanted);
            file.finish().unwrap();
            assert_eq!((mode(&path), owner().unwrap()), (wanted, before));
        }
        if !is_root {
            return;
        }
        // Nobody may not give files away.
        chown(&path, Some(0), Some(0)).unwrap();
        set_mode(&path, 0o666);
        set_mode(folder.path(), 0o777);
        as_nobody(|| write_whole(&path, "better").unwrap());
        assert_eq!((mode(&path), owner().unwrap()), (0o666, (0, 0)));
        assert_eq!(fs::read(&path).unwrap(), b"better");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
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

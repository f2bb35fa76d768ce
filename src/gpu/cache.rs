//! What took long to find out, kept on disk by what it depends on, and in memory for the other
//! engines of the process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Values by room and key.
type Held = HashMap<(String, Vec<u8>), Vec<u8>>;

/// What this process stored or found, and a folder for it, or none.
#[derive(Debug)]
pub(super) struct Cache {
    folder: Option<PathBuf>,
    held: Mutex<Held>,
}

impl Cache {
    /// The user's: `$XDG_CACHE_HOME/karoo`, or `~/.cache/karoo`.
    pub fn of_user() -> Self {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        Self::new(base.map(|base| base.join("karoo")))
    }

    /// One in `folder`, which need not exist.
    pub fn at(folder: PathBuf) -> Self {
        Self::new(Some(folder))
    }

    fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            held: Mutex::default(),
        }
    }

    /// What is stored under `key` in a `room` of the folder. Broken files are as good as none.
    pub fn load(&self, room: &str, key: &[u8]) -> Option<Vec<u8>> {
        let mut held = ground::lock(&self.held);
        let name = (room.to_owned(), key.to_owned());
        if let Some(value) = held.get(&name) {
            return Some(value.clone());
        }
        let value = read(&self.path(room, key)?, key)?;
        held.insert(name, value.clone());
        Some(value)
    }

    /// Stores `value` under `key`. Without a folder, the next start takes seconds longer.
    pub fn store(&self, room: &str, key: &[u8], value: &[u8]) {
        let mut held = ground::lock(&self.held);
        held.insert((room.to_owned(), key.to_owned()), value.to_owned());
        drop(held);
        let Some(path) = self.path(room, key) else {
            return;
        };
        if let Err(error) = write(&path, key, value) {
            tracing::debug!(%error, path = %path.display(), "not cached");
        }
    }

    fn path(&self, room: &str, key: &[u8]) -> Option<PathBuf> {
        // FNV-1a only spreads the names; the file holds the key, which decides.
        let hash = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
        Some(
            self.folder
                .as_ref()?
                .join(room)
                .join(format!("{hash:016x}")),
        )
    }
}

/// The value in a file, if the file is whole and of this key.
fn read(path: &Path, key: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let value = bytes.len().checked_sub(key.len() + 8)?;
    let (length, rest) = bytes.split_at(8);
    let same = length == (value as u64).to_le_bytes() && rest[..key.len()] == *key;
    same.then(|| bytes.split_off(key.len() + 8))
}

/// Whole or not at all: the file is named when it is complete.
fn write(path: &Path, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let unfinished = path.with_extension(std::process::id().to_string());
    let length = (value.len() as u64).to_le_bytes();
    std::fs::write(&unfinished, [&length, key, value].concat())?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_it_was_given_for_that_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        assert_eq!(read(&path, b"key"), None);
        write(&path, b"key", b"value").unwrap();
        assert_eq!(read(&path, b"key").as_deref(), Some(&b"value"[..]));
        assert_eq!(read(&path, b"kex"), None);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(read(&path, b"key"), None, "cut at {cut}");
        }
    }

    #[test]
    fn keys_and_rooms_have_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("karoo"));
        cache.store("kernels", b"a", b"1");
        cache.store("kernels", b"b", b"2");
        cache.store("shapes", b"a", b"3");
        let load = |room, key| cache.load(room, key).unwrap();
        assert_eq!(load("kernels", b"a"), b"1");
        assert_eq!(load("kernels", b"b"), b"2");
        assert_eq!(load("shapes", b"a"), b"3");
        assert_eq!(cache.load("shapes", b"b"), None);
        assert_eq!(Cache::new(None).load("kernels", b"a"), None);
        // What is on disk is for the next process.
        let next = Cache::at(folder.path().join("karoo"));
        assert_eq!(next.load("kernels", b"b").unwrap(), b"2");
    }

    /// The engines of a process share one, also where nothing can be written.
    #[test]
    fn a_process_finds_out_once_without_a_folder() {
        let cache = Cache::new(None);
        cache.store("kernels", b"a", b"1");
        assert_eq!(cache.load("kernels", b"a").unwrap(), b"1");
        assert_eq!(cache.load("shapes", b"a"), None);
        assert_eq!(cache.load("kernels", b"b"), None);
    }
}

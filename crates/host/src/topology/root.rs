//! A host's `/proc` and `/sys`: its own, or recorded under a folder.

use std::fs;
use std::path::{Path, PathBuf};

/// Where `/proc`, `/sys` and `/etc` are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// This host.
    pub fn host() -> Self {
        Self("/".into())
    }

    /// A host recorded under `folder`; `/` is this one.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Whether it is the host that this process runs on.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `path`, which may begin with a slash, is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's text without white space around it; `None` if it cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// A file's text as a value.
    pub fn parse<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// Names in a folder, sorted; none if it cannot be read.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Where a link leads, all links resolved, below the root.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let root = fs::canonicalize(&self.0).ok()?;
        let real = fs::canonicalize(self.path(path)).ok()?;
        Some(Path::new("/").join(real.strip_prefix(root).ok()?))
    }
}

//! One value of a host: how it is read and changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::check::GRUB;
use super::ethtool::{self, Group};
use super::gpu::{self, GpuSetting};
use super::pcie::{self, PciField};
use crate::topology::Root;

/// Where one value is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "kebab-case")]
pub enum Target {
    /// A file of one value that the kernel has.
    Value {
        /// Path.
        path: String,
    },
    /// A whole file of Karoo's own, which need not be there.
    Own {
        /// Path.
        path: String,
    },
    /// A setting of an interface.
    Ethtool {
        /// Interface.
        interface: String,
        /// Group.
        group: Group,
        /// Name in that.
        name: String,
    },
    /// A field of a device's configuration space.
    Pcie {
        /// PCI address.
        address: String,
        /// Field.
        field: PciField,
    },
    /// A setting of a GPU.
    Gpu {
        /// PCI address.
        address: String,
        /// Setting.
        setting: GpuSetting,
    },
}

impl Target {
    /// Whether a reboot leaves it as it is.
    pub fn survives_reboot(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    /// Whether it is the file with arguments of the kernel, which update-grub reads.
    pub fn is_for_grub(&self) -> bool {
        matches!(self, Self::Own { path } if path == GRUB)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value { path } | Self::Own { path } => f.write_str(path),
            Self::Ethtool {
                interface,
                group,
                name,
            } => write!(f, "{interface} {group} {name}"),
            Self::Pcie { address, field } => write!(f, "{address} {field}"),
            Self::Gpu { address, setting } => write!(f, "GPU {address} {setting}"),
        }
    }
}

/// A value that cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The system does not let us.
    #[error("{target}: {source}")]
    System {
        /// The value that was to be read or changed.
        target: String,
        /// Why.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command}: {why}")]
    Program {
        /// Command line.
        command: String,
        /// What it said.
        why: String,
    },
}

impl HostError {
    /// A refusal of the system.
    pub fn system(target: impl ToString, source: io::Error) -> Self {
        Self::System {
            target: target.to_string(),
            source,
        }
    }
}

/// A host, or a recorded one.
#[derive(Clone, Debug)]
pub struct Host {
    root: Root,
}

impl Host {
    /// The host under `root`.
    pub fn new(root: Root) -> Self {
        Self { root }
    }

    /// Where its files are.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// A value as it is; `None` if the host has none. One that is picked from several, as `always
    /// [madvise] never`, is the picked word.
    pub fn get(&self, target: &Target) -> Result<Option<String>, HostError> {
        match (self.recorded(target), target) {
            (Some(path), _) => self.get_file(target, &path),
            (None, Target::Value { path } | Target::Own { path }) => self.get_file(target, path),
            (
                None,
                Target::Ethtool {
                    interface,
                    group,
                    name,
                },
            ) => ethtool::get(interface, *group, name),
            (None, Target::Pcie { address, field }) => pcie::get(&self.root, address, *field),
            (None, Target::Gpu { address, setting }) => gpu::get(address, *setting),
        }
    }

    /// Changes a value, or removes a file of our own.
    pub fn set(&self, target: &Target, value: Option<&str>) -> Result<(), HostError> {
        let failed = |source| HostError::system(target, source);
        let text = value.unwrap_or_default();
        match (self.recorded(target), target) {
            (Some(path), _) => self.set_value(target, &path, text),
            (None, Target::Value { path }) => self.set_value(target, path, text),
            (None, Target::Own { path }) => match value {
                Some(text) => write_synced(&self.root.path(path), text).map_err(failed),
                None => match fs::remove_file(self.root.path(path)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
                    _ => Ok(()),
                },
            },
            (
                None,
                Target::Ethtool {
                    interface,
                    group,
                    name,
                },
            ) => ethtool::set(interface, *group, name, text),
            (None, Target::Pcie { address, field }) => pcie::set(&self.root, address, *field, text),
            (None, Target::Gpu { address, setting }) => gpu::set(address, *setting, text),
        }
    }

    /// The most that a value can be, where the host says.
    pub fn maximum(&self, target: &Target) -> Result<Option<String>, HostError> {
        let most = match target {
            Target::Ethtool {
                interface,
                group,
                name,
            } => Target::Ethtool {
                interface: interface.clone(),
                group: *group,
                name: format!("{name}-max"),
            },
            Target::Gpu { address, setting } => match setting.maximum() {
                Some(setting) => Target::Gpu {
                    address: address.clone(),
                    setting,
                },
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.get(&most)
    }

    /// Where a recorded host has what only a running one can be asked for.
    fn recorded(&self, target: &Target) -> Option<String> {
        if self.root.is_host() {
            return None;
        }
        match target {
            Target::Ethtool {
                interface,
                group,
                name,
            } => Some(format!("/ethtool/{interface}/{group}/{name}")),
            Target::Gpu { address, setting } => Some(format!("/nvidia-smi/{address}/{setting}")),
            _ => None,
        }
    }

    fn get_file(&self, target: &Target, path: &str) -> Result<Option<String>, HostError> {
        let text = match fs::read_to_string(self.root.path(path)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(HostError::system(target, error)),
        };
        match (target, picked(&text)) {
            (Target::Value { .. }, Some(word)) => Ok(Some(word.to_owned())),
            _ => Ok(Some(text)),
        }
    }

    fn set_value(&self, target: &Target, path: &str, value: &str) -> Result<(), HostError> {
        let path = self.root.path(path);
        let failed = |source| HostError::system(target, source);
        if !self.root.is_host() {
            // What a kernel does with the value that is written.
            let old = fs::read_to_string(&path).map_err(failed)?;
            let new = match picked(&old) {
                Some(word) => {
                    let none = old.replace(&format!("[{word}]"), word);
                    none.replacen(value.trim(), &format!("[{}]", value.trim()), 1)
                }
                None => format!("{}\n", value.trim_end()),
            };
            return fs::write(path, new).map_err(failed);
        }
        // Never creates: what is not there is not ours to invent. One call, as the kernel wants it.
        let mut file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        file.write_all(value.as_bytes()).map_err(failed)
    }
}

/// The word in brackets, if all of a line's words are what can be picked.
fn picked(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// Writes a file so that it is there after a power cut.
fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    sync_folder(path)
}

/// Has the name of a new file, or folder, last, too.
pub(super) fn sync_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(here) if here.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

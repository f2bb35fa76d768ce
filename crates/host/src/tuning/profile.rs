//! Profiles: what a host should be like, and why.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ground::files::read_text;
use serde::{Deserialize, Serialize};

use super::ethtool::Group;
use super::gpu::GpuSetting;
use super::pcie::PciField;

/// Profiles that come with Karoo.
const BUILT_IN: [(&str, &str); 3] = [
    ("runtime", include_str!("../../profiles/runtime.toml")),
    ("appliance", include_str!("../../profiles/appliance.toml")),
    ("firmware", include_str!("../../profiles/firmware.toml")),
];

/// What a host should be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// What it is for.
    pub purpose: String,
    /// Its entries, those of included profiles first.
    pub entries: Vec<Entry>,
}

/// One setting of a host, and what it should be.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Its name, one word.
    pub id: String,
    /// What it is, in a sentence.
    pub what: String,
    /// Why it should be so.
    pub why: String,
    /// What was measured, with the source; empty where nothing was.
    #[serde(default)]
    pub effect: String,
    /// Where it is, and what it should be.
    #[serde(flatten)]
    pub kind: Kind,
}

/// Where a setting is, and what it should be.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Kind {
    /// A kernel parameter by its name for sysctl(8).
    Sysctl {
        /// Such as `kernel.numa_balancing`.
        name: String,
        /// What it should be.
        want: Want,
    },
    /// A file of one value in `/sys`; `*` in a part of the path stands for anything, `{nic}` for
    /// each data interface.
    File {
        /// Path.
        path: String,
        /// What it should be.
        want: Want,
    },
    /// An argument of the kernel's command line, which `apply` puts where GRUB finds it.
    KernelArgument {
        /// Its name.
        name: String,
        /// Its value, or `>=` and the least that it should be; empty for one that has none.
        /// `{lcores}` and `{housekeeping}` are lists of CPUs.
        #[serde(default)]
        value: String,
    },
    /// All interrupts on housekeeping CPUs.
    IrqAffinity {},
    /// A setting of each data interface that ethtool(8) shows.
    Ethtool {
        /// Its group.
        group: Group,
        /// Its name there.
        name: String,
        /// What it should be.
        want: Want,
    },
    /// A field of PCI Express configuration space, of data NICs and GPUs.
    Pcie {
        /// Which.
        field: PciField,
        /// What it should be.
        want: Want,
    },
    /// A setting of each GPU.
    Gpu {
        /// Which.
        setting: GpuSetting,
        /// What it should be.
        want: Want,
    },
    /// A limit of processes.
    Limit {
        /// Which.
        limit: Limit,
        /// What it should be.
        want: Want,
    },
    /// A program that should not run; it is not ended.
    NoProcess {
        /// Its name.
        name: String,
        /// What to do about it.
        remedy: String,
    },
    /// Something that is seen here and set elsewhere, such as in the firmware.
    Observed {
        /// What.
        observation: Observation,
        /// What it should be.
        want: Want,
        /// What to do about it.
        remedy: String,
    },
    /// Something that is not seen here.
    Listed {
        /// What to do.
        remedy: String,
    },
}

/// Limits of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Locked memory.
    Memlock,
    /// Real-time priority.
    Rtprio,
}

impl Limit {
    /// Name of the limit in `/proc/self/limits`.
    pub fn in_proc(self) -> &'static str {
        match self {
            Self::Memlock => "Max locked memory",
            Self::Rtprio => "Max realtime priority",
        }
    }

    /// Its name in limits.conf(5).
    pub fn in_conf(self) -> &'static str {
        match self {
            Self::Memlock => "memlock",
            Self::Rtprio => "rtprio",
        }
    }
}

/// What can be seen of a host's firmware settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Observation {
    /// NUMA nodes of a socket.
    NodesPerSocket,
    /// Whether each core runs two threads: `on`, `off`.
    Smt,
    /// Whether the IOMMU translates: `on`, `off`.
    Iommu,
    /// Whether interrupts use the x2APIC: `on`, `off`.
    X2apic,
    /// Whether data NICs and GPUs are behind host bridges of their own: `on`, `off`.
    SeparateBridges,
}

/// What a value should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// This.
    Exactly(String),
    /// At least as much.
    AtLeast(u64),
    /// As much as the device has.
    Maximum,
}

impl FromStr for Want {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix(">=")) {
            ("max", _) => Ok(Self::Maximum),
            (_, Some(number)) => match number.trim().parse() {
                Ok(number) => Ok(Self::AtLeast(number)),
                Err(_) => Err(format!("'{text}' must be >= and a number")),
            },
            ("", None) => Err("a wanted value must not be empty".to_owned()),
            _ => Ok(Self::Exactly(text.to_owned())),
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(text) => f.write_str(text),
            Self::AtLeast(number) => write!(f, "at least {number}"),
            Self::Maximum => f.write_str("the most that it can be"),
        }
    }
}

impl<'de> Deserialize<'de> for Want {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Want {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Want".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl Serialize for Want {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Want {
    /// Whether `current` will do; `None` if it is of another form than what is wanted. A maximum
    /// has been looked up.
    pub fn is_met(&self, current: &str) -> Option<bool> {
        let current = current.trim();
        match self {
            Self::Exactly(wanted) => {
                let numbers = (wanted.parse::<i64>(), current.parse::<i64>());
                match numbers {
                    (Ok(wanted), Ok(current)) => Some(wanted == current),
                    // A number is expected, and something else is there.
                    (Ok(_), Err(_)) => None,
                    _ => Some(wanted == current),
                }
            }
            // Kernel parameters without a bound are -1.
            Self::AtLeast(_) if ["unlimited", "-1"].contains(&current) => Some(true),
            Self::AtLeast(wanted) => Some(current.parse::<u64>().ok()? >= *wanted),
            Self::Maximum => None,
        }
    }

    /// What to set.
    pub fn value(&self) -> String {
        match self {
            Self::Exactly(text) => text.clone(),
            Self::AtLeast(number) => number.to_string(),
            Self::Maximum => String::new(),
        }
    }
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is none of that name.
    #[error(
        "profile '{name}': there is none of that name; there are {known}, and a file's name ends in .toml"
    )]
    Unknown {
        /// The name as given.
        name: String,
        /// The profiles that there are.
        known: String,
    },
    /// A file cannot be read.
    #[error("profile {path}: {source}")]
    Read {
        /// The path as given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or says what no profile says.
    #[error("profile {name}: {source}")]
    Syntax {
        /// Name.
        name: String,
        /// What is wrong.
        source: toml::de::Error,
    },
    /// An entry is wrong.
    #[error("profile {name}, entry '{entry}': {why}")]
    Entry {
        /// Name.
        name: String,
        /// Entry.
        entry: String,
        /// What is wrong, and what would do.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    purpose: String,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    entry: Vec<toml::Table>,
}

impl Profile {
    /// Names of those that come with Karoo.
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    /// One that comes with Karoo, or a file whose name ends in `.toml`.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        let profile = match name.strip_suffix(".toml") {
            Some(_) => {
                let text = read_text(Path::new(name)).map_err(|source| ProfileError::Read {
                    path: name.to_owned(),
                    source,
                })?;
                Self::parse(name, &text, 0)?
            }
            None => Self::built_in(name, 0)?,
        };
        let mut seen = BTreeSet::new();
        if let Some(twice) = profile.entries.iter().find(|entry| !seen.insert(&entry.id)) {
            return Err(ProfileError::Entry {
                name: name.to_owned(),
                entry: twice.id.clone(),
                why: "is there twice; give each entry an id of its own".to_owned(),
            });
        }
        Ok(profile)
    }

    fn built_in(name: &str, depth: usize) -> Result<Self, ProfileError> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        match found.filter(|_| depth < 4) {
            Some((_, text)) => Self::parse(name, text, depth),
            None => Err(ProfileError::Unknown {
                name: name.to_owned(),
                known: Self::names().join(", "),
            }),
        }
    }

    fn parse(name: &str, text: &str, depth: usize) -> Result<Self, ProfileError> {
        let syntax = |source| ProfileError::Syntax {
            name: name.to_owned(),
            source,
        };
        let file: File = toml::from_str(text).map_err(syntax)?;
        let mut entries = Vec::new();
        for included in &file.include {
            entries.extend(Self::built_in(included, depth + 1)?.entries);
        }
        for table in file.entry {
            let id = table
                .get("id")
                .and_then(|id| id.as_str())
                .unwrap_or("")
                .to_owned();
            let wrong = |why: String| ProfileError::Entry {
                name: name.to_owned(),
                entry: id.clone(),
                why,
            };
            // What is left beside the entry's own keys is its kind's, which takes no other.
            let entry: Entry = table
                .try_into()
                .map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
            check_names(&entry).map_err(wrong)?;
            entries.push(entry);
        }
        Ok(Self {
            name: name.to_owned(),
            purpose: file.purpose,
            entries,
        })
    }
}

/// Paths and names stay where they belong: a profile is not a way to write any file.
fn check_names(entry: &Entry) -> Result<(), String> {
    let plain = |text: &str, more: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !text.is_empty() && text.chars().all(allowed)
    };
    if !plain(&entry.id, "-") {
        return Err("id must be letters, digits and dashes: numa-balancing".to_owned());
    }
    match &entry.kind {
        Kind::Sysctl { name, .. } if !plain(name, "._-/") || name.contains("..") => Err(format!(
            "name '{name}' is no kernel parameter; try kernel.numa_balancing"
        )),
        Kind::File { path, .. } if !path.starts_with("/sys/") || path.contains("..") => {
            Err(format!("path '{path}' must be below /sys/"))
        }
        Kind::KernelArgument { name, value }
            if !plain(name, "._-") || !(value.is_empty() || plain(value, "._-,:{}>=")) =>
        {
            Err(format!(
                "'{name}={value}' must be letters, digits and ._-,: only"
            ))
        }
        Kind::Ethtool { group, name, .. } if !group.names().contains(&&name[..]) => {
            let names = group.names().join(", ");
            Err(format!("name '{name}' is none of {names}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;

//! How an entry and its values are on a host.

use serde::Serialize;

use super::{Entry, Target};

/// How a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Not as it should be.
    Miss,
    /// As it should be from the next boot or login on.
    Pending,
    /// It cannot be read, or has a form that is not understood; left alone.
    Unknown,
    /// The system does not let it be changed.
    Fixed,
    /// This host has none.
    Absent,
    /// Nothing here shows it; see to it yourself.
    Listed,
}

impl Status {
    /// Whether the host is not as it should be, or that cannot be told.
    pub fn is_miss(self) -> bool {
        matches!(self, Self::Miss | Self::Pending | Self::Unknown)
    }
}

/// One value of an entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Knob {
    /// Which value.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// What it is.
    pub current: String,
    /// What it should be.
    pub wanted: String,
    /// Where `apply` changes it, and what it writes there; `None` where it does not.
    #[serde(skip)]
    pub change: Option<(Target, String)>,
    /// What to do, where `apply` does nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// An entry and its values on a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// Whether what `apply` does survives a reboot; `None` where it does nothing.
    pub survives_reboot: Option<bool>,
    /// Its values.
    pub values: Vec<Knob>,
}

impl Finding {
    /// The worst of its values.
    pub fn status(&self) -> Status {
        let worst = |status: &Status| match status {
            Status::Miss => 6,
            Status::Unknown => 5,
            Status::Pending => 4,
            Status::Listed => 3,
            Status::Ok => 2,
            Status::Fixed => 1,
            Status::Absent => 0,
        };
        let statuses = self.values.iter().map(|value| value.status);
        statuses.max_by_key(worst).unwrap_or(Status::Absent)
    }
}

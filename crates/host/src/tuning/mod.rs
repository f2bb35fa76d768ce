//! What a host needs so that nothing interrupts or slows its engines: profiles that say what should
//! be, checks of what is, changes with a journal, and the way back.
//!
//! * [`Profile`]: entries read from TOML, each with its reason and the effect that was measured;
//! * [`Scope`]: the CPUs, interfaces and devices that a profile is about on one host;
//! * [`check`]: what each entry comes to there;
//! * [`apply`], [`revert`]: changes of [`Target`]s, each in the [`Journal`] before it is made.
//!
//! A target whose value has another form than its entry expects is left alone.

mod apply;
mod check;
mod ethtool;
mod finding;
mod gpu;
mod host;
mod journal;
mod pcie;
mod profile;
mod text;

pub use apply::{Applied, Change, Outcome, apply, changes, revert};
pub use check::check;
pub use ethtool::Group;
pub use finding::{Finding, Knob, Status};
pub use gpu::GpuSetting;
pub use host::{Host, HostError, Target};
pub use journal::{Journal, JournalError, Record};
pub use pcie::PciField;
pub use profile::{Entry, Kind, Limit, Observation, Profile, ProfileError, Want};
pub use text::{explain, table};

use std::fmt;

use crate::topology::{CpuList, Machine};

/// What of a host a profile is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// CPUs for everything but lcores.
    pub housekeeping: CpuList,
    /// CPUs for lcores.
    pub lcores: CpuList,
    /// Interfaces that carry data.
    pub interfaces: Vec<String>,
    /// PCI addresses of these interfaces' NICs.
    pub nics: Vec<String>,
    /// PCI addresses of GPUs.
    pub gpus: Vec<String>,
}

impl Scope {
    /// That of `machine`; what is not given follows from its plan and from what its NICs are fit
    /// for.
    pub fn of(
        machine: &Machine,
        housekeeping: Option<CpuList>,
        interfaces: Option<Vec<String>>,
    ) -> Self {
        let fit = || {
            let nics = machine.nics.iter().filter(|nic| nic.is_for_data());
            nics.map(|nic| nic.name.clone()).collect()
        };
        let interfaces: Vec<String> = interfaces.unwrap_or_else(fit);
        let housekeeping = housekeeping.unwrap_or_else(|| machine.housekeeping());
        let nics = machine
            .nics
            .iter()
            .filter(|nic| interfaces.contains(&nic.name));
        Self {
            lcores: machine.online().without(&housekeeping),
            housekeeping,
            nics: nics.map(|nic| nic.pci.address.clone()).collect(),
            gpus: machine
                .gpus
                .iter()
                .map(|gpu| gpu.pci.address.clone())
                .collect(),
            interfaces,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[String]| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        write!(
            f,
            "housekeeping CPUs {}; CPUs for lcores {}; data interfaces {}; GPUs {}",
            self.housekeeping,
            self.lcores,
            list(&self.interfaces),
            list(&self.gpus)
        )
    }
}

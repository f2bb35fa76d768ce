//! Settings of GPUs, through the driver's own program: the driver's library would be `unsafe` for
//! little.

use std::process::Command;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use super::HostError;

const PROGRAM: &str = "nvidia-smi";

/// A setting of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GpuSetting {
    /// Whether the driver stays loaded without clients: `Enabled`, `Disabled`.
    Persistence,
    /// Clocks of memory and cores while programs run, in MHz: `7251, 1695`.
    ApplicationClocks,
    /// The highest clocks of both.
    HighestClocks,
}

impl GpuSetting {
    fn query(self) -> &'static str {
        match self {
            Self::Persistence => "persistence_mode",
            Self::ApplicationClocks => "clocks.applications.memory,clocks.applications.graphics",
            Self::HighestClocks => "clocks.max.memory,clocks.max.graphics",
        }
    }

    /// The setting that says how much this one can be.
    pub fn maximum(self) -> Option<Self> {
        (self == Self::ApplicationClocks).then_some(Self::HighestClocks)
    }
}

impl fmt::Display for GpuSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Persistence => "persistence",
            Self::ApplicationClocks => "application-clocks",
            Self::HighestClocks => "highest-clocks",
        })
    }
}

fn run(arguments: &[&str]) -> Result<Option<String>, HostError> {
    let output = match Command::new(PROGRAM).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HostError::system(PROGRAM, error)),
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(Some(said)),
        false => Err(HostError::Program {
            command: format!("{PROGRAM} {}", arguments.join(" ")),
            why: said,
        }),
    }
}

/// A setting's value; `None` if there is no such program, or the GPU has no such setting.
pub fn get(address: &str, setting: GpuSetting) -> Result<Option<String>, HostError> {
    let query = format!("--query-gpu={}", setting.query());
    let said = run(&["-i", address, &query, "--format=csv,noheader,nounits"])?;
    // `[N/A]`, `[Not Supported]`
    Ok(said.filter(|said| !said.contains('[')))
}

/// Changes a setting.
pub fn set(address: &str, setting: GpuSetting, value: &str) -> Result<(), HostError> {
    let clocks = value.replace(' ', "");
    let change: [&str; 2] = match (setting, value.trim()) {
        (GpuSetting::Persistence, "Enabled") => ["-pm", "1"],
        (GpuSetting::Persistence, "Disabled") => ["-pm", "0"],
        (GpuSetting::ApplicationClocks, _) => ["-ac", clocks.trim()],
        _ => {
            return Err(HostError::system(
                setting,
                io::ErrorKind::InvalidInput.into(),
            ));
        }
    };
    match run(&["-i", address, change[0], change[1]])? {
        Some(_) => Ok(()),
        None => Err(HostError::system(PROGRAM, io::ErrorKind::NotFound.into())),
    }
}

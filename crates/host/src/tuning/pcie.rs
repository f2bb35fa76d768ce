//! Fields of PCI Express configuration space (PCI Express Base Specification, Device Control
//! Register).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use super::HostError;
use crate::topology::Root;

/// A field of the Device Control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PciField {
    /// Whether the device may let its transactions overtake one another: `on`, `off`.
    RelaxedOrdering,
    /// Bytes that the device may ask for at once: 128 to 4096.
    MaxReadRequest,
}

impl fmt::Display for PciField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RelaxedOrdering => "relaxed ordering",
            Self::MaxReadRequest => "max read request",
        })
    }
}

const STATUS: u64 = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
const CAPABILITIES: u64 = 0x34;
const EXPRESS: u8 = 0x10;
const DEVICE_CONTROL: u64 = 8;
const RELAXED_ORDERING: u16 = 1 << 4;
const READ_REQUEST_SHIFT: u32 = 12;
const READ_REQUEST: u16 = 7 << READ_REQUEST_SHIFT;

fn path(address: &str) -> String {
    format!("/sys/bus/pci/devices/{address}/config")
}

fn u16_at(file: &File, at: u64) -> io::Result<u16> {
    let mut bytes = [0; 2];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u16::from_le_bytes(bytes))
}

/// Where the Device Control register is; `None` for a device without.
fn device_control(file: &File) -> io::Result<Option<u64>> {
    if u16_at(file, STATUS)? & HAS_CAPABILITIES == 0 {
        return Ok(None);
    }
    let [mut at, _] = u16_at(file, CAPABILITIES)?.to_le_bytes();
    // There is room for 48 capabilities; a list that is longer is a circle.
    for _ in 0..48 {
        at &= !3;
        if at < 0x40 {
            return Ok(None);
        }
        let [id, next] = u16_at(file, at.into())?.to_le_bytes();
        if id == EXPRESS {
            return Ok(Some(u64::from(at) + DEVICE_CONTROL));
        }
        at = next;
    }
    Ok(None)
}

/// A field's value; `None` if the device, or the field, is not there.
pub fn get(root: &Root, address: &str, field: PciField) -> Result<Option<String>, HostError> {
    let failed = |source| HostError::system(format!("{address} {field}"), source);
    let file = match File::open(root.path(path(address))) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let Some(at) = device_control(&file).map_err(failed)? else {
        return Ok(None);
    };
    let control = u16_at(&file, at).map_err(failed)?;
    Ok(Some(match field {
        PciField::RelaxedOrdering if control & RELAXED_ORDERING != 0 => "on".to_owned(),
        PciField::RelaxedOrdering => "off".to_owned(),
        PciField::MaxReadRequest => {
            (128u32 << ((control & READ_REQUEST) >> READ_REQUEST_SHIFT)).to_string()
        }
    }))
}

/// Changes a field, and nothing else of the register.
pub fn set(root: &Root, address: &str, field: PciField, value: &str) -> Result<(), HostError> {
    let failed = |source| HostError::system(format!("{address} {field}"), source);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true);
    let file = file.open(root.path(path(address))).map_err(failed)?;
    let missing = || failed(io::ErrorKind::Unsupported.into());
    let at = device_control(&file).map_err(failed)?.ok_or_else(missing)?;
    let control = u16_at(&file, at).map_err(failed)?;
    let control = match (field, value.trim()) {
        (PciField::RelaxedOrdering, "on") => control | RELAXED_ORDERING,
        (PciField::RelaxedOrdering, "off") => control & !RELAXED_ORDERING,
        (PciField::MaxReadRequest, bytes) => {
            let code = (0..6).find(|code| (128u32 << code).to_string() == bytes);
            let code: u16 = code.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
            control & !READ_REQUEST | code << READ_REQUEST_SHIFT
        }
        _ => return Err(failed(io::ErrorKind::InvalidInput.into())),
    };
    file.write_all_at(&control.to_le_bytes(), at)
        .map_err(failed)
}

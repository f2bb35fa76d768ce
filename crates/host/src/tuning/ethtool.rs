//! Settings of interfaces, asked of the kernel by generic netlink (the kernel's
//! `Documentation/networking/ethtool-netlink.rst`).

use std::os::fd::{AsRawFd, OwnedFd};
use std::{fmt, io};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use serde::{Deserialize, Serialize};

use super::HostError;

/// A group of settings that is read and changed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Pause frames: `ethtool -a`.
    Pause,
    /// Interrupt coalescing: `ethtool -c`.
    Coalesce,
    /// Descriptor rings: `ethtool -g`.
    Rings,
    /// Queues: `ethtool -l`.
    Channels,
}

/// An attribute: its name, its number, and whether it is one byte wide instead of four.
type Attribute = (&'static str, u16, bool);

impl Group {
    const PAUSE: [Attribute; 3] = [("autoneg", 2, true), ("rx", 3, true), ("tx", 4, true)];
    const COALESCE: [Attribute; 6] = [
        ("rx-usecs", 2, false),
        ("rx-frames", 3, false),
        ("tx-usecs", 6, false),
        ("tx-frames", 7, false),
        ("adaptive-rx", 11, true),
        ("adaptive-tx", 12, true),
    ];
    const RINGS: [Attribute; 4] = [
        ("rx-max", 2, false),
        ("tx-max", 5, false),
        ("rx", 6, false),
        ("tx", 9, false),
    ];
    const CHANNELS: [Attribute; 6] = [
        ("rx-max", 2, false),
        ("tx-max", 3, false),
        ("combined-max", 5, false),
        ("rx", 6, false),
        ("tx", 7, false),
        ("combined", 9, false),
    ];

    fn attributes(self) -> &'static [Attribute] {
        match self {
            Self::Pause => &Self::PAUSE,
            Self::Coalesce => &Self::COALESCE,
            Self::Rings => &Self::RINGS,
            Self::Channels => &Self::CHANNELS,
        }
    }

    /// The command that reads it; the next one changes it.
    fn command(self) -> u8 {
        match self {
            Self::Rings => 15,
            Self::Channels => 17,
            Self::Coalesce => 19,
            Self::Pause => 21,
        }
    }

    /// What can be set.
    pub fn names(self) -> Vec<&'static str> {
        let names = self.attributes().iter().map(|(name, ..)| *name);
        names.filter(|name| !name.ends_with("-max")).collect()
    }

    fn attribute(self, name: &str) -> Option<Attribute> {
        let mut all = self.attributes().iter().copied();
        all.find(|(known, ..)| *known == name)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "pause",
            Self::Coalesce => "coalesce",
            Self::Rings => "rings",
            Self::Channels => "channels",
        })
    }
}

const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const HEADER: u16 = 1;
const INTERFACE: u16 = 2;
const NESTED: u16 = 1 << 15;

/// A setting's value, switches as `on` and `off`; `None` if the interface, or the setting, is not
/// there.
pub fn get(interface: &str, group: Group, name: &str) -> Result<Option<String>, HostError> {
    let failed = |source| HostError::system(format!("{interface} {group} {name}"), source);
    let Some((_, number, switch)) = group.attribute(name) else {
        return Ok(None);
    };
    let answer =
        Netlink::open().and_then(|mut netlink| netlink.ethtool(group.command(), interface, &[]));
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let value = attributes(&answer).find(|(found, _)| *found == number);
    Ok(value.and_then(|(_, bytes)| match (switch, bytes) {
        (true, [value, ..]) => Some(if *value == 0 { "off" } else { "on" }.to_owned()),
        (false, bytes) => Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?).to_string()),
        _ => None,
    }))
}

/// Changes a setting, and no other of its group.
pub fn set(interface: &str, group: Group, name: &str, value: &str) -> Result<(), HostError> {
    let failed = |source| HostError::system(format!("{interface} {group} {name}"), source);
    let wrong = || failed(io::ErrorKind::InvalidInput.into());
    let (_, number, switch) = group.attribute(name).ok_or_else(wrong)?;
    let bytes = match (switch, value.trim()) {
        (true, "on") => vec![1],
        (true, "off") => vec![0],
        (false, number) => number
            .parse::<u32>()
            .map_err(|_| wrong())?
            .to_ne_bytes()
            .to_vec(),
        _ => return Err(wrong()),
    };
    let changed = attribute(number, &bytes);
    Netlink::open()
        .and_then(|mut netlink| netlink.ethtool(group.command() + 1, interface, &changed))
        .map(|_| ())
        .map_err(failed)
}

fn is_absent(error: &io::Error) -> bool {
    let codes = [
        libc::EOPNOTSUPP,
        libc::ENODEV,
        libc::EPROTONOSUPPORT,
        libc::ENOENT,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// A conversation with the kernel.
struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// One request about an interface; the attributes of the answer.
    fn ethtool(&mut self, command: u8, interface: &str, attributes: &[u8]) -> io::Result<Vec<u8>> {
        let name = attribute(FAMILY_NAME, b"ethtool\0");
        let family = self.request(CONTROL, GET_FAMILY, 1, &name)?;
        let id = self::attributes(&family).find(|(number, _)| *number == FAMILY_ID);
        let id =
            id.and_then(|(_, bytes)| Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?)));
        let id = id.ok_or(io::ErrorKind::InvalidData)?;
        let mut named = interface.as_bytes().to_vec();
        named.push(0);
        let mut body = attribute(HEADER | NESTED, &attribute(INTERFACE, &named));
        body.extend(attributes);
        self.request(id, command, 1, &body)
    }

    /// Sends a message, and reads its answer, if there is one, and its acknowledgement.
    fn request(
        &mut self,
        family: u16,
        command: u8,
        version: u8,
        body: &[u8],
    ) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let mut message = Vec::with_capacity(20 + body.len());
        message.extend((20 + body.len() as u32).to_ne_bytes());
        message.extend(family.to_ne_bytes());
        message.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend([command, version, 0, 0]);
        message.extend(body);
        let kernel = NetlinkAddr::new(0, 0);
        let fd = self.socket.as_raw_fd();
        sendto(fd, &message, &kernel, MsgFlags::empty())?;
        let mut answer = Vec::new();
        let mut buffer = [0; 16384];
        // An answer, and its acknowledgement, which may come apart.
        for _ in 0..8 {
            let length = recv(fd, &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some((kind, payload, next)) = split_message(rest) {
                match kind {
                    ERROR => {
                        let code = payload.get(..4).ok_or(io::ErrorKind::InvalidData)?;
                        let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
                        return match code {
                            0 => Ok(answer),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    // Behind the generic header.
                    _ => answer = payload.get(4..).unwrap_or_default().to_vec(),
                }
                rest = next;
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// The first message's type and payload, and what follows it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let payload = bytes.get(16..length)?;
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, payload, next))
}

fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let number = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & !NESTED;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((number, value))
    })
}

//! Places as users write them.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

use dpdk::{DpdkError, LcorePanic};
use karoo_flow::adapters::{Address, DEFAULT_DATAGRAM};

use crate::net::CaptureError;
use crate::ports::{DatagramError, InterfaceError, PORT_SCHEME, PortAddress};

/// Bytes that a datagram in a capture may have.
const SIZES: RangeInclusive<usize> = 1..=65_507;

/// Where samples come from or go to.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// As bytes: a file, a pipe, TCP, shared memory.
    Bytes(Address),
    /// As packets through one of the kernel's sockets.
    Socket {
        /// Address and UDP port.
        peer: String,
        /// Bytes of a datagram, at most.
        bytes: usize,
        /// After so long without a datagram an input ends.
        idle: Option<Duration>,
    },
    /// As packets through a DPDK port.
    Port(PortAddress),
    /// As packets in a capture file.
    Capture {
        /// The file.
        path: PathBuf,
        /// Bytes of a datagram that is written, at most.
        bytes: usize,
    },
}

impl Place {
    /// Its path, if it is a file: of samples, or a capture.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Bytes(Address::File(path)) | Self::Capture { path, .. } => Some(path),
            _ => None,
        }
    }

    /// After so long without anything an input ends; outputs have no use for it.
    pub fn idle(&self) -> Option<Duration> {
        match self {
            Self::Bytes(address) => address.idle(),
            Self::Socket { idle, .. } => *idle,
            Self::Port(address) => address.idle,
            Self::Capture { .. } => None,
        }
    }

    /// Whether it is standard input or output.
    pub fn is_standard(&self) -> bool {
        *self == Self::Bytes(Address::Standard)
    }

    /// Whether samples are in packets.
    pub fn has_packets(&self) -> bool {
        !matches!(self, Self::Bytes(_))
    }

    /// Whether it may go on until somebody ends it. Standard input ends with whoever writes it.
    pub fn is_live(&self) -> bool {
        self.file().is_none() && !self.is_standard()
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(PORT_SCHEME) {
            return text.parse().map(Self::Port);
        }
        match Address::parse_among(text, &[PORT_SCHEME], &[])? {
            Address::Udp { peer, bytes, idle } => Ok(Self::Socket { peer, bytes, idle }),
            Address::File(path) => match capture(text, &path)? {
                Some((path, bytes)) => Ok(Self::Capture { path, bytes }),
                None => Ok(Self::Bytes(Address::File(path))),
            },
            other => Ok(Self::Bytes(other)),
        }
    }
}

/// Why no packets are taken from a place, or none are sent to it.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The place has no packets.
    #[error("{0} has no packets: give udp:, dpdk: or a capture file")]
    NoPackets(String),
    /// The place takes no packets.
    #[error("{0} takes no packets: give udp:, dpdk: or a capture file")]
    TakesNoPackets(String),
    /// A format that is only read.
    #[error("captures are written as pcap; give a name that ends in .pcap")]
    Pcapng,
    /// Packets that have no room for samples: their bytes.
    #[error("size={0}: packets of fewer than 60 bytes have no room for samples; try size=1472")]
    Size(usize),
    /// The interface of a group.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The DPDK port cannot be had.
    #[error(transparent)]
    Port(#[from] DatagramError),
    /// The port takes no packets for long.
    #[error("the port takes no packets: look whether its link is up")]
    Stuck,
    /// DPDK.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// The kernel's socket.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The capture file.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The port's lcore panicked: a defect.
    #[error(transparent)]
    Lcore(#[from] LcorePanic),
    /// The thread that takes packets panicked: a defect.
    #[error("the thread that takes packets panicked")]
    Thread,
}

impl PlaceError {
    /// Whether another place or option would do, rather than another state of what is there.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoPackets(_)
            | Self::TakesNoPackets(_)
            | Self::Pcapng
            | Self::Size(_)
            | Self::Interface(_)
            | Self::Port(_) => true,
            Self::Stuck
            | Self::Dpdk(_)
            | Self::Io(_)
            | Self::Capture(_)
            | Self::Lcore(_)
            | Self::Thread => false,
        }
    }
}

/// The path of a capture and the bytes of its datagrams, if a path is of one, with what is behind
/// commas.
fn capture(text: &str, path: &Path) -> Result<Option<(PathBuf, usize)>, String> {
    let whole = path.to_string_lossy();
    let mut parts = whole.split(',');
    let mut end = 0;
    // A folder may have commas in its name.
    let found = parts.by_ref().find(|part| {
        end += part.len() + 1;
        part.ends_with(".pcap") || part.ends_with(".pcapng")
    });
    if found.is_none() {
        return Ok(None);
    }
    let mut bytes = DEFAULT_DATAGRAM;
    for word in parts {
        let size = word.strip_prefix("size=").ok_or_else(|| {
            format!("{text}: `{word}` is not known; after a capture there is size= alone")
        })?;
        let size = size.parse().ok().filter(|size| SIZES.contains(size));
        let (least, most) = (SIZES.start(), SIZES.end());
        bytes =
            size.ok_or_else(|| format!("{text}: `{word}`: it must be {least} to {most} bytes"))?;
    }
    let path = match whole.get(..end - 1).filter(|path| path.len() < whole.len()) {
        Some(path) => path.into(),
        None => path.to_owned(),
    };
    Ok(Some((path, bytes)))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(address) => address.fmt(f),
            Self::Socket { peer, .. } => write!(f, "udp:{peer}"),
            Self::Port(address) => {
                write!(f, "{PORT_SCHEME}{}:{}", address.interface, address.peer)
            }
            Self::Capture { path, bytes } => {
                path.display().fmt(f)?;
                match *bytes == DEFAULT_DATAGRAM {
                    true => Ok(()),
                    false => write!(f, ",size={bytes}"),
                }
            }
        }
    }
}

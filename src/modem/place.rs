//! Places as users write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use karoo_flow::adapters::Address;

use crate::ports::{PORT_SCHEME, PortAddress};

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
    Capture(PathBuf),
}

impl Place {
    /// Its path, if it is a file: of samples, or a capture.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Bytes(Address::File(path)) | Self::Capture(path) => Some(path),
            _ => None,
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
        match text.parse()? {
            Address::Udp { peer, bytes, idle } => Ok(Self::Socket { peer, bytes, idle }),
            Address::File(path) if is_capture(&path) => Ok(Self::Capture(path)),
            other => Ok(Self::Bytes(other)),
        }
    }
}

fn is_capture(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    matches!(end, Some("pcap" | "pcapng"))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(address) => address.fmt(f),
            Self::Socket { peer, .. } => write!(f, "udp:{peer}"),
            Self::Port(address) => {
                write!(f, "{PORT_SCHEME}{}:{}", address.interface, address.peer)
            }
            Self::Capture(path) => path.display().fmt(f),
        }
    }
}

//! Addresses as users write them.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Bytes of a datagram: what Ethernet carries without fragments.
pub const DEFAULT_DATAGRAM: usize = 1472;
/// Bytes of a ring in shared memory.
pub const DEFAULT_RING: usize = 1 << 20;
/// Bytes that a ring may have: its count is a signed number of 32 bits at the other end.
pub(super) const RING: RangeInclusive<usize> = 64..=1 << 30;
/// The most bytes of a datagram.
const MAX_DATAGRAM: usize = 65_507;

/// Where samples come from or go to.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    /// A file or a named pipe.
    File(PathBuf),
    /// Standard input or output.
    Standard,
    /// A TCP peer that listens.
    Connect(String),
    /// A TCP port of our own, for one peer.
    Listen(String),
    /// UDP: for inputs where to listen, for outputs where to send.
    Udp {
        /// Address and port.
        peer: String,
        /// Bytes of a datagram that is sent.
        bytes: usize,
        /// After so long without a datagram the input ends.
        idle: Option<Duration>,
    },
    /// Shared memory.
    Shared {
        /// Name of the memory, without a slash.
        name: String,
        /// Bytes of the ring.
        bytes: usize,
        /// After so long without a byte the input ends.
        idle: Option<Duration>,
    },
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        Address::parse_among(text, &[], &[])
    }
}

/// How addresses begin, but for paths and the standard stream.
const SCHEMES: [&str; 5] = ["file:", "tcp:", "tcp-listen:", "udp:", "shm:"];

impl Address {
    /// After so long without anything an input ends; outputs have no use for it.
    pub fn idle(&self) -> Option<Duration> {
        match self {
            Address::Udp { idle, .. } | Address::Shared { idle, .. } => *idle,
            _ => None,
        }
    }

    /// Reads an address where there may be others, which begin with these words and are not read
    /// here. Nor are these `options` of shared memory.
    ///
    /// # Errors
    ///
    /// What is wrong with the text, in words. Where its begin is not known, they name the others
    /// too, and where an option is not known, those.
    pub fn parse_among(text: &str, others: &[&str], options: &[&str]) -> Result<Address, String> {
        if text.is_empty() {
            let schemes = [&SCHEMES[1..], others].concat().join(", ");
            return Err(format!("no address: give a path, -, or {schemes}"));
        }
        if text == "-" {
            return Ok(Address::Standard);
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return Ok(Address::File(text.into()));
        };
        // A path may have a colon: schemes are short words.
        if scheme.contains(['/', '.', ' ']) {
            return Ok(Address::File(text.into()));
        }
        match scheme {
            "file" => Ok(Address::File(rest.into())),
            "tcp" => Ok(Address::Connect(port(text, rest)?)),
            "tcp-listen" => Ok(Address::Listen(port(text, rest)?)),
            "udp" => {
                let (peer, options) = read_options(text, rest, &[])?;
                let bytes = options.bytes.unwrap_or(DEFAULT_DATAGRAM);
                if !(1..=MAX_DATAGRAM).contains(&bytes) {
                    let rule = format!("it must be 1 to {MAX_DATAGRAM} bytes");
                    return Err(format!("{text}: a datagram of {bytes}: {rule}"));
                }
                let (peer, idle) = (port(text, peer)?, options.idle);
                Ok(Address::Udp { peer, bytes, idle })
            }
            "shm" => {
                let (name, options) = read_options(text, rest, options)?;
                let bytes = options.bytes.unwrap_or(DEFAULT_RING);
                if !RING.contains(&bytes) {
                    let rule = format!("it must be {} to {} bytes", RING.start(), RING.end());
                    return Err(format!("{text}: a ring of {bytes}: {rule}"));
                }
                if name.is_empty() || name.len() > 200 || name.contains('/') || name.contains('\0')
                {
                    let rule = "its name must be a word without a slash, of at most 200 bytes";
                    return Err(format!("{text}: {rule}"));
                }
                let (name, idle) = (name.into(), options.idle);
                Ok(Address::Shared { name, bytes, idle })
            }
            _ => {
                let schemes = [&SCHEMES[..], others].concat().join(", ");
                Err(format!(
                    "{text}: `{scheme}:` is not known; there are {schemes}, and a path that \
                     begins so can be given as ./{text}"
                ))
            }
        }
    }
}

struct Options {
    bytes: Option<usize>,
    idle: Option<Duration>,
}

/// Reads options behind commas. Errors name `others` too.
fn read_options<'a>(
    text: &str,
    rest: &'a str,
    others: &[&str],
) -> Result<(&'a str, Options), String> {
    let mut words = rest.split(',');
    let first = words.next().unwrap_or("");
    let mut options = Options {
        bytes: None,
        idle: None,
    };
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "size" => {
                let number = || {
                    format!(
                        "{text}: `size={value}` is not a whole number of bytes: write for example \
                         size=4096"
                    )
                };
                options.bytes = Some(value.parse().map_err(|_| number())?);
            }
            "idle" => {
                let seconds = value
                    .parse()
                    .ok()
                    .and_then(|s| Duration::try_from_secs_f64(s).ok());
                let seconds = seconds.filter(|time| !time.is_zero());
                let number = || {
                    format!(
                        "{text}: `idle={value}` is not a time above 0 and below 1.8e19 seconds: write for \
                         example idle=2.5"
                    )
                };
                options.idle = Some(seconds.ok_or_else(number)?);
            }
            _ => {
                let all = [&["size=", "idle="], others].concat();
                let (first, last) = all.split_at(all.len() - 1);
                let (first, last) = (first.join(", "), last.concat());
                return Err(format!(
                    "{text}: `{word}` is not known; there are {first} and {last}"
                ));
            }
        }
    }
    Ok((first, options))
}

/// Checks that a port is there, and not 0: nobody is there to send to, and nobody would know where
/// this listens. Names are looked up when the address is opened.
fn port(text: &str, peer: &str) -> Result<String, String> {
    let right = |peer: &str| {
        let (host, port) = peer.rsplit_once(':')?;
        let port: Option<u16> = port.parse().ok();
        (!host.is_empty()).then_some(port).flatten()
    };
    match right(peer) {
        Some(1..) => Ok(peer.into()),
        Some(0) => Err(format!("{text}: a port must be 1 to 65535")),
        None => Err(format!(
            "{text}: no host and port: write for example 127.0.0.1:8080"
        )),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let idle = |idle: &Option<Duration>| {
            idle.map_or(String::new(), |time| {
                format!(",idle={}", time.as_secs_f64())
            })
        };
        match self {
            Address::File(path) => write!(f, "{}", path.display()),
            Address::Standard => f.write_str("-"),
            Address::Connect(peer) => write!(f, "tcp:{peer}"),
            Address::Listen(local) => write!(f, "tcp-listen:{local}"),
            Address::Udp {
                peer,
                bytes,
                idle: time,
            } => {
                write!(f, "udp:{peer},size={bytes}{}", idle(time))
            }
            Address::Shared {
                name,
                bytes,
                idle: time,
            } => {
                write!(f, "shm:{name},size={bytes}{}", idle(time))
            }
        }
    }
}

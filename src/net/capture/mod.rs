//! Capture files: pcap and pcapng in, pcap out, and pcapng with comments in memory.

mod commented;
mod reader;
mod writer;

use std::io;
use std::path::Path;

pub use commented::{CommentedCapture, CommentedFrame};
pub use ground::files::{is_stdin, is_stdout};
pub use reader::{CaptureReader, Frame};
pub use writer::{CaptureWriter, Precision};

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Longest frame that a capture of ours may hold; tcpdump's default snapshot length too.
const SNAPLEN: u32 = 262_144;

/// What is wrong with a capture file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Cannot be opened.
    #[error("cannot open capture {path:?}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Cannot be created.
    #[error("cannot create capture {path:?}")]
    Create {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The disk or the pipe failed.
    #[error("cannot read capture {path:?} at byte {offset}")]
    Read {
        /// The file.
        path: String,
        /// Bytes read before.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The disk or the pipe failed.
    #[error("cannot write capture {path:?}{}", room(source))]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// No bytes.
    #[error("capture {path:?} is empty; record it again, for example with tcpdump -w {path}")]
    Empty {
        /// The file.
        path: String,
    },
    /// Another kind of file.
    #[error("{path:?} is not a capture (it begins with {magic}); {way_out}")]
    NotACapture {
        /// The file.
        path: String,
        /// First bytes in hexadecimal.
        magic: String,
        /// What to do.
        way_out: &'static str,
    },
    /// The file header is not whole.
    #[error("capture {path:?} ends within its file header after {len} bytes; record it again")]
    HeaderCut {
        /// The file.
        path: String,
        /// Bytes in the file.
        len: usize,
    },
    /// Frames of another kind.
    #[error(
        "capture {path:?} has link type {link_type} ({name}), not Ethernet (1); record on the Ethernet interface itself, for example tcpdump -i eth0 -w FILE"
    )]
    LinkType {
        /// The file.
        path: String,
        /// Number of the link type.
        link_type: u16,
        /// Name of the link type.
        name: &'static str,
    },
    /// A record contradicts itself.
    #[error(
        "capture {path:?} is damaged at byte {offset}, after frame {frames}: {what}; {}", way_out(path, *frames)
    )]
    Corrupt {
        /// The file.
        path: String,
        /// Where the record begins.
        offset: u64,
        /// Whole frames before it.
        frames: u64,
        /// What was found.
        what: &'static str,
    },
    /// A frame of a time that a capture cannot have.
    #[error(
        "frame of UNIX time {seconds} s is later than a capture has times, up to {} s, in 2106",
        u32::MAX
    )]
    FrameTooLate {
        /// Its whole seconds.
        seconds: u64,
    },
    /// A frame too long for a capture.
    #[error("frame of {len} bytes is longer than a capture's {SNAPLEN}")]
    FrameTooLong {
        /// Bytes in the frame.
        len: usize,
    },
}

/// Whether a path leads to what can be read only once: a pipe waits for ever for whoever is to
/// write it again, and a terminal has nothing more.
pub fn is_read_once(path: &Path) -> bool {
    // The reader says what is wrong with a file that is not there, and with a folder.
    std::fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// What can be done about a capture that cannot be written for this reason.
fn room(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "",
        _ => "; free some space or choose another place",
    }
}

/// What can be done about a capture that is damaged behind so many frames.
fn way_out(path: &str, frames: u64) -> String {
    match frames {
        0 => "nothing of it can be used: record it again".to_owned(),
        frames => format!("cut it there, for example with editcap -r {path} FILE 1-{frames}"),
    }
}

/// Names of link types that are met instead of Ethernet.
fn link_type_name(link_type: u16) -> &'static str {
    match link_type {
        0 => "BSD loopback",
        101 => "raw IP",
        105 => "IEEE 802.11",
        108 => "OpenBSD loopback",
        113 => "Linux cooked, as from tcpdump -i any",
        127 => "IEEE 802.11 with radiotap",
        228 => "raw IPv4",
        276 => "Linux cooked version 2, as from tcpdump -i any",
        _ => "unknown",
    }
}

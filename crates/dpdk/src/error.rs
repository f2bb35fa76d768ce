//! What DPDK refuses, with the failing call's arguments.

use std::ffi::{CStr, CString};
use std::fmt;

use super::huge_pages::TakenPages;

/// An error number with DPDK's text for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// From a return value `-errno`, or from the thread's `rte_errno` where a call returns just −1
    /// or null.
    pub(super) fn from_return(ret: i32) -> Self {
        if ret < -1 { Self(-ret) } else { Self::last() }
    }

    /// The thread's `rte_errno`.
    pub(super) fn last() -> Self {
        // SAFETY: reads a thread-local integer.
        Self(unsafe { dpdk_sys::karoo_errno() })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: rte_strerror returns a NUL-terminated string in static or thread-local memory,
        // which is copied before this thread can call it again.
        let text = unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(self.0)) };
        write!(f, "{} (errno {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What DPDK has of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What it was started with, at least.
    pub mib: usize,
    /// Whether that is in huge pages.
    pub huge_pages: bool,
    /// Huge pages that are free beside it.
    pub free_mib: usize,
    /// What programs have of them, this one included.
    pub taken: TakenPages,
}

impl Memory {
    /// How the host comes to have huge pages with room for so much more.
    fn room_for(&self, more_mib: usize) -> String {
        let own_mib = if self.huge_pages { 0 } else { self.mib };
        self.taken.room_for(own_mib + more_mib)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mib, free_mib, .. } = self;
        match self.huge_pages {
            true => write!(
                f,
                "{mib} MiB of huge pages, of which {free_mib} more are free"
            ),
            false => write!(
                f,
                "{mib} MiB of plain memory, since {free_mib} MiB of huge pages were free"
            ),
        }
    }
}

/// What the safe layer can refuse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// A call into DPDK failed.
    #[error("{call}: {errno}")]
    Call {
        /// The call with its arguments.
        call: String,
        /// Why.
        errno: Errno,
    },
    /// A pool is smaller than the rings that it feeds require.
    #[error(
        "mbuf pool '{pool}' has {mbufs} mbufs, but {descriptors} ring entries with bursts of {burst} need at least {needed} \
         (max(1.5 × entries, entries + 2 × burst)): give it {needed}"
    )]
    PoolTooSmall {
        /// Name of the pool.
        pool: String,
        /// Mbufs in it.
        mbufs: usize,
        /// Entries of all rings that it feeds.
        descriptors: usize,
        /// Burst size.
        burst: usize,
        /// What would do.
        needed: usize,
    },
    /// DPDK's memory is used up.
    #[error(
        "{what} takes {needed_mib} MiB, which DPDK has not left: it has {memory}. Ask for fewer or smaller rings, or {}",
        .memory.room_for(*.needed_mib)
    )]
    NoMemory {
        /// What it is for.
        what: String,
        /// What it takes.
        needed_mib: usize,
        /// What there is.
        memory: Memory,
    },
    /// The kernel gives no UDP socket.
    #[error("no UDP socket to {what}: {source}")]
    Socket {
        /// What it is for.
        what: String,
        /// Why.
        source: std::io::Error,
    },
    /// A value that DPDK cannot take.
    #[error("{what} = {value}: {rule}")]
    Value {
        /// What the value is for.
        what: &'static str,
        /// The value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// No such device.
    #[error("no port is called '{name}'; ports here: {known}")]
    NoSuchPort {
        /// Name asked for.
        name: String,
        /// Names of the ports that exist.
        known: String,
    },
    /// Somebody has the device.
    #[error("port '{name}' is in use: name each device once, or give the other up first")]
    Taken {
        /// Name asked for.
        name: String,
    },
    /// The device has fewer queues than asked for.
    #[error(
        "port '{port}' ({driver}) has at most {max} {direction} queues, {asked} were asked for"
    )]
    Queues {
        /// Name of the port.
        port: String,
        /// Driver of the port.
        driver: String,
        /// `rx` or `tx`.
        direction: &'static str,
        /// Queues that it has.
        max: u16,
        /// Queues asked for.
        asked: usize,
    },
}

impl DpdkError {
    pub(super) fn call(call: impl Into<String>, errno: Errno) -> Self {
        Self::Call {
            call: call.into(),
            errno,
        }
    }
}

/// A name for DPDK: no NUL bytes, at most `max` bytes.
pub(super) fn c_name(what: &'static str, name: &str, max: usize) -> Result<CString, DpdkError> {
    let refuse = |rule| DpdkError::Value {
        what,
        value: name.to_owned(),
        rule,
    };
    if name.is_empty() || name.len() > max {
        return Err(refuse(match max {
            26.. => "must have 1 to 26 bytes, since DPDK adds a prefix within 32",
            _ => "must have 1 to 22 bytes, since DPDK adds two prefixes within 32",
        }));
    }
    CString::new(name).map_err(|_| refuse("must not contain a NUL byte"))
}

/// An argument string for DPDK, of any length.
pub(super) fn c_args(what: &'static str, args: &str) -> Result<CString, DpdkError> {
    CString::new(args).map_err(|_| DpdkError::Value {
        what,
        value: args.to_owned(),
        rule: "must not contain a NUL byte",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::huge_pages::MORE_PAGES;

    /// What the process has itself is among what is taken, or it has none.
    #[test]
    fn memory_that_is_used_up_names_pages_for_all_programs() {
        for (huge_pages, pages) in [(true, 750), (false, 900)] {
            let error = DpdkError::NoMemory {
                what: "a pool".to_owned(),
                needed_mib: 100,
                memory: Memory {
                    mib: 300,
                    huge_pages,
                    free_mib: 0,
                    taken: TakenPages {
                        most: 700,
                        nodes: 1,
                    },
                },
            };
            let text = error.to_string();
            let words = format!("HUGE_PAGES_2M={pages} in /etc/karoo/host.conf,");
            assert!(text.contains(&words), "{text}");
            let words = format!("echo {pages} | sudo tee {MORE_PAGES}");
            assert!(text.ends_with(&words), "{text}");
        }
    }

    #[test]
    fn the_rule_for_names_is_the_one_that_holds() {
        for (max, length) in [(26, 27), (22, 23)] {
            let error = c_name("ring name", &"x".repeat(length), max).unwrap_err();
            let rule = format!("must have 1 to {max} bytes");
            assert!(error.to_string().contains(&rule), "{error}");
        }
    }
}

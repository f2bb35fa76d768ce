//! The signal that comes when a terminal is closed.

use std::fs;

/// Whether SIGHUP is ignored: what a process inherits, until it listens itself.
pub fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Has SIGHUP ignored from now on.
pub fn ignore_hangup() {
    // SAFETY: no handler is installed; one may be taken away.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

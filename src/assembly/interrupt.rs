//! Signals that end a command which has something to put right before.
#![allow(unsafe_code)]

use std::path::PathBuf;
use std::{fs, process};

use ground::StopFlag;

/// Exit code of a run that a second signal ended.
const INTERRUPTED: i32 = 130;

/// Whether SIGHUP is ignored: what a process inherits, until it listens itself.
pub fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Calls `then` at each SIGINT, SIGTERM and SIGHUP. Where whoever started this has SIGHUP ignored,
/// as nohup does, it stays so.
pub fn on_signal(then: impl FnMut() + Send + 'static) -> Result<(), ctrlc::Error> {
    let ignored = ignores_hangup();
    ctrlc::set_handler(then)?;
    if ignored {
        // SAFETY: no handler is installed, but one taken away.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
    Ok(())
}

/// Sets `stop` at the first signal, so that a run ends in order as a failed one. The second ends
/// the process at once, and takes the unfinished file with it.
pub fn stop_on_signal(stop: &StopFlag, part: Option<PathBuf>) {
    let stop = stop.clone();
    let handler = on_signal(move || {
        if stop.is_set() {
            if let Some(part) = &part {
                let _ = fs::remove_file(part);
            }
            process::exit(INTERRUPTED);
        }
        stop.set();
    });
    if let Err(error) = handler {
        tracing::warn!(%error, "an interrupt will leave an unfinished file");
    }
}

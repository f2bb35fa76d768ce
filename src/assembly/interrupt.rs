//! Signals that end a command which has something to put right before.

use std::path::PathBuf;
use std::{fs, process};

use ground::{StopFlag, os};

/// Exit code of a run that a second signal ended.
const INTERRUPTED: i32 = 130;

/// Calls `then` at each SIGINT, SIGTERM and SIGHUP. Where whoever started this has SIGHUP ignored,
/// as nohup does, it stays so.
pub fn on_signal(then: impl FnMut() + Send + 'static) -> Result<(), ctrlc::Error> {
    let ignored = os::ignores_hangup();
    ctrlc::set_handler(then)?;
    if ignored {
        os::ignore_hangup();
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

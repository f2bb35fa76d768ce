//! What DPDK logs: it goes to `tracing`, and its last lines are kept for errors.

use std::collections::VecDeque;
use std::ffi::c_char;
use std::sync::Mutex;

static RECENT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// The last lines that DPDK logged, oldest first.
pub(super) fn recent() -> Vec<String> {
    ground::lock(&RECENT).iter().cloned().collect()
}

/// Receives each log message of DPDK. Level 4 is a warning, smaller is worse.
pub(super) unsafe extern "C" fn take_line(level: u32, text: *const c_char, length: usize) {
    const KEPT: usize = 40;
    // SAFETY: the shim passes the bytes that the C library asked it to write.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    // Said of a folder for several processes, of which there is one.
    let level = if text.starts_with("EAL: Error creating '") {
        8
    } else {
        level
    };
    match level {
        0..=4 => tracing::warn!(target: "dpdk", "{text}"),
        5..=6 => tracing::info!(target: "dpdk", "{text}"),
        _ => tracing::debug!(target: "dpdk", "{text}"),
    }
    let mut recent = ground::lock(&RECENT);
    if recent.len() == KEPT {
        recent.pop_front();
    }
    recent.push_back(text.to_owned());
}

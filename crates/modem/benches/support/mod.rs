//! What the benches share.

use std::fs;

/// Seconds that this thread has run.
pub fn thread_seconds() -> f64 {
    // The kernel brings the count up to date when a thread yields, else every few milliseconds.
    std::thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    nanoseconds.map_or(f64::NAN, |ns: f64| ns / 1e9)
}

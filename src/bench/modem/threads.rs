//! CPU time of this process's threads.

use std::fs;

/// A thread as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Task(u64);

/// All threads of this process.
pub(super) fn tasks() -> Vec<Task> {
    let Ok(entries) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let numbers = entries.filter_map(Result::ok).filter_map(number);
    numbers.map(Task).collect()
}

/// Threads that are there now and were not among those `before`.
pub(super) fn new_tasks(before: &[Task]) -> Vec<Task> {
    let mut now = tasks();
    now.retain(|task| !before.contains(task));
    now
}

/// Seconds of a thread, by the place in its statistics: 0, those that it has run; 1, those that it
/// was ready to run and had no CPU.
fn seconds(path: &str, place: usize) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let field = text.split(' ').nth(place);
    let nanoseconds = field.and_then(|field| field.parse().ok());
    nanoseconds.map_or(0.0, |ns: f64| ns / 1e9)
}

impl Task {
    /// Seconds that it has run.
    pub fn seconds(self) -> f64 {
        seconds(&format!("/proc/self/task/{}/schedstat", self.0), 0)
    }

    /// Seconds that it was ready to run and had no CPU.
    pub fn without_cpu(self) -> f64 {
        seconds(&format!("/proc/self/task/{}/schedstat", self.0), 1)
    }
}

/// Seconds that the calling thread was ready to run and had no CPU.
pub(super) fn own_without_cpu() -> f64 {
    seconds("/proc/thread-self/schedstat", 1)
}

/// Seconds that the calling thread has run.
pub(super) fn own_seconds() -> f64 {
    // The kernel brings the count up to date when a thread yields, else every few milliseconds.
    std::thread::yield_now();
    seconds("/proc/thread-self/schedstat", 0)
}

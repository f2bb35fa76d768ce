//! Which CPUs a thread runs on, and under which scheduling policy.

use std::io;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// CPUs in this thread's affinity mask, in ascending order; CPU 0 if the mask cannot be read.
pub fn allowed_cpus() -> Vec<usize> {
    let cpus: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Lets this thread, and threads that it starts from now on, run on `cpus` alone.
///
/// Fails if none of the CPUs exists, or if the kernel's mask has no bit for one.
pub fn run_on(cpus: impl IntoIterator<Item = usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Moves this thread, and threads that it starts from now on, to SCHED_OTHER: ordinary threads that
/// share CPUs by time.
pub fn leave_real_time() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives through the call, whose other arguments are numbers.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

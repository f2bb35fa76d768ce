//! The data path in this process: DPDK's layer, and engines on rings and software ports.

#[path = "../support/mod.rs"]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

mod dpdk;
mod engine;
mod input_statistics;
mod live;
mod steering;

/// Holds the lcores of the process, which only one test at a time can launch.
fn lcores() -> MutexGuard<'static, ()> {
    static LCORES: Mutex<()> = Mutex::new(());
    LCORES.lock().unwrap_or_else(PoisonError::into_inner)
}

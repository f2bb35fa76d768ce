//! Measurements of this machine, for `karoo bench`.

use std::hint::spin_loop;
use std::thread;

pub mod chain;
pub mod cores;
pub mod engine;
pub mod kernels;
pub mod modem;
pub mod pairs;
pub mod ports;
pub mod queues;
pub mod search;

/// Does something until it says that it is done, at first without letting other threads run.
fn until(mut done: impl FnMut() -> bool) {
    for look in 0u32.. {
        if done() {
            return;
        }
        match look < 10_000 {
            true => spin_loop(),
            false => thread::yield_now(),
        }
    }
}

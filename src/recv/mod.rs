//! Receive: rx lcore loop, chunk window, presence, loss accounting.

pub mod window;
#[cfg(test)]
mod window_tests;

mod sync {
    pub use std::sync::atomic::{AtomicU64, Ordering};
}

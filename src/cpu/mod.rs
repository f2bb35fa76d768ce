//! CPU backend: vectorised, spread over pinned worker threads.

pub mod simd;

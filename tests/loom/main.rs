//! Model checks: every interleaving of the lock-free parts, whose sources are compiled here with
//! loom's atomics.

mod bell;
mod chunk;
mod latest;
mod sent_chunks;
mod window;

// For the sources that name what they need by these paths.
#[allow(unused_imports)]
use karoo::config;

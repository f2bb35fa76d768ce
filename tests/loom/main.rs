//! Model checks: every interleaving of the lock-free parts, whose sources are compiled here with loom's atomics.

mod departures;
mod window;

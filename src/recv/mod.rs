//! Receive: rx lcore loop, chunk window, presence, loss accounting.

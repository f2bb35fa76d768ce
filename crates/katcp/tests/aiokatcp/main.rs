//! aiokatcp as an independent judge, in both directions: its client against this crate's server,
//! and this crate's client against its server.
//!
//! Needs Python with aiokatcp: `python3`, or the program that `KAROO_PYTHON` names.

mod client;
mod python;
mod server;

//! spead2 as an independent judge, over UDP sockets, in both directions: its receiver takes this
//! crate's heaps, and this crate's receiver takes its heaps.
//!
//! Needs Python with spead2, which `KAROO_PYTHON` names.

mod python;
mod receive;
mod send;

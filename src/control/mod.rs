//! Control: the KATCP server.

pub mod katcp;

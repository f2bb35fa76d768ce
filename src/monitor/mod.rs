//! Counters, time per lcore, and the run report.

pub mod phases;
pub mod report;

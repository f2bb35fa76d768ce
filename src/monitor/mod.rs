//! Counters, time per lcore, and the run report.

pub mod report;

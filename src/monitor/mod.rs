//! Counters, time per lcore, and the run report.

pub mod counter;
pub mod html;
#[cfg(test)]
mod html_tests;
pub mod phases;
mod picture;
pub mod report;
pub mod spectra;
pub mod verdict;

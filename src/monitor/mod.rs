//! Counters, time per lcore, the run report, and metrics for Prometheus.

pub mod counter;
pub mod html;
#[cfg(test)]
mod html_tests;
pub mod latency;
pub mod liveness;
pub mod losses;
pub mod phases;
mod picture;
pub mod prometheus;
pub mod report;
pub mod scrape;
pub mod spectra;
pub mod verdict;

pub use scrape::Scrape;

//! Metrics for Prometheus.

mod engine;
pub mod scrape;

pub use engine::{Metrics, ports};
pub use scrape::Scrape;

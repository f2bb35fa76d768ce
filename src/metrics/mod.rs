//! Metrics for Prometheus.

mod engine;
pub mod scrape;

pub use engine::{EngineMetrics, ports};
pub use scrape::Scrape;

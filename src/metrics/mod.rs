//! Metrics for Prometheus.

mod engine;
pub mod scrape;
mod state;

pub use engine::{EngineMetrics, ports};
pub use scrape::{Scrape, site};
pub use state::EngineState;

//! Metrics for Prometheus.

mod age;
mod engine;
pub mod scrape;
mod state;

pub use age::old_after;
pub use engine::{EngineMetrics, ports};
pub use scrape::{Scrape, site};
pub use state::EngineState;

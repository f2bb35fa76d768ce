//! The same engines with and without somebody who looks, by turns.
//!
//! Each engine serves its metrics and its live page as a live engine does ([`serve`]). Viewers and
//! scrapers open connections of their own to them ([`clients`]). What looking costs is what the
//! latency and the losses of rounds with them differ by from those of rounds without ([`report`]).

mod clients;
mod report;
mod serve;

pub use clients::{Clients, LookCounts};
pub use report::{WatchedBench, WatchedLatency, WatchedRound};
pub use serve::{Servers, ShownEngine};

/// Number of the latency histogram of a round, behind that of the measurement at the full rate.
pub fn slot(round: usize, watched: bool) -> usize {
    1 + 2 * round + usize::from(watched)
}

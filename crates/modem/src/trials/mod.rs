//! Trials: frames through a channel into the receiver, and what theory expects of them.

mod interval;
mod run;
mod theory;

pub use interval::{Interval, clopper_pearson};
pub use run::{Trial, TrialError, TrialResult};
pub use theory::{bit_error_rate, mode_error_rate, required_eb_n0};

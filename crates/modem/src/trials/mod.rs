//! Trials: frames through a channel into the receiver, and what theory expects of them.

mod point;
mod run;
#[cfg(test)]
mod tests;
mod unequalised;

pub use crate::theory::{
    Interval, bit_error_rate, clopper_pearson, mode_error_rate, required_eb_n0,
};
pub use point::{TrialPoint, run_trials};
pub use run::{Trial, TrialError, TrialResult};

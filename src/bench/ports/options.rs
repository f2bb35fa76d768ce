//! Options of the bench.

use super::{PortsError, STAMP};
use crate::bench::search::parse_step;
use crate::config::heading;
use crate::config::units::{bytes, seconds};

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Search {
    /// One trial at --rate
    None,
    /// Bayesian bisection, with its confidence
    Noisy,
    /// Each rate must pass --repeats trials in a row
    Rfc2544,
}

/// Options of the bench.
#[derive(Clone, Debug, clap::Args)]
pub struct PortsOptions {
    /// Interface to send through
    #[arg(long, value_name = "IFACE", help_heading = heading::SEND)]
    pub send_interface: String,
    /// Interface to receive on
    #[arg(long, value_name = "IFACE", help_heading = heading::RECEIVE)]
    pub recv_interface: String,
    /// Rate in Gb/s of UDP payload; with a search the highest to try
    #[arg(long, value_name = "GBPS", default_value_t = 10.0, help_heading = heading::MEASURE)]
    pub rate: f64,
    /// Lowest rate of a search [default: a hundredth of --rate]
    #[arg(long, value_name = "GBPS", help_heading = heading::MEASURE)]
    pub lowest: Option<f64>,
    /// Step between the rates of a search, as a share from 0.001 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = parse_step, help_heading = heading::MEASURE)]
    pub step: f64,
    /// How to look for the highest rate at which nothing is lost
    #[arg(long, value_enum, default_value_t = Search::Noisy, help_heading = heading::MEASURE)]
    pub search: Search,
    /// How sure the noisy search is to be
    #[arg(long, value_name = "P", default_value_t = 0.95, help_heading = heading::MEASURE)]
    pub confidence: f64,
    /// Trials of the noisy search at most
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = heading::MEASURE)]
    pub trials: u32,
    /// Trials at each rate for RFC 2544
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = heading::MEASURE)]
    pub repeats: u32,
    /// Seconds of a trial
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds, help_heading = heading::MEASURE)]
    pub seconds: f64,
    /// Bytes of UDP payload of a packet; a digitiser's heap unless given
    #[arg(long, value_name = "BYTES", default_value_t = 5192, help_heading = heading::MEASURE)]
    pub payload: usize,
    /// Bytes that packets may wait in, at either end
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 25, value_parser = bytes, help_heading = heading::MEASURE)]
    pub buffer: usize,
    /// Report as JSON
    #[arg(long, help_heading = heading::RESULTS)]
    pub json: bool,
}

impl PortsOptions {
    /// Checks every rule; the first one broken is returned.
    pub(super) fn check(&self) -> Result<(), PortsError> {
        let refuse = |option, value, rule| {
            Err(PortsError::Option {
                option,
                value,
                rule,
            })
        };
        for (option, value) in [
            ("--rate", self.rate),
            ("--lowest", self.lowest.unwrap_or(1.0)),
            ("--seconds", self.seconds),
        ] {
            if !(value.is_finite() && value > 0.0 && value <= 1e5) {
                return refuse(option, value, "must be positive: try 1");
            }
        }
        if self.lowest.is_some_and(|lowest| lowest > self.rate) {
            let rule = "must not be above --rate: leave it out";
            return refuse("--lowest", self.lowest.unwrap_or(0.0), rule);
        }
        if !(0.5..1.0).contains(&self.confidence) {
            return refuse(
                "--confidence",
                self.confidence,
                "must be from 0.5 to below 1: try 0.95",
            );
        }
        if self.payload < STAMP {
            return refuse(
                "--payload",
                self.payload as f64,
                "must be 16 bytes at least: try 5192",
            );
        }
        if self.repeats == 0 {
            return refuse("--repeats", 0.0, "must be 1 at least: try 3");
        }
        Ok(())
    }
}

//! Options of the bench.

use super::{PortsError, STAMP};
use crate::bench::search::parse_step;
use crate::config::units::{bytes, seconds};
use crate::config::{ConfigError, heading};

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
        let refuse = |option: &str, value: f64, rule: &str, way_out: &str| {
            Err(ConfigError::new(option, value, rule, way_out).into())
        };
        for (option, value) in [
            ("--rate", self.rate),
            ("--lowest", self.lowest.unwrap_or(1.0)),
            ("--seconds", self.seconds),
        ] {
            if !(1e-9..=1e5).contains(&value) {
                return refuse(option, value, "must be from 1e-9 to 100000", "try 1");
            }
        }
        if self.lowest.is_some_and(|lowest| lowest > self.rate) {
            let (lowest, rule) = (self.lowest.unwrap_or(0.0), "must not be above --rate");
            return refuse("--lowest", lowest, rule, "leave it out");
        }
        if !(0.5..1.0).contains(&self.confidence) {
            let rule = "must be from 0.5 to below 1";
            return refuse("--confidence", self.confidence, rule, "try 0.95");
        }
        if self.payload < STAMP {
            let (payload, rule) = (self.payload as f64, "must be 16 bytes at least");
            return refuse("--payload", payload, rule, "try 5192");
        }
        if self.repeats == 0 {
            return refuse("--repeats", 0.0, "must be 1 at least", "try 3");
        }
        if self.trials == 0 {
            return refuse("--trials", 0.0, "must be 1 at least", "try 60");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    /// What is wrong with these options.
    fn refused(words: &[&str]) -> Option<String> {
        let command = PortsOptions::augment_args(Command::new("ports"));
        let usual = ["ports", "--send-interface=a", "--recv-interface=b"];
        let matches = command.try_get_matches_from(usual.iter().chain(words));
        let options = PortsOptions::from_arg_matches(&matches.unwrap()).unwrap();
        options.check().err().map(|error| error.to_string())
    }

    #[test]
    fn numbers_that_say_nothing_are_refused_with_their_range() {
        assert_eq!(refused(&[]), None);
        for (option, rule) in [
            ("--rate=200000", "must be from 1e-9 to 100000"),
            ("--rate=NaN", "must be from 1e-9 to 100000"),
            // So many rates fit no memory.
            ("--lowest=1e-300", "--lowest 1e-300: must be from 1e-9"),
            ("--lowest=20", "must not be above --rate"),
            ("--trials=0", "--trials 0: must be 1 at least"),
            ("--repeats=0", "--repeats 0: must be 1 at least"),
            ("--payload=15", "--payload 15: must be 16 bytes"),
        ] {
            let said = refused(&[option]).unwrap();
            assert!(said.contains(rule), "{option}: {said}");
        }
    }
}

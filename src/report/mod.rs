//! The report of a run: its data, its verdict, and the page with pictures.

pub mod data;
pub mod document;
pub mod error_rates;
mod figures;
mod gaps;
pub mod html;
#[cfg(test)]
mod html_tests;
pub mod levels;
pub mod modem;
mod picture;
pub mod qualification;
pub mod spectra;
pub mod verdict;

pub use data::{
    InputReport, METADATA, MeasuredGains, OutputReport, RateReport, Reply, RequestsReport,
    RunReport, StallReport,
};
pub use document::{Documented, to_json};

//! The report of a run: its data, its verdict, and the page with pictures.

pub mod data;
mod figures;
mod gaps;
pub mod html;
#[cfg(test)]
mod html_tests;
pub mod levels;
mod picture;
pub mod spectra;
pub mod verdict;

pub use data::{
    InputReport, OutputReport, RateReport, Reply, RequestsReport, RunReport, StallReport,
};

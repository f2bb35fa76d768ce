//! A live page of a running program: what it does, loses and sees, in any browser.
//!
//! A program describes what it has to show as a [`Document`] of [`Panel`]s: a verdict, figures,
//! spectra, waterfalls, histograms, bars, time series, tables, a log. The [`Site`] serves a page
//! that draws them, the documents themselves as JSON, once and as server-sent events, arrays as
//! `.npy`, files of the program's own, and metrics in text. Nothing comes from elsewhere: the page
//! works through an ssh tunnel.
//!
//! # Looking costs little
//!
//! * A [`Source`] is asked for a document once per tick, for all viewers together, on the thread
//!   that serves; without viewers it only keeps its history.
//! * A viewer that reads slowly skips documents. One that reads nothing is cut off.
//! * Viewers, pages and scrapes of metrics have connections of their own
//!   ([`Limits`](connections::Limits)), so that pages do not keep scrapes waiting.
//!
//! # Example
//!
//! ```
//! use live::{Array, Body, Document, Panel, Site, Source, State, Verdict};
//!
//! struct Pump;
//!
//! impl Source for Pump {
//!     fn note(&mut self) {}
//!
//!     fn document(&mut self) -> Document {
//!         let verdict = Verdict { text: "all well".to_owned(), ..Verdict::new(State::Well) };
//!         Document::new("pump", vec![Panel::new("verdict", "Verdict", Body::Verdict(verdict))])
//!     }
//!
//!     fn array(&mut self, _name: &str) -> Option<Array> {
//!         None
//!     }
//! }
//!
//! # async fn serve() -> std::io::Result<()> {
//! let listener = live::bind("127.0.0.1:8080".parse().unwrap())?;
//! Site::default().source(Pump).serve(listener).await
//! # }
//! ```
#![deny(unsafe_code)]

mod array;
pub mod connections;
mod document;
mod feed;
mod history;
mod reduce;
mod site;

pub use array::Array;
pub use document::{
    Arrow, Axis, Bar, Body, CauseShown, Document, Figure, HistogramSeries, LogEntry, Node, Panel,
    Part, PointSeries, SCHEMA, Series, Span, State, TimeSeries, VERSION, Verdict,
};
pub use feed::{Download, Source, TICK};
pub use history::{History, Within};
pub use reduce::{Reduced, decibels, reduce};
pub use site::{Site, bind, bind_all};

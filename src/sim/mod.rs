//! Digitiser simulator and fault injection.
//!
//! A [`signal`] is a function of the sample index, written in a small language. [`quantise`] turns
//! it into packed samples, [`window`] keeps one period of them, [`stream`] puts them into heaps and
//! packets, and [`faults`] are decorators between the two that lose, repeat, delay or damage heaps.
//! Packets go into a capture ([`Digitiser`]) or out of a port in real time ([`live`]).

mod caret;
pub mod config;
pub mod evaluate;
pub mod faults;
pub mod live;
pub mod parse;
pub mod progress;
pub mod quantise;
pub mod signal;
pub mod stream;
pub mod window;

pub use caret::ShownSignalError;
pub use config::{DigitiserConfig, SimError};
pub use faults::{Fault, FaultPlan, FaultPlanError};
pub use parse::{SignalError, parse};
pub use signal::{Signal, Term};
pub use stream::Digitiser;
pub use window::Windows;

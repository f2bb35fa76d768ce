//! The consumer's side of output streams while they come: what is lost, and whether the spectra are
//! right.
//!
//! * [`Tracker`]: one stream: which heaps are whole, in bounded memory;
//! * [`SinkLcore`]: the loop that receives;
//! * [`Checker`]: some heaps, held against the golden model;
//! * [`LiveReport`]: what came of it all.

mod ahead;
mod check;
mod ends;
mod heap;
mod lcore;
mod notes;
mod power;
mod report;
mod shape;
mod track;

pub use check::{Asked, CheckedSpectra, Checker, Inlet};
pub use lcore::{Seen, Shown, SinkLcore, SinkParts};
pub use power::{ChannelPowers, StreamView};
pub use report::{LiveReport, LiveStream};
pub use shape::Shape;
pub use track::{KeptHeap, Tracker};

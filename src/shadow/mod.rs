//! The shadow: what a running engine sends, held against what is computed here of the same input.
//!
//! ```text
//!                  ┌─► running engine ─► heaps ─► Listener ─┐
//! digitisers ─►────┤        │ KATCP: gains, delays          ├─► Pairs ─► Windows ─► News
//!                  └─► LiveEngine ◄── Follower              │
//!                           └─► batches ─► OurBatches ──────┘
//! ```
//!
//! * [`Follower`]: gains and delays of the running engine, given to that of this process;
//! * [`Listener`]: its heaps; [`OurBatches`]: what is computed here;
//! * [`Comparer`]: the thread that brings both together ([`Pairs`]), adds up ([`Sums`]), and judges
//!   ([`judge()`]) over times of some tenths of a second to ten seconds ([`Windows`]);
//! * [`Difference`]: what is told;
//! * [`ShadowReport`]: what came of it.

mod changes;
mod compare;
mod difference;
mod follow;
mod judge;
mod listen;
mod pairs;
mod report;
mod sums;
mod told;
mod windows;

use crate::assembly::Demand;
use crate::config::EngineConfig;

pub use changes::Changes;
pub use compare::{Compared, Comparer, ComparerHandle};
pub use difference::{ChannelRange, Difference, Moment, News};
pub use follow::{FollowError, Followed, Follower, Target};
pub use judge::{Finding, Guess, judge};
pub use listen::{Heard, Listener, Newest};
pub use pairs::{Half, Inlet, OurBatches, Outlet, Pair, Pairs, Selection, queue};
pub use report::{ComparedStream, ShadowReport};
pub use sums::{Cell, Sums};
pub use told::ToldError;
pub use windows::{WindowCounts, Windows};

/// What the comparison takes of the host's memory at most, beside the engine of this process.
pub fn demands(engine: &EngineConfig) -> Vec<Demand> {
    let demand = |what: String, bytes| Demand {
        what,
        bytes,
        option: String::new(),
        value: 0,
    };
    let waiting = pairs::most_bytes(engine);
    let waiting = demand("heaps that wait to be compared".to_owned(), waiting);
    let sums = engine.outputs.iter().map(|output| {
        let what = format!("the comparison's sums of '{}'", output.name);
        demand(what, windows::most_bytes(output))
    });
    [waiting].into_iter().chain(sums).collect()
}

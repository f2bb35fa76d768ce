//! The ground floor of Karoo: what every crate and room may use, and what uses none of them.
//!
//! | to | use |
//! |---|---|
//! | count time in samples | [`Timestamp`], [`SampleClock`] |
//! | measure time | [`tsc`], [`TscClock`]; tests bring [`Ticks`] of their own |
//! | idle in a polling loop | [`Idle`] with an [`IdlePolicy`] |
//! | sleep where nothing comes, and be woken | [`Sleeper`] and a [`Bell`] |
//! | ask threads to end | [`StopFlag`] |
//! | say where a thread's time goes | [`stats::PhaseTimer`], read through [`stats::PhaseTimes`] |
//! | take the median of what was measured | [`stats::median()`] |
//! | notice threads that hang | [`stats::Liveness`] |
//! | write several words that another thread reads whole, without a lock | [`Latest`] |
//! | lock a mutex whose holder may have panicked | [`lock()`] |
//! | pin threads, prefer a NUMA node, map memory | [`os`] |
//! | read a file that a user named | [`files::read_text`] |
//! | write one that appears whole or not at all | [`files::WholeFile`], [`files::write_whole`] |
//! | say how many of something there are | [`counted`], [`plural`], [`grouped`] |
//! | say which version runs | [`karoo_version()`], [`karoo_commit()`]; a program sets its commit |
//!
//! A data thread books its time, and another thread reads the books:
//!
//! ```
//! use ground::TscClock;
//! use ground::stats::{Phase, PhaseTimer, PhaseTimes};
//!
//! let times = PhaseTimes::new("rx0", None);
//! let mut timer = PhaseTimer::start(times.clone());
//! timer.mark(Phase::Work);
//! timer.turn();
//! let report = times.report(TscClock::new(1_000_000_000));
//! assert_eq!(report.name, "rx0");
//! assert_eq!(times.progress(), Some(1));
//! ```
#![deny(unsafe_code)]

mod bell;
pub mod files;
mod idle;
mod latest;
#[cfg(test)]
mod latest_tests;
mod lock;
pub mod os;
pub mod stats;
mod stop;
mod tsc;
mod units;
mod version;
mod words;

mod sync {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    pub use std::sync::{Condvar, Mutex};
}

pub use bell::Bell;
pub use idle::{Idle, IdlePolicy, Sleeper};
pub use latest::Latest;
pub use lock::lock;
pub use stop::{StopFlag, StopOnPanic};
pub use tsc::{Ticks, Tsc, TscClock, tsc};
pub use units::{N_POL, SampleClock, Timestamp};
pub use version::{KAROO_VERSION, karoo_commit, karoo_version, set_commit};
pub use words::{counted, grouped, plural};

//! The modem's streams of samples: where they come from and go to, as bytes or as packets of
//! VITA 49.2 through sockets, DPDK ports and capture files.
//!
//! ```text
//! socket | port (lcore) | capture ─► Intake: StreamReader ─► blocks of samples, gaps as zeros
//! samples ─► Outlet: StreamWriter ─► pace ─► losses ─► socket | port (lcore) | capture
//! ```
//!
//! A [`Watcher`] sees what a receiver does, and a [`ModemPage`] shows it.

mod eye;
mod intake;
mod losses;
mod outlet;
mod pace;
mod page;
mod place;
mod sockets;
#[cfg(test)]
mod tests;
mod verdict;
mod watch;

pub use intake::{Block, Intake, IntakeCounts, IntakeSettings, Taken};
pub use losses::{Losses, LossesLeft};
pub use outlet::{Outlet, OutletCounts, OutletSettings};
pub use pace::Pace;
pub use page::ModemPage;
pub use place::{Place, PlaceError};
pub use watch::{FirstSent, Watcher};

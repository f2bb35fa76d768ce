//! The host of a streaming application: what it is made of, which thread and buffer goes where on
//! it, and how it is tuned.
//!
//! | to | use |
//! |---|---|
//! | read a host's CPUs, nodes, NICs and GPUs | [`topology::Machine`] |
//! | place the threads and buffers of engines | [`placement::plan`] |
//! | read what the processors take | [`energy::PackageEnergy`] |
//! | check and change settings of the host | [`tuning::check`], [`tuning::apply`] |
//!
//! Everything is read below a [`topology::Root`], so that a recorded host can be planned for and
//! checked on another one:
//!
//! ```
//! use host::placement::{Wishes, plan};
//! use host::topology::{CpuList, Machine};
//!
//! // A host of which nothing but its eight CPUs is known.
//! let machine = Machine::unknown(&(0..8).collect());
//! let engine = Wishes { rx: vec![None; 2], tx_lcores: 1, ..Wishes::default() };
//! let allowed: CpuList = "0-7".parse().unwrap();
//! let plan = plan(&machine, &[engine], &allowed, None);
//! assert_eq!(plan.engines[0].housekeeping.to_string(), "0");
//! assert_eq!(plan.engines[0].lcore_cpus(), [1, 2, 3, 4]);
//! ```
#![deny(unsafe_code)]

pub mod energy;
pub mod placement;
pub mod topology;
pub mod tuning;

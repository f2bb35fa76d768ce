//! The assembly of an engine: which lcores there are between its rx queues and its tx queues.
//!
//! * [`take`]: what computes, and in which memory; [`outputs`]: the output chunks behind it;
//! * [`Demand`]: whether it fits the memory that there is;
//! * [`Threads`]: data threads on lcores, named and timed; one that fails ends them all;
//! * [`Stages`]: the rx lcores, engine and tx lcores of one engine, for a replay and for live operation alike;
//! * [`CaptureScan`]: what the head of a capture tells about it; [`SourceLcore`]: a capture into rx queues;
//! * [`Interface`], [`PortUse`], [`Membership`]: interfaces of this host, as ports, in multicast groups;
//! * [`locate`], [`Preset`]: which driver is best for an interface, and what it is told;
//! * [`Interfaces`]: those of an engine, and what each is for;
//! * [`Links`]: whether the ports' links are up;
//! * [`Throttle`]: whether the kernel would stop its threads;
//! * [`LiveEngine`]: all of it, for one engine on live ports, on the CPUs that its [`EnginePlan`](crate::plan::EnginePlan) says.
//! * [`drain`]: how long its end may take.

mod compute;
mod demand;
mod drain;
mod igmp;
mod interface;
mod interfaces;
mod links;
mod port;
mod preset;
mod realtime;
mod resolve;
mod run;
mod scan;
mod source;
mod stages;
mod threads;

pub use compute::{Backend, Compute, ComputeError, OUTPUT_CHUNKS, Taken, Wanted, outputs, take};
pub use demand::{Demand, DemandError};
pub use drain::drain;
pub use igmp::{ControlQueues, IgmpThread};
pub use interface::{Interface, InterfaceError, Memberships};
pub use interfaces::Interfaces;
pub use links::Links;
pub use port::{Membership, OpenPort, PortError, PortUse};
pub use preset::{Preset, PresetError, devices};
pub use realtime::Throttle;
pub use resolve::{Driver, LocateError, Located, locate};
pub use run::{LiveEngine, LiveError, LiveParts};
pub use scan::{CaptureScan, ScanError};
pub use source::{Feed, Progress, SourceLcore};
pub use stages::{Ended, RxStage, StageError, StageIdle, StageParts, Stages};
pub use threads::{Threads, run_on};

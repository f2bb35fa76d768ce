//! The assembly of an engine: which lcores there are between its rx queues and its tx queues.
//!
//! * [`open_backend`]: what computes, and in which memory;
//! * [`EngineBuilder`]: an engine put together, with all of its memory;
//! * [`EngineReadings`]: what metrics and pages read of a running engine;
//! * [`Demand`]: whether the engine fits the memory that there is;
//! * [`Threads`]: data threads on lcores, named and timed; one that fails ends them all;
//! * [`Stages`]: the rx lcores, engine and tx lcores of one engine, live or in a replay;
//! * [`CaptureScan`]: what the head of a capture says; [`SourceLcore`]: a capture into rx queues;
//! * [`Throttle`]: whether the kernel would stop the engine's threads;
//! * [`drain`]: how long the engine's end may take;
//! * [`EnergyMeter`]: what the GPU and the host's processors take;
//! * [`stop_on_signal`]: a run that a signal ends in order.

mod builder;
mod compute;
mod demand;
mod drain;
mod energy;
mod interrupt;
mod readings;
mod realtime;
mod scan;
mod source;
mod stages;
mod threads;

pub use builder::{BuiltEngine, BusyTimes, EngineBuilder, OutputPools, RunningEngine};
pub use compute::{
    BackendKind, BackendRequest, Compute, ComputeError, GpuName, OpenedBackend, open_backend,
    outputs,
};
pub use demand::{Available, Demand, DemandError};
pub use drain::drain;
pub use energy::{DeviceEnergy, EnergyMeter};
pub use interrupt::{on_signal, stop_on_signal};
pub use readings::EngineReadings;
pub use realtime::Throttle;
pub use scan::{CaptureScan, ScanError};
pub use source::{CaptureFeed, CaptureProgress, SourceLcore};
pub use stages::{FinishedStages, Reception, RxStage, StageError, StageIdle, Stages, Transmission};
pub use threads::Threads;

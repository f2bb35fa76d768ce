//! The live engine: one F-engine on live ports, or fed from a capture file.
//!
//! * [`Interfaces`]: the interfaces of an engine, and what each is for;
//! * [`LiveEngine`]: all of the engine, on the CPUs that its
//!   [`EnginePlan`](host::placement::EnginePlan) names.

mod interfaces;
mod run;

pub use interfaces::{Interfaces, Payload, received_payload, sent_payload};
pub use run::{LiveEngine, LiveError, LiveParts};

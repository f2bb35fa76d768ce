//! Options to validated, typed engine configuration.
//!
//! Nothing starts before [`EngineConfig::validate`](engine::EngineConfig) has accepted everything;
//! a refusal names the option, the value, the rule and a value that would do.

mod engine;

pub use engine::{
    Dither, EngineConfig, OutputConfig, RecvConfig, SampleBits, SendConfig, WindowFunction,
};

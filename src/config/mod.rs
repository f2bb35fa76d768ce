//! Options to validated, typed engine configuration.
//!
//! Nothing starts before [`EngineConfig::validate`] has accepted everything; a refusal names the
//! option, the value, the rule and a value that would do.

mod capture_end;
mod decision;
mod doubt;
mod engine;
mod error;
mod fgpu;
#[cfg(test)]
mod fgpu_tests;
mod file;
#[cfg(test)]
mod file_tests;
mod gain;
pub mod heading;
mod ignored;
mod live;
mod narrowband;
mod options;
mod outputs;
mod prototype;
mod serve;
mod suboptions;
mod synthesis;
pub mod units;
mod validate;

pub use capture_end::check_capture_end;
pub use decision::Decision;
pub use doubt::{doubt_about_rate, doubt_about_sync_time};
pub use engine::{EngineConfig, OutputConfig, PipelineConfig, RecvConfig, SendConfig};
pub use error::ConfigError;
pub use fgpu::{Cpu, CpuError, FgpuOptions, List, MAX_SEND_INTERFACES};
pub use file::{FileError, arguments, to_toml};
pub use gain::{GainOption, GainOptionError};
pub use ignored::IgnoredOptions;
pub use live::{EgressConfig, FgpuConfig, InputConfig};
pub use narrowband::{Narrowband, NarrowbandSpec};
pub use options::{CaptureOptions, EngineOptions, InitialDelays, parse_delays};
pub use outputs::{JONES_PER_BATCH, NarrowbandOptions, WidebandOptions, with_output_keys};
pub use prototype::PrototypeOptions;
pub use serve::{AiomonitorOptions, ServeOptions};
pub use synthesis::SynthesisOptions;
pub use validate::{check_rate, check_sync_time};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use dsp::SampleBits;
    use ground::SampleClock;

    /// A valid engine with one wideband output, changed as the test needs.
    pub(crate) fn engine(wideband: &str, change: impl FnOnce(&mut EngineConfig)) -> EngineConfig {
        let output: WidebandOptions = wideband.parse().expect("a test's own options");
        let output = output.into_config(1 << 20, 0);
        let mut config = EngineConfig {
            clock: SampleClock {
                adc_sample_rate: 1712e6,
                sync_time: 1_763_700_000.0,
            },
            feng_id: 0,
            array_size: 64,
            recv: RecvConfig {
                packet_samples: 4096,
                sample_bits: SampleBits::new(10).expect("10 bits"),
                chunk_samples: 1 << 22,
                mask_timestamp: false,
            },
            send: SendConfig {
                packet_payload: 8192,
                chunk_jones: output.jones_per_batch,
                ttl: 4,
            },
            max_delay_diff: 1 << 20,
            gain: 1.0,
            statistics_period: 0.0,
            outputs: vec![output],
        };
        change(&mut config);
        config
    }
}

//! CPU backend: vectorised, spread over pinned worker threads.
//!
//! Work is cut into groups of consecutive spectra. For wideband, one worker takes a group through
//! unpacking and the PFB FIR (both in tiles of columns that stay in L1), one complex FFT per
//! spectrum that holds both polarisations (polarisation 0 in the real part, 1 in the imaginary
//! part), and post-processing, which takes the two spectra apart, applies delay, phase and gain,
//! dithers and quantises, and at last transposes into wire layout in whole cache lines.
//!
//! For narrowband, the input of a block first goes through mixer and filter (unpacking in tiles
//! that stay in L1), which leaves one complex number per `subsampling` samples; FIR and FFT are
//! then complex, one for each polarisation.
//!
//! No result depends on how the work was cut: the arithmetic of a sample is the same in every
//! group, on every worker and at every [`Level`].

mod channeliser;
mod coefficients;
mod down;
mod group;
mod intake;
mod meter;
mod offline;
mod oversampled;
pub mod simd;
mod sums;
mod workers;

use std::sync::Arc;

pub use channeliser::CpuChanneliser;
pub use intake::CpuIntake;
pub use meter::{PowerMeter, SpectraRun};
pub use offline::channelise;
pub use simd::Level;
pub use workers::{Workers, WorkersError};

use crate::config::{EngineConfig, OutputConfig};
use crate::engine::{Backend, Pipeline};

/// Everything that computes for an engine of this configuration.
pub fn backend(engine: &EngineConfig, workers: &Arc<Workers>) -> Backend {
    let pipeline = |output: &OutputConfig| -> Box<dyn Pipeline> {
        Box::new(CpuChanneliser::new(
            &engine.pipeline(output),
            workers.clone(),
        ))
    };
    Backend {
        intake: Box::<CpuIntake>::default(),
        pipelines: engine.outputs.iter().map(pipeline).collect(),
    }
}

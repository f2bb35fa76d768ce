//! CPU backend: vectorised, spread over pinned worker threads.
//!
//! Work is cut into groups of consecutive spectra. One worker takes a group through unpacking and
//! the PFB FIR (both in tiles of columns that stay in L1), one complex FFT per spectrum that holds
//! both polarisations (polarisation 0 in the real part, 1 in the imaginary part), and
//! post-processing, which takes the two spectra apart, applies delay, phase and gain, dithers and
//! quantises, and at last transposes into wire layout in whole cache lines.
//!
//! No result depends on how the work was cut: the arithmetic of a sample is the same in every
//! group, on every worker and at every [`Level`].

mod coefficients;
mod group;
mod intake;
pub mod simd;
mod wideband;
mod workers;

use std::sync::Arc;

pub use intake::Intake;
pub use simd::Level;
pub use wideband::Wideband;
pub use workers::{Workers, WorkersError};

use crate::config::{EngineConfig, OutputConfig};
use crate::engine::{Backend, Pipeline};

/// Everything that computes for an engine of this configuration.
pub fn backend(engine: &EngineConfig, workers: &Arc<Workers>) -> Backend {
    let pipeline = |output: &OutputConfig| -> Box<dyn Pipeline> {
        Box::new(Wideband::new(
            output,
            engine.recv.sample_bits,
            engine.feng_id,
            engine.gain,
            workers.clone(),
        ))
    };
    Backend {
        intake: Box::<Intake>::default(),
        pipelines: engine.outputs.iter().map(pipeline).collect(),
    }
}

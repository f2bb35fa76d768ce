//! What a replay keeps of its output for the report's pictures.

use std::sync::{Arc, Mutex};

use crate::config::OutputConfig;
use crate::engine::ChunkObserver;
use crate::memory::OutputMemory;
use crate::report::spectra::SpectraAccumulator;

/// Accumulates the spectra of one output's batches.
pub struct SpectraObserver {
    batch_samples: u64,
    spectra: Arc<Mutex<SpectraAccumulator>>,
}

impl SpectraObserver {
    /// The observer, and where its result will be.
    pub fn new(config: &OutputConfig) -> (Self, Arc<Mutex<SpectraAccumulator>>) {
        let spectra = Arc::new(Mutex::new(SpectraAccumulator::of(config)));
        let batch_samples = config.batch_samples() as u64;
        (
            Self {
                batch_samples,
                spectra: spectra.clone(),
            },
            spectra,
        )
    }
}

impl ChunkObserver for SpectraObserver {
    fn observe(&mut self, chunk: &OutputMemory) {
        let mut spectra = ground::lock(&self.spectra);
        for batch in (0..chunk.capacity()).filter(|&batch| chunk.present(batch)) {
            let timestamp = chunk.start() + batch as u64 * self.batch_samples;
            spectra.add_batch(timestamp, chunk.batch(batch));
        }
    }
}

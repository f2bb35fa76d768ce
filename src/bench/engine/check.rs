//! The heaps that the sinks kept, held against the golden model.

use rayon::prelude::*;
use rustfft::num_complex::Complex32;
use serde::Serialize;

use super::signal::Signal;
use super::sink::KeptHeap;
use crate::config::EngineConfig;
use crate::dsp::model::Model;
use crate::units::Timestamp;

/// Share of bytes that may differ from the model, by one: rounding in single precision near a tie.
const TOLERATED: f64 = 1e-3;

/// What came of comparing heaps with the model.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Checked {
    /// Heaps compared.
    pub heaps: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes that differ.
    pub differing: u64,
    /// Largest difference.
    pub worst: u64,
}

impl Checked {
    /// Whether the contents are right: at most one in a thousand values differs, and none by more than one.
    pub fn right(&self) -> bool {
        self.worst <= 1 && self.differing as f64 <= TOLERATED * self.bytes as f64
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            heaps: self.heaps + other.heaps,
            bytes: self.bytes + other.bytes,
            differing: self.differing + other.differing,
            worst: self.worst.max(other.worst),
        }
    }
}

/// Compares heaps of one engine, whose delays are zero, with the model.
pub fn check(config: &EngineConfig, signal: &Signal, kept: &[KeptHeap]) -> Checked {
    let model = Model::new(&config.outputs[0], config.feng_id);
    let one = |heap: &KeptHeap| check_heap(config, &model, signal, heap);
    kept.par_iter()
        .map(one)
        .reduce(Checked::default, Checked::and)
}

fn check_heap(config: &EngineConfig, model: &Model, signal: &Signal, heap: &KeptHeap) -> Checked {
    let output = &config.outputs[0];
    let end = heap.timestamp + (output.batch_samples() + output.window_samples()) as u64;
    let pols = [0, 1].map(|pol| signal.samples(pol, heap.timestamp, end));
    let source = |pol: usize, t: u64| {
        let (start, samples) = &pols[pol];
        samples[(t - start) as usize]
    };
    let gains = [0, 1].map(|_| vec![Complex32::from(config.gain as f32); output.channels]);
    let timestamp = Timestamp(heap.timestamp);
    let batch = model.batch(&source, timestamp, &Default::default(), &gains);
    let expected = &batch.data[heap.substream * output.heap_bytes()..][..output.heap_bytes()];
    let differences = heap.data.iter().zip(expected);
    let differences =
        differences.map(|(&got, &expected)| u64::from((got as i8).abs_diff(expected)));
    differences.fold(
        Checked {
            heaps: 1,
            ..Checked::default()
        },
        |checked, difference| Checked {
            heaps: 1,
            bytes: checked.bytes + 1,
            differing: checked.differing + u64::from(difference > 0),
            worst: checked.worst.max(difference),
        },
    )
}

//! The heaps that the sinks kept, held against the golden model.

use dsp::delay::DelayModels;
use ground::Timestamp;
use num_complex::Complex32;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::signal::BenchSignal;
use super::sink::BenchHeap;
use crate::config::{EngineConfig, OutputConfig};
use crate::model::Model;

/// Share of bytes that may differ from the model, by one: rounding in single precision near a tie.
const TOLERATED: f64 = 1e-3;

/// What came of comparing heaps with the model.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct BenchCheck {
    /// Heaps compared.
    pub heaps: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes that differ.
    pub differing: u64,
    /// Largest difference.
    pub worst: u64,
}

impl BenchCheck {
    /// Whether the contents are right: at most one in a thousand values differs, and none by more
    /// than one.
    pub fn is_right(&self) -> bool {
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

/// Compares heaps of an output of one engine, whose delays are zero, with the model.
pub fn check(
    config: &EngineConfig,
    output: usize,
    signal: &BenchSignal,
    kept: &[BenchHeap],
) -> BenchCheck {
    let output = &config.outputs[output];
    let model = Model::new(output, config.feng_id);
    let gain = Complex32::from(config.gain as f32);
    // The model of narrowband takes long.
    let some = match output.narrowband {
        None => kept,
        Some(_) => &kept[..kept.len().min(1)],
    };
    let one = |heap: &BenchHeap| check_heap(output, gain, &model, signal, heap);
    some.par_iter()
        .map(one)
        .reduce(BenchCheck::default, BenchCheck::and)
}

fn check_heap(
    output: &OutputConfig,
    gain: Complex32,
    model: &Model,
    signal: &BenchSignal,
    heap: &BenchHeap,
) -> BenchCheck {
    let end = heap.timestamp + (output.batch_samples() + output.window_samples()) as u64;
    let pols = [0, 1].map(|pol| signal.samples(pol, heap.timestamp, end));
    let source = |pol: usize, t: u64| {
        let (start, samples) = &pols[pol];
        samples[(t - start) as usize]
    };
    let gains = [0, 1].map(|_| vec![gain; output.channels]);
    let subsampling = output.subsampling() as u32;
    let delays = [0, 1].map(|_| DelayModels::with_subsampling(subsampling));
    let timestamp = Timestamp(heap.timestamp);
    let batch = model.batch(&source, timestamp, &delays, &gains);
    let expected = &batch.data[heap.substream * output.heap_bytes()..][..output.heap_bytes()];
    let mut checked = BenchCheck {
        heaps: 1,
        ..BenchCheck::default()
    };
    for (&got, &expected) in heap.data.iter().zip(expected) {
        let difference = u64::from((got as i8).abs_diff(expected));
        checked.bytes += 1;
        checked.differing += u64::from(difference > 0);
        checked.worst = checked.worst.max(difference);
    }
    checked
}

//! Delays, gains and counters of whole engines: katgpucbf's functional tests, restated, and
//! requests at their times.
//!
//! Expected values come from formulas about tones and from the model in double precision. What runs
//! on the CPU runs on a GPU too, if there is one.

mod applied;
mod counters;
mod levels;
mod requests;
mod tones;

use karoo::config::OutputConfig;
use num_complex::Complex64;

/// One value of a batch in wire layout.
fn value(
    output: &OutputConfig,
    batch: &[i8],
    channel: usize,
    spectrum: usize,
    pol: usize,
) -> Complex64 {
    let at = ((channel * output.spectra_per_heap() + spectrum) * 2 + pol) * 2;
    Complex64::new(batch[at].into(), batch[at + 1].into())
}

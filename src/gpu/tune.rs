//! Picks the kernels of an output.

use super::form::{Fft, Form, Kernels, Tune};
use super::shape::Shape;
use super::{Gpu, GpuError};
use crate::config::OutputConfig;

/// The kernels that `wanted` comes to for `output`.
pub(super) fn pick(gpu: &Gpu, output: &OutputConfig, wanted: &Kernels) -> Result<Form, GpuError> {
    if wanted.fft == Fft::Cufft {
        return Ok(Form::Cufft);
    }
    let candidates = Shape::candidates(output.channels, gpu.shared());
    let Some(&first) = candidates.first() else {
        tracing::warn!(
            channels = output.channels,
            shared = gpu.shared(),
            "no fused kernels for so many channels in so much shared memory per block: cuFFT instead"
        );
        return Ok(Form::Cufft);
    };
    match &wanted.tune {
        Tune::Fixed(name) => {
            let named = candidates.iter().find(|shape| shape.to_string() == *name);
            let known = || {
                let names: Vec<_> = candidates.iter().map(Shape::to_string).collect();
                names.join(" and ")
            };
            Ok(Form::Fused(*named.ok_or_else(|| GpuError::Shape {
                shape: name.clone(),
                channels: output.channels,
                known: known(),
            })?))
        }
        _ => Ok(Form::Fused(first)),
    }
}

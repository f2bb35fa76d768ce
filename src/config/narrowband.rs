//! What makes an output a narrowband one.

use std::sync::Arc;

use crate::dsp::ddc::FilterSpec;
use crate::dsp::mixer::Mixer;
use crate::dsp::remez::RemezError;
use crate::units::Clock;

/// The digital down-conversion in front of a PFB (what it computes: [`dsp::ddc`](crate::dsp::ddc)).
#[derive(Clone, Debug, serde::Serialize)]
pub struct Narrowband {
    /// Centre of the band in hertz above 0 Hz of the digitised band.
    pub centre_frequency: f64,
    /// By how much the output band is narrower than the digitised one (D).
    pub decimation: usize,
    /// Width of the pass band in hertz. Given, no channel is discarded, and those outside of the pass band have
    /// aliases. Without, the transform is twice as wide as the output band, and its outer half is discarded.
    pub pass_bandwidth: Option<f64>,
    /// Weight of the pass band in the design of the filter.
    pub weight_pass: f64,
    /// The filter h: L coefficients, earliest sample first, symmetric, exact in single precision.
    #[serde(skip)]
    pub filter: Arc<[f32]>,
    /// The mixer in front of it.
    #[serde(skip)]
    pub mixer: Mixer,
}

/// The options of a narrowband output that say what its down-conversion is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrowbandSpec {
    /// As [`Narrowband::centre_frequency`].
    pub centre_frequency: f64,
    /// As [`Narrowband::decimation`].
    pub decimation: usize,
    /// Taps of the filter (L); 16 per sample of its output (16·S) where it is `None`.
    pub ddc_taps: Option<usize>,
    /// As [`Narrowband::weight_pass`].
    pub weight_pass: f64,
    /// As [`Narrowband::pass_bandwidth`].
    pub pass_bandwidth: Option<f64>,
}

impl NarrowbandSpec {
    /// ADC samples per sample of the filter's output (S): D where the outer half is discarded, else 2D.
    pub fn subsampling(&self) -> usize {
        match self.pass_bandwidth {
            None => self.decimation,
            Some(_) => self.decimation.saturating_mul(2),
        }
    }

    /// Taps of the filter.
    pub fn taps(&self) -> usize {
        self.ddc_taps
            .unwrap_or(self.subsampling().saturating_mul(16))
    }
}

impl Narrowband {
    /// Designs the filter and sets up the mixer, for samples of `clock`'s rate.
    pub fn new(spec: &NarrowbandSpec, clock: Clock) -> Result<Self, RemezError> {
        let output_bandwidth = clock.adc_sample_rate / 2.0 / spec.decimation as f64;
        let filter = FilterSpec {
            taps: spec.taps(),
            subsampling: spec.subsampling(),
            weight_pass: spec.weight_pass,
            pass_fraction: spec.pass_bandwidth.map(|pass| pass / output_bandwidth),
        };
        Ok(Self {
            centre_frequency: spec.centre_frequency,
            decimation: spec.decimation,
            pass_bandwidth: spec.pass_bandwidth,
            weight_pass: spec.weight_pass,
            filter: filter.design()?.into(),
            mixer: Mixer::new(spec.centre_frequency, clock.adc_sample_rate),
        })
    }

    /// ADC samples per sample of the filter's output (S).
    pub fn subsampling(&self) -> usize {
        match self.pass_bandwidth {
            None => self.decimation,
            Some(_) => self.decimation.saturating_mul(2),
        }
    }

    /// Taps of the filter (L).
    pub fn ddc_taps(&self) -> usize {
        self.filter.len()
    }
}

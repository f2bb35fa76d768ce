//! What makes an output a narrowband one.

use std::sync::Arc;

use dsp::ddc::FilterSpec;
use dsp::mixer::Mixer;
use dsp::remez::RemezError;
use ground::SampleClock;

/// The digital down-conversion in front of a PFB (what it computes: [`dsp::ddc`](dsp::ddc)).
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Narrowband {
    /// Centre of the band in hertz above 0 Hz of the digitised band.
    pub centre_frequency: f64,
    /// By how much the output band is narrower than the digitised one (D).
    pub decimation: usize,
    /// Width of the pass band in hertz. Given, no channel is discarded, and those outside of the
    /// pass band have aliases. Without, the transform is twice as wide as the output band, and its
    /// outer half is discarded.
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

/// ADC samples per sample of the filter's output (S): D where the outer half is discarded, else 2D.
fn subsampling(decimation: usize, pass_bandwidth: Option<f64>) -> usize {
    match pass_bandwidth {
        None => decimation,
        Some(_) => decimation.saturating_mul(2),
    }
}

impl NarrowbandSpec {
    /// ADC samples per sample of the filter's output (S).
    pub fn subsampling(&self) -> usize {
        subsampling(self.decimation, self.pass_bandwidth)
    }

    /// Taps of the filter.
    pub fn taps(&self) -> usize {
        self.ddc_taps
            .unwrap_or(self.subsampling().saturating_mul(16))
    }
}

impl Narrowband {
    /// Designs the filter and sets up the mixer, for samples of `clock`'s rate.
    pub fn new(spec: &NarrowbandSpec, clock: SampleClock) -> Result<Self, RemezError> {
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

    /// The same of another band, as wide: it has the same filter.
    pub fn centred(&self, centre_frequency: f64, clock: SampleClock) -> Self {
        Self {
            centre_frequency,
            mixer: Mixer::new(centre_frequency, clock.adc_sample_rate),
            ..self.clone()
        }
    }

    /// ADC samples per sample of the filter's output (S).
    pub fn subsampling(&self) -> usize {
        subsampling(self.decimation, self.pass_bandwidth)
    }

    /// Taps of the filter (L).
    pub fn ddc_taps(&self) -> usize {
        self.filter.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NarrowbandOptions, OutputConfig};
    use super::*;

    fn output(keys: &str) -> OutputConfig {
        let text = format!("name=n,channels=64,dst=239.1.1.1,centre_frequency=408e6,{keys}");
        let options: NarrowbandOptions = text.parse().expect("options");
        let clock = SampleClock {
            adc_sample_rate: 1712e6,
            sync_time: 0.0,
        };
        options.into_config(1 << 20, 0, clock).expect("an output")
    }

    /// Reference: derived quantities, group delays, and the defaults of ddc_taps.
    #[test]
    fn what_follows_from_the_options_is_the_references() {
        let discard = output("decimation=16");
        assert_eq!((discard.subsampling(), discard.pfb_step()), (16, 128));
        assert_eq!(discard.spectrum_samples(), 2 * 64 * 16);
        assert_eq!(discard.window_samples(), 16 * 2048 + 256 - 16);
        assert_eq!(discard.batch_samples(), (2 * 16) << 20);
        let bins = [0, 31, 32, 63].map(|c| discard.bin(c));
        assert_eq!(bins, [96, 127, 0, 31]);
        assert_eq!(
            discard.pfb_group_delay(),
            -(128.0 * 16.0 - 1.0) / 2.0 * 16.0
        );
        assert_eq!(discard.ddc_group_delay(), -127.5);
        assert_eq!(discard.band(1712e6), 381.25e6..434.75e6);

        let whole = output("decimation=16,pass_bandwidth=32e6");
        assert_eq!((whole.subsampling(), whole.pfb_step()), (32, 64));
        assert_eq!(whole.spectrum_samples(), 2 * 64 * 16);
        assert_eq!(whole.window_samples(), 16 * 2048 + 512 - 32);
        assert_eq!([0, 31, 32, 63].map(|c| whole.bin(c)), [32, 63, 0, 31]);
        assert_eq!(whole.pfb_group_delay(), -(64.0 * 16.0 - 1.0) / 2.0 * 32.0);
        assert_eq!(whole.ddc_group_delay(), -255.5);
    }
}

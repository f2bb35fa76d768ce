//! What stands beside the arrays of a stream: `NAME.json`.

use std::net::SocketAddrV4;
use std::path::Path;

use dsp::OutputBits;
use schemars::JsonSchema;
use serde::Serialize;

use super::layout::Layout;
use super::{SinkError, SinkOptions, SynthesisReport};
use crate::config::OutputConfig;
use crate::report::Documented;

/// Frequencies that differ by less of themselves are too close for the axis of a picture.
const NARROWEST: f64 = 1e-9;

/// A stream whose spectra were written as arrays: what they hold, and what is known of them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamMetadata {
    /// Name of its files.
    pub name: String,
    /// Name of the output that has its destinations, if options gave one.
    pub output: Option<String>,
    /// F-engine number.
    pub feng_id: u64,
    /// Step of heap counts.
    pub array_size: Option<u64>,
    /// Destinations by substream number; null where nothing was captured.
    pub destinations: Vec<Option<SocketAddrV4>>,
    /// Bits of each real and imaginary part on the wire. In the array each has 8.
    pub sample_bits: OutputBits,
    /// Timestamp of the first batch: ADC samples since the sync time.
    pub first_timestamp: Option<u64>,
    /// Timestamp of the last batch.
    pub last_timestamp: Option<u64>,
    /// ADC samples from a spectrum to the next, if they are known: of the output's options, or of a
    /// stream whose batches follow one another as wideband ones do.
    pub spectrum_samples: Option<u64>,
    /// ADC sample rate in hertz, if an option gave it.
    pub adc_sample_rate: Option<f64>,
    /// UNIX time of timestamp 0, if an option gave it.
    pub sync_time: Option<f64>,
    /// Frequencies of the channels, if the sample rate and `spectrum_samples` are known.
    pub band: Option<Band>,
    /// The arrays, in the same folder.
    pub arrays: Vec<ArrayMetadata>,
    /// What the samples are that the filter bank's inverse made, if it did.
    pub synthesis: Option<SynthesisReport>,
}

impl Documented for StreamMetadata {
    const NAME: &'static str = "sink-stream";
    const TITLE: &'static str = "Arrays of a stream: NAME.json of karoo sink --output-dir";
}

/// Frequencies of channels in hertz above the digitised band's lower end: channel k is centred on
/// `first` + k · `step`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Band {
    /// Centre of channel 0.
    pub first: f64,
    /// From the centre of a channel to that of the next.
    pub step: f64,
}

impl Band {
    /// The band of an output, in which channel 0 is the first.
    fn of(output: &OutputConfig, adc_sample_rate: f64) -> Self {
        let band = output.band(adc_sample_rate);
        Self {
            first: band.start,
            step: (band.end - band.start) / output.channels as f64,
        }
    }

    /// From the lower edge of channel 0 to the upper edge of the last of so many, in megahertz;
    /// `None` where an axis could not tell them apart.
    pub fn edges(&self, channels: usize) -> Option<(f64, f64)> {
        let [low, high] = [-0.5, channels as f64 - 0.5].map(|at| self.megahertz(at));
        let apart = high - low > NARROWEST * low.abs().max(high.abs());
        (apart && low.is_finite() && high.is_finite()).then_some((low, high))
    }

    /// Frequency in megahertz of a channel's centre, or of a place between two.
    pub fn megahertz(&self, channel: f64) -> f64 {
        (self.first + channel * self.step) / 1e6
    }
}

/// An array in numpy's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArrayMetadata {
    /// Name of its file.
    pub file: String,
    /// Elements, as numpy writes them: `|i1` is a signed byte.
    pub dtype: String,
    /// Length of each axis, slowest first.
    pub shape: Vec<u64>,
    /// Name of each axis, in the same order.
    pub axes: Vec<String>,
    /// What an element is.
    pub element: String,
}

impl ArrayMetadata {
    /// Of the file at `path`; `axes` with their lengths, slowest first.
    pub(super) fn new(path: &Path, dtype: &str, axes: &[(&str, u64)], element: &str) -> Self {
        let file = path.file_name().unwrap_or_default();
        Self {
            file: file.to_string_lossy().into_owned(),
            dtype: dtype.to_owned(),
            shape: axes.iter().map(|&(_, length)| length).collect(),
            axes: axes.iter().map(|&(name, _)| name.to_owned()).collect(),
            element: element.to_owned(),
        }
    }
}

/// What options and batches say of a stream's time and frequency.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Name of its output.
    pub output: Option<String>,
    /// As [`StreamMetadata::spectrum_samples`].
    pub spectrum_samples: Option<u64>,
    /// Frequencies of its channels.
    pub band: Option<Band>,
}

impl Known {
    /// Of a stream, by the output of the options that has its destinations; else a stream whose
    /// batches are `batch_samples` long is a wideband one if that is the length of wideband ones.
    pub fn of(layout: &Layout, batch_samples: u64, options: &SinkOptions) -> Self {
        let Some(output) = output_of(layout, options) else {
            let followed = layout.batches.len() > 1;
            let wideband = followed && batch_samples == layout.wideband_samples();
            let rate = options.adc_sample_rate.filter(|_| wideband);
            return Self {
                output: None,
                spectrum_samples: wideband.then_some(2 * layout.channels),
                band: rate.map(|rate| Band {
                    first: 0.0,
                    step: rate / 2.0 / layout.channels as f64,
                }),
            };
        };
        Self {
            output: Some(output.name.clone()),
            spectrum_samples: Some(output.spectrum_samples() as u64),
            band: options.adc_sample_rate.map(|rate| Band::of(output, rate)),
        }
    }
}

/// The output of the options that has a stream's destinations, if there is one.
fn output_of<'a>(layout: &Layout, options: &'a SinkOptions) -> Option<&'a OutputConfig> {
    let dst = layout.destinations.iter().flatten().next()?;
    let mut outputs = options.outputs.iter();
    outputs.find(|output| output.dst.contains(dst))
}

/// Whether the options have an output with a stream's destinations.
pub(super) fn is_named(layout: &Layout, options: &SinkOptions) -> bool {
    output_of(layout, options).is_some()
}

/// Refuses outputs whose heaps have other channels than the streams to their destinations.
pub(super) fn check(layouts: &[Layout], options: &SinkOptions) -> Result<(), SinkError> {
    for layout in layouts {
        let Some(output) = output_of(layout, options) else {
            continue;
        };
        let (asked, found) = (
            output.channels_per_substream() as u64,
            layout.channels_per_substream,
        );
        if asked != found {
            return Err(SinkError::OtherOutput {
                output: output.name.clone(),
                asked,
                found,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_needs_frequencies_that_it_can_tell_apart() {
        let band = |first, step| Band { first, step };
        let l_band = band(0.0, 856e6 / 1024.0);
        let (low, high) = l_band.edges(1024).expect("edges");
        assert!((low + 0.417_968_75).abs() < 1e-9 && (high - 855.582_031_25).abs() < 1e-9);
        for band in [band(1e300, 1.0), band(f64::NAN, 1.0), band(0.0, 0.0)] {
            assert_eq!(band.edges(64), None, "{band:?}");
        }
    }
}

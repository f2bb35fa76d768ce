//! Picks the kernels of an output.

use std::sync::Arc;

use dsp::SampleBits;
use ground::Timestamp;

use super::cache::Cache;
use super::compile::{self, FFT_POST, PFB_FFT, PFB_FFT_HOPS, PFB_FFT_RUN};
use super::form::{Fft, KernelChoice, KernelForm, Tune};
use super::measure::{self, Buffers, KernelTrial, Pass};
use super::shape::{FilterForm, KernelShape};
use super::{Gpu, GpuError};
use crate::config::OutputConfig;
use crate::engine::FineDelay;

/// Room of the cache.
const ROOM: &str = "shapes";
/// Samples per polarisation of a pass that is timed, or one batch if that is more.
const SAMPLES: usize = 1 << 23;
/// Samples above which fewer spectra make a batch that is timed, down to so many spectra.
const MOST_SAMPLES: usize = 1 << 25;
const FEWEST_SPECTRA: usize = 32;
/// Passes over different samples, so that none is in the L2 cache when it is read again.
const SETS: usize = 2;
/// Timings of one shape, whose median counts.
const REPLAYS: usize = 15;

/// The kernels that `wanted` comes to for `output`.
pub(super) fn pick(
    gpu: &Arc<Gpu>,
    output: &OutputConfig,
    bits: SampleBits,
    wanted: &KernelChoice,
    statistics: bool,
) -> Result<KernelForm, GpuError> {
    if wanted.fft == Fft::Cufft {
        return Ok(KernelForm::Cufft);
    }
    let filter = FilterForm::of(output, bits);
    let points = output.pfb_step();
    let (architecture, shared) = (gpu.architecture(), gpu.shared());
    let mut shapes = KernelShape::candidates(points, filter, architecture, shared, statistics);
    if !output.oversampling.is_none() {
        // Threads of pfb_fft_hops are at spectra of two batches at most.
        shapes.retain(|shape| shape.depth == 0 || output.spectra_per_heap() >= 8);
    }
    let Some(&first) = shapes.first() else {
        tracing::warn!(
            points,
            shared = gpu.shared(),
            "no fused kernels for a transform of so many points in so much shared memory per block: cuFFT instead"
        );
        return Ok(KernelForm::Cufft);
    };
    let key = key(gpu, output, filter, bits);
    let shape = match &wanted.tune {
        Tune::Off => first,
        Tune::Fixed(name) => named(&shapes, name).ok_or_else(|| GpuError::Shape {
            shape: name.clone(),
            channels: output.channels,
            known: names(&shapes),
        })?,
        Tune::Auto | Tune::Again if shapes.len() == 1 => first,
        Tune::Auto => match stored(gpu.cache(), &shapes, &key) {
            Some(shape) => shape,
            None => measured(gpu, output, bits, &shapes, &key)?.unwrap_or(first),
        },
        Tune::Again => measured(gpu, output, bits, &shapes, &key)?.unwrap_or(first),
    };
    Ok(KernelForm::Fused(shape))
}

/// Everything that decides which shape is the fastest.
fn key(gpu: &Gpu, output: &OutputConfig, filter: FilterForm, bits: SampleBits) -> Vec<u8> {
    let key = format!(
        "{}, driver {}, NVRTC {:?}, {:?}, {} channels of {} points, {} bits, {} taps, dither {:?} to {} bits, {} spectra per heap",
        gpu.name(),
        gpu.driver(),
        super::nvrtc_version(),
        filter.input,
        output.channels,
        output.pfb_step(),
        bits.get(),
        output.taps,
        output.dither,
        output.sample_bits.get(),
        output.spectra_per_heap()
    );
    if output.oversampling.is_none() {
        return compile::with_sources(key, &[PFB_FFT, PFB_FFT_RUN, FFT_POST]);
    }
    let key = format!("{key}, oversampling {}", output.oversampling);
    compile::with_sources(key, &[PFB_FFT, PFB_FFT_HOPS, FFT_POST])
}

/// The shape that is among `names`, which `+` joins.
fn named(shapes: &[KernelShape], names: &str) -> Option<KernelShape> {
    let is_named = |shape: &&KernelShape| {
        let shape = shape.to_string();
        names.split('+').any(|name| name == shape)
    };
    shapes.iter().find(is_named).copied()
}

fn names(shapes: &[KernelShape]) -> String {
    let names: Vec<_> = shapes.iter().map(KernelShape::to_string).collect();
    names.join(" and ")
}

fn stored(cache: &Cache, shapes: &[KernelShape], key: &[u8]) -> Option<KernelShape> {
    named(shapes, &String::from_utf8(cache.load(ROOM, key)?).ok()?)
}

/// `output` with batches short enough to be timed: a few spectra tell which kernels are faster, and
/// a batch of a narrow output can take gigabytes of samples.
fn timed(output: &OutputConfig) -> OutputConfig {
    let mut output = output.clone();
    let long = |output: &OutputConfig| {
        let spectra = output.spectra_per_heap();
        output.batch_samples() > MOST_SAMPLES
            && spectra.is_multiple_of(2)
            && spectra / 2 >= FEWEST_SPECTRA
    };
    while long(&output) {
        output.jones_per_batch /= 2;
    }
    output
}

/// Times all `shapes` and stores the fastest, if any of them runs.
fn measured(
    gpu: &Arc<Gpu>,
    output: &OutputConfig,
    bits: SampleBits,
    shapes: &[KernelShape],
    key: &[u8],
) -> Result<Option<KernelShape>, GpuError> {
    let output = &timed(output);
    let batches = (SAMPLES / output.batch_samples()).max(1);
    let spectra = batches * output.spectra_per_heap();
    // Coarse delays, in steps of the subsampling.
    let offset = [3, 5].map(|steps| steps * output.subsampling());
    let samples = (spectra - 1) * output.spectrum_samples() + output.window_samples() + offset[1];
    let gains = vec![measure::gain(bits, 20.0); output.channels];
    let pass = Pass {
        output,
        bits,
        feng_id: 0,
        start: Timestamp(0),
        packed: &measure::noise(bits, samples, SETS),
        begin: Timestamp(0),
        offset,
        fine: &vec![FineDelay::default(); spectra],
        gains: &[gains.clone(), gains],
    };
    let buffers = match Buffers::new(gpu, &pass) {
        Ok(buffers) => buffers,
        Err(error) => {
            tracing::warn!(channels = output.channels, %error, "no kernels are timed");
            return Ok(None);
        }
    };
    let seconds = |shape| {
        KernelTrial::of_form(&buffers, KernelForm::Fused(shape), false)?.time(None, REPLAYS)
    };
    let mut fastest = None;
    for &shape in shapes {
        match seconds(shape) {
            Ok(time) => {
                tracing::info!(channels = output.channels, %shape, microseconds = time * 1e6, "timed");
                if fastest.is_none_or(|(least, _)| time < least) {
                    fastest = Some((time, shape));
                }
            }
            // Others may do: a device may lack what one shape needs.
            Err(error) => tracing::warn!(channels = output.channels, %shape, %error, "not timed"),
        }
    }
    let Some((_, shape)) = fastest else {
        return Ok(None);
    };
    let name = shape.to_string();
    gpu.cache().store(ROOM, key, name.as_bytes());
    Ok(Some(shape))
}

#[cfg(test)]
mod tests {
    use super::super::shape::FrontendInput;
    use super::*;
    use crate::config::NarrowbandOptions;
    use crate::config::tests::engine;

    /// The most that a narrow output may ask for; others are timed as they are.
    #[test]
    fn batches_that_are_timed_take_little_memory() {
        let config = engine("name=w,channels=1024,dst=239.10.1.0", |_| {});
        let narrow: NarrowbandOptions =
            "name=n,channels=1024,decimation=512,centre_frequency=300e6,dst=239.11.0.0+7"
                .parse()
                .unwrap();
        let narrow = &narrow.into_config(1 << 20, 0, config.clock).unwrap();
        let wide = &config.outputs[0];
        assert_eq!(timed(wide).jones_per_batch, wide.jones_per_batch);
        assert!(narrow.batch_samples() >= 1 << 30);
        let short = timed(narrow);
        assert_eq!(short.spectra_per_heap(), FEWEST_SPECTRA);
        assert!(short.batch_samples() <= MOST_SAMPLES);
    }

    #[test]
    fn a_stored_name_is_taken_if_it_is_one_of_the_shapes() {
        let filter = FilterForm {
            input: FrontendInput::Numbers,
            taps: 16,
            oversampling: dsp::Oversampling::NONE,
        };
        let shapes = KernelShape::candidates(16384, filter, 90, 227 << 10, false);
        assert!(shapes.len() > 1);
        for shape in &shapes {
            assert_eq!(named(&shapes, &shape.to_string()), Some(*shape));
        }
        let both = format!("log_n1=1,tile=1+{}", shapes[1]);
        assert_eq!(named(&shapes, &both), Some(shapes[1]));
        assert_eq!(named(&shapes, "log_n1=1"), None);
        assert_eq!(named(&shapes, ""), None);
    }
}

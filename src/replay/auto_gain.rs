//! `--gain auto`: gains made of the level of a capture's start, before it is replayed.

use std::collections::VecDeque;
use std::path::Path;

use dsp::level;
use ground::{N_POL, Timestamp};
use num_complex::Complex32;
use spead::DigitiserHeap;

use super::plan::ReplayPlan;
use crate::assembly::{Demand, DemandError};
use crate::config::{Decision, EngineConfig, OutputConfig, PipelineConfig};
use crate::cpu::{PowerMeter, SpectraRun};
use crate::engine::OutputStatistics;
use crate::memory::SampleView;
use crate::net::{CaptureError, CaptureReader};
use crate::recv::{END_OF_STREAM, HeapAddress, LaneTime};
use crate::report::MeasuredGains;
use crate::report::qualification::number;

/// Spectra that are averaged, at most: the power of noise in a channel then has an error of 0.5 %,
/// 0.02 dB.
const SPECTRA: u64 = 40_000;
/// Samples of either polarisation that are looked at, at most: a second or two of work.
const SAMPLES: u64 = 1 << 28;
/// Chunks that wait for heaps that come late: the first, its tail, and one more.
const CHUNKS: usize = 3;

/// Gains that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AutoGainError {
    /// Reading the capture.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The options ask for more memory than there is.
    #[error(transparent)]
    Demand(#[from] DemandError),
    /// Nothing to measure.
    #[error(
        "--gain auto: the start of the capture has no spectrum of '{output}' with all of its input in both polarisations; give a number"
    )]
    NoSpectra {
        /// Name of the stream.
        output: String,
    },
    /// Nothing to make louder.
    #[error(
        "--gain auto: all samples at the start of the capture are 0, so that '{output}' has no level; give a number"
    )]
    NoPower {
        /// Name of the stream.
        output: String,
    },
    /// Computing.
    #[error("--gain auto: {0}")]
    Compute(Box<dyn std::error::Error + Send + Sync>),
}

/// Measures the start of `capture`, and gives the outputs of `plan` gains with which real and
/// imaginary parts of each channel have the rms that was asked for. Notes what it chose in the
/// plan.
///
/// Sums are taken in the order of the samples by one thread for each output: the same capture and
/// options give the same gains to the last bit.
pub fn measure_gains(plan: &mut ReplayPlan, capture: &Path) -> Result<(), AutoGainError> {
    let Some(auto) = plan.auto_gain else {
        return Ok(());
    };
    Demand::check(Demand::of(&plan.engine, 0, 1))?;
    let gains = measure(plan, capture)?.into_iter();
    let gains = gains.map(|measured| measured.gains(auto.rms));
    let gains = gains.collect::<Result<Vec<_>, _>>()?;
    plan.chosen.extend(gains.iter().map(chosen));
    plan.gains = gains.into_iter().map(|(gains, _)| gains).collect();
    Ok(())
}

/// What is told of an output's gains, and of a polarisation without power.
fn chosen((gains, silent): &(MeasuredGains, Option<usize>)) -> Decision {
    let values = gains.gains.iter().flatten();
    let (low, high) = values.fold((f32::INFINITY, 0f32), |(low, high), &gain| {
        (low.min(gain), high.max(gain))
    });
    let silent = silent.map_or(String::new(), |pol| {
        format!("; polarisation {pol} has no power, and gains of 1")
    });
    let MeasuredGains {
        rms,
        efficiency,
        spectra,
        ..
    } = gains;
    Decision {
        option: format!("--gain of '{}'", gains.name),
        // Of any size: inputs may be close to 0.
        value: format!("{} to {}", number(low.into()), number(high.into())),
        why: format!(
            "{rms:.1} counts rms in every channel, quantised with an efficiency of {efficiency:.4}; by {spectra} spectra \
             of the capture's start{silent}"
        ),
    }
}

/// Powers of the channels of an output, with gains of 1.
struct Measured<'a> {
    output: &'a OutputConfig,
    statistics: OutputStatistics,
}

impl Measured<'_> {
    /// Gains for this level, and the polarisation without power if there is one.
    fn gains(&self, rms: Option<f64>) -> Result<(MeasuredGains, Option<usize>), AutoGainError> {
        let (bits, dither) = (self.output.sample_bits, self.output.dither);
        let rms = rms.unwrap_or_else(|| level::best_rms(bits, dither));
        let ones = vec![Complex32::new(1.0, 0.0); self.output.channels];
        let levelled = self.statistics.level_gains([&ones; N_POL], rms);
        let silent = levelled.iter().position(Option::is_none);
        if levelled.iter().all(Option::is_none) {
            return Err(AutoGainError::NoPower {
                output: self.output.name.clone(),
            });
        }
        let gains = levelled.map(|gains| {
            let gains = gains.as_ref().unwrap_or(&ones).iter();
            gains.map(|gain| gain.re).collect()
        });
        let measured = MeasuredGains {
            name: self.output.name.clone(),
            rms,
            efficiency: level::quantised_noise(rms, bits, dither).efficiency,
            spectra: self.statistics.spectra,
            span: [self.statistics.start.0, self.statistics.end.0],
            gains,
        };
        Ok((measured, silent))
    }
}

/// Adds up the spectra of one output.
struct OutputMeter<'a> {
    output: &'a OutputConfig,
    meter: PowerMeter,
    /// Spectra that count so far.
    spectra: u64,
    /// First sample and the one behind the last of chunks with such.
    span: Option<(u64, u64)>,
}

impl<'a> OutputMeter<'a> {
    fn new(config: &PipelineConfig<'a>, chunk: usize) -> Result<Self, AutoGainError> {
        let output = config.output;
        let spectra = chunk / output.spectrum_samples();
        Ok(Self {
            output,
            meter: PowerMeter::new(config, spectra).map_err(AutoGainError::Compute)?,
            spectra: 0,
            span: None,
        })
    }

    /// Adds the spectra whose windows begin in a chunk, which the next one follows in `samples`.
    fn add(&mut self, config: &EngineConfig, samples: &Samples) -> Result<(), AutoGainError> {
        if self.spectra >= SPECTRA {
            return Ok(());
        }
        let (step, window) = (self.output.spectrum_samples(), self.output.window_samples());
        let heap = config.recv.packet_samples;
        let spectra = config.recv.chunk_samples / step;
        let lacks = |s: &usize| {
            let heaps = s * step / heap..(s * step + window).div_ceil(heap);
            !samples.present[heaps].iter().all(|&present| present)
        };
        let absent: Vec<_> = (0..spectra).filter(lacks).collect();
        let run = SpectraRun {
            spectra,
            absent: &absent,
        };
        let counted = self.meter.add(&samples.view(), run);
        let counted = counted.map_err(AutoGainError::Compute)?;
        if counted > 0 {
            self.spectra += counted as u64;
            let start = samples.start;
            let first = self.span.map_or(start, |(first, _)| first);
            self.span = Some((first, start + config.recv.chunk_samples as u64));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Measured<'a>, AutoGainError> {
        let sums = self.meter.take().map_err(AutoGainError::Compute)?;
        let (Some((start, end)), true) = (self.span, sums.spectra > 0) else {
            return Err(AutoGainError::NoSpectra {
                output: self.output.name.clone(),
            });
        };
        Ok(Measured {
            output: self.output,
            statistics: OutputStatistics {
                start: Timestamp(start),
                end: Timestamp(end),
                spectra: sums.spectra,
                channels: sums.channels,
            },
        })
    }
}

/// Samples of a chunk and of the one behind it.
struct Samples {
    start: u64,
    pol: [Vec<u8>; N_POL],
    /// Heaps that came of both polarisations.
    present: Vec<bool>,
    count: usize,
}

impl Samples {
    fn view(&self) -> SampleView<'_> {
        SampleView {
            start: Timestamp(self.start),
            samples: self.count,
            pol: self.pol.each_ref().map(|pol| &pol[..]),
            device: None,
        }
    }
}

/// Packed heaps of one chunk, per polarisation.
struct Chunk {
    pol: [Vec<u8>; N_POL],
    present: [Vec<bool>; N_POL],
}

/// Puts the heaps of a capture into chunks.
struct Chunks<'a> {
    config: &'a EngineConfig,
    /// Id of the first, once there was a heap.
    first: Option<u64>,
    chunks: VecDeque<Chunk>,
    /// Decides as an rx lcore does, by the first chunk.
    time: LaneTime<PlacedHeap>,
}

/// The payload of a heap of a polarisation, and where it belongs.
type PlacedHeap = (HeapAddress, usize, Box<[u8]>);

impl Chunks<'_> {
    fn empty(&self) -> Chunk {
        let recv = &self.config.recv;
        let (heaps, bytes) = (recv.chunk_heaps(), recv.heap_bytes());
        Chunk {
            pol: [(); N_POL].map(|()| vec![0; heaps * bytes]),
            present: [(); N_POL].map(|()| vec![false; heaps]),
        }
    }

    /// Places a heap, and gives `meters` the chunks that nothing is waited for any more.
    fn place(
        &mut self,
        near: Timestamp,
        heap: &DigitiserHeap<'_>,
        meters: &mut Meters<'_>,
    ) -> Result<(), AutoGainError> {
        let recv = &self.config.recv;
        let near = HeapAddress::near(recv, self.first, || near);
        let Ok(place) = HeapAddress::of(recv, near, heap) else {
            return Ok(());
        };
        if self.time.is_ahead(place.chunk, || self.first) {
            let waiting = (place, heap.pol(), heap.payload().into());
            let right = self.time.wait(place.chunk, waiting).right;
            return self.put_all(right, meters);
        }
        let right = self.time.note_present(place.chunk).right;
        self.put_all(right, meters)?;
        self.put(place, heap.pol(), heap.payload(), meters)
    }

    fn put_all(
        &mut self,
        heaps: Vec<PlacedHeap>,
        meters: &mut Meters<'_>,
    ) -> Result<(), AutoGainError> {
        let mut heaps = heaps.iter();
        heaps.try_for_each(|(place, pol, bytes)| self.put(*place, *pol, bytes, meters))
    }

    /// Puts a heap's payload into its chunk.
    fn put(
        &mut self,
        place: HeapAddress,
        pol: usize,
        bytes: &[u8],
        meters: &mut Meters<'_>,
    ) -> Result<(), AutoGainError> {
        let first = *self.first.get_or_insert(place.chunk);
        if place.chunk < first {
            return Ok(());
        }
        let behind = (place.chunk - first).saturating_sub(CHUNKS as u64 - 1);
        // Beyond a gap there may be more than there are chunks.
        for _ in 0..behind.min(CHUNKS as u64) {
            self.pass(meters)?;
        }
        self.first = Some(first + behind);
        let at = (place.chunk - first - behind) as usize;
        while self.chunks.len() <= at {
            let chunk = self.empty();
            self.chunks.push_back(chunk);
        }
        let chunk = &mut self.chunks[at];
        if !std::mem::replace(&mut chunk.present[pol][place.heap], true) {
            let from = place.heap * bytes.len();
            chunk.pol[pol][from..from + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Gives the first chunk to `meters`.
    fn pass(&mut self, meters: &mut Meters<'_>) -> Result<(), AutoGainError> {
        let Some((first, chunk)) = self.first.zip(self.chunks.pop_front()) else {
            return Ok(());
        };
        self.first = Some(first + 1);
        meters.add(&self.joined(first, chunk))
    }

    /// A chunk with the one behind it.
    fn joined(&self, id: u64, chunk: Chunk) -> Samples {
        let recv = &self.config.recv;
        let empty;
        let next = match self.chunks.front() {
            Some(next) => next,
            None => {
                empty = self.empty();
                &empty
            }
        };
        let both = |chunk: &Chunk| -> Vec<bool> {
            let [x, y] = &chunk.present;
            x.iter().zip(y).map(|(x, y)| *x && *y).collect()
        };
        let present = [both(&chunk), both(next)].concat();
        let mut pol = chunk.pol;
        for (pol, next) in pol.iter_mut().zip(&next.pol) {
            pol.reserve_exact(next.len() + SampleView::PADDING);
            pol.extend_from_slice(next);
            pol.resize(pol.len() + SampleView::PADDING, 0);
        }
        Samples {
            start: id * recv.chunk_samples as u64,
            pol,
            present,
            count: 2 * recv.chunk_samples,
        }
    }
}

/// The meters of all outputs.
struct Meters<'a> {
    config: &'a EngineConfig,
    outputs: Vec<OutputMeter<'a>>,
    /// Samples of chunks so far.
    samples: u64,
}

impl<'a> Meters<'a> {
    fn new(config: &'a EngineConfig) -> Result<Self, AutoGainError> {
        let meter = |output| OutputMeter::new(&config.pipeline(output), config.recv.chunk_samples);
        let outputs = config.outputs.iter().map(meter);
        Ok(Self {
            config,
            outputs: outputs.collect::<Result<_, _>>()?,
            samples: 0,
        })
    }

    fn add(&mut self, samples: &Samples) -> Result<(), AutoGainError> {
        self.samples += self.config.recv.chunk_samples as u64;
        let mut outputs = self.outputs.iter_mut();
        outputs.try_for_each(|meter| meter.add(self.config, samples))
    }

    fn have_enough(&self) -> bool {
        self.samples >= SAMPLES || self.outputs.iter().all(|of| of.spectra >= SPECTRA)
    }
}

/// The powers of all outputs.
fn measure<'a>(plan: &'a ReplayPlan, capture: &Path) -> Result<Vec<Measured<'a>>, AutoGainError> {
    let config = &plan.engine;
    let mut meters = Meters::new(config)?;
    let mut chunks = Chunks {
        config,
        first: None,
        chunks: VecDeque::new(),
        time: LaneTime::default(),
    };
    let mut reader = CaptureReader::open(capture)?;
    while !meters.have_enough() {
        let Some(frame) = reader.next_frame()? else {
            let right = chunks.time.settle(Some(END_OF_STREAM)).right;
            chunks.put_all(right, &mut meters)?;
            while !chunks.chunks.is_empty() {
                chunks.pass(&mut meters)?;
            }
            break;
        };
        let Ok((_, datagram)) = plan.steering.steer(frame.bytes) else {
            continue;
        };
        if let Ok(heap) = DigitiserHeap::new_checked(datagram.payload()) {
            chunks.place(plan.first_timestamp, &heap, &mut meters)?;
        }
    }
    meters
        .outputs
        .into_iter()
        .map(OutputMeter::finish)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an input close to 0 they are large, of a strong one small.
    #[test]
    fn gains_of_any_size_are_told_by_their_first_digits() {
        let gains = MeasuredGains {
            name: "w".to_owned(),
            gains: [vec![1.234_567e-6, 1.0], vec![1.0, 12_345.6]],
            ..MeasuredGains::default()
        };
        assert_eq!(chosen(&(gains, None)).value, "1.235e-6 to 12346");
    }
}

//! What comes, held against what digitiser and F-engine were asked for, by the golden model.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use dsp::Dither;
use ground::{N_POL, Timestamp};
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::Serialize;

use super::power::parts;
use super::track::KeptHeap;
use crate::config::OutputConfig;
use crate::model::Model;
use crate::sim::{DigitiserConfig, Windows, progress};

/// Values so near to a tie may round to either side: backends compute in single precision.
const TIE: f64 = 0.01;

/// What was asked for.
pub struct Asked {
    /// The digitiser; its first timestamp does not matter.
    pub digitiser: DigitiserConfig,
    /// The outputs, in the order of the streams.
    pub outputs: Vec<OutputConfig>,
    /// Default gain of the engine.
    pub gain: f64,
}

/// What came of the comparison so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CheckedSpectra {
    /// Heaps compared.
    pub heaps: u64,
    /// Real and imaginary parts in them.
    pub values: u64,
    /// Those that are not the model's value rounded, dither allowed for.
    pub wrong: u64,
    /// Largest distance from the model's value.
    pub worst: f64,
}

impl CheckedSpectra {
    fn add(&mut self, other: Self) {
        self.heaps += other.heaps;
        self.values += other.values;
        self.wrong += other.wrong;
        self.worst = self.worst.max(other.worst);
    }
}

/// A thread that compares one heap at a time.
pub struct Checker {
    offers: SyncSender<KeptHeap>,
    checked: Arc<Mutex<Vec<CheckedSpectra>>>,
    thread: JoinHandle<()>,
}

impl Checker {
    /// Computes the signals, and starts.
    pub fn start(asked: Asked) -> std::io::Result<Self> {
        // Room for one: while a heap is compared, the next may wait.
        let (offers, heaps) = sync_channel(1);
        let checked = Arc::new(Mutex::new(vec![
            CheckedSpectra::default();
            asked.outputs.len()
        ]));
        let results = checked.clone();
        let thread = thread::Builder::new().name("check".to_owned());
        let thread = thread.spawn(move || compare_all(&asked, &heaps, &results))?;
        Ok(Self {
            offers,
            checked,
            thread,
        })
    }

    /// Where heaps are offered.
    pub fn inlet(&self) -> Inlet {
        Inlet {
            offers: self.offers.clone(),
            streams: self.checked().len(),
        }
    }

    /// What came of it so far, per stream.
    pub fn checked(&self) -> Vec<CheckedSpectra> {
        ground::lock(&self.checked).clone()
    }

    /// Ends it, when what was taken has been compared and every inlet is gone.
    pub fn finish(self) -> Vec<CheckedSpectra> {
        drop(self.offers);
        if self.thread.join().is_err() {
            tracing::error!("the thread that checks spectra panicked");
        }
        ground::lock(&self.checked).clone()
    }
}

/// Where whole heaps are offered.
#[derive(Clone, Debug)]
pub struct Inlet {
    offers: SyncSender<KeptHeap>,
    streams: usize,
}

impl Inlet {
    /// Whether heaps of this stream can be compared: those whose options are known, which are the
    /// first.
    pub fn takes(&self, stream: usize) -> bool {
        stream < self.streams
    }

    /// Offers a heap. Gives it back if another is being compared still.
    pub fn offer(&self, heap: KeptHeap) -> Option<KeptHeap> {
        match self.offers.try_send(heap) {
            Ok(()) => None,
            Err(TrySendError::Full(heap) | TrySendError::Disconnected(heap)) => Some(heap),
        }
    }
}

fn compare_all(asked: &Asked, heaps: &Receiver<KeptHeap>, results: &Mutex<Vec<CheckedSpectra>>) {
    let digitiser = &asked.digitiser;
    let (signals, period) = (&digitiser.signals, digitiser.period);
    let Some(windows) = progress::windows(digitiser, signals, period, || false) else {
        return;
    };
    let models: Vec<_> = asked.outputs.iter().map(|o| Model::new(o, 0)).collect();
    for heap in heaps {
        let output = &asked.outputs[heap.stream];
        let checked = compare(&windows, &models[heap.stream], output, asked.gain, &heap);
        let mut results = ground::lock(results);
        results[heap.stream].add(checked);
    }
}

/// Compares one heap of an engine that has default gains and no delays.
fn compare(
    windows: &Windows,
    model: &Model,
    output: &OutputConfig,
    gain: f64,
    heap: &KeptHeap,
) -> CheckedSpectra {
    let source = |pol: usize, t: u64| windows.sample(pol, t);
    let gains = [0, 1].map(|_| vec![Complex32::from(gain as f32); output.channels]);
    let allowed = TIE
        + match output.dither {
            Dither::None => 0.5,
            Dither::Uniform => 1.0,
        };
    let (spectra, channels) = (output.spectra_per_heap(), output.channels_per_substream());
    let limit = f64::from(output.sample_bits.limit());
    let bytes = heap.data.iter();
    let values: Vec<i8> = bytes
        .flat_map(|&byte| parts(byte, output.sample_bits))
        .collect();
    let first = heap.substream * channels;
    let mut checked = CheckedSpectra {
        heaps: 1,
        ..CheckedSpectra::default()
    };
    for s in 0..spectra {
        let t = Timestamp(heap.timestamp + (s * output.spectrum_samples()) as u64);
        let spectrum = model.spectrum(&source, t, &Default::default(), &gains);
        for k in 0..channels {
            for (pol, bins) in spectrum.iter().enumerate() {
                let bin = bins[first + k];
                for (part, value) in [bin.re, bin.im].into_iter().enumerate() {
                    let at = ((k * spectra + s) * N_POL + pol) * 2 + part;
                    let got = f64::from(values[at]);
                    let distance = (got - value.clamp(-limit, limit)).abs();
                    checked.values += 1;
                    checked.wrong += u64::from(distance.is_nan() || distance > allowed);
                    checked.worst = checked.worst.max(distance);
                }
            }
        }
    }
    checked
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsp::OutputBits;

    /// What became of a heap of silence, in which one part is off by so many counts.
    fn silence(dither: Dither, bits: OutputBits, off: i8) -> CheckedSpectra {
        let options = "name=w,channels=16,dst=239.1.2.0+1:7148,jones_per_batch=64,taps=4";
        let engine = crate::config::tests::engine(options, |config| {
            config.outputs[0].dither = dither;
            config.outputs[0].sample_bits = bits;
        });
        let mut digitiser = crate::sim::live::tests::config(0.0);
        digitiser.dests.push(digitiser.dests[0].clone());
        digitiser.signals = crate::sim::parse("0; 0;", || 0).expect("signals");
        let output = engine.outputs[0].clone();
        let values = output.channels_per_substream() * output.spectra_per_heap() * N_POL * 2;
        let mut data = vec![0; values];
        match bits {
            OutputBits::Eight => data[values / 2 + 1] = off as u8,
            OutputBits::Four => {
                data.truncate(values / 2);
                // The first of two in a byte is in its upper half.
                data[values / 4] = (off as u8) << 4;
            }
        }
        let heap = KeptHeap {
            stream: 0,
            substream: 1,
            timestamp: 8192,
            data,
        };
        let asked = Asked {
            digitiser,
            outputs: vec![output],
            gain: 1.0,
        };
        let checker = Checker::start(asked).expect("a thread");
        assert!(checker.inlet().offer(heap).is_none());
        let checked = checker.finish()[0];
        assert_eq!((checked.heaps, checked.values), (1, values as u64));
        checked
    }

    /// Dither moves a value by less than a count, and rounding by half of one.
    #[test]
    fn a_value_that_no_rounding_gives_is_wrong() {
        for bits in [OutputBits::Eight, OutputBits::Four] {
            for (dither, most) in [(Dither::None, 0), (Dither::Uniform, 1)] {
                for off in [-7, -3, -2, -1, 0, 1, 2, 3, 7] {
                    let checked = silence(dither, bits, off);
                    let wrong = u64::from(off.abs() > most);
                    assert_eq!(checked.wrong, wrong, "{bits:?} {dither:?} {off}");
                    assert_eq!(checked.worst, f64::from(off.abs()));
                }
            }
        }
    }
}

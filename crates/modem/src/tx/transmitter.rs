//! Frames and pauses to samples.

use num_complex::Complex32;

use super::filter::{HISTORY_SYMBOLS, PulseShaper};
use crate::waveform::{
    Frame, HEADER_SYMBOLS, Modulation, PREAMBLE_SYMBOLS, SAMPLES_PER_SYMBOL, point,
};

/// Points of every integer of every modulation in single precision.
#[derive(Clone, Debug)]
struct PointTables([Vec<Complex32>; Modulation::ALL.len()]);

impl PointTables {
    fn new() -> PointTables {
        PointTables(Modulation::ALL.map(|modulation| {
            let single = |symbol: u8| {
                let point = point(modulation, symbol);
                Complex32::new(point.re as f32, point.im as f32)
            };
            (0..=u8::MAX).map(single).collect()
        }))
    }

    /// The table of a modulation: 256 points, since bits above those of the modulation are left
    /// out.
    fn of(&self, modulation: Modulation) -> &[Complex32] {
        &self.0[modulation as usize]
    }
}

/// A stream of samples, made of frames and pauses. Nothing is cut where they meet: the tail of a
/// frame's pulse reaches into what follows.
#[derive(Clone, Debug)]
pub struct Transmitter {
    tables: PointTables,
    shaper: PulseShaper,
    symbols: Vec<u8>,
    points: Vec<Complex32>,
}

impl Transmitter {
    /// A transmitter whose frames have a mean power of `gain` squared.
    pub fn new(gain: f32) -> Transmitter {
        Transmitter {
            tables: PointTables::new(),
            shaper: PulseShaper::new(gain),
            symbols: Vec::new(),
            points: Vec::new(),
        }
    }

    /// Appends a frame's samples, three for each of its 16 096 symbols.
    pub fn frame(&mut self, frame: &Frame, samples: &mut Vec<Complex32>) {
        self.symbols.clear();
        frame.symbols_into(&mut self.symbols);
        let (bpsk, body) = self.symbols.split_at(PREAMBLE_SYMBOLS + HEADER_SYMBOLS);
        let body_modulation = frame.header().modulation;
        self.points.clear();
        for (symbols, modulation) in [(bpsk, Modulation::Bpsk), (body, body_modulation)] {
            let table = self.tables.of(modulation);
            let points = symbols.iter().map(|&symbol| table[usize::from(symbol)]);
            self.points.extend(points);
        }
        self.shaper.shape(&self.points, samples);
    }

    /// Appends the samples of `count` blank symbols.
    pub fn blanks(&mut self, count: usize, samples: &mut Vec<Complex32>) {
        // Beyond the pulse's tail there are zeros only.
        let tail = count.min(HISTORY_SYMBOLS);
        let blanks = [Complex32::default(); HISTORY_SYMBOLS];
        self.shaper.shape(&blanks[..tail], samples);
        let rest = SAMPLES_PER_SYMBOL * (count - tail);
        samples.resize(samples.len() + rest, Complex32::default());
    }

    /// Appends the 48 samples of the last pulse's tail.
    pub fn finish(mut self, samples: &mut Vec<Complex32>) {
        self.blanks(HISTORY_SYMBOLS, samples);
    }
}

//! The report of a modem's receiver: what was gathered, and one page that needs nothing but itself.

mod input;
mod page;
mod pictures;
mod rates;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ground::files::write_whole;
use karoo_fft::Fft;
use karoo_modem::rx::{Counts, ReceivedFrame};
use karoo_modem::waveform::Modulation;
use num_complex::Complex32;

use super::html::ReportError;

pub use input::{Corrected, InputLevel, InputMeter, input_lines};
pub use rates::{RatesRun, bit_rates, write_rates};

/// Samples of one spectrum.
const BINS: usize = 1024;
/// Cells of a constellation's side.
const CELLS: usize = 192;
/// Amplitude at a constellation's edge.
const EDGE: f32 = 1.6;
/// Frames of which the page has a line.
const LINES: usize = 200;
/// Frames of which the page has a point in its curves.
const POINTS: usize = 1_000_000;

/// What the receiver was run on.
#[derive(Clone, Debug, Default)]
pub struct ModemRun {
    /// Name of the input.
    pub input: String,
    /// Samples per second, if known.
    pub sample_rate: Option<f64>,
    /// Seconds that it took.
    pub seconds: f64,
    /// Bytes of payload that were written.
    pub bytes: u64,
    /// Level of the input.
    pub level: InputLevel,
    /// What was taken off it, if that was asked for.
    pub correction: Option<Corrected>,
    /// What loops were compiled for, and threads.
    pub machine: String,
}

/// What a curve has of a frame.
#[derive(Clone, Copy, Debug)]
struct FramePoint {
    evm: f64,
    snr_db: f64,
}

/// A frame's line.
#[derive(Clone, Debug)]
struct FrameLine {
    start: u64,
    modulation: Modulation,
    bytes: usize,
    outcome: karoo_modem::rx::Outcome,
    point: FramePoint,
    frequency: f64,
    clock_ppm: f64,
}

/// Points of a modulation, counted by cells.
struct Constellation {
    modulation: Modulation,
    frames: u64,
    cells: Vec<u32>,
}

/// Gathers what the report of a receiver shows.
pub struct ModemGatherer {
    fft: Arc<dyn Fft<f32>>,
    window: Vec<f32>,
    spectrum: Vec<f64>,
    spectra: u64,
    /// Samples of which the next spectrum is made.
    begun: Vec<Complex32>,
    constellations: Vec<Constellation>,
    taps: Vec<Complex32>,
    points: Vec<FramePoint>,
    lines: Vec<FrameLine>,
}

impl Default for ModemGatherer {
    fn default() -> ModemGatherer {
        let turn = std::f64::consts::TAU / BINS as f64;
        ModemGatherer {
            fft: karoo_fft::forward_f32(BINS),
            // Hann.
            window: (0..BINS)
                .map(|n| (0.5 - 0.5 * (turn * n as f64).cos()) as f32)
                .collect(),
            spectrum: vec![0.0; BINS],
            spectra: 0,
            begun: Vec::new(),
            constellations: Vec::new(),
            taps: Vec::new(),
            points: Vec::new(),
            lines: Vec::new(),
        }
    }
}

impl ModemGatherer {
    /// Adds the spectrum of the block's first samples, or of several blocks' that are shorter.
    pub fn samples(&mut self, block: &[Complex32]) {
        let missing = (BINS - self.begun.len()).min(block.len());
        self.begun.extend_from_slice(&block[..missing]);
        if self.begun.len() < BINS {
            return;
        }
        let samples = self.begun.drain(..);
        let windowed = samples.zip(&self.window).map(|(x, window)| x * window);
        let mut bins: Vec<Complex32> = windowed.collect();
        if !bins.iter().all(|x| x.is_finite()) {
            return;
        }
        self.fft.process(&mut bins);
        for (i, bin) in bins.iter().enumerate() {
            // Negative frequencies first.
            self.spectrum[(i + BINS / 2) % BINS] += f64::from(bin.norm_sqr());
        }
        self.spectra += 1;
    }

    /// Adds a frame, whose receiver kept points and taps.
    pub fn frame(&mut self, frame: &ReceivedFrame) {
        let point = FramePoint {
            evm: frame.evm,
            snr_db: frame.snr_db,
        };
        if self.points.len() < POINTS {
            self.points.push(point);
        }
        if self.lines.len() < LINES {
            self.lines.push(FrameLine {
                start: frame.start,
                modulation: frame.modulation(),
                bytes: frame.payload().len(),
                outcome: frame.outcome,
                point,
                frequency: frame.frequency,
                clock_ppm: frame.clock_ppm,
            });
        }
        if !frame.taps.is_empty() {
            self.taps.clone_from(&frame.taps);
        }
        let modulation = frame.modulation();
        let known = self
            .constellations
            .iter()
            .position(|c| c.modulation == modulation);
        let at = known.unwrap_or_else(|| {
            let cells = vec![0; CELLS * CELLS];
            self.constellations.push(Constellation {
                modulation,
                frames: 0,
                cells,
            });
            self.constellations.len() - 1
        });
        let constellation = &mut self.constellations[at];
        constellation.frames += 1;
        let scale = CELLS as f32 / (2.0 * EDGE);
        for z in &frame.points {
            let (x, y) = ((z.re + EDGE) * scale, (EDGE - z.im) * scale);
            let side = 0.0..CELLS as f32;
            if side.contains(&x) && side.contains(&y) {
                constellation.cells[y as usize * CELLS + x as usize] += 1;
            }
        }
    }

    /// Writes `report.html` into `dir`, which is made if need be. The file appears whole or not at
    /// all.
    pub fn write(&self, dir: &Path, run: &ModemRun, counts: &Counts) -> Result<(), ReportError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError { path, source }
        };
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let path = dir.join("report.html");
        write_whole(&path, page::page(self, run, counts)).map_err(failed(&path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karoo_modem::rx::{Receiver, RxConfig};
    use karoo_modem::tx::Transmitter;
    use karoo_modem::waveform::{CheckField, Frame, Header};

    fn gathered(run: &ModemRun, config: &RxConfig) -> String {
        let modulation = Modulation::Qam16;
        let payload = vec![0x1b; modulation.payload_bytes()];
        let frame = Frame::new(Header::new(modulation), &payload, CheckField::Crc).unwrap();
        let mut transmitter = Transmitter::new(1.0);
        let mut samples = Vec::new();
        transmitter.frame(&frame, &mut samples);
        transmitter.finish(&mut samples);
        let mut receiver = Receiver::new(config).unwrap();
        let mut frames = Vec::new();
        receiver.push(&samples, &mut frames);
        receiver.finish(&mut frames);
        let mut gatherer = ModemGatherer::default();
        gatherer.samples(&samples);
        frames.iter().for_each(|frame| gatherer.frame(frame));
        let dir = tempfile::tempdir().unwrap();
        gatherer.write(dir.path(), run, &receiver.counts()).unwrap();
        fs::read_to_string(dir.path().join("report.html")).unwrap()
    }

    /// A packet has 360 samples, and each may be a block where they come slowly.
    #[test]
    fn short_blocks_have_a_spectrum_too() {
        let tone: Vec<Complex32> = (0..BINS).map(|n| Complex32::cis(0.7 * n as f32)).collect();
        let spectrum = |block: usize| {
            let mut gatherer = ModemGatherer::default();
            tone.chunks(block).for_each(|block| gatherer.samples(block));
            (gatherer.spectra, gatherer.spectrum)
        };
        assert_eq!(spectrum(BINS).0, 1);
        assert_eq!(spectrum(360), spectrum(BINS));
    }

    #[test]
    fn the_report_is_one_page_with_all_its_pictures() {
        let run = ModemRun {
            input: "<a & b>".to_owned(),
            ..ModemRun::default()
        };
        let page = gathered(
            &run,
            &RxConfig {
                points: true,
                ..RxConfig::default()
            },
        );
        assert!(page.contains("&lt;a &amp; b&gt;") && !page.contains("<a & b>"));
        for part in [
            "qam16",
            "Spectrum",
            "Constellation",
            "Equaliser",
            "data:image/png",
            "1 frame",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("class=\"verdict good\""));
        // Nothing is fetched.
        assert!(!page.contains("http://") || page.contains("http://www.w3.org"));
        assert!(!page.contains("<script") && !page.contains("<link"));
    }

    #[test]
    fn what_was_not_delivered_is_said_first() {
        let config = RxConfig {
            modes: karoo_modem::waveform::ModeSet::Cyclops,
            ..RxConfig::default()
        };
        let good = gathered(&ModemRun::default(), &config);
        assert!(good.contains("verdict good"));
        let nothing = ModemGatherer::default();
        let page = page::page(&nothing, &ModemRun::default(), &Counts::default());
        assert!(page.contains("verdict bad"));
        let counts = Counts {
            detected: 3,
            delivered: 1,
            check: 1,
            cut: 1,
            ..Counts::default()
        };
        let page = page::page(&nothing, &ModemRun::default(), &counts);
        assert!(page.contains("verdict warn") && page.contains("2 of 3 frames were not"));
        let counts = Counts {
            detected: 3,
            delivered: 1,
            not_acquired: 2,
            ..Counts::default()
        };
        let page = page::page(&nothing, &ModemRun::default(), &counts);
        assert!(page.contains("1 frame received, none lost"));
        let counts = Counts {
            detected: 1,
            cut: 1,
            ..Counts::default()
        };
        let level = InputLevel {
            decibels: Some(-0.01),
            ..InputLevel::default()
        };
        let run = ModemRun {
            level,
            ..ModemRun::default()
        };
        let page = page::page(&nothing, &run, &counts);
        assert!(page.contains("1 of 1 frame was not delivered"));
        assert!(page.contains("<b>0.0</b>"), "{page}");
    }
}

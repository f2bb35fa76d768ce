//! The parts of a channel, one behind the other.

use num_complex::{Complex32, Complex64};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::clock::Clock;
use super::fading::FadingGains;
use super::noise::Noise;
use super::paths::{DelayLine, Path};
use super::rotation::Rotation;
use super::settings::{ChannelSettings, SettingError};

/// Samples that go through all parts together.
const BLOCK: usize = 4096;

/// What a channel has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ChannelCounts {
    /// Samples that came in.
    pub samples_in: u64,
    /// Samples that went out.
    pub samples_out: u64,
    /// Real and imaginary parts that the converter clipped.
    pub clipped: u64,
}

/// A channel that samples go through.
#[derive(Clone, Debug)]
pub struct Channel {
    settings: ChannelSettings,
    gain: f64,
    clock: Option<Clock>,
    rotation: Option<Rotation>,
    paths: Vec<Path>,
    delays: DelayLine,
    fading: Option<FadingGains>,
    noise: Option<Noise>,
    counts: ChannelCounts,
    fresh: Vec<Complex64>,
    block: Vec<Complex64>,
}

/// The random stream of a part.
fn random(seed: u64, part: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(part);
    random
}

impl Channel {
    /// A channel with settings that were checked as a whole.
    pub fn new(settings: &ChannelSettings) -> Result<Channel, SettingError> {
        settings.check()?;
        let mut paths = settings.paths.clone();
        if paths.is_empty() && settings.fading.is_some() {
            let gain = Complex64::ONE;
            paths.push(Path { delay: 0, gain });
        }
        let seed = settings.seed;
        let fading = |fading| FadingGains::new(fading, &paths, random(seed, 1));
        Ok(Channel {
            gain: 10f64.powf(settings.gain_db / 20.0),
            clock: Clock::new(settings.delay, settings.clock_ppm),
            rotation: Rotation::new(settings.frequency, settings.phase),
            delays: DelayLine::new(&paths),
            fading: settings.fading.map(fading),
            noise: settings.snr_db.map(|snr| Noise::new(snr, random(seed, 2))),
            counts: ChannelCounts::default(),
            fresh: Vec::new(),
            block: Vec::new(),
            paths,
            settings: settings.clone(),
        })
    }

    /// Appends what becomes of `samples`, as far as it depends on nothing that comes later.
    pub fn push(&mut self, samples: &[Complex32], out: &mut Vec<Complex32>) {
        for samples in samples.chunks(BLOCK) {
            self.counts.samples_in += samples.len() as u64;
            self.fresh.clear();
            let gain = self.gain;
            let scaled = |x: &Complex32| Complex64::new(x.re.into(), x.im.into()) * gain;
            self.fresh.extend(samples.iter().map(scaled));
            self.block.clear();
            match &mut self.clock {
                Some(clock) => clock.push(&self.fresh, &mut self.block),
                None => self.block.extend_from_slice(&self.fresh),
            }
            self.behind_clock(out);
        }
    }

    /// Appends what the last samples still reach into: the interpolator's tail, and echoes.
    pub fn finish(mut self, out: &mut Vec<Complex32>) -> ChannelCounts {
        self.block.clear();
        if let Some(clock) = &mut self.clock {
            clock.finish(&mut self.block);
        }
        let whole = self.block.len() + self.delays.longest();
        self.block.resize(whole, Complex64::default());
        self.behind_clock(out);
        self.counts
    }

    /// The parts behind the clock, on the samples of the block.
    fn behind_clock(&mut self, out: &mut Vec<Complex32>) {
        let block = &mut self.block[..];
        if let Some(rotation) = &mut self.rotation {
            rotation.apply(block);
        }
        if let Some(fading) = &mut self.fading {
            let gain = |path, n| fading.gain(path, n);
            self.delays.apply(&self.paths, block, gain);
            fading.advance(block.len());
        } else if !self.paths.is_empty() {
            let paths = &self.paths;
            self.delays.apply(paths, block, |p, _| paths[p].gain);
        }
        if let Some(noise) = &mut self.noise {
            noise.apply(block);
        }
        self.settings.iq.apply(block);
        let dc = self.settings.dc;
        block.iter_mut().for_each(|sample| *sample += dc);
        if let Some(converter) = &self.settings.converter {
            self.counts.clipped += converter.apply(block);
        }
        self.counts.samples_out += block.len() as u64;
        let single = |x: &Complex64| Complex32::new(x.re as f32, x.im as f32);
        out.extend(block.iter().map(single));
    }
}

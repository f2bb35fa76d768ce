//! Levels out of range, and known values in place of spectra: what is sent looks like data, and no
//! heap of it is missing.
//!
//! Who tells such things must not cry wolf. An input is judged by its level alone, once it has been
//! out of range for [`FOR`]. An output is judged while its polarisation's input is in range, since
//! else the input is what is wrong, and by the channels that have power: those whose gain was set
//! to 0 on purpose do not count. A wideband output has all the power of the input, so that a level
//! below [`LEAST_RMS`] comes of its gains. The band of a narrowband output may be empty, and is
//! believed to be down to [`EMPTY_RMS`]. What is not known, for want of input, of whole seconds or
//! of statistics, stays as it was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dsp::level;
use ground::{N_POL, Timestamp};

use super::counts::{Look, LossCounts};
use super::track::FoundLoss;
use super::{Cause, Words, old_level};
use crate::config::EngineConfig;
use crate::engine::steer::Published;
use crate::engine::{OutputStatistics, TestPattern};

/// Levels of the digitiser's samples between which all may be well, in dB relative to a sine of
/// full scale.
pub const INPUT_DBFS: [f64; 2] = [-33.0, -7.0];
/// Least rms of the parts of a wideband output, in counts: below, two thirds of them are rounded
/// to 0.
const LEAST_RMS: f64 = 0.5;
/// The same of a narrowband output. A digitiser of 10 bits with noise at −20 dBFS leaves 0.1
/// counts of its own quantisation in an empty band, where 12 are good; no filter leaves as little
/// as this.
const EMPTY_RMS: f64 = 1e-4;
/// How long a level is to be out of range before that is said: attenuators and gains may be about
/// to be set.
const FOR: Duration = Duration::from_secs(10);

/// Where the levels of an engine are read.
#[derive(Debug)]
pub struct LevelSource {
    published: Arc<Published>,
    old: Duration,
    /// Of each output, the least and a good rms.
    outputs: Vec<(f64, f64)>,
}

/// Level of an output over one period of statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamLevel {
    /// Where the period begins.
    pub start: Timestamp,
    /// Rms of real and imaginary parts before quantisation, in counts, over the channels that have
    /// power, per polarisation; 0 if none has.
    pub rms: [f64; N_POL],
    /// Rms below which gains are to blame.
    pub least: f64,
    /// Rms that is good for noise.
    pub good: f64,
}

impl LevelSource {
    /// What an engine of `config` publishes of its levels.
    pub fn new(config: &EngineConfig, published: Arc<Published>) -> Self {
        let outputs = config.outputs.iter().map(|output| {
            let least = match output.narrowband {
                None => LEAST_RMS,
                Some(_) => EMPTY_RMS,
            };
            (least, level::best_rms(output.sample_bits, output.dither))
        });
        Self {
            published,
            old: old_level(config),
            outputs: outputs.collect(),
        }
    }

    /// [`LossCounts::input_dbfs`].
    pub fn input(&self) -> Option<[f64; N_POL]> {
        let (dbfs, age) = self.published.level()?;
        (age <= self.old).then_some(dbfs)
    }

    /// Level of the output with this index, once there are statistics.
    pub fn output(&self, index: usize) -> Option<StreamLevel> {
        let of = self.published.statistics().output(index)?;
        let &(least, good) = self.outputs.get(index)?;
        Some(StreamLevel {
            start: of.start,
            rms: [0, 1].map(|pol| rms(&of, pol)),
            least,
            good,
        })
    }

    /// Known values that the output with this index sends, if it does.
    pub fn test(&self, index: usize) -> Option<TestPattern> {
        self.published.test(index).flatten()
    }
}

/// Rms of the parts over the channels that have power.
fn rms(of: &OutputStatistics, pol: usize) -> f64 {
    let (mut channels, mut power) = (0, 0.0);
    for more in of.powers(pol).filter(|power| *power != 0.0) {
        channels += 1;
        power += more;
    }
    match channels {
        0 => 0.0,
        channels => (0.5 * power / f64::from(channels)).sqrt(),
    }
}

/// Levels that are out of range, and known values that are sent, since when.
#[derive(Debug, Default)]
pub struct Powers {
    input: [Option<Instant>; N_POL],
    input_is_said: bool,
    /// What there was to say when a level was last out of range: ends are said later.
    input_words: Option<Words>,
    outputs: Vec<Weak>,
    output_words: Option<Words>,
    tested: Option<Instant>,
    tests: Vec<(String, TestPattern)>,
}

/// An output, and how long it has been too weak.
#[derive(Debug, Default)]
struct Weak {
    name: String,
    level: StreamLevel,
    /// Since when a polarisation is too weak, and where the input was when that was seen first.
    since: [Option<(Instant, Timestamp)>; N_POL],
}

impl Weak {
    /// Since when a polarisation has been too weak for so long that it is said, and in a period
    /// that began meanwhile: one that began before may be of another input.
    fn said(&self, pol: usize, now: Instant) -> Option<Instant> {
        let (since, newest) = self.since[pol]?;
        let lasts = now.duration_since(since) >= FOR && self.level.start >= newest;
        lasts.then_some(since)
    }

    /// Its name and what there is to say of its level; nothing unless it is too weak.
    fn words(&self) -> Option<(&str, String)> {
        let StreamLevel { rms, good, .. } = self.level;
        let pols = (0..N_POL).filter(|pol| self.since[*pol].is_some());
        let of = |pol: usize| match rms[pol] < EMPTY_RMS {
            true => format!("polarisation {pol} has no power"),
            false => format!("polarisation {pol} has {:.2} counts rms", rms[pol]),
        };
        let pols: Vec<_> = pols.map(of).collect();
        let (stream, pols) = (&self.name[..], (!pols.is_empty()).then(|| pols.join(", "))?);
        Some((stream, format!("{stream}: {pols}, where {good:.1} is good")))
    }
}

impl Powers {
    /// Compares two looks. `clips`: whether the input is said to be clipped, so that nobody needs
    /// to hear that it is too strong.
    pub fn look(&mut self, last: Look<'_>, now: Look<'_>, clips: bool) -> [(Cause, FoundLoss); 3] {
        let (input, output) = match now.counts.input_dbfs {
            None => {
                self.forget_unsaid(last.at);
                (FoundLoss::Unknown, FoundLoss::Unknown)
            }
            Some(dbfs) => (
                self.find_input(last.at, now.at, dbfs, clips),
                self.find_output(last.at, now, dbfs),
            ),
        };
        [
            (Cause::InputLevel, input),
            (Cause::OutputLevel, output),
            (Cause::TestPattern, self.find_test(last.at, now.counts)),
        ]
    }

    /// Forgets what had not lasted for long enough by the `last` look, as nothing is known now.
    fn forget_unsaid(&mut self, last: Instant) {
        if !self.input_is_said {
            self.input = [None; N_POL];
        }
        for weak in &mut self.outputs {
            for pol in 0..N_POL {
                if weak.said(pol, last).is_none() {
                    weak.since[pol] = None;
                }
            }
        }
    }

    fn find_input(
        &mut self,
        last: Instant,
        now: Instant,
        dbfs: [f64; N_POL],
        clips: bool,
    ) -> FoundLoss {
        let [low, high] = INPUT_DBFS;
        for (since, dbfs) in self.input.iter_mut().zip(dbfs) {
            let too_high = dbfs > high && (self.input_is_said || !clips);
            match dbfs < low || too_high {
                true => _ = since.get_or_insert(last),
                false => *since = None,
            }
        }
        if let Some(words) = self.new_input_words(dbfs) {
            self.input_words = Some(words);
        }
        let since = self.input.iter().flatten().min();
        let said = since.filter(|since| now.duration_since(**since) >= FOR);
        self.input_is_said = said.is_some();
        found(said.copied())
    }

    fn find_output(&mut self, last: Instant, now: Look<'_>, dbfs: [f64; N_POL]) -> FoundLoss {
        let [low, high] = INPUT_DBFS;
        let (outputs, newest) = (&now.counts.outputs, now.counts.newest);
        self.outputs.resize_with(outputs.len(), Weak::default);
        for (weak, output) in self.outputs.iter_mut().zip(outputs) {
            weak.name.clone_from(&output.name);
            weak.level = output.level.unwrap_or_default();
            let level = weak.level;
            let newest = newest.map_or(level.start, Timestamp);
            for (pol, dbfs) in dbfs.into_iter().enumerate() {
                let is_in_range = (low..=high).contains(&dbfs);
                let is_said = weak.said(pol, now.at).is_some();
                match (is_in_range, level.rms[pol] < level.least) {
                    (true, true) => _ = weak.since[pol].get_or_insert((last, newest)),
                    // What has been said is as it was.
                    (false, _) if is_said => {}
                    _ => weak.since[pol] = None,
                }
            }
        }
        if let Some(words) = self.new_output_words() {
            self.output_words = Some(words);
        }
        let said = |weak: &Weak| (0..N_POL).filter_map(|pol| weak.said(pol, now.at)).min();
        found(self.outputs.iter().filter_map(said).min())
    }

    fn find_test(&mut self, last: Instant, counts: &LossCounts) -> FoundLoss {
        let tests = counts.outputs.iter();
        let tests = tests.filter_map(|output| Some((output.name.clone(), output.test?)));
        let tests: Vec<_> = tests.collect();
        if tests.is_empty() {
            self.tested = None;
            return FoundLoss::Lost(0);
        }
        self.tests = tests;
        found(Some(*self.tested.get_or_insert(last)))
    }

    /// What there is to say of the input's level.
    pub fn input_words(&self) -> Words {
        let words = self.input_words.clone();
        words.unwrap_or_else(|| Words::new(Cause::InputLevel.name(), ""))
    }

    /// What there is to say of outputs that are too weak.
    pub fn output_words(&self) -> Words {
        let words = self.output_words.clone();
        words.unwrap_or_else(|| Words::new(Cause::OutputLevel.name(), ""))
    }

    /// What there is to say of these levels; nothing if none is out of range.
    fn new_input_words(&self, dbfs: [f64; N_POL]) -> Option<Words> {
        let name = Cause::InputLevel.name();
        let [low, high] = INPUT_DBFS;
        let off = self.input.iter().zip(dbfs).enumerate();
        let off = off.filter(|(_, (since, _))| since.is_some());
        let off: Vec<_> = off.map(|(pol, (_, dbfs))| (pol, dbfs)).collect();
        let of = |(pol, dbfs): &(usize, f64)| match *dbfs == f64::MIN {
            true => format!("all samples of polarisation {pol} are 0"),
            false => format!("polarisation {pol} is at {dbfs:.1} dBFS"),
        };
        let levels: Vec<_> = off.iter().map(of).collect();
        let mends = match off.first()? {
            (_, f64::MIN) => "is what is in front of the digitiser off, or not connected?",
            (_, dbfs) if *dbfs > high => "lower the level in front of the digitiser",
            _ => "raise the level in front of the digitiser",
        };
        let levels = levels.join(", ");
        let what = format!("{levels}: {name}, {low} to {high} dBFS is good");
        Some(Words::new(what, mends))
    }

    /// What there is to say of outputs as they are; nothing if none is too weak.
    fn new_output_words(&self) -> Option<Words> {
        let name = Cause::OutputLevel.name();
        let weak: Vec<_> = self.outputs.iter().filter_map(Weak::words).collect();
        let (stream, _) = weak.first()?;
        let mends = format!(
            "raise the gains, with `?karoo-auto-gain {stream}`, `?gain-all {stream} default`, `?gain` or `--gain`"
        );
        let weak: Vec<_> = weak.iter().map(|(_, text)| &text[..]).collect();
        let what = format!(
            "{}: {name}, little else than zeros is sent",
            weak.join("; ")
        );
        Some(Words::new(what, mends))
    }

    /// What there is to say of known values.
    pub fn test_words(&self) -> Words {
        let name = Cause::TestPattern.name();
        let tests = self.tests.iter();
        let tests: Vec<_> = tests
            .map(|(stream, test)| format!("{test} as {stream}"))
            .collect();
        let stream = self.tests.first().map_or("STREAM", |(stream, _)| stream);
        let mends = format!("`?karoo-test {stream} off` ends that, as the end of its time does");
        let tests = tests.join(", ");
        Words::new(
            format!("known values are sent in place of spectra, {tests}: {name}"),
            mends,
        )
    }
}

fn found(since: Option<Instant>) -> FoundLoss {
    since.map_or(FoundLoss::Lost(0), |since| FoundLoss::Wrong {
        since,
        lost: 0,
    })
}

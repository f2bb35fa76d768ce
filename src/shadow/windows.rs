//! Times over which values are compared, from a fraction of a second to ten: long ones find less.
//!
//! Sums of short windows are judged first. Those in which nothing is found make up longer ones, so
//! that what is told first has the sharpest time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use ground::{N_POL, SampleClock};

use super::changes::Changes;
use super::difference::{Difference, Moment, News};
use super::judge::judge;
use super::sums::{Cell, Sums};
use crate::config::OutputConfig;

/// Seconds of a short window, and batches of it that are compared, at least.
const SHORTEST: f64 = 0.2;
const FEWEST: u64 = 4;
/// Lengths of windows, each so many times the one before.
const LEVELS: usize = 3;
const TIMES: usize = 8;
/// Windows without a difference after which it is over.
const CLEAN: usize = 2;
/// Windows that may still get heaps.
const OPEN: usize = 2;
/// How long a window gets heaps while none of the next comes.
const PATIENCE: Duration = Duration::from_secs(2);
/// An engine tells of a change at most so long after heaps that have it.
const SLACK: Duration = Duration::from_millis(500);
/// Windows that may wait until the engine says that nothing has changed.
const WAITING: usize = 64;

/// What came of the windows of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowCounts {
    /// Judged.
    pub judged: u64,
    /// Not judged, for gains or delays changed within them.
    pub excused: u64,
    /// Not judged, for the engine did not answer.
    pub unjudged: u64,
    /// Heaps that came after their window.
    pub late: u64,
}

/// A short window that is over.
#[derive(Debug)]
struct Window {
    span: (u64, u64),
    sums: Sums,
    closed: Instant,
}

/// A window that is made up of shorter ones.
#[derive(Clone, Debug, Default)]
struct Longer {
    cells: Vec<Cell>,
    windows: usize,
    start: u64,
}

/// A difference that lasts.
#[derive(Debug)]
struct Active {
    difference: Difference,
    /// Length of the windows that it was found in last.
    level: usize,
    /// Windows of that length without it since.
    clean: usize,
    /// Start of the first of these.
    clean_from: u64,
    /// What it was when it was told last.
    size: f64,
    count: usize,
    /// Where it was found last, and of how many samples there.
    channels: Vec<RangeInclusive<usize>>,
    samples: u64,
}

/// One polarisation.
#[derive(Debug, Default)]
struct Track {
    longer: [Longer; LEVELS - 1],
    active: Option<Active>,
}

/// The windows of a stream.
#[derive(Debug)]
pub struct Windows {
    name: String,
    clock: SampleClock,
    channels: usize,
    bandwidth: f64,
    /// ADC samples of a short window.
    samples: u64,
    open: BTreeMap<u64, (Sums, Instant)>,
    /// Windows up to this one are closed.
    closed: Option<u64>,
    waiting: VecDeque<Window>,
    tracks: [Track; N_POL],
    counts: WindowCounts,
}

/// Bytes of an output's sums at most: of windows that are open, that wait for the engine, that is
/// judged, and of longer ones.
pub fn most_bytes(output: &OutputConfig) -> u64 {
    let windows = OPEN + WAITING + 1 + (LEVELS - 1);
    (windows * N_POL * output.channels * size_of::<Cell>()) as u64
}

impl Windows {
    /// Windows of an output of which one batch in `every` is compared.
    pub fn new(output: &OutputConfig, clock: SampleClock, every: u64) -> Self {
        let batch = output.batch_samples() as u64;
        let seconds = batch as f64 / clock.adc_sample_rate;
        let batches = ((SHORTEST / seconds).ceil() as u64).max(FEWEST * every);
        let bandwidth = clock.adc_sample_rate / 2.0 / output.decimation() as f64;
        Self {
            name: output.name.clone(),
            clock,
            channels: output.channels,
            bandwidth: bandwidth / output.channels as f64,
            samples: batch * batches.next_multiple_of(every),
            open: BTreeMap::new(),
            closed: None,
            waiting: VecDeque::new(),
            tracks: Default::default(),
            counts: WindowCounts::default(),
        }
    }

    /// What came of them so far.
    pub fn counts(&self) -> WindowCounts {
        self.counts
    }

    /// ADC samples of the shortest.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Sums of the window that heaps of `timestamp` belong to, if it is not over.
    pub fn sums_of(&mut self, timestamp: u64, now: Instant) -> Option<&mut Sums> {
        let number = timestamp / self.samples;
        if self.closed.is_some_and(|closed| number <= closed) {
            self.counts.late += 1;
            return None;
        }
        while self.open.len() >= OPEN && !self.open.contains_key(&number) {
            self.close_oldest(now);
        }
        let channels = self.channels;
        let window = self.open.entry(number);
        let (sums, touched) = window.or_insert_with(|| (Sums::new(channels), now));
        *touched = now;
        Some(sums)
    }

    fn close_oldest(&mut self, now: Instant) {
        let Some((number, (sums, _))) = self.open.pop_first() else {
            return;
        };
        self.closed = self.closed.max(Some(number));
        let span = (number * self.samples, (number + 1) * self.samples);
        let closed = now;
        self.waiting.push_back(Window { span, sums, closed });
        if self.waiting.len() > WAITING {
            self.waiting.pop_front();
            self.counts.unjudged += 1;
        }
    }

    /// Closes all windows.
    pub fn close(&mut self, now: Instant) {
        while !self.open.is_empty() {
            self.close_oldest(now);
        }
    }

    /// Gives up windows that wait for the engine.
    pub fn give_up(&mut self) {
        self.counts.unjudged += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Whether windows wait for the engine.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Judges the windows that are over. `told` is the time up to which the engine has told all of
    /// its `changes`, which excuse differences of the output with this index.
    pub fn look(
        &mut self,
        (index, changes): (usize, &Changes),
        told: Option<Instant>,
        now: Instant,
    ) -> Vec<News> {
        let idle = |(_, (_, touched)): (&u64, &(Sums, Instant))| {
            now.saturating_duration_since(*touched) > PATIENCE
        };
        while self.open.iter().next().is_some_and(idle) {
            self.close_oldest(now);
        }
        let mut news = Vec::new();
        while let Some(window) = self.waiting.front() {
            if told.is_none_or(|told| told < window.closed + SLACK) {
                break;
            }
            let Some(window) = self.waiting.pop_front() else {
                break;
            };
            if changes.excuses(index, window.span) {
                self.counts.excused += 1;
                continue;
            }
            self.counts.judged += 1;
            for (pol, cells) in window.sums.0.into_iter().enumerate() {
                self.judge(pol, 0, cells, window.span, &mut news);
            }
        }
        news
    }

    fn judge(
        &mut self,
        pol: usize,
        level: usize,
        cells: Vec<Cell>,
        span: (u64, u64),
        news: &mut Vec<News>,
    ) {
        let found = judge(&cells, self.bandwidth);
        let track = &mut self.tracks[pol];
        let Some(found) = found else {
            if let Some(ended) = track.note_clean(level, &cells, span.0, self.clock) {
                news.push(News::Ends(ended));
            }
            let Some(longer) = track.longer.get_mut(level) else {
                return;
            };
            longer.add(cells, span.0);
            if longer.windows == TIMES {
                let longer = std::mem::take(longer);
                let span = (longer.start, span.1);
                self.judge(pol, level + 1, longer.cells, span, news);
            }
            return;
        };
        track.longer[level.min(LEVELS - 2)..].fill(Longer::default());
        let (size, count) = (found.size(self.bandwidth), found.count());
        let samples = samples_in(&cells, &found.channels);
        match &mut track.active {
            None => {
                let of = (&self.name[..], pol);
                let difference = Difference::new(of, span, &found, self.clock);
                news.push(News::Begins(difference.clone()));
                let (clean, clean_from) = (0, 0);
                track.active = Some(Active {
                    difference,
                    level,
                    clean,
                    clean_from,
                    size,
                    count,
                    channels: found.channels,
                    samples,
                });
            }
            Some(active) => {
                (active.level, active.clean) = (level, 0);
                if size >= 2.0 * active.size || count >= 2 * active.count {
                    active.difference.show(&found);
                    active.size = size.max(active.size);
                    active.count = count.max(active.count);
                    news.push(News::Grows(active.difference.clone()));
                }
                (active.channels, active.samples) = (found.channels, samples);
            }
        }
    }

    /// Differences that have not ended.
    pub fn active(&self) -> impl Iterator<Item = &Difference> {
        let active = self.tracks.iter().filter_map(|track| track.active.as_ref());
        active.map(|active| &active.difference)
    }
}

impl Longer {
    fn add(&mut self, cells: Vec<Cell>, start: u64) {
        if self.windows == 0 {
            (self.cells, self.start) = (cells, start);
        } else {
            let sums = self.cells.iter_mut().zip(&cells);
            sums.for_each(|(sum, cell)| sum.add(cell));
        }
        self.windows += 1;
    }
}

impl Track {
    /// Notes a window of this length without a difference. Returns the one that is over by it. One
    /// with much fewer samples than those in which it was found says nothing.
    fn note_clean(
        &mut self,
        level: usize,
        cells: &[Cell],
        start: u64,
        clock: SampleClock,
    ) -> Option<Difference> {
        let active = self.active.as_mut().filter(|a| a.level == level)?;
        if 2 * samples_in(cells, &active.channels) < active.samples {
            return None;
        }
        if active.clean == 0 {
            active.clean_from = start;
        }
        active.clean += 1;
        if active.clean < CLEAN {
            return None;
        }
        let mut ended = self.active.take()?;
        let until = Moment::of(ended.clean_from, clock);
        ended.difference.until = Some(until);
        Some(ended.difference)
    }
}

/// Samples of these channels.
fn samples_in(cells: &[Cell], channels: &[RangeInclusive<usize>]) -> u64 {
    let cells = channels.iter().flat_map(|range| &cells[range.clone()]);
    cells.map(|cell| cell.samples).sum()
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;

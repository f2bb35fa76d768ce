//! Statistics of what an engine computes, for those who look at it while it runs.
//!
//! A backend adds up powers over a period that is set; the engine publishes each period's sums on a
//! [`StatisticsBoard`]. Readers take the latest at any time and hold nobody up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use ground::{N_POL, Timestamp};
use num_complex::Complex64;

/// Sums over the spectra of one channel, of the numbers before quantisation: x of polarisation 0
/// and y of polarisation 1, corrected and scaled by gains, in counts of the quantised output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelSums {
    /// Σ|x|² and Σ|y|².
    pub power: [f64; N_POL],
    /// Σ|x|⁴ and Σ|y|⁴.
    pub power_squared: [f64; N_POL],
    /// Σ x·y*.
    pub cross: Complex64,
    /// Complex samples that quantisation clamped, per polarisation.
    pub clipped: [u64; N_POL],
}

/// What a pipeline added up over one period.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodSums {
    /// Spectra that count: those whose windows have all their input.
    pub spectra: u64,
    /// One per channel, in the order of the output.
    pub channels: Vec<ChannelSums>,
}

/// Statistics of one output over one period.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputStatistics {
    /// Timestamp of the first output chunk that counts.
    pub start: Timestamp,
    /// Where the last output chunk that counts ends.
    pub end: Timestamp,
    /// Spectra that count: those whose windows have all their input. At least one.
    pub spectra: u64,
    /// One per channel, in the order of the output.
    pub channels: Vec<ChannelSums>,
}

/// Statistics of the digitiser's samples over one period.
#[derive(Clone, Debug, PartialEq)]
pub struct InputStatistics {
    /// Timestamp of the first receive chunk that counts.
    pub start: Timestamp,
    /// Where the last receive chunk that counts ends.
    pub end: Timestamp,
    /// How often each sample value came, per polarisation: bin i is that of value i − 2^(b−1) of
    /// b-bit samples. Not all heaps of a chunk count, so that looking stays cheap.
    pub histogram: [Vec<u64>; N_POL],
    /// Timestamp of the first sample of the snapshot.
    pub snapshot_start: Timestamp,
    /// Consecutive samples, per polarisation; empty where they never came.
    pub snapshot: [Vec<i16>; N_POL],
}

/// Cuts an output's chunks into periods. Periods are counted from sample 0, so that they are the
/// same in every run over the same input.
#[derive(Debug)]
pub(super) struct Periods {
    length: u64,
    /// Where the first chunk of the period under way begins, if it has one, and the last one ends.
    current: Option<(Timestamp, Timestamp)>,
    /// Periods that have ended, whose sums are on their way.
    ended: VecDeque<(Timestamp, Timestamp)>,
}

impl Periods {
    /// Periods of so many samples.
    pub fn new(length: u64) -> Self {
        Self {
            length,
            current: None,
            ended: VecDeque::new(),
        }
    }

    /// A chunk was finished. Returns whether it is the last one of its period: the next one would
    /// begin in another.
    pub fn add(&mut self, start: Timestamp, end: Timestamp) -> bool {
        let first = self.current.map_or(start, |(first, _)| first);
        self.current = Some((first, end));
        end.0 / self.length > first.0 / self.length
    }

    /// Whether a chunk that begins here belongs to another period than the one under way: chunks
    /// are missing in between.
    pub fn is_over(&self, start: Timestamp) -> bool {
        let other =
            |(first, _): (Timestamp, Timestamp)| first.0 / self.length != start.0 / self.length;
        self.current.is_some_and(other)
    }

    /// Takes the period under way, if it has a chunk.
    pub fn take(&mut self) -> Option<(Timestamp, Timestamp)> {
        self.current.take()
    }

    /// The sums of this period, after which no other one has ended yet, are on their way.
    pub fn ended(&mut self, period: (Timestamp, Timestamp)) {
        self.ended.push_back(period);
    }

    /// Whether sums are on their way.
    pub fn waits(&self) -> bool {
        !self.ended.is_empty()
    }

    /// What the sums of the oldest period that has ended come to; nothing if no spectrum counts.
    pub fn statistics(&mut self, sums: PeriodSums) -> Option<OutputStatistics> {
        let (start, end) = self.ended.pop_front()?;
        (sums.spectra > 0).then_some(OutputStatistics {
            start,
            end,
            spectra: sums.spectra,
            channels: sums.channels,
        })
    }
}

/// The latest statistics of an engine.
#[derive(Debug)]
pub struct StatisticsBoard {
    input: Latest<InputStatistics>,
    outputs: Box<[Latest<OutputStatistics>]>,
    /// All periods together, if they are kept.
    totals: OnceLock<Totals>,
}

/// What all periods so far come to.
#[derive(Debug)]
struct Totals {
    input: Latest<InputStatistics>,
    outputs: Box<[Latest<OutputStatistics>]>,
}

impl ChannelSums {
    fn add(&mut self, other: &Self) {
        for pol in 0..N_POL {
            self.power[pol] += other.power[pol];
            self.power_squared[pol] += other.power_squared[pol];
            self.clipped[pol] += other.clipped[pol];
        }
        self.cross += other.cross;
    }
}

impl OutputStatistics {
    /// Adds those of a later period.
    fn add(&mut self, later: &Self) {
        self.end = later.end;
        self.spectra += later.spectra;
        for (sums, later) in self.channels.iter_mut().zip(&later.channels) {
            sums.add(later);
        }
    }
}

impl InputStatistics {
    /// Adds those of a later period; the snapshot stays.
    fn add(&mut self, later: &Self) {
        self.end = later.end;
        for (counts, later) in self.histogram.iter_mut().zip(&later.histogram) {
            for (count, later) in counts.iter_mut().zip(later) {
                *count += later;
            }
        }
    }
}

/// The latest of one kind.
#[derive(Debug)]
struct Latest<T>(Mutex<Option<Arc<T>>>);

impl<T> Latest<T> {
    /// Puts `value` in the place of what there is, which it returns. A reader that holds it, and
    /// may have lost its CPU, keeps what there is; then `value` comes back.
    fn offer(&self, value: Arc<T>) -> Option<Arc<T>> {
        match self.0.try_lock() {
            Ok(mut held) => held.replace(value),
            Err(TryLockError::Poisoned(held)) => held.into_inner().replace(value),
            Err(TryLockError::WouldBlock) => Some(value),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        ground::lock(&self.0)
    }

    /// Adds what is `later` to what there is.
    fn add(&self, later: &Arc<T>, add: impl FnOnce(&mut T, &T))
    where
        T: Clone,
    {
        match &mut *self.lock() {
            Some(total) => add(Arc::make_mut(total), later),
            none => *none = Some(later.clone()),
        }
    }
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl StatisticsBoard {
    /// An empty board of an engine with so many outputs.
    pub fn new(outputs: usize) -> Self {
        Self {
            input: Latest::default(),
            outputs: (0..outputs).map(|_| Latest::default()).collect(),
            totals: OnceLock::new(),
        }
    }

    /// Keeps what all periods from now on come to, for runs that end.
    pub fn keep_totals(&self) {
        let outputs = self.outputs.iter().map(|_| Latest::default());
        self.totals.get_or_init(|| Totals {
            input: Latest::default(),
            outputs: outputs.collect(),
        });
    }

    /// Statistics of the input over all periods that were kept.
    pub fn input_total(&self) -> Option<Arc<InputStatistics>> {
        self.totals.get()?.input.lock().clone()
    }

    /// Statistics of the output with this index over all periods that were kept.
    pub fn output_total(&self, index: usize) -> Option<Arc<OutputStatistics>> {
        self.totals.get()?.outputs.get(index)?.lock().clone()
    }

    /// Statistics of the input over the last whole period, if there was one.
    pub fn input(&self) -> Option<Arc<InputStatistics>> {
        self.input.lock().clone()
    }

    /// Statistics of the output with this index over the last whole period, if there was one.
    pub fn output(&self, index: usize) -> Option<Arc<OutputStatistics>> {
        self.outputs.get(index)?.lock().clone()
    }

    /// Publishes statistics of the input. Returns those that it displaces, or these where somebody
    /// reads just now.
    pub fn publish_input(&self, statistics: Arc<InputStatistics>) -> Option<Arc<InputStatistics>> {
        if let Some(totals) = self.totals.get() {
            totals.input.add(&statistics, InputStatistics::add);
        }
        self.input.offer(statistics)
    }

    /// Publishes statistics of the output with this index. Returns those that it displaces, or
    /// these where somebody reads just now.
    pub fn publish_output(
        &self,
        index: usize,
        statistics: Arc<OutputStatistics>,
    ) -> Option<Arc<OutputStatistics>> {
        if let Some(total) = self.totals.get().and_then(|of| of.outputs.get(index)) {
            total.add(&statistics, OutputStatistics::add);
        }
        self.outputs.get(index)?.offer(statistics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(start: u64, spectra: u64, sums: ChannelSums) -> Arc<OutputStatistics> {
        Arc::new(OutputStatistics {
            start: Timestamp(start),
            end: Timestamp(start + 100),
            spectra,
            channels: vec![ChannelSums::default(), sums],
        })
    }

    /// The thread that publishes waits for nobody who reads.
    #[test]
    fn whoever_reads_keeps_what_there_is() {
        let board = StatisticsBoard::new(1);
        let first = output(0, 1, ChannelSums::default());
        assert!(board.publish_output(0, first.clone()).is_none());
        let later = output(100, 1, ChannelSums::default());
        let held = board.outputs[0].lock();
        let back = board.publish_output(0, later.clone());
        assert!(Arc::ptr_eq(&back.unwrap(), &later));
        drop(held);
        assert!(Arc::ptr_eq(&board.output(0).unwrap(), &first));
        let displaced = board.publish_output(0, later);
        assert!(Arc::ptr_eq(&displaced.unwrap(), &first));
    }

    fn input(start: u64, counts: [u64; 2]) -> Arc<InputStatistics> {
        Arc::new(InputStatistics {
            start: Timestamp(start),
            end: Timestamp(start + 100),
            histogram: [vec![counts[0], 0], vec![0, counts[1]]],
            snapshot_start: Timestamp(start),
            snapshot: [vec![start as i16], Vec::new()],
        })
    }

    fn sums(by: f64) -> ChannelSums {
        ChannelSums {
            power: [by, 2.0 * by],
            power_squared: [3.0 * by, 4.0 * by],
            cross: Complex64::new(5.0 * by, 6.0 * by),
            clipped: [7 * by as u64, 8 * by as u64],
        }
    }

    #[test]
    fn totals_are_sums_over_all_periods() {
        let board = StatisticsBoard::new(2);
        board.keep_totals();
        for (start, by) in [(0, 1.0), (100, 10.0), (200, 100.0)] {
            board.publish_output(1, output(start, by as u64, sums(by)));
            board.publish_input(input(start, [by as u64, 2 * by as u64]));
        }
        let total = board.output_total(1).unwrap();
        assert_eq!((total.start.0, total.end.0, total.spectra), (0, 300, 111));
        assert_eq!(total.channels, [ChannelSums::default(), sums(111.0)]);
        assert_eq!(board.output_total(0), None);
        let total = board.input_total().unwrap();
        assert_eq!((total.start.0, total.end.0), (0, 300));
        assert_eq!(total.histogram, [vec![111, 0], vec![0, 222]]);
        // Of the first period.
        assert_eq!(total.snapshot[0], [0]);
        // The latest stay what they are.
        assert_eq!(board.output(1).unwrap().channels[1], sums(100.0));
    }

    #[test]
    fn nothing_is_kept_unless_it_is_asked_for() {
        let board = StatisticsBoard::new(1);
        board.publish_output(0, output(0, 1, sums(1.0)));
        board.publish_input(input(0, [1, 1]));
        assert_eq!((board.output_total(0), board.input_total()), (None, None));
        assert!(board.output(0).is_some() && board.input().is_some());
    }

    #[test]
    fn a_period_in_which_no_spectrum_counts_has_no_statistics() {
        let mut periods = Periods::new(100);
        let of = |spectra| PeriodSums {
            spectra,
            channels: Vec::new(),
        };
        for (start, spectra) in [(0, 0), (100, 1)] {
            periods.ended((Timestamp(start), Timestamp(start + 100)));
            let got = periods
                .statistics(of(spectra))
                .map(|of| (of.start.0, of.spectra));
            assert_eq!(got, (spectra > 0).then_some((start, spectra)));
        }
        assert_eq!(periods.statistics(of(1)), None);
    }
}

//! The thread that compares.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ground::StopFlag;

use super::difference::{Difference, News};
use super::follow::Followed;
use super::pairs::{Half, Outlet, Pair, Pairs};
use super::report::ComparedStream;
use super::windows::Windows;
use crate::config::EngineConfig;

/// How long it waits for something to compare before it looks at windows.
const LOOK: Duration = Duration::from_millis(50);
/// How long the end waits for the engine to say that nothing has changed.
const LAST: Duration = Duration::from_secs(3);
/// Differences that are kept for the report.
const KEPT: usize = 1000;

/// What came of the comparison so far.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// One per stream.
    pub streams: Vec<ComparedStream>,
    /// Differences, oldest first.
    pub differences: Vec<Difference>,
    /// Differences that found no room there.
    pub more: u64,
    /// Heaps and batches that were left out, for this host did not keep up.
    pub left_out: u64,
}

/// One stream.
struct Stream {
    pairs: Pairs,
    windows: Windows,
    substream_channels: usize,
    spectra: usize,
    bits: dsp::OutputBits,
    shown: ComparedStream,
}

/// A thread that compares what is put into its queue.
pub struct Comparer {
    outlet: Outlet,
    followed: Arc<Followed>,
    streams: Vec<Stream>,
    compared: Arc<Mutex<Compared>>,
}

/// The handle of a comparer.
pub struct ComparerHandle {
    thread: JoinHandle<()>,
    compared: Arc<Mutex<Compared>>,
    stop: StopFlag,
}

impl Comparer {
    /// Starts to compare outputs of `config`, one batch in `every`.
    pub fn start(
        config: &EngineConfig,
        every: u64,
        outlet: Outlet,
        followed: Arc<Followed>,
    ) -> std::io::Result<ComparerHandle> {
        let outputs = config.outputs.iter();
        let stream = |output: &crate::config::OutputConfig| Stream {
            pairs: Pairs::new(output, config),
            windows: Windows::new(output, config.clock, every),
            substream_channels: output.channels_per_substream(),
            spectra: output.spectra_per_heap(),
            bits: output.sample_bits,
            shown: ComparedStream::new(output, every),
        };
        let compared = Arc::<Mutex<Compared>>::default();
        let comparer = Self {
            outlet,
            followed,
            streams: outputs.map(stream).collect(),
            compared: compared.clone(),
        };
        let stop = StopFlag::default();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("compare".to_owned());
        let thread = thread.spawn(move || comparer.run(&stopped))?;
        Ok(ComparerHandle {
            thread,
            compared,
            stop,
        })
    }

    fn run(mut self, stop: &StopFlag) {
        let mut looked = Instant::now();
        while !stop.is_set() {
            match self.outlet.take(LOOK) {
                Ok(Some(half)) => self.add(half),
                Ok(None) => {}
                Err(_) => break,
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look(looked);
            }
        }
        // What waits is still compared.
        while let Ok(Some(half)) = self.outlet.take(Duration::ZERO) {
            self.add(half);
        }
        let end = Instant::now();
        for stream in &mut self.streams {
            stream.pairs.close();
            stream.windows.close(end);
        }
        while end.elapsed() < LAST && self.streams.iter().any(|s| s.windows.waits()) {
            self.look(Instant::now());
            thread::sleep(LOOK);
        }
        let streams = self.streams.iter_mut();
        streams.for_each(|stream| stream.windows.give_up());
        self.look(Instant::now());
    }

    fn add(&mut self, half: Half) {
        let now = Instant::now();
        match half {
            Half::Ours {
                stream,
                timestamp,
                data,
            } => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    let (pairs, mut rest) = stream.split();
                    pairs.add_ours(timestamp, data, now, |pair| rest.compare(&pair, now));
                }
            }
            Half::Theirs(heap) => {
                if let Some(stream) = self.streams.get_mut(heap.stream) {
                    let (pairs, mut rest) = stream.split();
                    pairs.add_theirs(heap, now, |pair| rest.compare(&pair, now));
                }
            }
        }
    }

    /// Judges what is over, tells news, and shows what came of it.
    fn look(&mut self, now: Instant) {
        let (told, changes) = (self.followed.told(), &self.followed.changes);
        let mut all = ground::lock(&self.compared);
        for (index, stream) in self.streams.iter_mut().enumerate() {
            for news in stream.windows.look((index, changes), told, now) {
                tell(&news);
                all.note(news);
            }
            stream.pairs.forget_old(now);
            stream.show();
        }
        all.left_out = self.outlet.refused();
        all.streams = self.streams.iter().map(|s| s.shown.clone()).collect();
    }
}

/// What a pair is added to.
struct Rest<'a> {
    windows: &'a mut Windows,
    shown: &'a mut ComparedStream,
    shape: (usize, usize, dsp::OutputBits),
}

impl Stream {
    fn split(&mut self) -> (&mut Pairs, Rest<'_>) {
        let rest = Rest {
            windows: &mut self.windows,
            shown: &mut self.shown,
            shape: (self.substream_channels, self.spectra, self.bits),
        };
        (&mut self.pairs, rest)
    }

    fn show(&mut self) {
        let (pairs, counts) = (&self.pairs, self.windows.counts());
        let shown = &mut self.shown;
        shown.heaps = pairs.compared - counts.late;
        shown.heaps_late = counts.late;
        shown.heaps_only_sent = pairs.only_theirs;
        shown.heaps_only_computed = pairs.only_ours;
        shown.windows_judged = counts.judged;
        shown.windows_excused = counts.excused;
        shown.windows_unjudged = counts.unjudged;
        shown.differs = self.windows.active().next().is_some();
    }
}

impl Rest<'_> {
    fn compare(&mut self, pair: &Pair<'_>, now: Instant) {
        let (channels, spectra, bits) = self.shape;
        let first = pair.substream * channels;
        let Some(sums) = self.windows.sums_of(pair.timestamp, now) else {
            return;
        };
        let at = pair.timestamp;
        let before = self.shown.first_timestamp.unwrap_or(at);
        self.shown.first_timestamp = Some(before.min(at));
        self.shown.last_timestamp = self.shown.last_timestamp.max(Some(at));
        let unequal = sums.add_heap((first, spectra), bits, pair.ours, pair.theirs);
        self.shown.samples += (ground::N_POL * channels * spectra) as u64;
        self.shown.samples_unequal += unequal;
    }
}

impl Compared {
    fn note(&mut self, news: News) {
        let place = |of: &Difference| (of.stream.clone(), of.pol, of.from.timestamp);
        match news {
            News::Begins(difference) if self.differences.len() < KEPT => {
                self.differences.push(difference);
            }
            News::Begins(_) => self.more += 1,
            News::Grows(difference) | News::Ends(difference) => {
                let mut kept = self.differences.iter_mut().rev();
                if let Some(kept) = kept.find(|kept| place(kept) == place(&difference)) {
                    *kept = difference;
                }
            }
        }
    }
}

fn tell(news: &News) {
    match news {
        News::Begins(difference) => tracing::warn!("differs: {difference}"),
        News::Grows(difference) => tracing::warn!("differs more: {difference}"),
        News::Ends(difference) => tracing::info!("differs no longer: {difference}"),
    }
}

impl ComparerHandle {
    /// What came of it so far.
    pub fn compared(&self) -> Compared {
        ground::lock(&self.compared).clone()
    }

    /// Ends it when what was put in is compared.
    pub fn finish(self) -> Compared {
        self.stop.set();
        if self.thread.join().is_err() {
            tracing::error!("the thread that compares panicked");
        }
        ground::lock(&self.compared).clone()
    }
}

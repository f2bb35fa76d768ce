//! Which substreams of a stream have ended, and whether its engine was started again.
//!
//! Engines of an array share groups. Their stop heaps and descriptors, which each repeats for
//! ever, have no F-engine number: without the array's size nobody knows whose they are.

/// Stop heaps of a substream that are remembered before its engine is known.
const EARLY: usize = 1024;

/// What came behind the stop heap of a substream.
#[derive(Clone, Copy, Debug, Default)]
struct Stopped {
    /// Descriptors.
    described: bool,
    /// Spectra of a later batch, with a lower heap count: an engine begins with the lowest.
    anew: bool,
}

/// A heap of spectra.
#[derive(Clone, Copy, Debug)]
struct Newest {
    timestamp: u64,
    count: u64,
}

#[derive(Clone, Debug, Default)]
struct Substream {
    stopped: Option<Stopped>,
    /// Heap counts of stop heaps that came before it was known whose they are.
    early: Vec<u64>,
    /// And of descriptors that came behind one of these.
    early_descriptors: Vec<u64>,
    newest: Option<Newest>,
}

/// The ends of all substreams of one stream.
#[derive(Debug)]
pub(super) struct Ends {
    substreams: Vec<Substream>,
    /// Whether all stop heaps and descriptors that are noted are the engine's.
    all_own: bool,
    restarts: u64,
}

impl Ends {
    /// Nothing has ended. `all_own` says that others' stop heaps are kept from this.
    pub fn new(substreams: usize, all_own: bool) -> Self {
        Self {
            substreams: vec![Substream::default(); substreams],
            all_own,
            restarts: 0,
        }
    }

    /// Notes a stop heap; its count too where it is `early`, before the engine is known.
    pub fn note_stop(&mut self, sub: usize, count: u64, early: bool) {
        let sub = &mut self.substreams[sub];
        if early && sub.early.len() < EARLY {
            sub.early.push(count);
        }
        let stopped = sub.stopped.get_or_insert_default();
        if self.all_own && !early {
            // What was described has ended too.
            stopped.described = false;
        }
    }

    /// Notes a descriptor heap; its count too where it is `early`, before the engine is known.
    pub fn note_descriptors(&mut self, sub: usize, count: u64, early: bool) {
        let sub = &mut self.substreams[sub];
        let Some(stopped) = &mut sub.stopped else {
            return;
        };
        stopped.described = true;
        if early && sub.early_descriptors.len() < EARLY {
            sub.early_descriptors.push(count);
        }
    }

    /// Takes early stop heaps back, with what came behind them, unless they are known to be the
    /// engine's; returns how many are known to be another's.
    pub fn know_engine(&mut self, is_own: impl Fn(u64) -> bool) -> u64 {
        let mut foreign = 0;
        for sub in &mut self.substreams {
            let early = std::mem::take(&mut sub.early);
            let own = early.iter().filter(|&&count| is_own(count)).count();
            foreign += (early.len() - own) as u64;
            let descriptors = std::mem::take(&mut sub.early_descriptors);
            if !early.is_empty() && (own == 0 || !self.all_own) {
                sub.stopped = None;
            } else if !early.is_empty()
                && let Some(stopped) = &mut sub.stopped
            {
                stopped.described = descriptors.into_iter().any(&is_own);
            }
        }
        foreign
    }

    /// Notes spectra of the engine, and whether it was started again: then nothing has ended. It
    /// begins with descriptors; where these and the stop heap may be another's, heap counts tell.
    pub fn note_spectra(&mut self, sub: usize, timestamp: u64, count: u64) {
        let substream = &mut self.substreams[sub];
        let newest = substream.newest;
        let newer = newest.is_none_or(|newest| timestamp > newest.timestamp);
        let lower = newest.is_some_and(|newest| count < newest.count);
        if newer {
            substream.newest = Some(Newest { timestamp, count });
        }
        if let Some(stopped) = &mut substream.stopped {
            stopped.anew |= newer && lower;
            if stopped.described && (stopped.anew || self.all_own) {
                self.restarts += 1;
                for sub in &mut self.substreams {
                    sub.stopped = None;
                }
            }
        }
    }

    /// What comes now is later than this, though timestamps went back to it.
    pub fn go_back(&mut self, timestamp: u64) {
        for sub in &mut self.substreams {
            if let Some(newest) = &mut sub.newest {
                newest.timestamp = timestamp;
            }
        }
    }

    /// Whether a substream had a stop heap since the engine was last started.
    pub fn is_stopped(&self, sub: usize) -> bool {
        self.substreams[sub].stopped.is_some()
    }

    /// How many substreams had one.
    pub fn stopped(&self) -> u64 {
        let stopped = self.substreams.iter().filter(|sub| sub.stopped.is_some());
        stopped.count() as u64
    }

    /// How often the engine was started again.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of engine 1 of 4.
    fn is_own(count: u64) -> bool {
        count % 4 == 1
    }

    #[test]
    fn descriptors_that_have_ended_too_begin_nothing() {
        let mut ends = Ends::new(1, true);
        ends.note_stop(0, 1, false);
        ends.note_descriptors(0, 5, false);
        ends.note_stop(0, 9, false);
        ends.note_spectra(0, 100, 13);
        assert_eq!((ends.restarts(), ends.is_stopped(0)), (0, true));
        ends.note_descriptors(0, 17, false);
        ends.note_spectra(0, 200, 21);
        assert_eq!((ends.restarts(), ends.is_stopped(0)), (1, false));
    }

    #[test]
    fn early_descriptors_of_another_begin_nothing() {
        for (described, restarts) in [(6, 0), (5, 1)] {
            let mut ends = Ends::new(1, true);
            ends.note_stop(0, 1, true);
            ends.note_descriptors(0, described, true);
            assert_eq!(ends.know_engine(is_own), 0);
            ends.note_spectra(0, 100, 9);
            assert_eq!(ends.restarts(), restarts, "{described}");
        }
    }
}

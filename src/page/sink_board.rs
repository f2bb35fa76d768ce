//! The verdict on what a sink receives.

use std::collections::{BTreeMap, VecDeque};

use live::{CauseShown, LogEntry, State, Verdict};

use super::board::verdict_of;

/// Seconds without a heap, or without another loss, after which that is said.
pub const QUIET: f64 = 5.0;
/// Lines that are kept.
const KEPT: usize = 50;

/// What counts have come to at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SinkCounts {
    /// Whole heaps of each substream of each stream.
    pub whole: Vec<Vec<u64>>,
    /// Names of the streams.
    pub streams: Vec<String>,
    /// Where each substream goes to, by stream.
    pub destinations: Vec<Vec<String>>,
    /// Streams of which a stop heap has come on every substream.
    pub stopped: Vec<bool>,
    /// Stop heaps of each stream.
    pub stop_heaps: Vec<u64>,
    /// By cause, in the order of [`LOSSES`].
    pub lost: [u64; LOSSES.len()],
}

/// Something that is counted, and wrong.
pub struct Loss {
    name: &'static str,
    state: State,
    what: &'static str,
    mends: &'static str,
}

/// What is lost or wrong, the worst first.
pub const LOSSES: [Loss; 8] = [
    Loss {
        name: "rx-missed",
        state: State::Bad,
        what: "packets were lost at this host's port",
        mends: "--recv-buffer, or a CPU of its own by --affinity",
    },
    Loss {
        name: "foreign",
        state: State::Bad,
        what: "packets are of another engine or shape",
        mends: "give --wideband or --narrowband and --array-size as the engine has them",
    },
    Loss {
        name: "late-packets",
        state: State::Bad,
        what: "packets came after four later batches",
        mends: "did the digitiser begin again with an earlier timestamp? If not, look for a second \
                path in the network",
    },
    Loss {
        name: "after-stop",
        state: State::Bad,
        what: "packets follow stop heaps",
        mends: "does another engine send to the same groups? Give --array-size",
    },
    Loss {
        name: "incomplete-heaps",
        state: State::Bad,
        what: "heaps lack packets",
        mends: "if this host's port lost none, the network did",
    },
    Loss {
        name: "missing-heaps",
        state: State::Bad,
        what: "heaps are missing of batches that came",
        mends: "if this host's port lost none, the engine (its page says why) or the network did",
    },
    Loss {
        name: "wrong-values",
        state: State::Bad,
        what: "values do not follow from --signals",
        mends: "does the digitiser send these signals, and has the engine these gains?",
    },
    Loss {
        name: "not-sent",
        state: State::Warning,
        what: "batches were not sent",
        mends: "the engine's input was incomplete: its page says why",
    },
];

/// A count, and when it last grew.
#[derive(Clone, Copy, Debug)]
struct Grown {
    count: u64,
    at: f64,
}

impl Grown {
    fn note(&mut self, time: f64, count: u64) {
        if count > self.count {
            *self = Self { count, at: time };
        }
    }
}

/// What is wrong, and since when.
#[derive(Debug)]
pub struct SinkBoard {
    /// Of each substream of each stream.
    heaps: Vec<Vec<Grown>>,
    /// Stop heaps of each stream.
    stops: Vec<Grown>,
    /// Of each loss; `None` before the first.
    lost: [Option<Grown>; LOSSES.len()],
    before: [u64; LOSSES.len()],
    active: BTreeMap<String, CauseShown>,
    log: VecDeque<LogEntry>,
    begun: f64,
    /// When it last took over counts.
    last: f64,
}

impl SinkBoard {
    /// A board of a sink that began at this UNIX time.
    pub fn new(begun: f64) -> Self {
        Self {
            heaps: Vec::new(),
            stops: Vec::new(),
            lost: [None; LOSSES.len()],
            before: [0; LOSSES.len()],
            active: BTreeMap::new(),
            log: VecDeque::new(),
            begun,
            last: begun,
        }
    }

    /// Takes over the counts of this UNIX time.
    pub fn update(&mut self, time: f64, counts: &SinkCounts) {
        if time < self.last {
            self.set_back(self.last - time);
        }
        self.last = time;
        self.note(time, counts);
        let mut now = self.silences(time, counts);
        now.extend(self.losses(time, counts));
        let mut before = std::mem::take(&mut self.active);
        for mut cause in now {
            match before.remove(&cause.name) {
                Some(old) => cause.since = old.since,
                None => self.say(time, &cause.name, cause.state, &cause.text),
            }
            self.active.insert(cause.name.clone(), cause);
        }
        for (name, old) in before {
            let lasted = time - old.since;
            let text = format!("{name} is over, after {lasted:.0} s");
            self.say(time, &name, State::Well, &text);
        }
    }

    fn say(&mut self, time: f64, who: &str, state: State, text: &str) {
        self.log.push_front(LogEntry {
            time,
            who: who.to_owned(),
            text: text.to_owned(),
            state,
        });
        self.log.truncate(KEPT);
    }

    /// The clock was set back by so many seconds: so is all that was noted, or silence and ends
    /// would be seen as much later.
    fn set_back(&mut self, seconds: f64) {
        self.begun -= seconds;
        let heaps = self.heaps.iter_mut().flatten();
        let grown = heaps.chain(&mut self.stops);
        for grown in grown.chain(self.lost.iter_mut().flatten()) {
            grown.at -= seconds;
        }
        for cause in self.active.values_mut() {
            cause.since -= seconds;
        }
    }

    /// Notes what has grown.
    fn note(&mut self, time: f64, counts: &SinkCounts) {
        let begun = self.begun;
        let fresh = Grown {
            count: 0,
            at: begun,
        };
        self.heaps.resize(counts.whole.len(), Vec::new());
        for (grown, whole) in self.heaps.iter_mut().zip(&counts.whole) {
            grown.resize(whole.len(), fresh);
            for (grown, &count) in grown.iter_mut().zip(whole) {
                grown.note(time, count);
            }
        }
        self.stops.resize(counts.stop_heaps.len(), fresh);
        for (grown, &count) in self.stops.iter_mut().zip(&counts.stop_heaps) {
            grown.note(time, count);
        }
        let lost = self.lost.iter_mut().zip(&mut self.before);
        for ((grown, before), &count) in lost.zip(&counts.lost) {
            let last = grown.map_or(*before, |grown| grown.count);
            if count > last {
                *grown = Some(Grown { count, at: time });
            } else if grown.is_some_and(|grown| time - grown.at > QUIET) {
                (*grown, *before) = (None, count);
            }
        }
    }

    /// Streams and substreams of which no heap comes.
    fn silences(&self, time: f64, counts: &SinkCounts) -> Vec<CauseShown> {
        let mut causes = Vec::new();
        for (index, heaps) in self.heaps.iter().enumerate() {
            let name = &counts.streams[index];
            let quiet = |grown: &&Grown| time - grown.at > QUIET;
            let silent = heaps.iter().filter(quiet).count();
            if silent == 0 {
                continue;
            }
            let newest = heaps
                .iter()
                .map(|grown| grown.at)
                .fold(self.begun, f64::max);
            let cause = |what: &str, state, text, mends: &str| CauseShown {
                name: format!("{what} {name}"),
                state,
                text,
                mends: mends.to_owned(),
                run_book: String::new(),
                since: newest,
                count: 0,
            };
            // Heaps behind the stop heaps are of an engine that was started again.
            let ended = counts.stopped[index] && self.stops[index].at >= newest;
            causes.push(if ended {
                let text = format!("{name} has ended: a stop heap came on every substream");
                cause("ended", State::Warning, text, "start the engine again")
            } else if silent == heaps.len() {
                let text = format!("no whole heap of {name} comes");
                let mends = "does the engine send to these groups (its page says), is --interface \
                             the one that they come through, does the network have an IGMP querier?";
                cause("no-heaps", State::Bad, text, mends)
            } else {
                let destinations = heaps.iter().zip(&counts.destinations[index]);
                let silent = destinations.filter(|(grown, _)| quiet(grown));
                let all: Vec<_> = silent.map(|(_, destination)| &destination[..]).collect();
                let text = format!(
                    "{} of {} substreams of {name} do not come: {}",
                    all.len(),
                    heaps.len(),
                    all.join(", ")
                );
                let mends = "do the switches forward these groups to this host?";
                CauseShown {
                    since: time,
                    ..cause("substreams", State::Bad, text, mends)
                }
            });
        }
        causes
    }

    /// What was lost in the last seconds.
    fn losses(&self, time: f64, counts: &SinkCounts) -> Vec<CauseShown> {
        let lost = LOSSES.iter().zip(&self.lost).zip(&self.before);
        let lost = lost.zip(&counts.lost);
        let active = lost.filter_map(|(((loss, grown), before), count)| {
            grown.as_ref()?;
            let count = count.saturating_sub(*before);
            Some(CauseShown {
                name: loss.name.to_owned(),
                state: loss.state,
                text: format!("{count} {}", loss.what),
                mends: loss.mends.to_owned(),
                run_book: String::new(),
                since: time,
                count,
            })
        });
        active.collect()
    }

    /// Whether all is well, or the top cause, since when, and what mends it.
    pub fn verdict(&self) -> Verdict {
        let rank = |cause: &CauseShown| LOSSES.iter().position(|loss| loss.name == cause.name);
        let mut causes: Vec<_> = self.active.values().cloned().collect();
        // Silence has no rank: it comes first, as it explains the others.
        causes.sort_by_key(|cause| (std::cmp::Reverse(cause.state), rank(cause)));
        let has_come = self.heaps.iter().flatten().any(|grown| grown.count > 0);
        verdict_of(causes, has_come)
    }

    /// What began and ended, newest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.log.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(whole: [u64; 2]) -> SinkCounts {
        SinkCounts {
            whole: vec![whole.to_vec()],
            streams: vec!["w".to_owned()],
            destinations: vec![vec![
                "239.1.0.0:7148".to_owned(),
                "239.1.0.1:7148".to_owned(),
            ]],
            stopped: vec![false],
            stop_heaps: vec![0],
            lost: [0; LOSSES.len()],
        }
    }

    #[test]
    fn silence_is_told_of_a_stream_and_of_a_substream_and_its_end() {
        let mut board = SinkBoard::new(100.0);
        board.update(101.0, &counts([0, 0]));
        assert_eq!(board.verdict().state, State::Warning);
        assert_eq!(board.verdict().text, "no heap yet");
        board.update(106.0, &counts([0, 0]));
        assert!(board.verdict().text.starts_with("no whole heap of w comes"));
        board.update(107.0, &counts([5, 0]));
        let verdict = board.verdict();
        assert_eq!(verdict.state, State::Bad);
        let expected = "1 of 2 substreams of w do not come: 239.1.0.1:7148";
        assert_eq!(verdict.text, expected);
        board.update(108.0, &counts([6, 1]));
        assert_eq!(board.verdict().text, "all well");
        let said: Vec<_> = board.log().into_iter().map(|entry| entry.who).collect();
        assert_eq!(said.len(), 4, "{said:?}");
    }

    #[test]
    fn a_loss_lasts_until_it_has_not_grown_for_a_while() {
        let mut board = SinkBoard::new(0.0);
        let at = |missing: u64, time: f64| {
            let mut counts = counts([time as u64 + 1; 2]);
            counts.lost[5] = missing;
            counts
        };
        board.update(1.0, &at(0, 1.0));
        board.update(2.0, &at(7, 2.0));
        let verdict = board.verdict();
        assert_eq!(verdict.text, "7 heaps are missing of batches that came");
        assert_eq!(verdict.since, Some(2.0));
        board.update(6.0, &at(9, 6.0));
        assert_eq!(board.verdict().causes[0].count, 9);
        board.update(10.0, &at(9, 10.0));
        assert_eq!(board.verdict().since, Some(2.0));
        board.update(12.0, &at(9, 12.0));
        assert_eq!(board.verdict().text, "all well");
        board.update(13.0, &at(10, 13.0));
        assert_eq!(board.verdict().causes[0].count, 1);
    }

    #[test]
    fn packets_that_come_too_late_are_a_loss() {
        let mut board = SinkBoard::new(0.0);
        let mut late = counts([1, 1]);
        board.update(1.0, &late);
        late.lost[2] = 5;
        board.update(2.0, &late);
        let verdict = board.verdict();
        assert_eq!(verdict.text, "5 packets came after four later batches");
    }

    #[test]
    fn silence_is_told_also_where_the_clock_is_set_back() {
        let mut board = SinkBoard::new(100_000.0);
        board.update(100_001.0, &counts([5, 5]));
        board.update(1_001.0, &counts([5, 5]));
        assert_eq!(board.verdict().text, "all well");
        board.update(1_007.0, &counts([5, 5]));
        let verdict = board.verdict();
        assert!(verdict.text.starts_with("no whole heap of w comes"));
        assert_eq!(verdict.since, Some(1_001.0));
    }

    #[test]
    fn a_stream_that_was_stopped_has_ended() {
        let mut board = SinkBoard::new(0.0);
        let mut ended = counts([9, 9]);
        board.update(1.0, &ended);
        (ended.stopped, ended.stop_heaps) = (vec![true], vec![2]);
        board.update(2.0, &ended);
        board.update(9.0, &ended);
        assert_eq!(board.verdict().state, State::Warning);
        // It is started again, and goes without a word.
        ended.whole = vec![vec![12, 12]];
        board.update(20.0, &ended);
        assert_eq!(board.verdict().text, "all well");
        board.update(29.0, &ended);
        assert!(board.verdict().text.starts_with("no whole heap of w comes"));
        // Once more, with stop heaps in the same look as its last heaps.
        (ended.whole, ended.stop_heaps) = (vec![vec![13, 13]], vec![4]);
        board.update(30.0, &ended);
        board.update(39.0, &ended);
        assert!(board.verdict().text.starts_with("w has ended"));
    }
}

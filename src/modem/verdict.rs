//! The verdict on what a receiver receives: of the last seconds, not of all that ever was.

use std::collections::VecDeque;

use karoo_modem::rx::Counts;
use live::{CauseShown, State, Verdict};

/// Seconds that are judged.
const SPAN: f64 = 10.0;
/// Seconds without a frame after which that is said, at least and at most. In between it depends on
/// how often frames came.
const QUIET: (f64, f64) = (5.0, 60.0);
/// Of so many of the usual times between two frames, silence is told from a gap.
const GAPS: f64 = 3.0;

/// What mends that samples come and no frames.
const MATCHES: &str =
    "Does the sender send frames? Are frequency, rate and level those of the receiver?";

/// What mends that nothing was sent.
const TYPE: &str = "Give the input something to send, such as a line.";

/// What mends that no samples come.
const SENDS: &str = "Does the sender send, and to this address?";

/// What there was at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Seconds since the begin, by a clock that nobody sets.
    pub at: f64,
    /// UNIX time.
    pub time: f64,
    /// Frames and samples.
    pub counts: Counts,
    /// Samples that were lost on the way here.
    pub lost_samples: u64,
    /// Packets of other streams.
    pub other_streams: u64,
    /// Number of the stream of the newest of these.
    pub other_stream: Option<u32>,
    /// Whether the sender, if it is known, has had nothing to send yet.
    pub unsent: bool,
}

impl Moment {
    /// Frames of which a header came: what noise does not make.
    fn headers(&self) -> u64 {
        let counts = &self.counts;
        counts.delivered + counts.mode + counts.length + counts.check + counts.equaliser
    }
}

/// What was within the last seconds.
#[derive(Clone, Debug)]
pub struct Recent {
    /// The oldest first: the first is as old as what is judged, or older.
    moments: VecDeque<Moment>,
    /// When the first and the newest frame came, and when a sample did: as [`Moment::at`].
    first: Option<f64>,
    frame: Option<f64>,
    sample: f64,
}

impl Recent {
    /// From this UNIX time on.
    pub fn new(begun: f64) -> Self {
        let first = Moment {
            time: begun,
            ..Moment::default()
        };
        Self {
            moments: VecDeque::from([first]),
            first: None,
            frame: None,
            sample: 0.0,
        }
    }

    /// Takes over what there is now.
    pub fn note(&mut self, now: Moment) {
        let last = self.newest();
        if now.headers() > last.headers() {
            self.frame = Some(now.at);
            self.first = self.first.or(self.frame);
        }
        if now.counts.samples > last.counts.samples {
            self.sample = now.at;
        }
        self.moments.push_back(now);
        while self
            .moments
            .get(1)
            .is_some_and(|next| now.at - next.at >= SPAN)
        {
            self.moments.pop_front();
        }
    }

    /// The newest of what was noted.
    pub fn newest(&self) -> Moment {
        self.moments.back().copied().unwrap_or_default()
    }

    /// The UNIX time of a moment, as the host's clock is now.
    fn unix(&self, at: f64) -> f64 {
        let now = self.newest();
        now.time - (now.at - at)
    }

    /// The UNIX time at which the newest frame came, if frames have come and come no more.
    pub fn silent_since(&self) -> Option<f64> {
        let now = self.newest();
        let (first, frame) = self.first.zip(self.frame)?;
        let gaps = now.headers().saturating_sub(1).max(1);
        let quiet = (GAPS * (frame - first) / gaps as f64).clamp(QUIET.0, QUIET.1);
        (now.at - frame > quiet).then(|| self.unix(frame))
    }

    /// Whether samples came in the last seconds.
    pub fn samples_come(&self) -> bool {
        self.newest().at - self.sample <= QUIET.0
    }

    /// The verdict. `level` is what is wrong with the level; of a stream that has `ended` all is
    /// judged.
    pub fn verdict(&self, level: Option<String>, ended: bool) -> Verdict {
        let now = self.newest();
        let first = match self.moments.front() {
            Some(first) if !ended => *first,
            _ => Moment::default(),
        };
        let grown = |of: fn(&Counts) -> u64| of(&now.counts).saturating_sub(of(&first.counts));
        let (bad, all) = (grown(Counts::not_delivered), grown(Counts::frames));
        let mut causes = Vec::new();
        match ended {
            false => causes.extend(self.silence()),
            true if all == 0 => {
                let what = ("no-frame", State::Bad);
                let (text, mends) = match now.counts.samples {
                    _ if now.unsent => ("no frame came: nothing was sent", TYPE),
                    0 => ("no frame came: no samples came", SENDS),
                    _ => ("no frame came", MATCHES),
                };
                causes.push(cause(what, text.to_owned(), mends, self.unix(0.0), 0));
            }
            true => {}
        }
        let span = if ended { "" } else { " of the last 10 s" };
        if bad > 0 {
            causes.push(frames_lost(&first, &now, bad, all, span));
        }
        causes.extend(samples_lost(&first, &now, bad, span));
        causes.extend(level.map(|text| {
            let mends = "Change the gain in front of the receiver.";
            cause(("level", State::Warning), text, mends, now.time, 0)
        }));
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.state));
        let mut verdict = match causes.first() {
            Some(top) => Verdict {
                state: top.state,
                text: top.text.clone(),
                since: (top.name == "no-frame").then_some(top.since),
                mends: top.mends.clone(),
                causes,
            },
            None if all == 0 => Verdict {
                text: "no frame in the last 10 s".to_owned(),
                since: self.frame.map(|frame| self.unix(frame)),
                ..Verdict::new(State::Warning)
            },
            None => Verdict {
                text: format!("all of {all} frames{span} delivered"),
                ..Verdict::new(State::Well)
            },
        };
        if ended {
            verdict.text = format!("ended: {}", verdict.text);
        }
        verdict
    }

    /// No frame comes.
    fn silence(&self) -> Option<CauseShown> {
        let what = |state| ("no-frame", state);
        match (self.frame, self.silent_since()) {
            (None, _) if self.newest().unsent => {
                let text = "no frame yet: nothing was sent".to_owned();
                Some(cause(what(State::Warning), text, TYPE, self.unix(0.0), 0))
            }
            (None, _) if self.samples_come() => {
                let text = "no frame yet".to_owned();
                Some(cause(
                    what(State::Warning),
                    text,
                    MATCHES,
                    self.unix(0.0),
                    0,
                ))
            }
            (None, _) => {
                let (why, mends) = self.no_samples();
                let text = format!("no frame yet: {why}");
                Some(cause(what(State::Warning), text, &mends, self.unix(0.0), 0))
            }
            (_, None) => None,
            (_, Some(since)) if self.samples_come() => {
                let text = "no frame comes".to_owned();
                Some(cause(what(State::Bad), text, MATCHES, since, 0))
            }
            (_, Some(since)) => {
                let (why, mends) = self.no_samples();
                let text = format!("no frame comes: {why}");
                Some(cause(what(State::Bad), text, &mends, since, 0))
            }
        }
    }

    /// Why no samples come, and what mends it.
    fn no_samples(&self) -> (String, String) {
        let now = self.newest();
        let before = self.moments.front().map_or(0, |first| first.other_streams);
        match now.other_stream.filter(|_| now.other_streams > before) {
            None => ("no samples come".to_owned(), SENDS.to_owned()),
            Some(stream) => (
                format!("no samples come, but packets of stream {stream}"),
                format!("Start the receiver anew with --stream {stream}."),
            ),
        }
    }
}

/// What is known of frames that were not delivered.
fn frames_lost(first: &Moment, now: &Moment, bad: u64, all: u64, span: &str) -> CauseShown {
    let grown = |of: fn(&Moment) -> u64| of(now).saturating_sub(of(first));
    let ways = [
        ("fail their check", grown(|of| of.counts.check)),
        ("have a header that cannot be", grown(|of| of.counts.mode)),
        ("have a length that cannot be", grown(|of| of.counts.length)),
        (
            "have an equaliser whose taps ran away",
            grown(|of| of.counts.equaliser),
        ),
        ("are cut", grown(|of| of.counts.cut)),
    ];
    let ways = ways.into_iter().filter(|(_, count)| *count > 0);
    let ways: Vec<_> = ways.map(|(way, count)| format!("{count} {way}")).collect();
    let text = format!(
        "{bad} of {all} frames{span} not delivered: {}",
        ways.join(", ")
    );
    let mends = match grown(|moment| moment.lost_samples) {
        0 => "More power or a slower modulation; levels and EVM say what is wrong.",
        _ => "Samples were lost on the way: larger buffers of sockets, or another way.",
    };
    cause(("frames-lost", State::Bad), text, mends, now.time, bad)
}

/// Samples that were lost on the way, also where no frame is known to be lost by it: one whose
/// preamble was among them is not found.
fn samples_lost(first: &Moment, now: &Moment, bad: u64, span: &str) -> Option<CauseShown> {
    let samples = now.lost_samples.saturating_sub(first.lost_samples);
    let state = if bad > 0 { State::Bad } else { State::Warning };
    (samples > 0).then(|| {
        let text = format!("{samples} samples{span} were lost on the way");
        let mends = "Do sender, network and this host keep up with the rate?";
        cause(("samples-lost", state), text, mends, now.time, samples)
    })
}

fn cause(
    (name, state): (&str, State),
    text: String,
    mends: &str,
    since: f64,
    count: u64,
) -> CauseShown {
    CauseShown {
        name: name.to_owned(),
        state,
        text,
        mends: mends.to_owned(),
        run_book: String::new(),
        since,
        count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there is so many seconds after the begin.
    fn at(second: u64, delivered: u64, check: u64, samples: u64) -> Moment {
        let counts = Counts {
            samples,
            delivered,
            check,
            ..Counts::default()
        };
        Moment {
            at: second as f64,
            time: 100.0 + second as f64,
            counts,
            lost_samples: 40 * check,
            ..Moment::default()
        }
    }

    fn said(moments: impl IntoIterator<Item = Moment>) -> (Recent, Verdict) {
        let mut recent = Recent::new(100.0);
        moments.into_iter().for_each(|moment| recent.note(moment));
        let verdict = recent.verdict(None, false);
        (recent, verdict)
    }

    #[test]
    fn packets_of_another_stream_are_named_where_no_samples_come() {
        let other = |second: u64| Moment {
            other_streams: 100 * second.saturating_sub(20),
            other_stream: (second > 20).then_some(9),
            ..at(second, 8 * second.min(20), 0, 1000 * second.min(20))
        };
        let (recent, verdict) = said((1..=40).map(other));
        let text = "no frame comes: no samples come, but packets of stream 9";
        assert_eq!(verdict.text, text);
        assert!(verdict.mends.contains("--stream 9"), "{}", verdict.mends);
        // They end too.
        let still = |second: u64| Moment {
            at: second as f64,
            ..recent.newest()
        };
        let (_, verdict) = said((1..=40).map(other).chain((41..=60).map(still)));
        assert_eq!(verdict.text, "no frame comes: no samples come");
    }

    #[test]
    fn a_loss_is_forgotten_after_a_while() {
        let moments = |last| (1..=last).map(|s| at(s, 8 * s, s.min(3), 1000 * s));
        let (_, verdict) = said(moments(5));
        assert_eq!(verdict.state, State::Bad);
        let text = "3 of 43 frames of the last 10 s not delivered: 3 fail their check";
        assert_eq!(verdict.text, text);
        let names: Vec<_> = verdict.causes.iter().map(|cause| &cause.name[..]).collect();
        assert_eq!(names, ["frames-lost", "samples-lost"]);
        assert!(verdict.mends.contains("Samples were lost"), "{verdict:?}");
        let (_, verdict) = said(moments(20));
        assert_eq!(verdict.state, State::Well);
        assert_eq!(verdict.text, "all of 80 frames of the last 10 s delivered");
    }

    #[test]
    fn what_looks_like_a_begin_alone_is_no_frame() {
        let noise = |s: u64| {
            let mut moment = at(s, 8 * s, 0, 1000 * s);
            moment.counts.not_acquired = 3 * s;
            moment
        };
        let (recent, verdict) = said((1..=20).map(noise));
        assert_eq!(verdict.text, "all of 80 frames of the last 10 s delivered");
        let verdict = recent.verdict(None, true);
        assert_eq!(verdict.text, "ended: all of 160 frames delivered");
    }

    #[test]
    fn samples_that_are_lost_are_told_where_no_frame_is_known_to_be() {
        let gap = |s: u64| Moment {
            lost_samples: 700 * s,
            ..at(s, 8 * s, 0, 1000 * s)
        };
        let (_, verdict) = said((1..=20).map(gap));
        let text = "7000 samples of the last 10 s were lost on the way";
        assert_eq!((verdict.state, &verdict.text[..]), (State::Warning, text));
    }

    #[test]
    fn a_clock_that_is_set_changes_no_verdict() {
        for set in [-1e6, 1e6] {
            let moment = |s: u64| {
                let mut moment = at(s, 8 * s.min(30), 0, 1000 * s);
                moment.time += if s >= 20 { set } else { 0.0 };
                moment
            };
            let (recent, verdict) = said((1..=29).map(moment));
            assert_eq!(recent.silent_since(), None);
            assert_eq!(verdict.text, "all of 80 frames of the last 10 s delivered");
            let (_, verdict) = said((1..=40).map(moment));
            assert_eq!(verdict.text, "no frame comes");
            // As the clock is now.
            assert_eq!(verdict.since, Some(130.0 + set));
        }
    }

    #[test]
    fn silence_is_told_with_its_time_and_whether_samples_come() {
        let (recent, verdict) = said([at(1, 0, 0, 1000)]);
        assert_eq!(
            (verdict.state, &verdict.text[..]),
            (State::Warning, "no frame yet")
        );
        assert_eq!(recent.silent_since(), None);
        let dead =
            |samples: fn(u64) -> u64| said((1..=30).map(|s| at(s, 5 * s.min(10), 0, samples(s))));
        let (recent, verdict) = dead(|s| 1000 * s.min(10));
        assert_eq!(recent.silent_since(), Some(110.0));
        assert_eq!((verdict.state, verdict.since), (State::Bad, Some(110.0)));
        assert_eq!(verdict.text, "no frame comes: no samples come");
        let (_, verdict) = dead(|s| 1000 * s);
        assert_eq!(verdict.text, "no frame comes");
    }

    #[test]
    fn who_has_sent_nothing_is_told_so() {
        let unsent = |s| Moment {
            unsent: true,
            ..at(s, 0, 0, 1000 * s)
        };
        let (recent, verdict) = said((1..=30).map(unsent));
        assert_eq!(verdict.text, "no frame yet: nothing was sent");
        assert_eq!(verdict.mends, TYPE);
        let verdict = recent.verdict(None, true);
        assert_eq!(verdict.text, "ended: no frame came: nothing was sent");
        // From then on a frame is missed.
        let (_, verdict) = said((1..=30).map(unsent).chain([at(31, 0, 0, 31_000)]));
        assert_eq!((&*verdict.text, &*verdict.mends), ("no frame yet", MATCHES));
    }

    #[test]
    fn seldom_frames_are_no_silence() {
        // One in 10 s.
        let (recent, verdict) = said((1..=49).map(|s| at(s, s / 10, 0, s)));
        assert_eq!(recent.silent_since(), None);
        assert_eq!(verdict.state, State::Well);
    }

    #[test]
    fn of_a_stream_that_ended_all_is_judged() {
        let moments = (1..=30).map(|s| at(s, 8 * s.min(9), s.min(1), 1000 * s));
        let (recent, _) = said(moments);
        let verdict = recent.verdict(None, true);
        let text = "ended: 1 of 73 frames not delivered: 1 fail their check";
        assert_eq!((verdict.state, &verdict.text[..]), (State::Bad, text));
    }

    /// As the report of the run has it; a level that is wrong is told beside it.
    #[test]
    fn a_stream_that_ended_without_frames_is_bad() {
        let (came, _) = said((1..=30).map(|s| at(s, 0, 0, 1000 * s)));
        let (nothing, _) = said((1..=30).map(|s| at(s, 0, 0, 0)));
        let empty = Recent::new(100.0);
        let none = "ended: no frame came: no samples came";
        for (recent, text, mends) in [
            (came, "ended: no frame came", MATCHES),
            (nothing, none, SENDS),
            (empty, none, SENDS),
        ] {
            for level in [None, Some("clips".to_owned())] {
                let verdict = recent.verdict(level.clone(), true);
                assert_eq!((verdict.state, &verdict.text[..]), (State::Bad, text));
                assert_eq!(verdict.mends, mends);
                assert_eq!(verdict.causes.len(), 1 + usize::from(level.is_some()));
            }
        }
    }
}

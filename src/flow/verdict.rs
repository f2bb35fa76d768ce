//! The verdict on a running graph.

use karoo_flow::place::rate_in_words;
use karoo_flow::run::{Limit, Telemetry};
use live::{CauseShown, State, Verdict};

use super::run_watch::Wait;

/// Seconds without a tick after which that is said, and after which it is bad.
const QUIET: f64 = 2.0;
const LONG: f64 = 10.0;

/// How far a run has come, and when it last went on.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Ticks that came out; before the first, those of all partitions.
    ticks: u64,
    /// UNIX time of the look that found the last of them, and nanoseconds of the run until then.
    since: (f64, u64),
    /// Nanoseconds of the run until the last look.
    elapsed: u64,
    /// Whether the run has ended.
    ended: bool,
}

/// Ticks that came out.
pub fn ticks_out(telemetry: &Telemetry) -> u64 {
    let out = telemetry
        .partitions
        .iter()
        .find(|part| part.name == "outputs");
    out.map_or(0, |part| part.ticks)
}

/// Ticks that tell whether a run goes on.
fn ticks(telemetry: &Telemetry) -> u64 {
    match ticks_out(telemetry) {
        0 => telemetry.partitions.iter().map(|part| part.ticks).sum(),
        out => out,
    }
}

impl Progress {
    /// A run that is looked at from this UNIX time on.
    pub fn new(time: f64) -> Self {
        Self {
            ticks: 0,
            since: (time, 0),
            elapsed: 0,
            ended: false,
        }
    }

    /// Takes over what there was at this time, and at the look before.
    pub fn note(&mut self, time: f64, before: &Telemetry, now: &Telemetry) {
        let ticks = ticks(now);
        if ticks != self.ticks || now.elapsed == 0 {
            (self.ticks, self.since) = (ticks, (time, now.elapsed));
        }
        self.elapsed = now.elapsed;
        // Once a run has ended its time stands still.
        self.ended = now.elapsed > 0 && now.elapsed == before.elapsed;
    }

    /// The verdict at the last look; `span` is what was done since the look before.
    pub fn verdict(&self, span: &Telemetry) -> Verdict {
        if self.ended {
            return well("ended".to_owned());
        }
        // By the run's own time: UNIX time may be set.
        let lasted = self.elapsed.saturating_sub(self.since.1) as f64 * 1e-9;
        if lasted >= QUIET {
            return self.stalled(lasted, span);
        }
        let rate = span.elapsed.max(1) as f64 * 1e-9;
        let rate = rate_in_words(ticks_out(span) as f64 / rate);
        match span.limit_in_words() {
            None => Verdict {
                text: "not begun yet".to_owned(),
                ..Verdict::new(State::Warning)
            },
            Some(limit) => well(format!("{rate} ticks a second; the limit is {limit}")),
        }
    }

    /// Nothing comes out: why, as far as waits tell.
    fn stalled(&self, lasted: f64, span: &Telemetry) -> Verdict {
        let (name, text, mends) = match span.limit() {
            Some(Limit::Inputs) => (
                "no-input",
                "inputs: nothing comes".to_owned(),
                "Does the sender of each input run, and does it send to this address?",
            ),
            Some(Limit::Outputs) => (
                "no-output",
                "outputs take nothing".to_owned(),
                "Does the reader of each output run, and does it read?",
            ),
            Some(Limit::Partition(index)) => {
                let part = &span.partitions[index].name;
                let text = format!("no tick comes out: {part} works on one block");
                (
                    "no-tick",
                    text,
                    "Smaller blocks (--block) take less time each.",
                )
            }
            _ => (
                "no-tick",
                "no tick comes out: partitions wait for one another".to_owned(),
                "Do other programs take the CPUs? --pin and --cpus give partitions their own.",
            ),
        };
        let state = if lasted < LONG {
            State::Warning
        } else {
            State::Bad
        };
        let cause = CauseShown {
            name: name.to_owned(),
            state,
            text: text.clone(),
            mends: mends.to_owned(),
            run_book: String::new(),
            since: self.since.0,
            count: 0,
        };
        Verdict {
            state,
            text,
            since: Some(self.since.0),
            mends: mends.to_owned(),
            causes: vec![cause],
        }
    }
}

/// The verdict on a run that waits for its peers, if it does.
pub fn waiting(waits: Vec<Wait>) -> Option<Verdict> {
    const START: &str = "Start what is to be at the other end.";
    let since = waits.first()?.since;
    let cause = |wait: Wait| CauseShown {
        name: "no-peer".to_owned(),
        state: State::Warning,
        text: wait.text,
        mends: START.to_owned(),
        run_book: String::new(),
        since: wait.since,
        count: 0,
    };
    let causes: Vec<CauseShown> = waits.into_iter().map(cause).collect();
    let texts: Vec<&str> = causes.iter().map(|cause| cause.text.as_str()).collect();
    Some(Verdict {
        text: texts.join("; "),
        since: Some(since),
        mends: START.to_owned(),
        causes,
        ..Verdict::new(State::Warning)
    })
}

fn well(text: String) -> Verdict {
    Verdict {
        text,
        ..Verdict::new(State::Well)
    }
}

#[cfg(test)]
mod tests {
    use karoo_flow::run::PartitionTelemetry;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// So many seconds of inputs, outputs and a partition, and how long each has waited to read and
    /// to write.
    fn run(seconds: u64, ticks: u64, waits: [(u64, u64); 3]) -> Telemetry {
        let names = ["inputs", "outputs", "partition 0"];
        let part = |(name, (read, write)): (&str, (u64, u64))| PartitionTelemetry {
            name: name.to_owned(),
            ticks,
            busy: (seconds - read - write) * SECOND,
            waiting: (read + write) * SECOND,
            waiting_to_read: read * SECOND,
            waiting_to_write: write * SECOND,
            ..PartitionTelemetry::default()
        };
        Telemetry {
            elapsed: seconds * SECOND,
            partitions: names.into_iter().zip(waits).map(part).collect(),
            ..Telemetry::default()
        }
    }

    /// What is said of these looks, of which one came each second.
    fn said(looks: &[Telemetry]) -> Verdict {
        said_at(looks, |second| 101.0 + second)
    }

    /// The same, each at a UNIX time.
    fn said_at(looks: &[Telemetry], time: impl Fn(f64) -> f64) -> Verdict {
        let mut progress = Progress::new(100.0);
        let mut before = Telemetry::default();
        let mut verdict = Verdict::new(State::Well);
        for (second, now) in looks.iter().enumerate() {
            let time = time(second as f64);
            progress.note(time, &before, now);
            verdict = progress.verdict(&now.since(&before));
            before = now.clone();
        }
        verdict
    }

    #[test]
    fn a_run_that_goes_on_is_well_and_its_limit_is_named() {
        let goes = |second| run(second, 1000 * second, [(0, second), (second, 0), (0, 0)]);
        let verdict = said(&[goes(1), goes(2)]);
        assert_eq!(verdict.state, State::Well);
        let text = "ticks a second; the limit is partition 0, 100 % busy";
        assert!(verdict.text.ends_with(text), "{}", verdict.text);
        assert_eq!(said(&[Telemetry::default()]).text, "not begun yet");
        assert_eq!(said(&[goes(1), goes(2), goes(2)]).text, "ended");
    }

    #[test]
    fn a_run_without_input_says_so_with_the_time_since_when() {
        let silent = |second| run(second, 500, [(0, 0), (second, 0), (second, 0)]);
        let looks: Vec<_> = (1..20).map(silent).collect();
        assert_eq!(said(&looks[..2]).state, State::Well);
        let verdict = said(&looks[..3]);
        assert_eq!(verdict.state, State::Warning);
        assert_eq!(verdict.text, "inputs: nothing comes");
        assert_eq!(verdict.since, Some(101.0));
        assert_eq!(verdict.causes[0].name, "no-input");
        assert_eq!(said(&looks).state, State::Bad);
        // Whatever becomes of the clock meanwhile.
        let set_back = said_at(&looks, |second| 1e9 - 3600.0 * second);
        assert_eq!(set_back.state, State::Bad);
        let set_ahead = said_at(&looks[..2], |second| 1e9 + 3600.0 * second);
        assert_eq!(set_ahead.state, State::Well);
    }

    #[test]
    fn a_run_whose_outputs_take_nothing_says_so() {
        // Not one tick came out.
        let full = |second| run(second, 0, [(0, second), (0, 0), (0, second)]);
        let looks: Vec<_> = (1..20).map(full).collect();
        let verdict = said(&looks);
        assert_eq!(
            (verdict.state, &verdict.text[..]),
            (State::Bad, "outputs take nothing")
        );
        assert_eq!(verdict.since, Some(100.0));
    }
}

//! What a shadow found.

use std::collections::BTreeMap;
use std::fmt;

use ground::counted;
use schemars::JsonSchema;
use serde::Serialize;

use super::compare::Compared;
use super::difference::Difference;
use super::listen::Heard;
use crate::config::OutputConfig;
use crate::report::Documented;

/// What came of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ComparedStream {
    /// Name.
    pub name: String,
    /// Channels.
    pub channels: usize,
    /// One batch in so many is compared.
    pub every: u64,
    /// Heaps that were compared.
    pub heaps: u64,
    /// Heaps that were sent, and not computed here: input was missing here.
    pub heaps_only_sent: u64,
    /// Heaps that were computed here, and did not come.
    pub heaps_only_computed: u64,
    /// Heaps of which both were there too late to be compared.
    pub heaps_late: u64,
    /// Timestamp of the first heap that was compared.
    pub first_timestamp: Option<u64>,
    /// Timestamp of the last.
    pub last_timestamp: Option<u64>,
    /// Complex samples that were compared.
    pub samples: u64,
    /// Those that were not equal to the bit.
    pub samples_unequal: u64,
    /// Times of some tenths of a second that were judged.
    pub windows_judged: u64,
    /// Those that were not, for gains or delays changed within them.
    pub windows_excused: u64,
    /// Those that were not, for the engine did not answer.
    pub windows_unjudged: u64,
    /// Whether it differs now.
    pub differs: bool,
}

impl ComparedStream {
    /// Nothing yet of an output.
    pub fn new(output: &OutputConfig, every: u64) -> Self {
        Self {
            name: output.name.clone(),
            channels: output.channels,
            every,
            ..Self::default()
        }
    }

    /// Why nothing of it was judged.
    fn why_unjudged(&self) -> String {
        match (self.windows_excused, self.windows_unjudged) {
            (0, 0) if self.heaps == 0 => "no heap of both came together".to_owned(),
            (0, 0) => "it was too short to be judged".to_owned(),
            (excused, 0) => format!(
                "gains or delays changed in each of {}; leave them as they are for a second or more",
                counted(excused, "time")
            ),
            (0, unjudged) => format!(
                "the engine did not answer in any of {}; see that its KATCP server does",
                counted(unjudged, "time")
            ),
            (excused, unjudged) => format!(
                "gains or delays changed in {}, and the engine did not answer in {unjudged} more",
                counted(excused, "time")
            ),
        }
    }
}

/// What a shadow found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShadowReport {
    /// KATCP address of the engine.
    pub engine: String,
    /// For how long it was shadowed.
    pub seconds: f64,
    /// Changes of gains that were taken over.
    pub gain_changes: u64,
    /// Changes of delays that were taken over.
    pub delay_changes: u64,
    /// One per output stream.
    pub streams: Vec<ComparedStream>,
    /// Differences, oldest first.
    pub differences: Vec<Difference>,
    /// Differences behind the last of these.
    pub differences_more: u64,
    /// Heaps and batches that were left out, for this host did not keep up.
    pub left_out: u64,
    /// Frames that are no heaps of these streams, by cause.
    pub ignored: BTreeMap<&'static str, u64>,
    /// What is to be known beside it.
    pub notes: Vec<String>,
}

impl Documented for ShadowReport {
    const NAME: &'static str = "shadow-report";
    const TITLE: &'static str = "What karoo shadow --json found";
}

impl ShadowReport {
    /// The report on so many seconds beside `engine`, whose gains and delays changed so often.
    pub fn new(
        engine: &str,
        seconds: f64,
        (gain_changes, delay_changes): (u64, u64),
        compared: Compared,
        heard: Heard,
    ) -> Self {
        let mut notes = Vec::new();
        for stream in &heard.streams {
            let problems = stream.problems.iter();
            notes.extend(problems.map(|problem| format!("{}: {problem}", stream.name)));
        }
        Self {
            engine: engine.to_owned(),
            seconds,
            gain_changes,
            delay_changes,
            streams: compared.streams,
            differences: compared.differences,
            differences_more: compared.more,
            left_out: compared.left_out,
            ignored: heard.ignored,
            notes,
        }
    }

    /// Differences, also those that are not listed.
    pub fn count(&self) -> u64 {
        self.differences.len() as u64 + self.differences_more
    }

    /// Streams of which nothing was judged, each with why.
    pub fn unjudged(&self) -> Vec<String> {
        let unjudged = self.streams.iter().filter(|s| s.windows_judged == 0);
        let words = |s: &ComparedStream| format!("{} ({})", s.name, s.why_unjudged());
        unjudged.map(words).collect()
    }
}

impl fmt::Display for ShadowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {:.1} s, {} of gains and {} of delays taken over",
            self.engine,
            self.seconds,
            counted(self.gain_changes, "change"),
            self.delay_changes
        )?;
        for stream in &self.streams {
            let samples = stream.samples.max(1) as f64;
            let share = stream.samples_unequal as f64 / samples;
            writeln!(
                f,
                "  {}: {} of {} compared (1 batch in {}), {:.2e} of samples not equal to the bit",
                stream.name,
                counted(stream.heaps, "heap"),
                counted(stream.samples, "sample"),
                stream.every,
                share
            )?;
            writeln!(
                f,
                "    judged {} times of {}; {} with changes, {} without an answer; {} heaps sent alone, {} computed alone, {} late",
                stream.windows_judged,
                stream.windows_judged + stream.windows_excused + stream.windows_unjudged,
                stream.windows_excused,
                stream.windows_unjudged,
                stream.heaps_only_sent,
                stream.heaps_only_computed,
                stream.heaps_late,
            )?;
        }
        if self.left_out > 0 {
            writeln!(
                f,
                "  {} heaps left out: give a larger --every",
                self.left_out
            )?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for difference in &self.differences {
            writeln!(f, "  {difference}")?;
        }
        match (self.count(), self.unjudged()) {
            (0, unjudged) if unjudged.is_empty() => f.write_str("equal: nothing differs"),
            (0, unjudged) => write!(f, "nothing can be said of {}", unjudged.join(", ")),
            (1, _) => f.write_str("1 difference"),
            (n, _) => write!(f, "{n} differences"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_why_nothing_was_judged() {
        let stream = |name: &str, heaps, excused, unjudged| ComparedStream {
            name: name.to_owned(),
            heaps,
            windows_excused: excused,
            windows_unjudged: unjudged,
            ..ComparedStream::default()
        };
        let streams = vec![
            stream("silent", 0, 0, 0),
            stream("steered", 900, 31, 0),
            stream("mute", 900, 0, 32),
            stream("both", 900, 33, 34),
            ComparedStream {
                windows_judged: 1,
                ..stream("judged", 900, 35, 0)
            },
        ];
        let compared = Compared {
            streams,
            ..Compared::default()
        };
        let report = ShadowReport::new("engine:7148", 1.0, (0, 0), compared, Heard::default());
        let wanted = [
            ("silent", "no heap of both"),
            ("steered", "changed in each of 31 times"),
            ("mute", "did not answer in any of 32 times"),
            (
                "both",
                "changed in 33 times, and the engine did not answer in 34 more",
            ),
        ];
        let unjudged = report.unjudged();
        assert_eq!(unjudged.len(), wanted.len(), "{unjudged:?}");
        for (text, (name, why)) in unjudged.iter().zip(wanted) {
            assert!(text.starts_with(name) && text.contains(why), "{text}");
        }
        assert!(
            report.to_string().ends_with(&unjudged.join(", ")),
            "{report}"
        );
    }
}

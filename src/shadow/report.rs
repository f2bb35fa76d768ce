//! What a shadow found.

use std::collections::BTreeMap;
use std::fmt;

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

    /// Streams of which nothing was judged.
    pub fn unheard(&self) -> Vec<&str> {
        let unheard = self.streams.iter().filter(|s| s.windows_judged == 0);
        unheard.map(|stream| &stream.name[..]).collect()
    }
}

impl fmt::Display for ShadowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {:.1} s, {} changes of gains and {} of delays taken over",
            self.engine, self.seconds, self.gain_changes, self.delay_changes
        )?;
        for stream in &self.streams {
            let samples = stream.samples.max(1) as f64;
            let share = stream.samples_unequal as f64 / samples;
            writeln!(
                f,
                "  {}: {} heaps of {} samples compared (1 batch in {}), {:.2e} of samples not equal to the bit",
                stream.name, stream.heaps, stream.samples, stream.every, share
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
        match (self.count(), self.unheard()) {
            (0, unheard) if unheard.is_empty() => f.write_str("equal: nothing differs"),
            (0, unheard) => write!(f, "nothing can be said of {}", unheard.join(", ")),
            (1, _) => f.write_str("1 difference"),
            (n, _) => write!(f, "{n} differences"),
        }
    }
}

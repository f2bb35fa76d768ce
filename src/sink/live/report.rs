//! What a sink on an interface found out.

use std::collections::BTreeMap;
use std::fmt;

use ground::counted;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CheckedSpectra, Seen};
use crate::report::Documented;
use crate::sink::StreamReport;
use crate::sink::report::{write_ignored, write_verdict};

/// One stream, and what came of its check.
#[derive(Serialize, JsonSchema)]
pub struct LiveStream {
    /// What came of it.
    #[serde(flatten)]
    pub report: StreamReport,
    /// Gigabits of payload per second of the run.
    pub gbps: f64,
    /// What came of its check, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<CheckedSpectra>,
}

/// What a sink found.
#[derive(Serialize, JsonSchema)]
pub struct LiveReport {
    /// Where it received.
    pub interface: String,
    /// For how long.
    pub seconds: f64,
    /// Frames that came.
    pub frames: u64,
    /// Packets that the port had no room for.
    pub missed: u64,
    /// Frames that are no heaps of an F-engine, by cause.
    pub ignored: BTreeMap<&'static str, u64>,
    /// One per output stream.
    pub streams: Vec<LiveStream>,
}

impl Documented for LiveReport {
    const NAME: &'static str = "sink-live-report";
    const TITLE: &'static str = "What karoo sink --interface --json received";
}

impl LiveReport {
    /// What was `seen` in so many seconds on `interface`, of which the port `missed` some packets;
    /// `checked` by stream.
    pub fn new(
        interface: &str,
        seconds: f64,
        seen: Seen,
        missed: u64,
        checked: Option<Vec<CheckedSpectra>>,
    ) -> Self {
        let stream = |(i, mut report): (usize, StreamReport)| {
            let checked = checked.as_ref().and_then(|all| all.get(i).copied());
            if let Some(CheckedSpectra { wrong: 1.., .. }) = checked {
                report
                    .problems
                    .push("spectra are not those of the signals that were asked for".to_owned());
            }
            if let Some(CheckedSpectra { heaps: 0, .. }) = checked {
                report
                    .problems
                    .push("no heap was held against the signals".to_owned());
            }
            LiveStream {
                gbps: report.bytes as f64 * 8e-9 / seconds,
                report,
                checked,
            }
        };
        Self {
            interface: interface.to_owned(),
            seconds,
            frames: seen.frames,
            missed,
            ignored: seen.ignored.into_iter().collect(),
            streams: seen.streams.into_iter().enumerate().map(stream).collect(),
        }
    }

    /// Everything that is wrong, over all streams and the port.
    pub fn problems(&self) -> impl Iterator<Item = String> + '_ {
        let streams = self.streams.iter().flat_map(|s| s.report.problems());
        self.missed().into_iter().chain(streams)
    }

    fn missed(&self) -> Option<String> {
        (self.missed > 0).then(|| {
            format!(
                "{} packets found no room here: give a larger --recv-buffer, or more CPUs",
                self.missed
            )
        })
    }
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {:.1} s, {}",
            self.interface,
            self.seconds,
            counted(self.frames, "frame")
        )?;
        write_ignored(f, &self.ignored)?;
        for stream in &self.streams {
            stream.report.write(f, false)?;
            writeln!(f, "  rate       {:.4} Gb/s of payload", stream.gbps)?;
            if let Some(checked) = &stream.checked {
                writeln!(
                    f,
                    "  checked    {} values of {} heaps: {} wrong, at most {:.2} from the model",
                    checked.values, checked.heaps, checked.wrong, checked.worst
                )?;
            }
        }
        if let Some(missed) = self.missed() {
            writeln!(f, "{missed}")?;
        }
        let streams = self.streams.iter().map(|stream| &stream.report);
        write_verdict(f, self.problems().count(), streams)
    }
}

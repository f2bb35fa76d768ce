//! What a run report comes to, in words.

use super::data::RunReport;
use super::html::grouped;
use crate::recv::DropCause;

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// All of it came through.
    Good,
    /// Something was lost on the way.
    Losses,
    /// No batch was sent.
    Nothing,
}

impl Grade {
    pub(super) fn css_class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Losses => "warn",
            Self::Nothing => "bad",
        }
    }
}

/// A grade, a line for it, and the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How the run went.
    pub grade: Grade,
    /// One line.
    pub headline: String,
    /// Sentences.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Judges a run.
    pub fn of(report: &RunReport) -> Self {
        let input = &report.input;
        let heaps: u64 = input.pols.iter().map(|pol| pol.heaps).sum();
        let missing: u64 = input.pols.iter().map(|pol| pol.missing_heaps).sum();
        let outputs = report.outputs.iter();
        let batches: u64 = outputs.clone().map(|output| output.counts.batches).sum();
        let expected: u64 = outputs.map(|output| output.expected_batches).sum();
        let lost = input
            .drops
            .iter()
            .filter(|(cause, count)| is_loss(cause) && **count > 0);
        let most = input
            .drops
            .iter()
            .filter(|drop| *drop.1 > 0)
            .max_by_key(|drop| *drop.1);

        if batches == 0 {
            let mut reasons = Vec::new();
            if input.datagrams == 0 {
                reasons.push("The capture holds no datagrams.".to_owned());
            } else if heaps == 0 {
                reasons.push(format!(
                    "None of {} datagrams was a heap that this configuration takes.",
                    grouped(input.datagrams)
                ));
            } else if let Some(pol) = input.pols.iter().position(|pol| pol.heaps == 0) {
                reasons.push(format!(
                    "Polarisation {pol} has no heaps, and a batch needs both."
                ));
            } else {
                reasons.push(format!(
                    "{} heaps arrived and {} are missing: no batch had all of its input.",
                    grouped(heaps),
                    grouped(missing)
                ));
            }
            if heaps > 0 {
                reasons.push(match expected {
                    0 => "From its first heap to its last, the capture is too short for a batch."
                        .to_owned(),
                    _ => format!("None of {} batches was sent.", grouped(expected)),
                });
            }
            if let Some((cause, &count)) = most {
                reasons.push(format!(
                    "Most frequent cause: {cause}, {} datagrams. {}",
                    grouped(count),
                    explain(cause)
                ));
            }
            return Self {
                grade: Grade::Nothing,
                headline: "Nothing came out".to_owned(),
                reasons,
            };
        }

        let mut reasons = Vec::new();
        if missing > 0 {
            reasons.push(format!(
                "{} of {} heaps never arrived.",
                grouped(missing),
                grouped(heaps + missing)
            ));
        }
        for (cause, &count) in lost {
            reasons.push(format!(
                "{} datagrams were dropped: {cause}.",
                grouped(count)
            ));
        }
        for output in report.outputs.iter().filter(|o| o.not_sent_batches > 0) {
            reasons.push(format!(
                "{} of {} batches of {} were sent. The others lack a part of their input.",
                grouped(output.counts.batches),
                grouped(output.expected_batches),
                output.counts.name
            ));
        }
        if reasons.is_empty() {
            Self {
                grade: Grade::Good,
                headline: "Good: everything that arrived was used".to_owned(),
                reasons: vec![format!(
                    "{} heaps in, all {} batches out, nothing missing in between.",
                    grouped(heaps),
                    grouped(batches)
                )],
            }
        } else {
            Self {
                grade: Grade::Losses,
                headline: "Losses: some of the data did not come through".to_owned(),
                reasons,
            }
        }
    }
}

/// Whether datagrams dropped for this cause are data that the engine should have had.
pub(super) fn is_loss(cause: &str) -> bool {
    DropCause::named(cause).is_none_or(DropCause::is_loss)
}

/// One line on a cause of [`DropCause`], and where to look.
pub(super) fn explain(cause: &str) -> &'static str {
    DropCause::named(cause).map_or("", DropCause::explanation)
}

//! What a run report comes to, in words.

use dsp::level;

use super::data::RunReport;
use super::html::grouped;
use super::levels::OutputLevels;
use crate::recv::DropCause;

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// All of it came through.
    Good,
    /// Something was lost on the way.
    Losses,
    /// All came through, but an output had no room for its values.
    Clipped,
    /// No batch was sent.
    Nothing,
}

impl Grade {
    pub(super) fn css_class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Losses | Self::Clipped => "warn",
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

/// What a run comes to in numbers.
struct Sums {
    /// Heaps placed, and those that are missing between them.
    heaps: u64,
    missing: u64,
    /// Batches sent, and those that should have been.
    batches: u64,
    expected: u64,
}

impl Sums {
    fn of(report: &RunReport) -> Self {
        let (pols, outputs) = (&report.input.pols, &report.outputs);
        Self {
            heaps: pols.iter().map(|pol| pol.heaps).sum(),
            missing: pols.iter().map(|pol| pol.missing_heaps).sum(),
            batches: outputs.iter().map(|output| output.counts.batches).sum(),
            expected: outputs.iter().map(|output| output.expected_batches).sum(),
        }
    }
}

impl Verdict {
    /// Judges a run.
    pub fn of(report: &RunReport) -> Self {
        let sums = Sums::of(report);
        if sums.batches == 0 {
            return Self {
                grade: Grade::Nothing,
                headline: "Nothing came out".to_owned(),
                reasons: why_nothing(report, &sums),
            };
        }
        let (mut reasons, clipped) = (losses(report, &sums), clipped(report));
        if reasons.is_empty() && !clipped.is_empty() {
            Self {
                grade: Grade::Clipped,
                headline: "Clipped: everything that arrived was used, but not all values fit"
                    .to_owned(),
                reasons: clipped,
            }
        } else if reasons.is_empty() {
            Self {
                grade: Grade::Good,
                headline: "Good: everything that arrived was used".to_owned(),
                reasons: vec![format!(
                    "{} heaps in, all {} batches out, nothing missing in between.",
                    grouped(sums.heaps),
                    grouped(sums.batches)
                )],
            }
        } else {
            reasons.extend(clipped);
            Self {
                grade: Grade::Losses,
                headline: "Losses: some of the data did not come through".to_owned(),
                reasons,
            }
        }
    }
}

/// Why no batch was sent.
fn why_nothing(report: &RunReport, sums: &Sums) -> Vec<String> {
    let input = &report.input;
    let mut reasons = vec![if input.datagrams == 0 {
        "The capture holds no datagrams.".to_owned()
    } else if sums.heaps == 0 {
        format!(
            "None of {} datagrams was a heap that this configuration takes.",
            grouped(input.datagrams)
        )
    } else if let Some(pol) = input.pols.iter().position(|pol| pol.heaps == 0) {
        format!("Polarisation {pol} has no heaps, and a batch needs both.")
    } else {
        format!(
            "{} heaps arrived and {} are missing: no batch had all of its input.",
            grouped(sums.heaps),
            grouped(sums.missing)
        )
    }];
    if sums.heaps > 0 {
        reasons.push(match sums.expected {
            0 => {
                "From its first heap to its last, the capture is too short for a batch.".to_owned()
            }
            expected => format!("None of {} batches was sent.", grouped(expected)),
        });
    }
    let dropped = input.drops.iter().filter(|drop| *drop.1 > 0);
    if let Some((cause, &count)) = dropped.max_by_key(|drop| *drop.1) {
        reasons.push(format!(
            "Most frequent cause: {cause}, {} datagrams. {}",
            grouped(count),
            explain(cause)
        ));
    }
    reasons
}

/// What did not come through.
fn losses(report: &RunReport, sums: &Sums) -> Vec<String> {
    let mut reasons = Vec::new();
    if sums.missing > 0 {
        reasons.push(format!(
            "{} of {} heaps are missing.",
            grouped(sums.missing),
            grouped(sums.heaps + sums.missing)
        ));
    }
    let lost = report.input.drops.iter();
    for (cause, &count) in lost.filter(|(cause, count)| is_loss(cause) && **count > 0) {
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
    reasons
}

/// Outputs of which more was clipped than noise of a good level has.
fn clipped(report: &RunReport) -> Vec<String> {
    let of = |levels: &OutputLevels| {
        // Outputs without statistics have no levels.
        let mut configs = report.config.outputs.iter();
        let config = configs.find(|config| config.name == levels.name)?;
        let most = levels.pols.iter().map(|pol| pol.clipped).reduce(f64::max)?;
        let limit = level::clipping_limit(config.sample_bits);
        (most > limit).then(|| {
            format!(
                "{:.1} % of the values of {} were clipped: lower its gains, see Levels.",
                100.0 * most,
                levels.name
            )
        })
    };
    report.levels.iter().filter_map(of).collect()
}

/// Whether datagrams dropped for this cause are data that the engine should have had.
pub(super) fn is_loss(cause: &str) -> bool {
    DropCause::named(cause).is_none_or(DropCause::is_loss)
}

/// One line on a cause of [`DropCause`], and where to look.
pub(super) fn explain(cause: &str) -> &'static str {
    DropCause::named(cause).map_or("", DropCause::explanation)
}

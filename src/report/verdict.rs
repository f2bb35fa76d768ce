//! What a run report comes to, in words.

use dsp::level;
use ground::counted;
use schemars::JsonSchema;
use serde::Serialize;

use super::data::{METADATA, RunReport};
use super::document::Documented;
use super::html::grouped;
use super::levels::{OutputLevels, PolLevels};
use crate::recv::DropCause;

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// All of it came through.
    Good,
    /// Something was lost on the way.
    Losses,
    /// All came through, but not with all that was requested.
    Refused,
    /// All came through, but quantisation left little of an output.
    Weak,
    /// All came through, but an output had no room for its values.
    Clipped,
    /// No batch was sent.
    Nothing,
}

impl Grade {
    pub(super) fn css_class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Losses | Self::Refused | Self::Weak | Self::Clipped => "warn",
            Self::Nothing => "bad",
        }
    }
}

/// A grade, a line for it, and the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Verdict {
    /// How the run went.
    pub grade: Grade,
    /// One line.
    pub headline: String,
    /// Sentences.
    pub reasons: Vec<String>,
}

/// A run and what it comes to: `report.json`.
#[derive(Serialize, JsonSchema)]
pub struct JudgedReport<'a> {
    /// What the run comes to.
    verdict: Verdict,
    #[serde(flatten)]
    run: &'a RunReport,
}

impl<'a> JudgedReport<'a> {
    /// A run with its verdict.
    pub fn new(run: &'a RunReport) -> Self {
        let verdict = Verdict::of(run);
        Self { verdict, run }
    }
}

impl Documented for JudgedReport<'_> {
    const NAME: &'static str = "replay-report";
    const TITLE: &'static str = "Report of a replay: report.json of karoo replay --report";
}

/// What a run comes to in numbers.
struct Sums {
    /// Heaps placed, and those that are missing between them.
    heaps: u64,
    missing: u64,
    /// Batches sent, those that should have been, and those of the latter that were not.
    batches: u64,
    expected: u64,
    not_sent: u64,
}

impl Sums {
    fn of(report: &RunReport) -> Self {
        let (pols, outputs) = (&report.input.pols, &report.outputs);
        Self {
            heaps: pols.iter().map(|pol| pol.heaps).sum(),
            missing: pols.iter().map(|pol| pol.missing_heaps).sum(),
            batches: outputs.iter().map(|output| output.counts.batches).sum(),
            expected: outputs.iter().map(|output| output.expected_batches).sum(),
            not_sent: outputs.iter().map(|output| output.not_sent_batches).sum(),
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
        let (losses, refused) = (losses(report, &sums), refused(report));
        let (weak, clipped) = (weak(report), clipped(report));
        let (grade, headline) = if let Some(first) = losses.first() {
            let what = match sums.not_sent {
                0 => first.trim_end_matches('.').to_owned(),
                1 => format!("1 of {} batches was not sent", sums.expected),
                n => format!("{n} of {} batches were not sent", sums.expected),
            };
            (Grade::Losses, format!("Losses: {what}"))
        } else if let Some(refused) = &refused {
            let refused = refused.trim_end_matches('.');
            (Grade::Refused, format!("Refused: {refused}"))
        } else if let Some(worst) = weak.first() {
            let worst = worst.trim_end_matches('.');
            (Grade::Weak, format!("Too weak: {worst}"))
        } else if !clipped.is_empty() {
            let headline = "Clipped: everything that arrived was used, but not all values fit";
            (Grade::Clipped, headline.to_owned())
        } else {
            let headline = "Good: everything that arrived was used".to_owned();
            (Grade::Good, headline)
        };
        let refused = Vec::from_iter(refused);
        let mut reasons = [losses, refused, weak, clipped].concat();
        if reasons.is_empty() {
            reasons.push(format!(
                "{} heaps in, all {} batches out, nothing missing in between.",
                grouped(sums.heaps),
                grouped(sums.batches)
            ));
        }
        Self {
            grade,
            headline,
            reasons,
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
    let dropped = input.not_placed().into_iter();
    let dropped = dropped.filter(|&(cause, _)| cause != METADATA);
    if let Some((cause, count)) = dropped.max_by_key(|&(_, count)| count) {
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
        let datagrams = match count {
            1 => "1 datagram was".to_owned(),
            n => format!("{} datagrams were", grouped(n)),
        };
        reasons.push(format!("{datagrams} dropped: {cause}."));
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

/// Requests that failed: the output is as if they had not been made.
fn refused(report: &RunReport) -> Option<String> {
    let requests = report.requests.as_ref()?;
    let all = requests.replies.len();
    (requests.failed > 0).then(|| {
        format!(
            "{} of {} failed, and what was sent is without them.",
            grouped(requests.failed),
            counted(all as u64, "request")
        )
    })
}

/// Polarisations of outputs that quantisation left little of, the worst first.
fn weak(report: &RunReport) -> Vec<String> {
    let mut weak: Vec<(String, &PolLevels)> = Vec::new();
    for output in &report.levels {
        for (number, pol) in output.pols.iter().enumerate() {
            if pol.is_too_weak() {
                weak.push((format!("{}, polarisation {number},", output.name), pol));
            }
        }
    }
    weak.sort_by(|(_, one), (_, other)| one.efficiency.total_cmp(&other.efficiency));
    let reason = |(name, pol): (String, &PolLevels)| {
        let Some(factor) = pol.gain_factor else {
            return format!("{name} has no power: its gains or its input are 0.");
        };
        let factor = match factor < 10.0 {
            true => format!("{factor:.1}"),
            false => format!("{factor:.0}"),
        };
        format!(
            "{:.0} % of the values of {name} are zero: its gains should be {factor} times what \
             they are (--gain auto).",
            100.0 * pol.zeros
        )
    };
    weak.into_iter().map(reason).collect()
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
    cause != METADATA && DropCause::named(cause).is_none_or(DropCause::is_loss)
}

/// One line on a cause of [`DropCause`] or [`METADATA`], and where to look.
pub(super) fn explain(cause: &str) -> &'static str {
    if cause == METADATA {
        return "What a digitiser says of its data: what they are like, or that they end.";
    }
    DropCause::named(cause).map_or("", DropCause::explanation)
}

//! From gaps in the input to the stripes that they leave in the waterfall.

use std::fmt::Write as _;

use super::data::RunReport;
use super::html::{grouped, seconds};
use super::spectra::SpectraAccumulator;

/// Gaps that are listed, at most: the longest ones.
const LISTED: usize = 20;

/// A gap in the input of one polarisation, and where it is in the waterfall.
#[derive(Debug, PartialEq)]
pub(super) struct Mark {
    pol: usize,
    heaps: u64,
    /// Seconds from the first heap of the first chunk.
    begin: f64,
    /// Top and height, in percent of the waterfall.
    top: f64,
    height: f64,
}

/// The longest gaps of either polarisation, in order of time.
pub(super) fn marks(report: &RunReport, spectra: &SpectraAccumulator) -> Vec<Mark> {
    let begin = report.input.first_timestamp.zip(spectra.first_timestamp());
    let Some((first, waterfall)) = begin.map(|(first, of)| (first, of.0)) else {
        return Vec::new();
    };
    let heap = report.config.recv.packet_samples as u64;
    let rate = report.config.clock.adc_sample_rate;
    let all = (spectra.rows() as u64 * spectra.row_samples()).max(1) as f64;
    let place = |samples: u64| {
        let behind = (first + samples) as f64 - waterfall as f64;
        (100.0 * behind / all).clamp(0.0, 100.0)
    };
    let mut marks = Vec::new();
    for (pol, input) in report.input.pols.iter().enumerate() {
        let mut from = 0;
        for &(present, heaps) in &input.presence {
            let to = from + heaps * heap;
            if !present && heaps > 0 {
                marks.push(Mark {
                    pol,
                    heaps,
                    begin: from as f64 / rate,
                    top: place(from),
                    height: place(to) - place(from),
                });
            }
            from = to;
        }
    }
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.heaps));
    marks.truncate(LISTED);
    marks.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(a.pol.cmp(&b.pol)));
    marks
}

/// The gaps, each with a link to where it is in the waterfall.
pub(super) fn list(out: &mut String, marks: &[Mark]) {
    if marks.is_empty() {
        return;
    }
    out.push_str("<details><summary>The longest gaps</summary><ul>");
    for (i, mark) in marks.iter().enumerate() {
        let Mark {
            pol, heaps, begin, ..
        } = mark;
        let _ = write!(
            out,
            "<li><a href=\"#gap-{i}\">polarisation {pol}: {} heaps at {}</a></li>",
            grouped(*heaps),
            seconds(*begin)
        );
    }
    out.push_str("</ul></details>");
}

/// Marks over the waterfall of one polarisation.
pub(super) fn marked(marks: &[Mark], pol: usize) -> String {
    let mut out = String::new();
    for (i, mark) in marks.iter().enumerate().filter(|(_, mark)| mark.pol == pol) {
        let _ = write!(
            out,
            "<a class=\"gap\" id=\"gap-{i}\" title=\"{} heaps missing\" style=\"top:{:.3}%;height:{:.3}%\"></a>",
            mark.heaps, mark.top, mark.height
        );
    }
    out
}

//! The run report as files: `report.json`, and `report.html`, one page that needs nothing but
//! itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use dsp::power::dbfs_words;
use ground::files::WholeFile;
use quick_xml::escape::escape;

use super::data::{InputReport, RunReport};
use super::document::{Documented, to_json};
use super::spectra::SpectraAccumulator;
use super::verdict::{JudgedReport, Verdict, explain, is_loss};
use super::{figures, gaps, levels, picture};
use crate::engine::OutputCounts;

/// What a report's folder has.
pub const REPORT_FILES: [&str; 2] = ["report.json", "report.html"];

const STYLE: &str = include_str!("report.css");
/// Failed requests that the page lists.
const FAILED_REQUESTS: usize = 20;

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write '{}': {source}", path.display())]
pub struct ReportError {
    /// File or folder.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Writes `report.json` and `report.html` into `dir`, which is made if need be.
///
/// `spectra` has what was gathered of each output by name. Neither file appears before both are
/// whole.
pub fn write_report(
    dir: &Path,
    report: &RunReport,
    spectra: &[(String, SpectraAccumulator)],
) -> Result<(), ReportError> {
    write_pair(dir, &JudgedReport::new(report), &page(report, spectra))
}

/// Writes `report.json` with a document, and `report.html` with its page, into `dir`, which is
/// made if need be. Neither appears before both are whole.
pub(super) fn write_pair(
    dir: &Path,
    report: &impl Documented,
    page: &str,
) -> Result<(), ReportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError { path, source }
    };
    fs::create_dir_all(dir).map_err(failed(dir))?;
    let [json_path, html_path] = REPORT_FILES.map(|name| dir.join(name));
    let mut json = to_json(report).map_err(|error| failed(&json_path)(io::Error::other(error)))?;
    json.push('\n');
    let begin = |path: &Path, text: &str| {
        let mut file = WholeFile::create(path)?;
        file.write_all(text.as_bytes()).map(|()| file)
    };
    let json = begin(&json_path, &json).map_err(failed(&json_path))?;
    let page = begin(&html_path, page).map_err(failed(&html_path))?;
    json.finish().map_err(failed(&json_path))?;
    page.finish().map_err(failed(&html_path))
}

/// A number in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    // A narrow blank, at which no line breaks.
    ground::grouped(number, '\u{202f}')
}

pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1e3),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Begins a page: its title, its heading, and a soft line under the heading. All three are HTML.
pub(super) fn begin_page(out: &mut String, title: &str, heading: &str, under: &str) {
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>\
         <h1>{heading}</h1><p class=\"soft\">{under}</p>"
    );
}

/// Ends a page.
pub(super) fn end_page(out: &mut String) {
    out.push_str("</main></body></html>\n");
}

/// The whole page.
pub fn page(report: &RunReport, spectra: &[(String, SpectraAccumulator)]) -> String {
    let mut out = String::new();
    let capture = escape(&report.capture);
    let under = format!(
        "Karoo {} · backend {} · {:.3} MHz sample clock",
        escape(&report.karoo),
        escape(&report.backend),
        report.config.clock.adc_sample_rate / 1e6,
    );
    begin_page(
        &mut out,
        &format!("Karoo: {capture}"),
        &format!("Run of <code>{capture}</code>"),
        &under,
    );
    verdict(&mut out, report);
    tiles(&mut out, report);
    notes(&mut out, report);
    input(
        &mut out,
        report,
        spectra.first().map(|(_, spectra)| spectra),
    );
    drops(&mut out, &report.input);
    outputs(&mut out, report);
    levels::section(&mut out, report.input_levels.as_ref(), &report.levels);
    levels::measured(&mut out, &report.gains);
    requests(&mut out, report);
    for (i, (name, spectra)) in spectra.iter().enumerate() {
        figures::section(&mut out, report, name, spectra, i == 0);
    }
    lcores(&mut out, report);
    chosen(&mut out, report);
    configuration(&mut out, report);
    end_page(&mut out);
    out
}

fn verdict(out: &mut String, report: &RunReport) {
    let verdict = Verdict::of(report);
    let _ = write!(
        out,
        "<div class=\"verdict {}\"><strong>{}</strong>",
        verdict.grade.css_class(),
        escape(&verdict.headline)
    );
    for reason in &verdict.reasons {
        let _ = write!(out, "<p>{}</p>", escape(reason));
    }
    out.push_str("</div>");
}

fn tiles(out: &mut String, report: &RunReport) {
    let heaps: u64 = report.input.pols.iter().map(|pol| pol.heaps).sum();
    let missing: u64 = report.input.pols.iter().map(|pol| pol.missing_heaps).sum();
    let outputs = report.outputs.iter().map(|output| &output.counts);
    let batches: u64 = outputs.clone().map(|counts| counts.batches).sum();
    let expected: u64 = report.outputs.iter().map(|o| o.expected_batches).sum();
    let sent: u64 = outputs.map(|counts| counts.bytes).sum();
    let missing_percent = 100.0 * missing as f64 / (heaps + missing).max(1) as f64;
    let tiles = [
        (
            grouped(report.input.datagrams),
            "datagrams in the capture".to_owned(),
        ),
        (grouped(heaps), "heaps placed".to_owned()),
        (
            grouped(missing),
            format!("heaps missing ({missing_percent:.2} %)"),
        ),
        (
            format!("{} of {}", grouped(batches), grouped(expected)),
            "batches sent".to_owned(),
        ),
        (bytes(sent), "spectra sent".to_owned()),
        (
            format!("{:.2} ×", report.rate.realtime),
            "real time".to_owned(),
        ),
        (
            format!("{:.2} Gb/s", report.rate.input_gbps),
            "of capture".to_owned(),
        ),
        (seconds(report.rate.seconds), "run time".to_owned()),
    ];
    write_tiles(out, &tiles);
}

/// Figures that one sees first: each value and what it is, as HTML.
pub(super) fn write_tiles(out: &mut String, tiles: &[(String, String)]) {
    out.push_str("<div class=\"tiles\">");
    for (value, what) in tiles {
        let _ = write!(
            out,
            "<div class=\"tile\"><b>{value}</b><span>{what}</span></div>"
        );
    }
    out.push_str("</div>");
}

fn notes(out: &mut String, report: &RunReport) {
    if report.capture_notes.is_empty() {
        return;
    }
    out.push_str("<ul class=\"soft\">");
    for note in &report.capture_notes {
        let _ = write!(out, "<li>{}</li>", escape(note));
    }
    out.push_str("</ul>");
}

fn input(out: &mut String, report: &RunReport, first: Option<&SpectraAccumulator>) {
    out.push_str("<h2>Input</h2>");
    let rate = report.config.clock.adc_sample_rate;
    for (pol, input) in report.input.pols.iter().enumerate() {
        let heaps: u64 = input.presence.iter().map(|run| run.1).sum();
        let span = heaps as f64 * report.config.recv.packet_samples as f64 / rate;
        let power = input.power_dbfs.map_or(String::new(), |power| {
            format!(" · {}", dbfs_words(power, 1))
        });
        let _ = write!(
            out,
            "<h3>Polarisation {pol}</h3><p class=\"soft\">{} heaps · {} · {} missing · {} samples clipped{power}</p>",
            grouped(input.heaps),
            bytes(input.bytes),
            grouped(input.missing_heaps),
            grouped(input.clipped_samples),
        );
        if heaps > 0 {
            let _ = write!(
                out,
                "{}<div class=\"axis\"><span>0</span><span>{}</span></div>",
                picture::presence_bar(input),
                seconds(span)
            );
        }
    }
    if let Some(spectra) = first {
        gaps::list(out, &gaps::marks(report, spectra));
    }
    out.push_str(
        "<p class=\"soft\">Time runs to the right from the first heap of the first chunk. \
         <span class=\"key\" style=\"background:var(--there)\"></span>received\
         <span class=\"key\" style=\"background:var(--gone)\"></span>missing</p>",
    );
}

fn drops(out: &mut String, input: &InputReport) {
    out.push_str("<h2>Datagrams not placed</h2>");
    let mut drops = input.not_placed();
    if drops.is_empty() {
        out.push_str("<p>None: every datagram of the capture was placed.</p>");
        return;
    }
    drops.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    out.push_str(
        "<div class=\"scroll\"><table><tr><th>cause</th><th class=\"num\">datagrams</th><th class=\"num\">share</th>\
         <th>what it means</th></tr>",
    );
    for (cause, count) in drops {
        let share = 100.0 * count as f64 / input.datagrams.max(1) as f64;
        let loss = if is_loss(cause) {
            ""
        } else {
            " Not counted as a loss."
        };
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td class=\"num\">{}</td><td class=\"num\">{share:.2} %</td><td>{}{loss}</td></tr>",
            escape(cause),
            grouped(count),
            explain(cause)
        );
    }
    out.push_str("</table></div>");
}

fn outputs(out: &mut String, report: &RunReport) {
    out.push_str(
        "<h2>Output</h2><div class=\"scroll\"><table><tr><th>stream</th><th class=\"num\">batches</th>\
         <th class=\"num\">heaps</th><th class=\"num\">payload</th><th class=\"num\">heaps not sent</th>\
         <th class=\"num\">clipped, pol 0</th><th class=\"num\">clipped, pol 1</th><th class=\"num\">timestamps</th></tr>",
    );
    for output in &report.outputs {
        let counts = &output.counts;
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"num\">{} of {}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>\
             <td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
            escape(&counts.name),
            grouped(counts.batches),
            grouped(output.expected_batches),
            grouped(counts.heaps),
            bytes(counts.bytes),
            grouped(output.skipped_heaps),
            grouped(counts.clipped_samples[0]),
            grouped(counts.clipped_samples[1]),
            timestamps(counts),
        );
    }
    out.push_str("</table></div>");
}

fn requests(out: &mut String, report: &RunReport) {
    let Some(requests) = &report.requests else {
        return;
    };
    let stalls = &requests.stalls;
    let _ = write!(
        out,
        "<h2>Requests</h2><p>{} requests, {} failed, {} after the last batch; the output reached {} changes. They held up the engine's thread for {} in \
         the median, {} at most.</p><div class=\"scroll\"><table><tr><th class=\"num\">up to</th><th class=\"num\">times</th></tr>",
        grouped(requests.replies.len() as u64),
        grouped(requests.failed),
        grouped(requests.behind),
        grouped(requests.applied),
        seconds(stalls.median),
        seconds(stalls.max),
    );
    for (bound, count) in &stalls.histogram {
        let (bound, count) = (seconds(*bound), grouped(*count));
        let _ = write!(
            out,
            "<tr><td class=\"num\">{bound}</td><td class=\"num\">{count}</td></tr>"
        );
    }
    out.push_str("</table></div>");
    let failed: Vec<_> = requests
        .replies
        .iter()
        .filter(|reply| reply.failed())
        .collect();
    if failed.is_empty() {
        return;
    }
    out.push_str("<h3>Requests that failed</h3><ul>");
    for reply in failed.iter().take(FAILED_REQUESTS) {
        let (line, text) = (reply.line, escape(&reply.reply));
        let _ = write!(out, "<li>line {line}: <code>{text}</code></li>");
    }
    if failed.len() > FAILED_REQUESTS {
        let more = grouped((failed.len() - FAILED_REQUESTS) as u64);
        let _ = write!(out, "<li>and {more} more, which report.json has</li>");
    }
    out.push_str("</ul>");
}

fn timestamps(counts: &OutputCounts) -> String {
    match (counts.first_timestamp, counts.last_timestamp) {
        (Some(first), Some(last)) => format!("{first} – {last}"),
        _ => "none".to_owned(),
    }
}

fn lcores(out: &mut String, report: &RunReport) {
    if report.lcores.is_empty() {
        return;
    }
    out.push_str("<h2>Time per thread</h2><div class=\"lcores\">");
    let mut phases: Vec<&str> = Vec::new();
    for lcore in &report.lcores {
        let core = lcore.core.map_or(String::new(), |core| {
            format!(" <span class=\"soft\">on CPU {core}</span>")
        });
        let _ = write!(
            out,
            "<div><code>{}</code>{core}</div>{}",
            escape(&lcore.name),
            picture::lcore_bar(lcore)
        );
        for (phase, _) in &lcore.phases {
            if !phases.contains(&phase.as_str()) {
                phases.push(phase);
            }
        }
    }
    out.push_str("</div><p class=\"soft\">");
    for phase in phases {
        let _ = write!(
            out,
            "<span class=\"key {}\"></span>{}",
            picture::phase_class(phase),
            escape(phase)
        );
    }
    out.push_str("</p>");
}

fn chosen(out: &mut String, report: &RunReport) {
    if report.chosen.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Values picked</h2><p class=\"soft\">No option gave these; they were taken from the capture or are defaults.</p>\
         <div class=\"scroll\"><table><tr><th>option</th><th>value</th><th>why</th></tr>",
    );
    for chosen in &report.chosen {
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td><code>{}</code></td><td>{}</td></tr>",
            escape(&chosen.option),
            escape(&chosen.value),
            escape(&chosen.why)
        );
    }
    out.push_str("</table></div>");
}

fn configuration(out: &mut String, report: &RunReport) {
    let json = serde_json::to_string_pretty(&report.config).unwrap_or_default();
    let _ = write!(
        out,
        "<h2>Configuration</h2><details><summary>All of it</summary><pre>{}</pre></details>\
         <p class=\"soft\">The same numbers are in <code>report.json</code> beside this page.</p>",
        escape(&json)
    );
}

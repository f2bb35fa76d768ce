//! The page.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use quick_xml::escape::escape;

use super::super::html::{begin_page, end_page, seconds, write_tiles};
use super::{Checked, Limit, Qualification, Requirement, number, picture};

/// The whole page.
pub(super) fn page(report: &Qualification) -> String {
    let mut out = String::new();
    let program = escape(&report.program);
    let under = format!(
        "{} · measured by Karoo {} · {} · {} · Linux {} · backend {}",
        escape(&report.program_version),
        escape(&report.karoo),
        day(report.time),
        escape(&report.processor),
        escape(&report.kernel),
        escape(&report.backend),
    );
    begin_page(
        &mut out,
        &format!("Qualification of {program}"),
        &format!("Qualification of <code>{program}</code>"),
        &under,
    );
    verdict(&mut out, report);
    let figures = report
        .requirements
        .iter()
        .map(|of| of.figures.len())
        .sum::<usize>();
    let rate = report.adc_sample_rate.map(|rate| {
        let rate = format!("{:.3} MHz", rate / 1e6);
        (rate, "sample rate".to_owned())
    });
    let counts = [
        (
            report.requirements.len().to_string(),
            "requirements".to_owned(),
        ),
        (figures.to_string(), "figures".to_owned()),
    ];
    let time = (seconds(report.seconds), "run time".to_owned());
    let tiles: Vec<_> = counts.into_iter().chain(rate).chain([time]).collect();
    write_tiles(&mut out, &tiles);
    summary(&mut out, report);
    for requirement in &report.requirements {
        section(&mut out, requirement);
    }
    end_page(&mut out);
    out
}

/// Day and time of a UNIX time.
fn day(time: f64) -> String {
    let since = Duration::try_from_secs_f64(time).unwrap_or_default();
    httpdate::fmt_http_date(UNIX_EPOCH + since)
}

fn verdict(out: &mut String, report: &Qualification) {
    let all = report.requirements.len();
    let failed = report.requirements.iter().filter(|of| !of.passed()).count();
    let (class, text) = match (all, failed) {
        (0, _) => ("bad", "Nothing was measured".to_owned()),
        (1, 0) => ("good", "The requirement is met".to_owned()),
        (_, 0) => ("good", format!("All {all} requirements are met")),
        (1, _) => ("bad", "The requirement is not met".to_owned()),
        (_, 1) => ("bad", format!("1 of {all} requirements is not met")),
        _ => ("bad", format!("{failed} of {all} requirements are not met")),
    };
    let _ = write!(
        out,
        "<div class=\"verdict {class}\"><strong>{text}</strong></div>"
    );
}

fn mark(passed: bool) -> &'static str {
    if passed {
        "met"
    } else {
        "<strong>not met</strong>"
    }
}

fn summary(out: &mut String, report: &Qualification) {
    out.push_str("<div class=\"scroll\"><table><tr><th>requirement</th><th>output</th><th>numbers</th><th></th></tr>");
    for of in &report.requirements {
        let _ = write!(
            out,
            "<tr><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td><td>{}</td></tr>",
            anchor(of),
            escape(&of.title),
            escape(output_name(of)),
            escape(of.numbers.join(", ")),
            mark(of.passed()),
        );
    }
    out.push_str("</table></div>");
}

/// The value of the key `name` of its output; all of an engine's that runs, which has no keys.
fn output_name(of: &Requirement) -> &str {
    if !of.output.contains('=') {
        return &of.output;
    }
    let mut keys = of.output.split(',');
    keys.find_map(|key| key.trim().strip_prefix("name="))
        .unwrap_or("")
}

fn anchor(of: &Requirement) -> String {
    escape(format!("{}-{}", of.name, output_name(of))).into_owned()
}

fn section(out: &mut String, of: &Requirement) {
    let _ = write!(
        out,
        "<h2 id=\"{}\">{}: {}</h2><p class=\"soft\"><code>{}</code> {}</p><p>{}</p>",
        anchor(of),
        escape(&of.title),
        mark(of.passed()),
        escape(&of.output),
        escape(of.numbers.join(", ")),
        escape(&of.method),
    );
    if let Some(error) = &of.error {
        let _ = write!(
            out,
            "<p><strong>Not measured:</strong> {}</p>",
            escape(error)
        );
    }
    out.push_str("<div class=\"scroll\"><table><tr><th>figure</th><th>measured</th><th>required</th><th></th></tr>");
    for figure in &of.figures {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td></tr>",
            escape(&figure.name),
            number(figure.value),
            escape(&figure.unit),
            required(figure),
            match figure.limit {
                Limit::None => "",
                _ => mark(figure.passed()),
            },
        );
    }
    out.push_str("</table></div>");
    for curve in &of.curves {
        if let Some(svg) = picture::svg(curve) {
            let _ = write!(
                out,
                "<figure class=\"plot\"><figcaption>{}</figcaption>{svg}</figure>",
                escape(&curve.title)
            );
        }
    }
}

fn required(figure: &Checked) -> String {
    match figure.limit {
        Limit::AtMost(limit) => format!("at most {} {}", number(limit), escape(&figure.unit)),
        Limit::AtLeast(limit) => format!("at least {} {}", number(limit), escape(&figure.unit)),
        Limit::None => String::new(),
    }
}

//! Findings in words.

use std::fmt::Write as _;

use super::{Finding, Knob, Status};

/// A line for each entry: how it is, what it is, and what it should be.
pub fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let status = finding.status();
        let _ = writeln!(
            text,
            "{:8} {:24} {}",
            word(status),
            finding.entry.id,
            summary(finding, status)
        );
    }
    let count = |wanted: fn(Status) -> bool| {
        findings
            .iter()
            .filter(|finding| wanted(finding.status()))
            .count()
    };
    let _ = writeln!(
        text,
        "{} as they should be, {} not, {} not on this host, {} to see to yourself",
        count(|status| matches!(status, Status::Ok | Status::Fixed)),
        count(Status::is_miss),
        count(|status| status == Status::Absent),
        count(|status| status == Status::Listed),
    );
    text
}

/// What an entry is for, and what was measured.
pub fn explain(finding: &Finding) -> String {
    let entry = &finding.entry;
    let mut text = format!("{}: {}\n  why: {}\n", entry.id, entry.what, entry.why);
    if !entry.effect.is_empty() {
        let _ = writeln!(text, "  effect: {}", entry.effect);
    }
    let survives = match finding.survives_reboot {
        Some(true) => "takes effect with a reboot or login, and stays",
        Some(false) => "at once, until the next boot",
        None => "not changed by apply",
    };
    let _ = writeln!(text, "  apply: {survives}");
    for knob in &finding.values {
        let _ = writeln!(
            text,
            "  {} {}: {}",
            word(knob.status),
            knob.name,
            sentence(knob)
        );
    }
    text
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Miss => "MISS",
        Status::Pending => "PENDING",
        Status::Unknown => "UNKNOWN",
        Status::Fixed => "fixed",
        Status::Absent => "absent",
        Status::Listed => "listed",
    }
}

/// The values that make an entry's status, the first of them in full.
fn summary(finding: &Finding, status: Status) -> String {
    let mut ours = finding.values.iter().filter(|knob| knob.status == status);
    let Some(first) = ours.next() else {
        return format!("{}: this host has none", finding.entry.what);
    };
    let more = match ours.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    match status {
        Status::Listed => first.remedy.clone().unwrap_or_default(),
        _ => format!("{}: {}{more}", first.name, sentence(first)),
    }
}

fn sentence(knob: &Knob) -> String {
    let Knob {
        current, wanted, ..
    } = knob;
    let remedy = knob
        .remedy
        .as_ref()
        .map_or(String::new(), |remedy| format!("; {remedy}"));
    match knob.status {
        Status::Ok => current.clone(),
        Status::Absent => "this host has none".to_owned(),
        Status::Fixed => {
            format!("{current}, should be {wanted}; the system does not let it be changed")
        }
        Status::Pending => format!("{wanted} is prepared{remedy}"),
        Status::Unknown => current.clone(),
        Status::Listed => knob.remedy.clone().unwrap_or_default(),
        Status::Miss => format!("{current}, should be {wanted}{remedy}"),
    }
}

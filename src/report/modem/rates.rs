//! The page of trials: rates over Eb/N0 beside theory, losses of frames by cause, error vectors.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ground::counted;
use ground::files::write_whole;
use karoo_modem::rx::ModeVote;
use karoo_modem::theory::{Interval, mode_error_rate};
use karoo_modem::trials::TrialPoint;
use karoo_modem::waveform::{ModeSet, Modulation};
use quick_xml::escape::escape;

use super::super::error_rates::{MeasuredRate, error_rates_svg, frame_rates_svg};
use super::super::html::{ReportError, begin_page, end_page, grouped, seconds, write_tiles};

/// Loss that is within the goal, in dB.
const GOAL_DB: f64 = 0.3;
/// Wrong bits from which on a rate says something about a loss.
const ENOUGH: u64 = 50;

/// What was tried.
#[derive(Clone, Debug)]
pub struct RatesRun {
    /// The channel and the receiver, in words.
    pub setting: String,
    /// Whether the channel is white noise alone, which theory is of.
    pub white: bool,
    /// How the modulation is read.
    pub vote: ModeVote,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Writes `report.html` into `dir`, which is made if need be. The file appears whole or not at all.
pub fn write_rates(dir: &Path, run: &RatesRun, points: &[TrialPoint]) -> Result<(), ReportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError { path, source }
    };
    fs::create_dir_all(dir).map_err(failed(dir))?;
    let path = dir.join("report.html");
    write_whole(&path, page(run, points)).map_err(failed(&path))
}

/// Rates as the picture shows them.
pub fn bit_rates(points: &[TrialPoint]) -> Vec<MeasuredRate> {
    let rate = |point: &TrialPoint| {
        let interval = point.result.interval?;
        Some(measured(point, point.result.rate, interval))
    };
    points.iter().filter_map(rate).collect()
}

fn measured(point: &TrialPoint, rate: f64, interval: Interval) -> MeasuredRate {
    MeasuredRate {
        modulation: point.modulation,
        eb_n0_db: point.eb_n0_db,
        rate,
        interval: (interval.low, interval.high),
    }
}

fn share(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

fn page(run: &RatesRun, points: &[TrialPoint]) -> String {
    let mut out = String::new();
    let (karoo, setting) = (ground::karoo_version(), escape(&run.setting));
    let under = format!("Karoo {karoo} · {setting}");
    begin_page(&mut out, "Karoo modem: error rates", "Error rates", &under);
    verdict(&mut out, run, points);
    let sent: u64 = points.iter().map(|point| point.result.sent).sum();
    let bits: u64 = points.iter().map(|point| point.result.bits).sum();
    let lost: u64 = points.iter().map(|point| point.result.lost).sum();
    let false_frames: u64 = points.iter().map(|point| point.result.false_frames).sum();
    let tiles = [
        (grouped(points.len() as u64), "points".to_owned()),
        (grouped(sent), "frames sent".to_owned()),
        (grouped(lost), "frames not found".to_owned()),
        (
            grouped(false_frames),
            "frames where none was sent".to_owned(),
        ),
        (grouped(bits), "bits compared".to_owned()),
        (seconds(run.seconds), "run time".to_owned()),
    ];
    write_tiles(&mut out, &tiles);
    pictures(&mut out, run, points);
    rates(&mut out, points);
    causes(&mut out, points);
    end_page(&mut out);
    out
}

fn verdict(out: &mut String, run: &RatesRun, points: &[TrialPoint]) {
    let lost: u64 = points.iter().map(|point| point.result.lost).sum();
    let sure = points.iter().filter(|point| point.result.errors >= ENOUGH);
    // Half of the bits wrong: no loss describes that.
    let beyond = sure.clone().any(|point| point.loss_db.is_none());
    let worst = sure
        .filter_map(|point| point.loss_db)
        .fold(f64::NEG_INFINITY, f64::max);
    let not_found = format!("{} not found", counted(lost, "frame"));
    let (class, headline) = match (run.white, worst.is_finite()) {
        (true, _) if beyond => (
            "warn",
            format!("Bits are wrong as if nothing had been received; {not_found}"),
        ),
        (true, true) if worst <= GOAL_DB && lost == 0 => (
            "good",
            format!("At most {worst:.2} dB from a perfect receiver, and no frame lost"),
        ),
        (true, true) => (
            "warn",
            format!("Up to {worst:.2} dB from a perfect receiver; {not_found}"),
        ),
        _ if lost == 0 => ("good", "Every frame was found".to_owned()),
        _ => ("warn", not_found),
    };
    let _ = write!(
        out,
        "<div class=\"verdict {class}\"><strong>{headline}</strong>"
    );
    if run.white && (beyond || worst.is_finite()) {
        let _ = write!(
            out,
            "<p>Of points with {ENOUGH} wrong bits or more; the goal is {GOAL_DB} dB.</p>"
        );
    }
    out.push_str("</div>");
}

fn pictures(out: &mut String, run: &RatesRun, points: &[TrialPoint]) {
    let figure = |out: &mut String, caption: &str, svg: Option<String>| {
        if let Some(svg) = svg {
            let _ = write!(
                out,
                "<figure class=\"plot\"><figcaption>{caption}</figcaption>{svg}</figure>"
            );
        }
    };
    out.push_str("<h2>Curves</h2>");
    let caption = "Wrong bits, with intervals of 95 %, on the curves of theory in white noise";
    figure(out, caption, error_rates_svg(&bit_rates(points)));
    out.push_str("<div class=\"pair\">");
    let lost = points.iter().map(|point| {
        let result = &point.result;
        measured(point, share(result.lost, result.sent), result.lost_interval)
    });
    let caption = "Frames that were not found; without any, the interval alone";
    let lost: Vec<_> = lost.collect();
    let none = |_, _| 0.0;
    figure(
        out,
        caption,
        frame_rates_svg("frames not found", &lost, &none),
    );
    let wrong = points.iter().map(|point| {
        let result = &point.result;
        let rate = share(result.wrong_mode, result.sent - result.lost);
        measured(point, rate, result.wrong_mode_interval)
    });
    let theory = |modulation: Modulation, eb_n0_db: f64| {
        let es_n0_db = eb_n0_db + 10.0 * (modulation.bits() as f64).log10();
        mode_error_rate(run.vote, ModeSet::default(), modulation, es_n0_db)
    };
    let caption = "Frames whose modulation was read wrongly, of those that were found, on the curve \
                   of a perfect receiver";
    let wrong: Vec<_> = wrong.collect();
    figure(
        out,
        caption,
        frame_rates_svg("modulation wrong", &wrong, &theory),
    );
    out.push_str("</div>");
}

fn rates(out: &mut String, points: &[TrialPoint]) {
    out.push_str(
        "<h2>Bits</h2><div class=\"scroll\"><table><tr><th>modulation</th>\
         <th class=\"num\">Eb/N0, dB</th><th class=\"num\">wrong</th><th class=\"num\">of bits</th>\
         <th class=\"num\">rate</th><th class=\"num\">95 % interval</th><th class=\"num\">theory</th>\
         <th class=\"num\">loss, dB</th><th class=\"num\">EVM before equaliser, %</th>\
         <th class=\"num\">behind it</th><th class=\"num\">ideal</th></tr>",
    );
    for point in points {
        let result = &point.result;
        let interval = result.interval.map_or("none".to_owned(), |interval| {
            format!("{:.1e} to {:.1e}", interval.low, interval.high)
        });
        let loss = match (point.loss_db, point.loss_interval_db) {
            (Some(loss), Some(ends)) => {
                format!("{loss:.2} ({:.2} to {:.2})", ends.low, ends.high)
            }
            (Some(loss), None) => format!("{loss:.2}"),
            (None, _) if result.errors > 0 => "beyond theory".to_owned(),
            (None, _) => "none".to_owned(),
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"num\">{:.2}</td><td class=\"num\">{}</td>\
             <td class=\"num\">{}</td><td class=\"num\">{:.2e}</td><td class=\"num\">{interval}</td>\
             <td class=\"num\">{:.2e}</td><td class=\"num\">{loss}</td><td class=\"num\">{:.2}</td>\
             <td class=\"num\">{:.2}</td><td class=\"num\">{:.2}</td></tr>",
            point.modulation,
            point.eb_n0_db,
            grouped(result.errors),
            grouped(result.bits),
            result.rate,
            result.theory,
            100.0 * result.evm_unequalised,
            100.0 * result.evm,
            100.0 * result.evm_ideal,
        );
    }
    out.push_str("</table></div>");
}

fn causes(out: &mut String, points: &[TrialPoint]) {
    out.push_str(
        "<h2>Frames by what became of them</h2><div class=\"scroll\"><table><tr><th>modulation</th>\
         <th class=\"num\">Eb/N0, dB</th><th class=\"num\">sent</th><th class=\"num\">not found</th>\
         <th class=\"num\">other modulation</th><th class=\"num\">expected</th>\
         <th class=\"num\">mode byte</th><th class=\"num\">length</th>\
         <th class=\"num\">check field</th><th class=\"num\">delivered</th>\
         <th class=\"num\">where none was sent</th></tr>",
    );
    for point in points {
        let result = &point.result;
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"num\">{:.2}</td>",
            point.modulation, point.eb_n0_db,
        );
        for count in [result.sent, result.lost, result.wrong_mode] {
            let _ = write!(out, "<td class=\"num\">{}</td>", grouped(count));
        }
        let _ = write!(out, "<td class=\"num\">{:.1}</td>", point.mode_expected);
        let rest = [
            result.mode,
            result.length,
            result.check,
            result.delivered,
            result.false_frames,
        ];
        for count in rest {
            let _ = write!(out, "<td class=\"num\">{}</td>", grouped(count));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use karoo_modem::theory::clopper_pearson;
    use karoo_modem::trials::TrialResult;

    fn point(errors: u64, lost: u64, loss_db: f64) -> TrialPoint {
        TrialPoint {
            modulation: Modulation::Qpsk,
            eb_n0_db: 5.0,
            result: TrialResult {
                sent: 10,
                lost,
                bits: 10_000,
                errors,
                rate: errors as f64 / 1e4,
                interval: Some(clopper_pearson(errors, 10_000, 0.95)),
                lost_interval: clopper_pearson(lost, 10, 0.95),
                ..TrialResult::default()
            },
            loss_db: (errors > 0).then_some(loss_db),
            loss_interval_db: None,
            mode_expected: 0.1,
        }
    }

    fn page_of(white: bool, points: &[TrialPoint]) -> String {
        let run = RatesRun {
            setting: "<echoes>".to_owned(),
            white,
            vote: ModeVote::Soft,
            seconds: 1.0,
        };
        let dir = tempfile::tempdir().unwrap();
        write_rates(dir.path(), &run, points).unwrap();
        fs::read_to_string(dir.path().join("report.html")).unwrap()
    }

    #[test]
    fn the_page_says_how_far_from_theory_it_is() {
        let page = page_of(true, &[point(70, 0, 0.12), point(3, 0, 9.0)]);
        assert!(page.contains("verdict good") && page.contains("At most 0.12 dB"));
        assert!(page.contains("&lt;echoes&gt;") && !page.contains("<echoes>"));
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(!page.contains("<script") && !page.contains("<link"));
        let far = page_of(true, &[point(70, 0, 0.4)]);
        assert!(far.contains("verdict warn") && far.contains("Up to 0.40 dB"));
        let lost = page_of(true, &[point(70, 2, 0.1)]);
        assert!(lost.contains("verdict warn") && lost.contains("2 frames not found"));
        let mut half = point(5000, 0, 0.0);
        half.loss_db = None;
        let beyond = page_of(true, &[point(70, 0, 0.1), half]);
        assert!(
            beyond.contains("verdict warn") && beyond.contains("as if nothing had been received")
        );
        assert!(beyond.contains(">beyond theory<"));
        let one = page_of(false, &[point(70, 1, 0.1)]);
        assert!(one.contains("<strong>1 frame not found</strong>"));
    }

    #[test]
    fn echoes_are_not_held_against_theory_of_white_noise() {
        let page = page_of(false, &[point(500, 0, 6.0)]);
        assert!(page.contains("verdict good") && page.contains("Every frame was found"));
    }
}

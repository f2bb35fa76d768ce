//! The page.

use std::fmt::Write as _;

use ground::plural;
use karoo_modem::rx::{Counts, Outcome};
use quick_xml::escape::escape;

use super::super::html::{begin_page, end_page, grouped, seconds, write_tiles};
use super::{InputLevel, ModemGatherer, ModemRun, pictures};

/// The whole page.
pub(super) fn page(gathered: &ModemGatherer, run: &ModemRun, counts: &Counts) -> String {
    let mut out = String::new();
    let input = escape(&run.input);
    let rate = match run.sample_rate {
        Some(rate) => format!("{:.6} Msample/s", rate / 1e6),
        None => "rate not known".to_owned(),
    };
    let (karoo, machine) = (ground::karoo_version(), escape(&run.machine));
    begin_page(
        &mut out,
        &format!("Karoo modem: {input}"),
        &format!("Frames of <code>{input}</code>"),
        &format!("Karoo {karoo} · {rate} · {machine}"),
    );
    verdict(&mut out, counts);
    tiles(&mut out, run, counts);
    causes(&mut out, counts);
    input_of(&mut out, run);
    constellations(&mut out, gathered);
    curves(&mut out, gathered, run);
    frames(&mut out, gathered, run, counts);
    end_page(&mut out);
    out
}

fn verdict(out: &mut String, counts: &Counts) {
    let (all, good) = (counts.frames(), counts.delivered);
    let (class, headline) = match (all, counts.not_delivered()) {
        (0, _) => ("bad", "No frame was found".to_owned()),
        (_, 0) => (
            "good",
            format!(
                "{} {} received, none lost",
                grouped(good),
                plural(good, "frame")
            ),
        ),
        (_, lost) => {
            let class = if good == 0 { "bad" } else { "warn" };
            let (lost, were) = match lost {
                1 => (grouped(1), "was"),
                lost => (grouped(lost), "were"),
            };
            let frames = plural(all, "frame");
            let text = format!("{lost} of {} {frames} {were} not delivered", grouped(all));
            (class, text)
        }
    };
    let _ = write!(
        out,
        "<div class=\"verdict {class}\"><strong>{headline}</strong>"
    );
    if all == 0 {
        out.push_str(
            "<p>Is the format of samples right, and are there three samples a symbol? The spectrum \
             below shows what there is.</p>",
        );
    }
    out.push_str("</div>");
}

fn tiles(out: &mut String, run: &ModemRun, counts: &Counts) {
    let realtime = run.sample_rate.map(|rate| counts.samples as f64 / rate);
    let tiles = [
        (grouped(counts.samples), "samples".to_owned()),
        (
            realtime.map_or("–".to_owned(), seconds),
            "of signal".to_owned(),
        ),
        (grouped(counts.delivered), "frames delivered".to_owned()),
        (grouped(run.bytes), "bytes written".to_owned()),
        level(&run.level),
        (seconds(run.seconds), "run time".to_owned()),
        (
            format!(
                "{:.1} M",
                counts.samples as f64 / run.seconds.max(1e-9) / 1e6
            ),
            "samples per second of run time".to_owned(),
        ),
    ];
    write_tiles(out, &tiles);
}

/// The tile of the input's level.
fn level(level: &InputLevel) -> (String, String) {
    let Some(tenths) = level.tenths() else {
        return ("–".to_owned(), "level".to_owned());
    };
    let decibels = format!("{tenths:.1}").replace('-', "−");
    (decibels, format!("{}, level", level.unit()))
}

/// What is wrong with the input's level, and what was taken off it.
fn input_of(out: &mut String, run: &ModemRun) {
    if let Some(warning) = run.level.warning() {
        let _ = write!(out, "<p><strong>{warning}.</strong></p>");
    }
    if let Some(correction) = &run.correction {
        let _ = write!(out, "<p>Taken off: {}.</p>", correction.words());
    }
}

fn causes(out: &mut String, counts: &Counts) {
    let rows = [
        (
            counts.delivered,
            "delivered",
            "header and payload agree with the check field, if it is checked",
        ),
        (
            counts.check,
            "check field",
            "some bit of header, payload or check field is wrong",
        ),
        (
            counts.length,
            "length",
            "the header names more bytes than the payload has",
        ),
        (
            counts.mode,
            "mode",
            "the header's mode byte is near none of the modulations",
        ),
        (
            counts.equaliser,
            "equaliser",
            "the taps of the equaliser ran away",
        ),
        (counts.cut, "cut", "the samples end within the frame"),
        (
            counts.not_acquired,
            "not acquired",
            "something looked like a short training field, and no preamble came after it: no frame",
        ),
    ];
    out.push_str(
        "<h2>Counts</h2><div class=\"scroll\"><table><tr><th class=\"num\">frames</th><th>what \
         became of them</th><th></th></tr>",
    );
    for (count, name, what) in rows {
        let _ = write!(
            out,
            "<tr><td class=\"num\">{}</td><td>{name}</td><td class=\"soft\">{what}</td></tr>",
            grouped(count)
        );
    }
    out.push_str("</table></div>");
    if counts.bad_samples > 0 {
        let _ = write!(
            out,
            "<p>{} samples were infinite, larger than 10⁶ or not numbers, and were taken for 0.</p>",
            grouped(counts.bad_samples)
        );
    }
}

fn constellations(out: &mut String, gathered: &ModemGatherer) {
    if gathered.constellations.is_empty() {
        return;
    }
    out.push_str("<h2>Constellation</h2><div class=\"pair\">");
    for constellation in &gathered.constellations {
        let Some(picture) = pictures::constellation(&constellation.cells) else {
            continue;
        };
        let _ = write!(
            out,
            "<figure><figcaption>{}, {} {}: equalised points of bodies</figcaption>\
             <img alt=\"constellation\" style=\"width:100%;max-width:32rem;image-rendering:pixelated;aspect-ratio:1\" \
             src=\"{picture}\"></figure>",
            constellation.modulation,
            grouped(constellation.frames),
            plural(constellation.frames, "frame"),
        );
    }
    out.push_str("</div>");
}

fn curves(out: &mut String, gathered: &ModemGatherer, run: &ModemRun) {
    let figure = |out: &mut String, caption: &str, svg: Option<String>| {
        if let Some(svg) = svg {
            let _ = write!(
                out,
                "<figure class=\"plot\"><figcaption>{caption}</figcaption>{svg}</figure>"
            );
        }
    };
    out.push_str("<h2>Spectrum, quality and equaliser</h2><div class=\"pair\">");
    let spectrum = pictures::spectrum(&gathered.spectrum, gathered.spectra, run.sample_rate);
    figure(out, "Spectrum of the input, mean", spectrum);
    let evm = gathered
        .points
        .iter()
        .map(|point| 20.0 * point.evm.max(1e-9).log10())
        .collect();
    let snr = gathered.points.iter().map(|point| point.snr_db).collect();
    figure(
        out,
        "Error vector of each frame's body, dB",
        pictures::series(evm, "EVM, dB"),
    );
    figure(
        out,
        "Es/N0 behind the equaliser, dB",
        pictures::series(snr, "Es/N0, dB"),
    );
    figure(
        out,
        "Equaliser's taps of the last frame: magnitude in dB, the newest symbol to the right",
        pictures::taps(&gathered.taps),
    );
    out.push_str("</div>");
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Mode => "mode",
        Outcome::Length => "length",
        Outcome::Check => "check field",
    }
}

fn frames(out: &mut String, gathered: &ModemGatherer, run: &ModemRun, counts: &Counts) {
    if gathered.lines.is_empty() {
        return;
    }
    let unit = if run.sample_rate.is_some() {
        "Hz"
    } else {
        "cycles per 10⁶ samples"
    };
    let _ = write!(
        out,
        "<h2>Frames</h2><div class=\"scroll\"><table><tr><th class=\"num\">sample</th><th>mode</th>\
         <th class=\"num\">bytes</th><th>outcome</th><th class=\"num\">Es/N0, dB</th><th \
         class=\"num\">EVM, %</th><th class=\"num\">carrier, {unit}</th><th class=\"num\">clock, \
         ppm</th></tr>"
    );
    for line in &gathered.lines {
        let carrier = line.frequency * run.sample_rate.unwrap_or(1e6);
        let _ = write!(
            out,
            "<tr><td class=\"num\">{}</td><td>{}</td><td class=\"num\">{}</td><td>{}</td>\
             <td class=\"num\">{:.2}</td><td class=\"num\">{:.2}</td><td class=\"num\">{carrier:.1}</td>\
             <td class=\"num\">{:.2}</td></tr>",
            grouped(line.start),
            line.modulation,
            grouped(line.bytes as u64),
            outcome(line.outcome),
            line.point.snr_db,
            100.0 * line.point.evm,
            line.clock_ppm,
        );
    }
    out.push_str("</table></div>");
    let shown = gathered.lines.len() as u64;
    let all = counts.delivered + counts.mode + counts.length + counts.check;
    if all > shown {
        let _ = write!(
            out,
            "<p class=\"soft\">The first {} of {} frames.</p>",
            grouped(shown),
            grouped(all)
        );
    }
}

//! The live page of a receiver.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use karoo_modem::rx::{Counts, Outcome};
use karoo_modem::waveform::SAMPLES_PER_SYMBOL;
use katcp::reading::unix_now;
use live::{
    Array, Axis, Body, Document, Figure, History, LogEntry, Panel, PointSeries, Series, Site,
    Source, Span, State, Within,
};
use prometheus::proto::{MetricFamily, MetricType};

use super::intake::IntakeCounts;
use super::verdict::{Moment, Recent};
use super::watch::{BINS, Seen, Shared, Watcher};
use crate::metrics::scrape::{Samples, Scrape, counter, family, plain, site, text};
use crate::report::modem::Corrected;

/// Seconds between two points of the last ten minutes, and how many points they have.
const PAST: (f64, usize) = (2.0, 300);
/// Value at the edge of constellation and eye.
const EDGE: f64 = 1.6;
/// Taps are shown down to so many dB below the strongest.
const FLOOR: f32 = -60.0;

/// A page of what a [`Watcher`] sees.
pub struct ModemPage {
    name: String,
    shared: Arc<Shared>,
    quality: History,
    frames: History,
    recent: Recent,
    begun: Instant,
    /// Frames that were found a second.
    rate: f64,
}

impl ModemPage {
    /// A page; its name says what is received.
    pub fn new(name: &str, watcher: &Watcher) -> Self {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        Self {
            name: name.to_owned(),
            shared: watcher.shared.clone(),
            quality: History::new(names(&["Es/N0"]), PAST.0, PAST.1),
            frames: History::new(names(&["delivered", "not delivered"]), PAST.0, PAST.1)
                .keeping(Within::Mean),
            recent: Recent::new(unix_now()),
            begun: Instant::now(),
            rate: 0.0,
        }
    }

    /// A site of the page, and of its counts for Prometheus.
    pub fn site(name: &str, watcher: &Watcher) -> Site {
        let metrics = ModemMetrics {
            shared: watcher.shared.clone(),
            started: SystemTime::now(),
        };
        site(Arc::new(metrics)).source(Self::new(name, watcher))
    }

    /// Takes over what there is now: so many seconds after the begin, and at a UNIX time, which may
    /// have been set in between.
    fn note_at(&mut self, at: f64, time: f64) {
        let seen = self.shared.seen();
        let (counts, last) = (seen.counts, seen.last);
        let packets = seen.packets.as_ref();
        let lost_samples = packets.map_or(0, |packets| packets.stream.lost_samples);
        let other_streams = packets.map_or(0, |packets| packets.stream.other_streams);
        let other_stream = packets.and_then(|packets| packets.other_stream);
        drop(seen);
        let before = self.recent.newest();
        let each =
            |now: u64, then: u64| now.saturating_sub(then) as f64 / (at - before.at).max(1e-3);
        let good = each(counts.delivered, before.counts.delivered);
        let bad = each(counts.not_delivered(), before.counts.not_delivered());
        self.rate = good + bad;
        self.recent.note(Moment {
            at,
            time,
            counts,
            lost_samples,
            other_streams,
            other_stream,
            unsent: self.shared.unsent.load(Ordering::Relaxed),
        });
        self.frames.note(time, &[good, bad]);
        // Of a second without a frame there is no quality.
        let last = last.filter(|_| self.rate > 0.0);
        let snr = last.map_or(f64::NAN, |frame| frame.snr_db);
        self.quality.note(time, &[snr]);
    }

    fn figures(&self, seen: &Seen) -> Body {
        // Of frames that came long ago nothing is known now.
        let silent = self.recent.silent_since().is_some() && !seen.ended;
        let last = seen.last.filter(|_| !silent);
        let level = seen.level.decibels;
        let level = level.filter(|_| self.recent.samples_come() || seen.ended);
        let number = |name: &str, value: Option<f64>, unit: &str| {
            Figure::new(name, value.unwrap_or(f64::NAN), unit)
        };
        let hertz = last.zip(seen.sample_rate);
        let mut figures = vec![
            number("sample rate", seen.sample_rate, "S/s"),
            Figure::new("frames", self.rate, "1/s"),
            Figure::new("payload", seen.bytes as f64, "B"),
            number("EVM", last.map(|frame| 100.0 * frame.evm), "%"),
            number("Es/N0", last.map(|frame| frame.snr_db), "dB"),
            number(
                "carrier",
                hertz.map(|(frame, rate)| frame.frequency * rate),
                "Hz",
            ),
            number("sample clock", last.map(|frame| frame.clock_ppm), "ppm"),
            number("level", level, seen.level.unit()),
        ];
        if let Some(share) = seen.level.share() {
            figures.push(Figure::new("at full scale", 100.0 * share, "%"));
        }
        if let Some(taken) = &seen.correction {
            figures.extend([
                Figure::new("DC of I", taken.dc_i, ""),
                Figure::new("DC of Q", taken.dc_q, ""),
                Figure::new("IQ gain", taken.iq_gain_db, "dB"),
                Figure::new("IQ phase", taken.iq_phase_degrees, "degrees"),
                number("image", taken.image_db, "dB"),
            ]);
        }
        if let Some(packets) = &seen.packets {
            let stream = &packets.stream;
            figures.push(Figure::new("packets", stream.packets as f64, ""));
            figures.push(Figure::new("samples lost", stream.lost_samples as f64, ""));
            let left_out: u64 = left_out(packets).map(|(_, count)| count).sum();
            figures.push(Figure::new("packets left out", left_out as f64, ""));
        }
        Body::Figures { figures }
    }
}

/// Counts as a table.
fn table(counts: &Counts, missing: Option<u64>) -> Body {
    let rows = [
        ("detected", counts.detected),
        ("delivered", counts.delivered),
        ("check field", counts.check),
        ("length", counts.length),
        ("mode", counts.mode),
        ("equaliser", counts.equaliser),
        ("cut", counts.cut),
        ("not acquired", counts.not_acquired),
    ];
    let row = |(name, count): (&str, u64)| vec![name.to_owned(), count.to_string()];
    Body::Table {
        columns: vec!["frames".to_owned(), "so far".to_owned()],
        rows: rows
            .into_iter()
            .chain(missing.map(|count| ("missing by number", count)))
            .map(row)
            .collect(),
    }
}

fn span(name: &str, unit: &str, edge: f64) -> Span {
    Span {
        name: name.to_owned(),
        unit: unit.to_owned(),
        low: -edge,
        high: edge,
    }
}

fn points(seen: &Seen, time: Option<f64>) -> Body {
    let name = seen.modulation.map_or("", |modulation| modulation.name());
    let points = seen.points.iter().map(|point| [point.re, point.im]);
    Body::Points {
        x: span("in phase", "", EDGE),
        y: span("in quadrature", "", EDGE),
        same_scale: true,
        series: vec![PointSeries {
            name: name.to_owned(),
            points: points.collect(),
        }],
        time,
    }
}

fn eye(seen: &Seen, time: Option<f64>) -> Body {
    Body::Points {
        x: span("time in symbols", "", 1.0),
        y: span("in phase", "", EDGE),
        same_scale: false,
        series: vec![PointSeries {
            name: "matched filter".to_owned(),
            points: seen.eye.clone(),
        }],
        time,
    }
}

fn spectrum(seen: &Seen) -> Body {
    let (scale, unit) = match seen.sample_rate {
        Some(rate) => (rate, "Hz"),
        None => (SAMPLES_PER_SYMBOL as f64, "per symbol"),
    };
    // Of a unit sine 0 dB: the window's own gain is half.
    let whole = seen.spectra.max(1) as f64 * (BINS as f64 / 2.0).powi(2);
    let value = |power: &f64| Some((10.0 * (power / whole).max(1e-15).log10()) as f32);
    Body::Spectrum {
        x: Axis {
            name: "frequency".to_owned(),
            unit: unit.to_owned(),
            first: -0.5 * scale,
            step: scale / BINS as f64,
        },
        unit: "dB".to_owned(),
        series: vec![Series {
            name: "input".to_owned(),
            values: seen.spectrum.iter().map(value).collect(),
            highest: Vec::new(),
        }],
        time: None,
        period: None,
        array: None,
    }
}

fn taps(seen: &Seen) -> Body {
    let strongest = seen.taps.iter().map(|tap| tap.norm()).fold(0.0, f32::max);
    let value = |tap: &num_complex::Complex32| {
        let decibels = 20.0 * (tap.norm() / strongest).log10();
        Some(if decibels > FLOOR { decibels } else { FLOOR })
    };
    Body::Trace {
        x: Axis {
            name: "symbol".to_owned(),
            unit: String::new(),
            first: 0.0,
            step: 1.0,
        },
        unit: "dB to the strongest".to_owned(),
        series: vec![Series {
            name: "taps".to_owned(),
            values: seen.taps.iter().map(value).collect(),
            highest: Vec::new(),
        }],
        time: None,
        period: None,
        array: None,
    }
}

fn log(seen: &Seen) -> Body {
    let entry = |line: &super::watch::FrameLine| LogEntry {
        time: line.time,
        who: line.modulation.to_string(),
        text: line.text.clone(),
        state: match line.outcome {
            Outcome::Delivered => State::Well,
            _ => State::Bad,
        },
    };
    Body::Log {
        entries: seen.lines.iter().map(entry).collect(),
    }
}

impl Source for ModemPage {
    fn note(&mut self) {
        self.note_at(self.begun.elapsed().as_secs_f64(), unix_now());
    }

    fn document(&mut self) -> Document {
        let mut seen = self.shared.seen();
        let now = seen.clone();
        // The next document is to have others.
        seen.spectrum.clear();
        seen.spectra = 0;
        drop(seen);
        self.shared.wanted.store(true, Ordering::Relaxed);
        let verdict = self.recent.verdict(now.level.warning(), now.ended);
        let time = now.lines.front().map(|frame| frame.time);
        let panels = vec![
            Panel::new("verdict", "Verdict", Body::Verdict(verdict)),
            Panel::new("figures", "Now", self.figures(&now)),
            Panel::new("constellation", "Constellation", points(&now, time))
                .with_note("Equalised points of a frame's body."),
            Panel::new("spectrum", "Spectrum", spectrum(&now)),
            Panel::new("eye", "Eye", eye(&now, time))
                .with_note("Behind the matched filter, before the equaliser; decisions are at 0."),
            Panel::new("taps", "Equaliser", taps(&now))
                .with_note("Magnitude of each tap, the newest symbol's to the right."),
            Panel::new("counts", "Frames", table(&now.counts, now.missing)),
            Panel::new(
                "rate",
                "Frames a second",
                Body::TimeSeries(self.frames.time_series("1/s")),
            ),
            Panel::new(
                "quality",
                "Signal",
                Body::TimeSeries(self.quality.time_series("dB")),
            ),
            Panel::new("log", "Newest frames", log(&now)),
        ];
        Document::new(&self.name, panels)
    }

    fn array(&mut self, _name: &str) -> Option<Array> {
        None
    }
}

/// What is taken off the input, by the names that JSON has for it.
fn corrections(taken: &Corrected) -> impl Iterator<Item = MetricFamily> {
    let part = |part: &str, value| (vec![("part", part.to_owned())], value);
    let alone = |value| vec![(Vec::new(), value)];
    let rows = [
        (
            "modem_input_dc",
            "offset that is taken off each part of samples, as samples have it",
            vec![part("i", taken.dc_i), part("q", taken.dc_q)],
        ),
        (
            "modem_input_iq_gain_db",
            "gain of Q against I in dB, which is taken off",
            alone(taken.iq_gain_db),
        ),
        (
            "modem_input_iq_phase_degrees",
            "degrees by which I and Q are not at right angles, which are taken off",
            alone(taken.iq_phase_degrees),
        ),
        (
            "modem_input_image_db",
            "power of the image that is taken off, by the signal's, in dB; NaN if none is believed",
            alone(taken.image_db.unwrap_or(f64::NAN)),
        ),
    ];
    let rows = rows.into_iter();
    rows.filter_map(|(name, what, samples)| family(name, what, MetricType::GAUGE, samples))
}

/// Packets that were left out, by cause.
fn left_out(packets: &IntakeCounts) -> impl Iterator<Item = (&'static str, u64)> {
    let stream = &packets.stream;
    let always = [
        ("late", stream.late),
        ("other-stream", stream.other_streams),
        ("without-rate", stream.without_rate),
        ("refused", stream.refused),
        ("context-refused", stream.contexts_refused),
        ("no-datagram", packets.no_datagrams),
    ];
    // Where the port says it.
    let no_room = packets.port_missed.map(|count| ("no-room", count));
    always.into_iter().chain(no_room)
}

/// What is known of the newest frame.
fn newest(seen: &Seen) -> impl Iterator<Item = MetricFamily> {
    let alone = |value| vec![(Vec::new(), value)];
    let rows = seen.last.map(|frame| {
        let carrier = seen.sample_rate.map(|rate| rate * frame.frequency);
        [
            (
                "modem_frame_snr_db",
                "Es/N0 of the newest frame in dB",
                alone(frame.snr_db),
            ),
            (
                "modem_frame_evm",
                "error vector magnitude of the newest frame",
                alone(frame.evm),
            ),
            (
                "modem_frame_carrier_hz",
                "carrier offset of the newest frame in Hz; NaN without a sample rate",
                alone(carrier.unwrap_or(f64::NAN)),
            ),
            (
                "modem_frame_clock_ppm",
                "error of the newest frame's sample clock in parts per million",
                alone(frame.clock_ppm),
            ),
        ]
    });
    let rows = rows.into_iter().flatten();
    rows.filter_map(|(name, what, samples)| family(name, what, MetricType::GAUGE, samples))
}

/// Counts for Prometheus.
struct ModemMetrics {
    shared: Arc<Shared>,
    started: SystemTime,
}

impl Scrape for ModemMetrics {
    fn scrape(&self) -> Result<String, prometheus::Error> {
        let seen = self.shared.seen();
        let counts = &seen.counts;
        let mut families = Vec::new();
        let mut add = |name: &str, help: &str, samples: Samples| {
            counter(&mut families, self.started, name, help, samples);
        };
        let outcomes = [
            ("delivered", counts.delivered),
            ("check", counts.check),
            ("length", counts.length),
            ("mode", counts.mode),
            ("equaliser", counts.equaliser),
            ("cut", counts.cut),
            ("not-acquired", counts.not_acquired),
        ];
        let outcomes = outcomes.map(|(outcome, count)| {
            let label = vec![("outcome", outcome.to_owned())];
            (label, count as f64)
        });
        let what =
            "frames by what became of them; not-acquired: what looks like a begin, and is none";
        add("modem_frames", what, outcomes.to_vec());
        if let Some(missing) = seen.missing {
            let what = "numbers missing between delivered frames";
            add("modem_missing_frames", what, plain(missing));
        }
        add("modem_samples", "samples received", plain(counts.samples));
        let what = "samples that were infinite, too large or not numbers";
        add("modem_bad_samples", what, plain(counts.bad_samples));
        add("modem_payload_bytes", "bytes of payload", plain(seen.bytes));
        if let Some(packets) = &seen.packets {
            let stream = &packets.stream;
            add("modem_packets", "packets of samples", plain(stream.packets));
            let lost = "samples that zeros stand for";
            add("modem_lost_samples", lost, plain(stream.lost_samples));
            let what = "packets of context";
            add("modem_context_packets", what, plain(stream.contexts));
            add("modem_gaps", "gaps between packets", plain(stream.gaps));
            let what = "packets whose number is not the one after the last";
            let count = plain(stream.out_of_sequence);
            add("modem_out_of_sequence_packets", what, count);
            let what = "times that the stream began anew";
            add("modem_stream_restarts", what, plain(stream.restarts));
            let left_out = left_out(packets).map(|(cause, count)| {
                let label = vec![("cause", cause.to_owned())];
                (label, count as f64)
            });
            let what = "packets that were left out, by cause";
            add("modem_packets_left_out", what, left_out.collect());
        }
        if let Some(clipped) = seen.clipped {
            let what = "real and imaginary parts at full scale";
            add("modem_input_clipped_parts", what, plain(clipped));
        }
        let level = &seen.level;
        let to = level.full_scale.map_or("1", |_| "full-scale");
        let power = match level.samples {
            0 => f64::NAN,
            _ => level.decibels.unwrap_or(f64::NEG_INFINITY),
        };
        let what = "mean power of the last second in dB, to the full scale or to 1";
        let power = vec![(vec![("to", to.to_owned())], power)];
        families.extend(family(
            "modem_input_power_db",
            what,
            MetricType::GAUGE,
            power,
        ));
        families.extend(seen.correction.iter().flat_map(corrections));
        families.extend(newest(&seen));
        drop(seen);
        text(families)
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;

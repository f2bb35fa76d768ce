//! A sink as a source of pages.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use dpdk::Port;
use ground::TscClock;
use ground::stats::PhaseTimes;
use katcp::reading::unix_now;
use live::{Array, Axis, Bar, Body, Document, Figure, History, Panel, Source, Within};

use super::sink_board::{self, SinkBoard, SinkCounts};
use super::{lost_percent, spectra, tables, time};
use crate::config::OutputConfig;
use crate::ports::Links;
use crate::sink::StreamReport;
use crate::sink::live::{ChannelPowers, CheckedSpectra, Seen, Shown};

/// Seconds between two points of the last hour, and how many points it has.
const HOUR: (f64, usize) = (10.0, 360);

/// What a sink's page is made of.
pub struct SinkPageParts {
    /// Where it receives.
    pub interface: String,
    /// What it takes in.
    pub shown: Shown,
    /// What came of the checks, by stream.
    pub checked: Arc<Mutex<Vec<CheckedSpectra>>>,
    /// Outputs that it knows the options of, the first of its streams.
    pub outputs: Vec<OutputConfig>,
    /// Sample rate of the digitiser in hertz, if it is known: else channels have numbers.
    pub adc_sample_rate: Option<f64>,
    /// The port.
    pub port: Port,
    /// Link of the port.
    pub links: Links,
    /// Time of its lcore.
    pub times: Vec<Arc<PhaseTimes>>,
    /// What their ticks are.
    pub clock: TscClock,
}

/// The page of a sink.
pub struct SinkPage {
    parts: SinkPageParts,
    board: SinkBoard,
    rates: History,
    last: Look,
    figures: Vec<Figure>,
    bars: Vec<Bar>,
    /// Heaps a second of each substream of each stream.
    substreams: Vec<Vec<f64>>,
    /// Newest powers of each stream, and when they came.
    powers: Vec<Option<(f64, Arc<ChannelPowers>)>>,
    /// When a whole heap of each stream last came.
    heard: Vec<f64>,
}

/// What there was at a UNIX time.
struct Look {
    time: f64,
    at: Instant,
    seen: Seen,
    missed: u64,
    phases: Vec<time::Phases>,
}

impl Look {
    fn at_once(parts: &SinkPageParts) -> Self {
        Self {
            time: unix_now(),
            at: Instant::now(),
            seen: parts.shown.get(),
            missed: parts.port.stats().map_or(0, |stats| stats.rx_missed),
            phases: time::phases(&parts.times, parts.clock),
        }
    }

    /// Seconds from another look to this one.
    fn since(&self, before: &Look) -> f64 {
        time::seconds_between(before.at, self.at)
    }

    fn total(&self, of: fn(&StreamReport) -> u64) -> u64 {
        self.seen.streams.iter().map(of).sum()
    }
}

/// Picks a count of a stream.
type CountOf = fn(&StreamReport) -> u64;

/// Heaps that came whole, in part and not at all, and batches that were not sent.
const RATES: [(&str, CountOf); 4] = [
    ("whole", |s| s.heaps),
    ("incomplete", |s| s.incomplete_heaps),
    ("missing", |s| s.missing_heaps),
    ("batches not sent", |s| s.batches_not_sent),
];

impl SinkPage {
    /// A page of these parts.
    pub fn new(parts: SinkPageParts) -> Self {
        let names = RATES.map(|(name, _)| name.to_owned());
        let last = Look::at_once(&parts);
        Self {
            board: SinkBoard::new(last.time),
            rates: History::new(names, HOUR.0, HOUR.1).keeping(Within::Mean),
            heard: Vec::new(),
            last,
            figures: Vec::new(),
            bars: Vec::new(),
            substreams: Vec::new(),
            powers: Vec::new(),
            parts,
        }
    }

    fn counts(&self, now: &Look) -> SinkCounts {
        let streams = &now.seen.streams;
        let destinations = streams.iter().map(|stream| {
            let all = stream.destinations.iter();
            all.map(|dst| dst.map_or(String::new(), |dst| dst.to_string()))
        });
        let foreign =
            |s: &StreamReport| s.wrong_size_packets + s.misplaced_packets + s.bad_timestamp_packets;
        let checked = ground::lock(&self.parts.checked);
        let views = now.seen.views.iter().take(streams.len());
        SinkCounts {
            whole: views.map(|view| view.whole.clone()).collect(),
            streams: streams.iter().map(|s| s.name.clone()).collect(),
            destinations: destinations.map(Iterator::collect).collect(),
            stopped: streams
                .iter()
                .map(|s| s.stopped_substreams >= s.destinations.len() as u64)
                .collect(),
            stop_heaps: streams.iter().map(|s| s.stop_heaps).collect(),
            lost: [
                now.missed,
                now.total(foreign),
                now.total(|s| s.late_packets),
                now.total(|s| s.packets_after_stop),
                now.total(|s| s.incomplete_heaps),
                now.total(|s| s.missing_heaps),
                checked.iter().map(|checked| checked.wrong).sum(),
                now.total(|s| s.batches_not_sent),
            ],
        }
    }

    fn figures(&self, now: &Look, rates: &[f64; 4]) -> Vec<Figure> {
        let seconds = now.since(&self.last);
        let [whole, incomplete, missing, _] = *rates;
        let lost = lost_percent(whole, incomplete + missing);
        let bytes = now
            .total(|s| s.bytes)
            .saturating_sub(self.last.total(|s| s.bytes));
        let silent = self
            .substreams
            .iter()
            .flatten()
            .filter(|&&rate| rate == 0.0);
        let mut figures = vec![
            Figure::new("heaps in", whole, "/s"),
            Figure::new("lost", lost, "%"),
            Figure::new("payload", bytes as f64 * 8.0 / seconds, "b/s"),
            Figure::new("silent substreams", silent.count() as f64, ""),
            Figure::new("lost at the port", now.missed as f64, ""),
        ];
        let both = now.seen.streams.iter().zip(&now.seen.views);
        for (index, (stream, view)) in both.enumerate() {
            // What has come is not what comes.
            let heard = self.heard.get(index);
            let old = heard.is_none_or(|heard| (now.time - heard).abs() > sink_board::QUIET);
            for (power, pol) in view.power_db.iter().zip(spectra::POLS) {
                let name = format!("power of {}, {pol}", stream.name);
                figures.push(Figure::new(
                    name,
                    power.filter(|_| !old).unwrap_or(f64::NAN),
                    "dB",
                ));
            }
        }
        figures
    }

    /// Heaps a second of each substream since the last look.
    fn substream_rates(&self, now: &Look) -> Vec<Vec<f64>> {
        let seconds = now.since(&self.last);
        let views = now.seen.views.iter().enumerate();
        let rates = views.map(|(stream, view)| {
            let before = self.last.seen.views.get(stream);
            let before = |sub: usize| before.and_then(|view| view.whole.get(sub).copied());
            let whole = view.whole.iter().enumerate();
            let rate = whole.map(|(sub, &count)| {
                count.saturating_sub(before(sub).unwrap_or(0)) as f64 / seconds
            });
            rate.collect()
        });
        rates.collect()
    }

    fn spectra(&self) -> Vec<Panel> {
        let streams = self.last.seen.streams.iter().zip(&self.powers).enumerate();
        let panels = streams.filter_map(|(index, (stream, powers))| {
            let (time, powers) = powers.as_ref()?;
            let name = &stream.name;
            let id = format!("spectrum-{name}");
            let axis = |each| self.axis(index, each);
            let array = (Some(&name[..]), (Some(*time), None));
            let body = spectra::curves(powers.means.clone(), axis, "dB", array);
            let note =
                "Mean power of what was received, of one batch in eight, dB relative to one count.";
            let spectrum = Panel::new(&id, format!("Spectrum of {name}"), body).with_note(note);
            let waterfalls: Vec<_> = spectra::waterfalls(name, &id).collect();
            Some(std::iter::once(spectrum).chain(waterfalls))
        });
        panels.flatten().collect()
    }

    /// Frequencies where they are known, else numbers of channels.
    fn axis(&self, stream: usize, each: usize) -> Axis {
        let output = self.parts.outputs.get(stream);
        match output.zip(self.parts.adc_sample_rate) {
            Some((output, rate)) => spectra::axis(output, rate, each),
            None => Axis {
                name: "channel".to_owned(),
                unit: String::new(),
                first: 0.5 * (each - 1) as f64,
                step: each as f64,
            },
        }
    }

    fn substreams(&self) -> Panel {
        let streams = self.last.seen.streams.iter().zip(&self.substreams);
        let rows = streams.flat_map(|(stream, rates)| {
            let rows = stream.destinations.iter().zip(rates);
            rows.map(|(destination, rate)| {
                vec![
                    stream.name.clone(),
                    destination.map_or(String::new(), |dst| dst.to_string()),
                    match *rate {
                        0.0 => "nothing".to_owned(),
                        rate => format!("{rate:.1}"),
                    },
                ]
            })
        });
        let columns = ["stream", "destination", "heaps/s"].map(str::to_owned);
        let body = Body::Table {
            columns: columns.to_vec(),
            rows: rows.collect(),
        };
        Panel::new("substreams", "Substreams", body)
    }
}

impl Source for SinkPage {
    fn note(&mut self) {
        let now = Look::at_once(&self.parts);
        let counts = self.counts(&now);
        self.board.update(now.time, &counts);
        let seconds = now.since(&self.last);
        let rates =
            RATES.map(|(_, of)| now.total(of).saturating_sub(self.last.total(of)) as f64 / seconds);
        self.rates.note(now.time, &rates);
        self.substreams = self.substream_rates(&now);
        self.heard.resize(self.substreams.len(), f64::NEG_INFINITY);
        for (heard, rates) in self.heard.iter_mut().zip(&self.substreams) {
            if rates.iter().any(|&rate| rate > 0.0) {
                *heard = now.time;
            }
        }
        self.figures = self.figures(&now, &rates);
        self.bars = time::bars(&self.parts.times, &self.last.phases, &now.phases);
        self.powers.resize(now.seen.views.len(), None);
        for (powers, view) in self.powers.iter_mut().zip(&now.seen.views) {
            let newest = view.powers.as_ref();
            let known = powers.as_ref().map(|(_, powers)| powers.timestamp);
            if let Some(newest) = newest.filter(|newest| known != Some(newest.timestamp)) {
                *powers = Some((now.time, newest.clone()));
            }
        }
        self.last = now;
    }

    fn document(&mut self) -> Document {
        let figures = self.figures.clone();
        let mut panels = vec![
            Panel::new("verdict", "Verdict", Body::Verdict(self.board.verdict())),
            Panel::new("figures", "Now", Body::Figures { figures }),
        ];
        panels.extend(self.spectra());
        let rates = Body::TimeSeries(self.rates.time_series("/s"));
        panels.push(Panel::new("rates", "Heaps in the last hour", rates));
        panels.push(self.substreams());
        let bars = self.bars.clone();
        panels.push(Panel::new("time", "Time of the lcore", Body::Bars { bars }));
        panels.push(tables::host(&self.parts.links));
        let entries = self.board.log();
        panels.push(Panel::new("losses", "Losses", Body::Log { entries }));
        let streams = self.last.seen.streams.iter().map(|s| &s.name[..]);
        let streams = streams.collect::<Vec<_>>().join(", ");
        let name = format!("Sink on {}: {streams}", self.parts.interface);
        let mut document = Document::new(name, panels);
        document.program = format!("karoo sink {}", ground::karoo_version());
        document
    }

    fn array(&mut self, name: &str) -> Option<Array> {
        let streams = &self.last.seen.streams;
        let index = streams.iter().position(|stream| stream.name == name)?;
        let (_, powers) = self.powers.get(index)?.as_ref()?;
        Some(spectra::array(powers.means.clone()))
    }
}

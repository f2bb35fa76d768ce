//! A page of something that is not there: a tone that moves, and a fault that comes and goes.
//!
//! `cargo run -p live --example demo -- 127.0.0.1:8080` and open that address. Requests to
//! `/metrics` end with the number of documents that were made. The tone moves with each document;
//! the fault lasts as long as a file named by the second argument exists.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use live::{
    Array, Arrow, Axis, Bar, Body, CauseShown, Document, Figure, HistogramSeries, History,
    LogEntry, Node, Panel, Part, PointSeries, Series, Site, Source, Span, State, Verdict, decibels,
    reduce,
};

const CHANNELS: usize = 4096;

struct Demo {
    documents: Arc<AtomicU64>,
    fault: Option<PathBuf>,
    since: Option<f64>,
    begun: f64,
    history: History,
    powers: Vec<f64>,
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Two partitions in a loop; the second is the limit.
fn network() -> Body {
    let node = |name: &str, share, marked| Node {
        name: name.to_owned(),
        says: String::new(),
        lines: vec!["mix".to_owned(), "a/filter".to_owned()],
        share,
        marked,
    };
    let arrow = |from, to, share| Arrow {
        from,
        to,
        label: format!("{} of 8", 8.0 * share),
        share,
    };
    Body::Network {
        nodes: vec![node("first", 0.4, false), node("second", 0.98, true)],
        arrows: vec![arrow(0, 1, 1.0), arrow(1, 0, 0.25)],
    }
}

impl Demo {
    fn verdict(&mut self) -> Verdict {
        let fault = self.fault.as_ref().is_some_and(|file| file.exists());
        self.since = fault.then(|| self.since.unwrap_or_else(now));
        let Some(since) = self.since else {
            return Verdict {
                text: "all well".to_owned(),
                ..Verdict::new(State::Well)
            };
        };
        let cause = CauseShown {
            name: "no-input".to_owned(),
            state: State::Bad,
            text: "nothing comes: no-input".to_owned(),
            mends: "Does the digitiser send?".to_owned(),
            run_book: "No heap has come. Mends: start the digitiser.".to_owned(),
            since,
            count: 0,
        };
        Verdict {
            state: State::Bad,
            text: cause.text.clone(),
            since: Some(since),
            mends: cause.mends.clone(),
            causes: vec![cause],
        }
    }

    fn spectrum(&self) -> Body {
        let reduced = reduce(&self.powers, 1024);
        Body::Spectrum {
            x: Axis {
                name: "frequency".to_owned(),
                unit: "Hz".to_owned(),
                first: 0.0,
                step: 856e6 / CHANNELS as f64 * reduced.each as f64,
            },
            unit: "dB".to_owned(),
            series: vec![Series {
                name: "pol 0".to_owned(),
                values: decibels(&reduced.means),
                highest: decibels(&reduced.highest),
            }],
            time: None,
            period: None,
            array: Some("arrays/w.npy".to_owned()),
        }
    }
}

/// Samples of a sine that begins elsewhere each time.
fn trace(made: usize) -> Body {
    let sine = |n: usize| 100.0 * ((n + 7 * made) as f32 / 10.0).sin();
    Body::Trace {
        x: Axis {
            name: "time".to_owned(),
            unit: "s".to_owned(),
            first: 0.0,
            step: 1e-9,
        },
        unit: "counts".to_owned(),
        series: vec![Series {
            name: "pol 0".to_owned(),
            values: (0..256).map(|n| Some(sine(n))).collect(),
            highest: Vec::new(),
        }],
        time: None,
        period: None,
        array: None,
    }
}

/// Points on a circle.
fn circle() -> Body {
    let span = |name: &str| Span {
        name: name.to_owned(),
        unit: String::new(),
        low: -1.5,
        high: 1.5,
    };
    let point = |n: i32| [(n as f32).cos(), (n as f32).sin()];
    Body::Points {
        x: span("real part"),
        y: span("imaginary part"),
        same_scale: true,
        series: vec![PointSeries {
            name: "pol 0".to_owned(),
            points: (0..500).map(point).collect(),
        }],
        time: None,
    }
}

impl Source for Demo {
    fn note(&mut self) {
        self.history
            .note(now(), &[1e4, (now() / 10.0).sin().max(0.0)]);
    }

    fn document(&mut self) -> Document {
        let made = self.documents.fetch_add(1, Ordering::Relaxed) as usize;
        let tone = (made * CHANNELS / 16 + CHANNELS / 32) % CHANNELS;
        for (channel, power) in self.powers.iter_mut().enumerate() {
            let ripple = 1.0 + 0.2 * (channel as f64 / 150.0).sin();
            *power = if channel == tone { 3e3 } else { ripple };
        }
        let bell = |bin: i32| (1e6 * f64::exp(-f64::from(bin * bin) / 2000.0)) as u64;
        let part = |name: &str, share| Part {
            name: name.to_owned(),
            share,
        };
        let panels = vec![
            Panel::new("verdict", "Verdict", Body::Verdict(self.verdict())),
            Panel::new(
                "figures",
                "Now",
                Body::Figures {
                    figures: vec![
                        Figure::new("input", 1.712e9, "S/s"),
                        Figure::new("lost", 0.0, "%"),
                        Figure::in_words("document", made.to_string()),
                    ],
                },
            ),
            Panel::new("spectrum", "Spectrum", self.spectrum()),
            Panel::new("graph", "Graph", network()),
            Panel::new(
                "waterfall",
                "Waterfall",
                Body::Waterfall {
                    of: "spectrum".to_owned(),
                    series: 0,
                },
            ),
            Panel::new(
                "levels",
                "Levels",
                Body::Histogram {
                    first: -128.0,
                    step: 1.0,
                    unit: "counts".to_owned(),
                    series: vec![HistogramSeries {
                        name: "pol 0".to_owned(),
                        counts: (-128..128).map(bell).collect(),
                    }],
                    time: None,
                    period: None,
                },
            ),
            Panel::new("samples", "Samples", trace(made)),
            Panel::new("circle", "Circle", circle()),
            Panel::new(
                "rates",
                "Rates",
                Body::TimeSeries(self.history.time_series("heaps/s")),
            ),
            Panel::new(
                "time",
                "Time",
                Body::Bars {
                    bars: vec![Bar {
                        name: "rx0".to_owned(),
                        parts: vec![part("work", 0.3), part("idle", 0.6)],
                    }],
                },
            ),
            Panel::new(
                "log",
                "Log",
                Body::Log {
                    entries: vec![LogEntry {
                        time: self.begun,
                        who: "127.0.0.1".to_owned(),
                        text: "<b>?gain</b> 1".to_owned(),
                        state: State::Well,
                    }],
                },
            ),
        ];
        Document::new("demo", panels)
    }

    fn array(&mut self, name: &str) -> Option<Array> {
        (name == "w").then(|| Array {
            shape: vec![CHANNELS as u64],
            values: self.powers.iter().map(|power| *power as f32).collect(),
        })
    }
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let address = address.parse().map_err(std::io::Error::other)?;
    let documents = Arc::<AtomicU64>::default();
    let demo = Demo {
        documents: documents.clone(),
        fault: args.next().map(PathBuf::from),
        since: None,
        begun: now(),
        history: History::new(["in".to_owned(), "lost".to_owned()], 1.0, 3600),
        powers: vec![1.0; CHANNELS],
    };
    let metrics = move || Ok(format!("documents {}\n", documents.load(Ordering::Relaxed)));
    let listener = live::bind(address)?;
    println!("{}", listener.local_addr()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(
        Site::default()
            .metrics(metrics)
            .source(demo)
            .serve(listener),
    )
}

//! What a page shows, as it is in JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the format. Fields may be added within one; what is there keeps its meaning.
pub const VERSION: u32 = 1;

/// Name of the format: `schema` says it behind `karoo/`.
pub const SCHEMA: &str = "live";

/// All that is to be seen of a program at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document {
    /// What this is: `karoo/` and [`SCHEMA`].
    #[serde(default)]
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// Name of what is shown, such as the address or the stream of an engine.
    pub name: String,
    /// What runs, with its version.
    pub program: String,
    /// UNIX time in seconds at which this was true.
    pub time: f64,
    /// In the order in which they are shown.
    #[serde(deserialize_with = "readable")]
    pub panels: Vec<Panel>,
}

impl Document {
    /// Panels as they are now.
    pub fn new(name: impl Into<String>, panels: Vec<Panel>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            schema: format!("karoo/{SCHEMA}"),
            version: VERSION,
            name: name.into(),
            program: String::new(),
            time: since.unwrap_or_default().as_secs_f64(),
            panels,
        }
    }

    /// The verdict, if there is one.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.panels.iter().find_map(|panel| match &panel.body {
            Body::Verdict(verdict) => Some(verdict),
            _ => None,
        })
    }

    /// All figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        let figures = self.panels.iter().filter_map(|panel| match &panel.body {
            Body::Figures { figures } => Some(figures),
            _ => None,
        });
        figures.flatten()
    }
}

/// The panels that can be read: kinds may be added within a version, and are left out.
fn readable<'de, D: Deserializer<'de>>(document: D) -> Result<Vec<Panel>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Maybe {
        Known(Box<Panel>),
        Other(IgnoredAny),
    }
    let panels = Vec::<Maybe>::deserialize(document)?;
    let known = panels.into_iter().filter_map(|panel| match panel {
        Maybe::Known(panel) => Some(*panel),
        Maybe::Other(_) => None,
    });
    Ok(known.collect())
}

/// One part of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Panel {
    /// Unique within the document, and the same in all documents of a program.
    pub id: String,
    /// Title.
    pub title: String,
    /// What one has to know to read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Address of a file that goes with it, relative to the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What it shows; `kind` says of which kind it is.
    #[serde(flatten)]
    pub body: Body,
}

impl Panel {
    /// A panel without a note.
    pub fn new(id: impl Into<String>, title: impl Into<String>, body: Body) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            note: String::new(),
            file: None,
            body,
        }
    }

    /// The panel with a note.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The panel with a file at an address.
    #[must_use]
    pub fn with_file(mut self, address: impl Into<String>) -> Self {
        self.file = Some(address.into());
        self
    }
}

/// What a panel shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Body {
    /// How it is, in words.
    Verdict(Verdict),
    /// Single numbers.
    Figures {
        /// The numbers.
        figures: Vec<Figure>,
    },
    /// Curves over one axis. The page keeps the highest value of each point.
    Spectrum {
        /// What is to the right.
        x: Axis,
        /// Unit of the values.
        unit: String,
        /// Curves.
        series: Vec<Series>,
        /// UNIX time in seconds until which this was measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<f64>,
        /// Seconds from one measurement to the next, if they are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
        /// Address of all values as an array, relative to the page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        array: Option<String>,
    },
    /// Curves over one axis, as they are: other ones in each document.
    Trace {
        /// What is to the right.
        x: Axis,
        /// Unit of the values.
        unit: String,
        /// Curves.
        series: Vec<Series>,
        /// UNIX time in seconds at which the axis begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<f64>,
        /// Seconds from one measurement to the next, if they are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
        /// Address of all values as an array, relative to the page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        array: Option<String>,
    },
    /// Points on a plane: other ones in each document.
    Points {
        /// From left to right.
        x: Span,
        /// From below to above.
        y: Span,
        /// Whether both directions have one scale; more than `x` is shown then.
        #[serde(default)]
        same_scale: bool,
        /// Points of several kinds.
        series: Vec<PointSeries>,
        /// UNIX time in seconds at which they were measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<f64>,
    },
    /// One series of a spectrum over time, newest on top: the page keeps the rows.
    Waterfall {
        /// [`Panel::id`] of the spectrum.
        of: String,
        /// Which of its series.
        series: usize,
    },
    /// How often each value came.
    Histogram {
        /// The value of the first bin.
        first: f64,
        /// From one bin to the next.
        step: f64,
        /// Unit of values.
        unit: String,
        /// One for each input.
        series: Vec<HistogramSeries>,
        /// UNIX time in seconds until which this was measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<f64>,
        /// Seconds from one measurement to the next, if they are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        period: Option<f64>,
    },
    /// Shares of a whole.
    Bars {
        /// One above the other.
        bars: Vec<Bar>,
    },
    /// Boxes with arrows between them.
    Network {
        /// The boxes.
        nodes: Vec<Node>,
        /// The arrows.
        arrows: Vec<Arrow>,
    },
    /// Values over time.
    TimeSeries(TimeSeries),
    /// Rows of text.
    Table {
        /// Titles.
        columns: Vec<String>,
        /// Rows of as many cells.
        rows: Vec<Vec<String>>,
    },
    /// What happened, newest first.
    Log {
        /// The entries.
        entries: Vec<LogEntry>,
    },
}

/// How serious something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As it should be.
    Well,
    /// It works, but somebody should look.
    Warning,
    /// Something is lost.
    Bad,
}

/// How a program is, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// How serious it is.
    pub state: State,
    /// In a few words: "all well", or the top cause.
    pub text: String,
    /// UNIX time in seconds since when.
    pub since: Option<f64>,
    /// What mends it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mends: String,
    /// All causes, the top one first.
    pub causes: Vec<CauseShown>,
}

impl Verdict {
    /// A verdict without words.
    pub fn new(state: State) -> Self {
        Self {
            state,
            text: String::new(),
            since: None,
            mends: String::new(),
            causes: Vec::new(),
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CauseShown {
    /// Stable name.
    pub name: String,
    /// How serious it is.
    pub state: State,
    /// What is known of it.
    pub text: String,
    /// What mends it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mends: String,
    /// What it means and what mends it, of any such case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_book: String,
    /// UNIX time in seconds since when.
    pub since: f64,
    /// How many were lost since then.
    pub count: u64,
}

/// A number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// What it is of.
    pub name: String,
    /// The number; `null` where it is not known.
    pub value: Option<f64>,
    /// Its unit; empty for a plain number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// What it is in words, where no number says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
}

impl Figure {
    /// A number that is known.
    pub fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.is_finite().then_some(value),
            unit: unit.into(),
            words: None,
        }
    }

    /// What words say better than a number.
    pub fn in_words(name: impl Into<String>, words: impl Into<String>) -> Self {
        Self {
            words: Some(words.into()),
            ..Self::new(name, f64::NAN, "")
        }
    }
}

/// What the points of a curve are at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Axis {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Where the first point is.
    pub first: f64,
    /// From one point to the next.
    pub step: f64,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// Values; `null` where there is none. Of several channels behind a point, the mean.
    pub values: Vec<Option<f32>>,
    /// The highest of the channels behind each point; empty where each point is one channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highest: Vec<Option<f32>>,
}

/// What is shown of a direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Span {
    /// What it is.
    pub name: String,
    /// Its unit; empty for plain numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The lowest value that is shown.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

/// Points of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointSeries {
    /// What they are of.
    pub name: String,
    /// From left to right, and from below to above, of each.
    pub points: Vec<[f32; 2]>,
}

/// How often each value came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistogramSeries {
    /// What it is of.
    pub name: String,
    /// One for each bin.
    pub counts: Vec<u64>,
}

/// A whole of several parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bar {
    /// What it is of.
    pub name: String,
    /// Parts, of which the shares are 1 at most together.
    pub parts: Vec<Part>,
}

/// A part of a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// What it is.
    pub name: String,
    /// Between 0 and 1.
    pub share: f64,
}

/// A box of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// What it is.
    pub name: String,
    /// What it does at this moment; empty if its share alone says how busy it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// What is in it.
    pub lines: Vec<String>,
    /// How busy it is, between 0 and 1.
    pub share: f64,
    /// Whether it is the limit of the whole.
    pub marked: bool,
}

/// An arrow of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Arrow {
    /// The box that it begins at, counted from 0.
    pub from: usize,
    /// The box that it ends at.
    pub to: usize,
    /// What stands beside it.
    pub label: String,
    /// How full it is, between 0 and 1.
    pub share: f64,
}

/// Values over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeSeries {
    /// UNIX time of the first value, in seconds.
    pub first: f64,
    /// Seconds from one to the next.
    pub step: f64,
    /// Unit of the values.
    pub unit: String,
    /// One for each curve; `null` where nothing was measured.
    pub series: Vec<Series>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogEntry {
    /// UNIX time in seconds.
    pub time: f64,
    /// Who did it, or what it is about.
    pub who: String,
    /// What happened.
    pub text: String,
    /// How serious it is.
    pub state: State,
}

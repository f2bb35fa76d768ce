//! The report of a qualification: what is required, what was measured, and one page that needs
//! nothing but itself.

mod page;
mod picture;

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::document::Documented;
use super::html::{ReportError, write_pair};

/// What was measured of a program, beside what is required.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Qualification {
    /// Version of Karoo that measured.
    pub karoo: String,
    /// The program that was measured.
    pub program: String,
    /// What it says of its version.
    pub program_version: String,
    /// The processor's name.
    pub processor: String,
    /// The kernel's version.
    pub kernel: String,
    /// What computed, as `--backend` has it.
    pub backend: String,
    /// UNIX time of the end.
    pub time: f64,
    /// Seconds that it took.
    pub seconds: f64,
    /// In hertz; null for an engine that runs, which is not asked.
    pub adc_sample_rate: Option<f64>,
    /// Whether all requirements are met.
    pub passed: bool,
    /// Requirements, for each output.
    pub requirements: Vec<Requirement>,
}

impl Documented for Qualification {
    const NAME: &'static str = "qualification";
    const TITLE: &'static str = "What karoo qualify measured, beside what is required";
}

/// A requirement, and what was measured for it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Requirement {
    /// Its name, as `--only` takes it.
    pub name: String,
    /// What it says.
    pub title: String,
    /// Numbers of SARAO's requirements that it is of.
    pub numbers: Vec<String>,
    /// The output that was measured, as its option has it.
    pub output: String,
    /// How it was measured.
    pub method: String,
    /// Figures; all of those that have a limit must keep it.
    pub figures: Vec<Checked>,
    /// What to look at.
    pub curves: Vec<Curve>,
    /// Why nothing could be measured.
    pub error: Option<String>,
}

impl Requirement {
    /// Whether it was measured, and all figures keep their limits.
    pub fn passed(&self) -> bool {
        self.error.is_none() && self.figures.iter().all(Checked::passed)
    }
}

/// A figure and its limit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Checked {
    /// What it is.
    pub name: String,
    /// Its value; null if it is no number, which keeps no limit.
    #[schemars(with = "Option<f64>")]
    pub value: f64,
    /// The unit of both.
    pub unit: String,
    /// What it has to keep.
    pub limit: Limit,
}

impl Checked {
    /// One that must not be above `limit`.
    pub fn at_most(name: impl Into<String>, value: f64, limit: f64, unit: &str) -> Self {
        Self::new(name, value, Limit::AtMost(limit), unit)
    }

    /// One that must not be below `limit`.
    pub fn at_least(name: impl Into<String>, value: f64, limit: f64, unit: &str) -> Self {
        Self::new(name, value, Limit::AtLeast(limit), unit)
    }

    /// One of which nothing is required.
    pub fn told(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self::new(name, value, Limit::None, unit)
    }

    fn new(name: impl Into<String>, value: f64, limit: Limit, unit: &str) -> Self {
        let (name, unit) = (name.into(), unit.to_owned());
        Self {
            name,
            value,
            unit,
            limit,
        }
    }

    /// Whether it keeps its limit; what is not a number does not.
    pub fn passed(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.value <= limit,
            Limit::AtLeast(limit) => self.value >= limit,
            Limit::None => true,
        }
    }
}

/// What a figure has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
    /// Nothing is required.
    None,
}

/// A curve.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Curve {
    /// What it is.
    pub title: String,
    /// What goes to the right, with its unit.
    pub across: String,
    /// What goes up, with its unit.
    pub up: String,
    /// Points: across and up, null where there is no number.
    #[schemars(with = "Vec<(f64, Option<f64>)>")]
    pub points: Vec<(f64, f64)>,
    /// Limits that the points have to keep.
    pub limits: Vec<f64>,
}

/// A figure or a limit as text: whole, or four digits of it.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size.fract() == 0.0 && size < 1e6 => format!("{value}"),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.3e}"),
        size => {
            let whole = size.log10().floor() as i32;
            let digits = usize::try_from(3 - whole).unwrap_or(0);
            format!("{value:.digits$}")
        }
    }
}

/// Writes `report.json` and `report.html` into `dir`, which is made if need be.
pub fn write_qualification(dir: &Path, report: &Qualification) -> Result<(), ReportError> {
    write_pair(dir, report, &page::page(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_limits_or_not() {
        assert!(Checked::at_most("a", 1.0, 1.0, "").passed());
        assert!(!Checked::at_most("a", 1.1, 1.0, "").passed());
        assert!(Checked::at_least("a", 53.0, 53.0, "dB").passed());
        assert!(!Checked::at_least("a", 52.9, 53.0, "dB").passed());
        assert!(!Checked::at_least("a", f64::NAN, 53.0, "dB").passed());
        assert!(!Checked::at_most("a", f64::NAN, 53.0, "dB").passed());
        assert!(Checked::told("a", f64::NAN, "").passed());
    }

    #[test]
    fn numbers_have_four_digits_unless_they_are_whole() {
        for (value, text) in [
            (0.0, "0"),
            (10_000.0, "10000"),
            (-120.0, "-120"),
            (1.378_16, "1.378"),
            (-141.9939, "-142.0"),
            (0.054_967, "0.05497"),
            (1.5e-5, "1.500e-5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    /// Those of an engine that runs are names, those of replays options.
    #[test]
    fn a_page_links_to_each_output() {
        let of = |output: &str| Requirement {
            name: "delay".to_owned(),
            output: output.to_owned(),
            ..Requirement::default()
        };
        let outputs = ["wide", "narrow", "channels=1024,name=third"];
        let report = Qualification {
            adc_sample_rate: Some(1712e6),
            requirements: outputs.map(of).to_vec(),
            ..Qualification::default()
        };
        let page = page::page(&report);
        for name in ["wide", "narrow", "third"] {
            for part in [
                format!("href=\"#delay-{name}\""),
                format!("id=\"delay-{name}\""),
                format!("<td>{name}</td>"),
            ] {
                assert!(page.contains(&part), "{part} is not in\n{page}");
            }
        }
        assert!(page.contains("1712.000 MHz"), "{page}");
    }

    #[test]
    fn a_page_says_what_failed_and_shows_curves() {
        let requirement = Requirement {
            name: "delay".to_owned(),
            title: "Delays <are> applied".to_owned(),
            numbers: vec!["CBF-REQ-0128".to_owned()],
            figures: vec![
                Checked::at_most("phase error", 3.5, 1.0, "°"),
                Checked::told("spectra", 12.0, ""),
            ],
            curves: vec![Curve {
                title: "phase".to_owned(),
                across: "channel".to_owned(),
                up: "°".to_owned(),
                points: vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.5)],
                limits: vec![1.0],
            }],
            ..Requirement::default()
        };
        let unmeasured = Requirement {
            name: "gain".to_owned(),
            error: Some("the replay failed".to_owned()),
            ..Requirement::default()
        };
        let report = Qualification {
            requirements: vec![requirement, unmeasured],
            ..Qualification::default()
        };
        let page = page::page(&report);
        for part in [
            "2 of 2 requirements are not met",
            "Delays &lt;are&gt; applied",
            "CBF-REQ-0128",
            "3.500",
            "at most 1 °",
            "<svg",
            "the replay failed",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!page.contains("sample rate"), "{page}");
        quick_xml::Reader::from_str(&page)
            .read_event()
            .expect("the page begins well");
    }
}

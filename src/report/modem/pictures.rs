//! Pictures of the page: curves as SVG, constellations as PNG.

use std::ops::Range;

use karoo_modem::waveform::SAMPLES_PER_SYMBOL;
use num_complex::Complex32;
use plotters::prelude::*;

use super::super::picture::{DrawResult, GRID, MEAN, PEAK, picture};
use super::CELLS;

/// Points of a curve at most.
const COLUMNS: usize = 600;

/// A curve with its axes.
struct Plot<'a> {
    x: Range<f64>,
    y: Range<f64>,
    names: [&'a str; 2],
}

impl Plot<'_> {
    /// The curve as SVG; as bars from the axis if `bars`.
    fn draw(&self, points: &[(f64, f64)], bars: bool) -> Option<String> {
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (540, 320)).into_drawing_area();
        let drawn = self.draw_on(&root, points, bars);
        drop(root);
        drawn.ok().map(|()| svg)
    }

    fn draw_on<'b>(
        &self,
        root: &DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
        points: &[(f64, f64)],
        bars: bool,
    ) -> DrawResult<'b> {
        let label = ("sans-serif", 13);
        let decimals = |range: &Range<f64>| usize::from(range.end - range.start < 8.0);
        let (of_x, of_y) = (decimals(&self.x), decimals(&self.y));
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(44)
            .y_label_area_size(58)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.mix(0.3))
            .axis_style(GRID)
            .x_labels(7)
            .y_labels(8)
            .x_label_formatter(&|x| format!("{x:.of_x$}"))
            .y_label_formatter(&|y| format!("{y:.of_y$}"))
            .label_style(label)
            .axis_desc_style(label)
            .x_desc(self.names[0])
            .y_desc(self.names[1])
            .draw()?;
        if bars {
            let floor = self.y.start;
            chart.draw_series(points.iter().map(|&(x, y)| {
                Rectangle::new([(x - 0.35, floor), (x + 0.35, y)], PEAK.filled())
            }))?;
        } else {
            chart.draw_series(LineSeries::new(
                points.iter().copied(),
                MEAN.stroke_width(2),
            ))?;
        }
        root.present()
    }
}

/// A range with room around the values, at least 2 wide.
fn around(values: impl Iterator<Item = f64> + Clone) -> Option<Range<f64>> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = (finite.clone().reduce(f64::min)?, finite.reduce(f64::max)?);
    Some((low - 1.0).floor()..(high + 1.0).ceil())
}

/// Mean power of `count` spectra, negative frequencies first, in dB to the strongest.
pub(super) fn spectrum(power: &[f64], count: u64, sample_rate: Option<f64>) -> Option<String> {
    let strongest = power.iter().copied().fold(0.0, f64::max);
    if count == 0 || strongest <= 0.0 {
        return None;
    }
    let (scale, name) = match sample_rate {
        Some(rate) => (rate / 1e6, "MHz"),
        None => (SAMPLES_PER_SYMBOL as f64, "cycles per symbol"),
    };
    let bins = power.len() as f64;
    let points: Vec<(f64, f64)> = power
        .iter()
        .enumerate()
        .map(|(i, power)| {
            let decibels = 10.0 * (power / strongest).max(1e-12).log10();
            ((i as f64 / bins - 0.5) * scale, decibels)
        })
        .collect();
    let y = around(points.iter().map(|point| point.1))?;
    Plot {
        x: -0.5 * scale..0.5 * scale,
        y,
        names: [name, "dB to the strongest"],
    }
    .draw(&points, false)
}

/// A value for each frame; of many frames, means of several.
pub(super) fn series(values: Vec<f64>, name: &str) -> Option<String> {
    let step = values.len().div_ceil(COLUMNS).max(1);
    let points: Vec<(f64, f64)> = values
        .chunks(step)
        .enumerate()
        .map(|(i, values)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            ((i * step) as f64, mean)
        })
        .filter(|point| point.1.is_finite())
        .collect();
    let y = around(points.iter().map(|point| point.1))?;
    let last = (values.len() as f64 - 1.0).max(1.0);
    Plot {
        x: 0.0..last,
        y,
        names: ["frame", name],
    }
    .draw(&points, false)
}

/// Magnitudes of the equaliser's taps.
pub(super) fn taps(taps: &[Complex32]) -> Option<String> {
    let strongest = taps.iter().map(|tap| tap.norm()).fold(0.0, f32::max);
    if strongest <= 0.0 || !strongest.is_finite() {
        return None;
    }
    let floor = -60.0;
    let points: Vec<(f64, f64)> = taps
        .iter()
        .enumerate()
        .map(|(i, tap)| {
            let decibels = 20.0 * f64::from(tap.norm() / strongest).max(1e-9).log10();
            (i as f64, decibels.max(floor))
        })
        .collect();
    let x = -0.5..taps.len() as f64 - 0.5;
    Plot {
        x,
        y: floor..2.0,
        names: ["tap", "dB to the strongest"],
    }
    .draw(&points, true)
}

/// A `data:` address of a PNG of counted points, on a logarithmic scale of colours.
pub(super) fn constellation(cells: &[u32]) -> Option<String> {
    let most = cells.iter().copied().max().filter(|most| *most > 0)?;
    let scale = 254.0 / (f64::from(most) + 1.0).ln();
    let indices: Vec<u8> = cells
        .iter()
        .map(|&count| match count {
            0 => 0,
            count => 1 + ((f64::from(count) + 1.0).ln() * scale).round().min(254.0) as u8,
        })
        .collect();
    picture(CELLS as u32, CELLS as u32, &indices)
}

//! A curve of a qualification as a picture.

use plotters::prelude::*;

use super::super::picture::{DrawResult, GRID, MEAN, PEAK};
use super::Curve;

/// The picture as SVG; none if no point has a number.
pub(super) fn svg(curve: &Curve) -> Option<String> {
    let points = curve.points.iter().copied();
    let points: Vec<_> = points
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    let across = range(points.iter().map(|point| point.0))?;
    let ups = points.iter().map(|point| point.1);
    let up = range(ups.chain(curve.limits.iter().copied()))?;
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (720, 300)).into_drawing_area();
    let drawn = draw(&root, curve, points, across, up);
    drop(root);
    drawn.ok().map(|()| svg)
}

/// From the least to the most, with room.
fn range(values: impl Iterator<Item = f64>) -> Option<std::ops::Range<f64>> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let room = (0.04 * (high - low)).max(1e-9 * high.abs()).max(1e-12);
    (low <= high).then_some(low - room..high + room)
}

fn draw<'a>(
    root: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    curve: &Curve,
    points: Vec<(f64, f64)>,
    across: std::ops::Range<f64>,
    up: std::ops::Range<f64>,
) -> DrawResult<'a> {
    let label = ("sans-serif", 13);
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(across.clone(), up)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.mix(0.3))
        .axis_style(GRID)
        .label_style(label)
        .axis_desc_style(label)
        .x_desc(&curve.across)
        .y_desc(&curve.up)
        .draw()?;
    for &limit in &curve.limits {
        let ends = [(across.start, limit), (across.end, limit)];
        chart.draw_series([PathElement::new(ends, PEAK.stroke_width(1))])?;
    }
    chart.draw_series(LineSeries::new(points, MEAN.stroke_width(1)))?;
    root.present()
}

//! Pictures of rates over Eb/N0, of bits and of frames: what was measured, on the curves of theory.

use std::ops::Range;

use karoo_modem::theory::bit_error_rate;
use karoo_modem::waveform::Modulation;
use plotters::prelude::*;

use super::picture::{DrawResult, GRID};

/// Decibels between two points of theory's curves.
const STEP: f64 = 0.1;
/// The lowest rate that is drawn, of bits and of frames.
const FLOOR: f64 = 1e-7;
const FRAME_FLOOR: f64 = 1e-5;

/// A measured rate.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredRate {
    /// Modulation of the frames.
    pub modulation: Modulation,
    /// Eb/N0 in dB.
    pub eb_n0_db: f64,
    /// Bits or frames that were wrong, of all; 0 is drawn as its interval alone.
    pub rate: f64,
    /// Where the true rate is, with confidence.
    pub interval: (f64, f64),
}

fn colour(modulation: Modulation) -> RGBColor {
    match modulation {
        Modulation::Bpsk => RGBColor(0x1f, 0x8a, 0xc0),
        Modulation::Qpsk => RGBColor(0x2c, 0xa0, 0x5a),
        Modulation::Qam16 => RGBColor(0xe0, 0x7b, 0x39),
        Modulation::Qam64 => RGBColor(0xb0, 0x5a, 0xb4),
        Modulation::Qam256 => RGBColor(0xc8, 0x3c, 0x3c),
    }
}

/// Bit error rates as SVG; none without points.
pub fn error_rates_svg(points: &[MeasuredRate]) -> Option<String> {
    let picture = Picture {
        what: "bit error rate",
        floor: FLOOR,
        theory: &bit_error_rate,
    };
    picture.svg(points)
}

/// Shares of frames as SVG, with a curve of theory; none without points.
pub fn frame_rates_svg(
    what: &str,
    points: &[MeasuredRate],
    theory: &dyn Fn(Modulation, f64) -> f64,
) -> Option<String> {
    let floor = FRAME_FLOOR;
    Picture {
        what,
        floor,
        theory,
    }
    .svg(points)
}

/// What a picture shows.
struct Picture<'a> {
    what: &'a str,
    floor: f64,
    theory: &'a dyn Fn(Modulation, f64) -> f64,
}

impl Picture<'_> {
    fn svg(&self, points: &[MeasuredRate]) -> Option<String> {
        let ratios = points.iter().map(|point| point.eb_n0_db);
        let (low, high) = (ratios.clone().reduce(f64::min)?, ratios.reduce(f64::max)?);
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (720, 480)).into_drawing_area();
        let drawn = draw(
            &root,
            self,
            points,
            (low - 1.0).floor()..(high + 1.0).ceil(),
        );
        drop(root);
        drawn.ok().map(|()| svg)
    }
}

fn draw<'a>(
    root: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    picture: &Picture,
    points: &[MeasuredRate],
    range: Range<f64>,
) -> DrawResult<'a> {
    let floor = picture.floor;
    let label = ("sans-serif", 14);
    let mut chart = ChartBuilder::on(root)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(range.clone(), (floor..1.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.mix(0.3))
        .axis_style(GRID)
        .y_label_formatter(&|rate| format!("{rate:.0e}"))
        .label_style(label)
        .axis_desc_style(label)
        .x_desc("Eb/N0 in dB")
        .y_desc(picture.what)
        .draw()?;
    let mut drawn: Vec<Modulation> = Vec::new();
    for modulation in points.iter().map(|point| point.modulation) {
        if drawn.contains(&modulation) {
            continue;
        }
        drawn.push(modulation);
        let colour = colour(modulation);
        let steps = ((range.end - range.start) / STEP).round() as usize;
        let ratios = (0..=steps).map(|i| range.start + i as f64 * STEP);
        let curve = ratios
            .map(|ratio| (ratio, (picture.theory)(modulation, ratio)))
            .filter(|(_, rate)| *rate >= floor);
        chart
            .draw_series(LineSeries::new(curve, colour.stroke_width(1)))?
            .label(modulation.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        let own = points.iter().filter(|point| point.modulation == modulation);
        for point in own {
            let (low, high) = point.interval;
            let ends = [low, high].map(|rate| (point.eb_n0_db, rate.clamp(floor, 1.0)));
            chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
            if point.rate >= floor {
                let centre = (point.eb_n0_db, point.rate);
                chart.draw_series([Circle::new(centre, 4, colour.filled())])?;
            }
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .label_font(label)
        .border_style(GRID)
        .draw()?;
    root.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rates_are_drawn_on_their_theory() {
        let point = |modulation, eb_n0_db, rate| MeasuredRate {
            modulation,
            eb_n0_db,
            rate,
            interval: (rate / 2.0, rate * 2.0 + 1e-6),
        };
        let points = [
            point(Modulation::Bpsk, 4.0, 1e-2),
            point(Modulation::Bpsk, 6.0, 0.0),
            point(Modulation::Qam256, 16.0, 1.3e-2),
        ];
        let svg = error_rates_svg(&points).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("qam256") && svg.contains("bit error rate"));
        assert_eq!(error_rates_svg(&[]), None);
        let svg = frame_rates_svg("frames not found", &points, &|_, _| 0.0).unwrap();
        assert!(svg.contains("frames not found") && !svg.contains("1e-7"));
    }
}

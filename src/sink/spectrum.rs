//! Picture of a spectrum: mean power per channel of both polarisations.

use ground::N_POL;
use plotters::prelude::*;

/// Points per polarisation; more channels than that share points.
const MAX_POINTS: usize = 2048;
const COLOURS: [RGBColor; N_POL] = [RGBColor(31, 119, 180), RGBColor(214, 39, 40)];

/// An SVG of `power`, mean |x|² per channel and polarisation, in dB relative to one count.
///
/// Channels without any power are left out. Where there are more channels than points, a point
/// shows the strongest of its channels, so that no line is lost.
pub fn svg(title: &str, power: [&[f64]; N_POL]) -> String {
    let channels = power[0].len().max(1);
    let per_point = channels.div_ceil(MAX_POINTS);
    let lines = power.map(|power| points(power, per_point));
    let levels = || lines.iter().flatten().map(|p| p.1);
    let (low, high) = (
        levels().fold(f64::INFINITY, f64::min),
        levels().fold(f64::NEG_INFINITY, f64::max),
    );
    // An empty or flat spectrum needs a range too, and the legend has its place above the lines.
    let (low, high) = if low <= high {
        (low - 1.0, high + 1.0 + 0.2 * (high - low + 2.0))
    } else {
        (0.0, 1.0)
    };

    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (960, 480)).into_drawing_area();
    // Drawing into a string has nothing that can fail but the layout of a picture of fixed size.
    if let Err(error) = draw(&area, title, channels, per_point, low..high, &lines) {
        tracing::warn!("spectrum picture: {error}");
    }
    drop(area);
    svg
}

fn points(power: &[f64], per_point: usize) -> Vec<(f64, f64)> {
    let strongest = power
        .chunks(per_point)
        .enumerate()
        .filter_map(|(i, chunk)| {
            let power = chunk.iter().copied().fold(0.0, f64::max);
            let channel = (i * per_point) as f64 + (chunk.len() - 1) as f64 / 2.0;
            (power > 0.0).then(|| (channel, 10.0 * power.log10()))
        });
    strongest.collect()
}

fn draw<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    title: &str,
    channels: usize,
    per_point: usize,
    levels: std::ops::Range<f64>,
    lines: &[Vec<(f64, f64)>; N_POL],
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(-0.5..channels as f64 - 0.5, levels)?;
    let x = match per_point {
        1 => "channel".to_owned(),
        n => format!("channel (strongest of each {n})"),
    };
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc("mean power, dB relative to one count")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(RGBColor(240, 240, 240))
        .draw()?;
    for (pol, (line, colour)) in lines.iter().zip(COLOURS).enumerate() {
        chart
            .draw_series(LineSeries::new(
                line.iter().copied(),
                colour.stroke_width(1),
            ))?
            .label(format!("pol {pol}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_shows_the_strongest_of_its_channels() {
        let mut power = vec![1.0; 8192];
        power[5] = 1000.0;
        let points = points(&power, 4);
        assert_eq!(points.len(), 2048);
        assert_eq!(points[0], (1.5, 0.0));
        assert!((points[1].0 - 5.5).abs() < 1e-12 && (points[1].1 - 30.0).abs() < 1e-12);
    }

    #[test]
    fn pictures_are_labelled_whatever_the_data() {
        for power in [vec![], vec![0.0; 16], vec![4.0; 16]] {
            let svg = svg("stream0", [&power, &power]);
            assert!(svg.trim_end().ends_with("</svg>"));
            for text in ["stream0", "channel", "mean power", "pol 0", "pol 1"] {
                assert!(svg.contains(text), "{text}");
            }
        }
    }
}

//! Picture of a spectrum: mean power per channel of both polarisations.

use ground::N_POL;
use plotters::prelude::*;

use super::metadata::Band;

/// Points per polarisation; more channels than that share points.
const MAX_POINTS: usize = 2048;
const COLOURS: [RGBColor; N_POL] = [RGBColor(31, 119, 180), RGBColor(214, 39, 40)];

/// An SVG of `power`, mean |x|² per channel and polarisation, in dB relative to one count.
///
/// Channels without any power are left out. Where there are more channels than points, a point
/// shows the strongest of its channels, so that no line is lost. With a band, channels are where
/// their frequencies are.
pub fn svg(title: &str, power: [&[f64]; N_POL], band: Option<&Band>) -> String {
    let channels = power[0].len().max(1);
    let per_point = channels.div_ceil(MAX_POINTS);
    let axis = Axis::new(channels, per_point, band);
    let lines: [Vec<_>; N_POL] = power.map(|power| {
        let points = points(power, per_point).into_iter();
        let placed = points.map(|(channel, level)| (axis.place(channel), level));
        placed.collect()
    });
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
    if let Err(error) = draw(&area, title, &axis, low..high, &lines) {
        tracing::warn!("spectrum picture: {error}");
    }
    drop(area);
    svg
}

/// The axis of channels, or of their frequencies.
struct Axis<'a> {
    band: Option<&'a Band>,
    ends: std::ops::Range<f64>,
    /// Digits of its numbers behind the point.
    digits: usize,
    label: String,
}

impl<'a> Axis<'a> {
    fn new(channels: usize, per_point: usize, band: Option<&'a Band>) -> Self {
        let strongest = match per_point {
            1 => String::new(),
            n => format!(" (strongest of each {n} channels)"),
        };
        let edges = band.and_then(|band| Some((band, band.edges(channels)?)));
        let Some((band, (low, high))) = edges else {
            return Self {
                band: None,
                ends: -0.5..channels as f64 - 0.5,
                digits: 0,
                label: format!("channel{strongest}"),
            };
        };
        Self {
            band: Some(band),
            ends: low..high,
            // About ten numbers are shown.
            digits: (2.0 - (high - low).log10()).ceil().clamp(0.0, 12.0) as usize,
            label: format!("frequency in the digitised band, MHz{strongest}"),
        }
    }

    /// Where a channel is on it, or a place between two.
    fn place(&self, channel: f64) -> f64 {
        self.band.map_or(channel, |band| band.megahertz(channel))
    }
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
    axis: &Axis<'_>,
    levels: std::ops::Range<f64>,
    lines: &[Vec<(f64, f64)>; N_POL],
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(axis.ends.clone(), levels)?;
    chart
        .configure_mesh()
        .x_desc(axis.label.as_str())
        .y_desc("mean power, dB relative to one count")
        .x_label_formatter(&|x| format!("{x:.*}", axis.digits))
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
            let svg = svg("stream0", [&power, &power], None);
            assert!(svg.trim_end().ends_with("</svg>"));
            for text in ["stream0", "channel", "mean power", "pol 0", "pol 1"] {
                assert!(svg.contains(text), "{text}");
            }
        }
    }

    /// Three channels around 284 MHz: the axis goes from edge to edge, and tells them apart.
    #[test]
    fn a_band_makes_channels_frequencies() {
        let band = Band {
            first: 283.9e6,
            step: 0.1e6,
        };
        let axis = Axis::new(3, 1, Some(&band));
        assert!((axis.ends.start - 283.85).abs() < 1e-9 && (axis.ends.end - 284.15).abs() < 1e-9);
        assert!((axis.place(1.0) - 284.0).abs() < 1e-9);
        let svg = svg("zoom", [&[4.0; 3], &[4.0; 3]], Some(&band));
        for text in ["MHz", "283.900", "284.100"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // As many channels as share points.
        let label = Axis::new(8192, 4, None).label;
        assert_eq!(label, "channel (strongest of each 4 channels)");
    }
}

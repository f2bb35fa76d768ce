//! Pictures of a run report: spectra as SVG, waterfalls as PNG, presence and time as bars.

use std::fmt::Write as _;
use std::ops::Range;

use base64::Engine as _;
use ground::stats::ThreadReport;
use plotters::prelude::*;
use quick_xml::escape::escape;

use super::spectra::SpectraAccumulator;
use crate::recv::PolReport;

/// Points of a spectrum's curve at most.
const POINTS: usize = 1024;
/// Columns of a presence bar.
const PRESENCE_COLUMNS: u64 = 1000;

pub(super) const MEAN: RGBColor = RGBColor(0x1f, 0x8a, 0xc0);
pub(super) const PEAK: RGBColor = RGBColor(0xe0, 0x7b, 0x39);
pub(super) const GRID: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// Decibels relative to the power of one component at full scale; `None` for no power.
fn decibels(spectra: &SpectraAccumulator, power: f64) -> Option<f64> {
    let full_scale = f64::from(spectra.full_scale()).powi(2);
    (power > 0.0).then(|| 10.0 * (power / full_scale).log10())
}

/// Points of a curve: channel and power in decibels, if there is any.
type Curve = Vec<(f64, Option<f64>)>;

/// Mean and peak power of each channel.
fn curves(spectra: &SpectraAccumulator, pol: usize) -> [Curve; 2] {
    let channels = spectra.channels();
    let points = channels.min(POINTS);
    let (mean, peak) = (spectra.mean_power(pol), spectra.peak_power(pol));
    let curve = |pick: &dyn Fn(Range<usize>) -> f64| -> Curve {
        (0..points)
            .map(|point| {
                let range = point * channels / points..(point + 1) * channels / points;
                let middle = (range.start + range.end - 1) as f64 / 2.0;
                (middle, decibels(spectra, pick(range)))
            })
            .collect()
    };
    let mean = curve(&|range| {
        let count = range.len() as f64;
        mean[range].iter().sum::<f64>() / count
    });
    let peak = curve(&|range| peak[range].iter().copied().max().map_or(0.0, f64::from));
    [mean, peak]
}

/// The power axis of both polarisations' spectra, in decibels; `None` if all is zero.
pub(super) fn power_axis(spectra: &SpectraAccumulator) -> Option<Range<f64>> {
    let curves = [0, 1].map(|pol| curves(spectra, pol));
    let values = || {
        curves
            .iter()
            .flatten()
            .flatten()
            .filter_map(|&(_, power)| power)
    };
    let lowest = values().reduce(f64::min)?;
    let highest = values().reduce(f64::max)?;
    Some((lowest - 2.0).floor()..(highest + 2.0).ceil())
}

/// Mean and peak power of each channel over this [axis](power_axis), or `None` if all of it is
/// zero.
/// `mhz` is from the centre of the first to that of one behind the last.
pub(super) fn spectrum(
    spectra: &SpectraAccumulator,
    pol: usize,
    mhz: &Range<f64>,
    axis: &Range<f64>,
) -> Option<String> {
    let channels = spectra.channels();
    let [mean, peak] = curves(spectra, pol);
    if mean.iter().chain(&peak).all(|(_, power)| power.is_none()) {
        return None;
    }
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (540, 320)).into_drawing_area();
    let drawn = draw_spectrum(&root, [&mean, &peak], channels, mhz, axis.clone());
    drop(root);
    drawn.ok().map(|()| svg)
}

pub(super) type DrawResult<'a> =
    Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw_spectrum<'a>(
    root: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    [mean, peak]: [&[(f64, Option<f64>)]; 2],
    channels: usize,
    mhz: &Range<f64>,
    power: Range<f64>,
) -> DrawResult<'a> {
    let last = channels.saturating_sub(1).max(1) as f64;
    let width = mhz.end - mhz.start;
    let label = ("sans-serif", 13);
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(44)
        .top_x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..last, power.clone())?
        .set_secondary_coord(
            mhz.start..mhz.start + width * last / channels as f64,
            power.clone(),
        );
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.mix(0.3))
        .axis_style(GRID)
        .x_labels(7)
        .y_labels(8)
        .x_label_formatter(&|channel| format!("{channel:.0}"))
        .y_label_formatter(&|power| format!("{power:.0}"))
        .label_style(label)
        .axis_desc_style(label)
        .x_desc("channel")
        .y_desc("dB to full scale")
        .draw()?;
    chart
        .configure_secondary_axes()
        .axis_style(GRID)
        .x_labels(7)
        .label_style(label)
        .axis_desc_style(label)
        .x_label_formatter(&|mhz| {
            if width >= 20.0 {
                format!("{mhz:.0}")
            } else {
                format!("{mhz:.2}")
            }
        })
        .x_desc("MHz above 0 Hz of the digitised band")
        .draw()?;
    for (curve, style) in [(peak, PEAK.stroke_width(1)), (mean, MEAN.stroke_width(2))] {
        let floor = power.start;
        let points = curve
            .iter()
            .map(|&(channel, power)| (channel, power.unwrap_or(floor)));
        chart.draw_series(LineSeries::new(points, style))?;
    }
    root.present()
}

/// Powers of the darkest and the brightest colour of both polarisations' waterfalls, in decibels to
/// full scale; `None` if there is nothing to see.
pub(super) fn colour_scale(spectra: &SpectraAccumulator) -> Option<Range<f64>> {
    let rows = (0..spectra.rows()).flat_map(|row| [(row, 0), (row, 1)]);
    let rows = rows.filter_map(|(row, pol)| spectra.row(row, pol));
    let mut sorted: Vec<f64> = rows
        .flatten()
        .filter_map(|power| decibels(spectra, power))
        .collect();
    sorted.sort_by(f64::total_cmp);
    let quantile = |part: f64| {
        let at = (sorted.len().saturating_sub(1) as f64 * part) as usize;
        sorted.get(at).copied()
    };
    let darkest = quantile(0.01)?;
    // At least 3 dB, so that noise does not look like a signal.
    Some(darkest..quantile(0.995)?.max(darkest + 3.0))
}

/// A `data:` address of a PNG: time down, frequency to the right, missing batches transparent, in
/// colours of this [scale](colour_scale). `None` if there is nothing to see.
pub(super) fn waterfall(
    spectra: &SpectraAccumulator,
    pol: usize,
    scale: &Range<f64>,
) -> Option<String> {
    let (columns, rows) = (spectra.columns(), spectra.rows());
    let power: Vec<Option<Vec<f64>>> = (0..rows).map(|row| spectra.row(row, pol)).collect();
    if power.iter().flatten().flatten().all(|power| *power <= 0.0) {
        return None;
    }
    let (darkest, brightest) = (scale.start, scale.end);
    let mut pixels = Vec::with_capacity(rows * columns);
    for row in &power {
        match row {
            None => pixels.extend(std::iter::repeat_n(0, columns)),
            Some(row) => pixels.extend(row.iter().map(|&power| {
                let part = decibels(spectra, power)
                    .map_or(0.0, |power| (power - darkest) / (brightest - darkest));
                1 + (part.clamp(0.0, 1.0) * 254.0).round() as u8
            })),
        }
    }
    picture(columns as u32, rows as u32, &pixels)
}

/// A `data:` address of a PNG: 0 is transparent, 1 to 255 are colours.
pub(super) fn picture(width: u32, height: u32, indices: &[u8]) -> Option<String> {
    let png = encode_png(width, height, indices)?;
    let encoded = base64::engine::general_purpose::STANDARD.encode(png);
    Some(format!("data:image/png;base64,{encoded}"))
}

fn encode_png(width: u32, height: u32, indices: &[u8]) -> Option<Vec<u8>> {
    let mut palette = vec![0; 3];
    palette.extend((0..255).flat_map(|step| colour(f64::from(step) / 254.0)));
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette);
    // Entry 0 alone is transparent.
    encoder.set_trns(vec![0u8]);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(indices).ok()?;
    writer.finish().ok()?;
    Some(out)
}

/// Dark violet over teal to yellow, evenly growing in lightness, for 0 to 1.
fn colour(part: f64) -> [u8; 3] {
    const STOPS: [[f64; 3]; 5] = [
        [38.0, 12.0, 68.0],
        [58.0, 76.0, 140.0],
        [32.0, 144.0, 140.0],
        [110.0, 206.0, 88.0],
        [252.0, 231.0, 54.0],
    ];
    let place = part.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let index = (place as usize).min(STOPS.len() - 2);
    let part = place - index as f64;
    std::array::from_fn(|i| {
        (STOPS[index][i] * (1.0 - part) + STOPS[index + 1][i] * part).round() as u8
    })
}

/// CSS gradient of [`colour`].
pub(super) fn colour_gradient() -> String {
    let stops: Vec<String> = (0..5)
        .map(|stop| {
            let [red, green, blue] = colour(f64::from(stop) / 4.0);
            format!("rgb({red},{green},{blue})")
        })
        .collect();
    format!("linear-gradient(to right,{})", stops.join(","))
}

/// Part of each column's heaps that is missing.
fn missing_by_column(runs: &[(bool, u64)]) -> Vec<f64> {
    let total: u64 = runs.iter().map(|run| run.1).sum();
    let columns = total.min(PRESENCE_COLUMNS);
    let mut missing = vec![0.0; columns as usize];
    let mut start = 0;
    for &(present, heaps) in runs {
        let end = start + heaps;
        if !present && heaps > 0 {
            // In units of 1/columns of a heap, so that borders are exact.
            let (from, to) = (
                u128::from(start) * u128::from(columns),
                u128::from(end) * u128::from(columns),
            );
            let total = u128::from(total);
            for column in from / total..to.div_ceil(total) {
                let overlap = to.min((column + 1) * total) - from.max(column * total);
                missing[column as usize] += overlap as f64 / total as f64;
            }
        }
        start = end;
    }
    missing
}

/// A bar over time: what was received, and in red what is missing, however little.
pub(super) fn presence_bar(pol: &PolReport) -> String {
    let missing = missing_by_column(&pol.presence);
    let mut svg = format!(
        "<svg class=\"presence\" viewBox=\"0 0 {} 10\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"presence of heaps over time\"><rect class=\"there\" width=\"100%\" height=\"10\"/>",
        missing.len().max(1)
    );
    let mut column = 0;
    while column < missing.len() {
        let value = missing[column];
        let run = missing[column..]
            .iter()
            .take_while(|&&other| other == value)
            .count();
        if value > 0.0 {
            let _ = write!(
                svg,
                "<rect class=\"gone\" x=\"{column}\" width=\"{run}\" height=\"10\" opacity=\"{:.2}\"/>",
                0.75 + 0.25 * value.min(1.0)
            );
        }
        column += run;
    }
    svg.push_str("</svg>");
    svg
}

/// CSS class of a phase's colour.
pub(super) fn phase_class(phase: &str) -> &'static str {
    match phase {
        "wait" | "wait-in" | "sleep" => "ph-in",
        "work" => "ph-work",
        "compute" => "ph-compute",
        "wait-out" => "ph-out",
        "unpack+fir" => "ph-fir",
        "fft" => "ph-fft",
        "post" => "ph-post",
        _ => "ph-rest",
    }
}

/// Seconds per phase as one bar of 100 %.
pub(super) fn lcore_bar(lcore: &ThreadReport) -> String {
    let total: f64 = lcore.phases.iter().map(|phase| phase.1).sum();
    let mut bar = String::from("<div class=\"bar\">");
    for (phase, seconds) in lcore.phases.iter().filter(|phase| phase.1 > 0.0) {
        let percent = 100.0 * seconds / total;
        let shown = if percent >= 8.0 {
            format!("{percent:.0} %")
        } else {
            String::new()
        };
        let _ = write!(
            bar,
            "<span class=\"{}\" style=\"width:{percent:.2}%\" title=\"{}: {seconds:.3} s, {percent:.1} %\">{shown}</span>",
            phase_class(phase),
            escape(phase),
        );
    }
    bar.push_str("</div>");
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use ground::Timestamp;
    use proptest::prelude::*;

    #[test]
    fn tone_stands_out_of_spectrum_and_waterfall() {
        let mut spectra = SpectraAccumulator::new(64, 2);
        let mut data = vec![1u8; 64 * 2 * 4];
        data[20 * 8..21 * 8].fill(100);
        for batch in [0, 1, 3] {
            spectra.add_batch(Timestamp(batch * 256), &data);
        }
        let scale = colour_scale(&spectra).expect("a scale");
        let picture = waterfall(&spectra, 0, &scale).expect("a picture");
        let png = picture.strip_prefix("data:image/png;base64,").expect("PNG");
        let png = base64::engine::general_purpose::STANDARD
            .decode(png)
            .expect("base64");
        let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::IDENTITY);
        let mut reader = decoder.read_info().expect("header");
        let mut pixels = vec![0; 64 * 4];
        let info = reader.next_frame(&mut pixels).expect("pixels");
        assert_eq!((info.width, info.height), (64, 4));
        for row in [0, 1, 3] {
            let row = &pixels[row * 64..][..64];
            assert_eq!((row[19], row[20], row[21]), (1, 255, 1));
        }
        assert_eq!(
            pixels[128..192],
            [0; 64],
            "the missing batch is transparent"
        );
        assert!(
            spectrum(
                &spectra,
                1,
                &(0.0..32.0),
                &power_axis(&spectra).expect("an axis")
            )
            .expect("a chart")
            .contains("<polyline")
        );
    }

    #[test]
    fn silence_has_no_pictures() {
        let mut spectra = SpectraAccumulator::new(64, 2);
        assert!(power_axis(&spectra).is_none() && colour_scale(&spectra).is_none());
        spectra.add_batch(Timestamp(0), &[0; 512]);
        assert!(power_axis(&spectra).is_none() && colour_scale(&spectra).is_none());
        assert!(spectrum(&spectra, 0, &(0.0..32.0), &(-50.0..0.0)).is_none());
        assert!(waterfall(&spectra, 0, &(-50.0..0.0)).is_none());
    }

    /// Both polarisations are drawn over the same powers, so that they can be compared.
    #[test]
    fn polarisations_have_an_axis_in_common() {
        let mut spectra = SpectraAccumulator::new(64, 2);
        let data = [1u8, 0, 100, 0].repeat(128);
        spectra.add_batch(Timestamp(0), &data);
        let axis = power_axis(&spectra).expect("an axis");
        assert_eq!(axis, -45.0..0.0);
        let scale = colour_scale(&spectra).expect("a scale");
        assert!(scale.end - scale.start > 39.0, "{scale:?}");
    }

    proptest! {
        /// Columns together miss what the runs miss, and a single heap shows.
        #[test]
        fn presence_columns_conserve_missing_heaps(
            runs in prop::collection::vec((any::<bool>(), 0u64..5000), 0..30)
        ) {
            let total: u64 = runs.iter().map(|run| run.1).sum();
            let gone: u64 = runs.iter().filter(|run| !run.0).map(|run| run.1).sum();
            let columns = missing_by_column(&runs);
            prop_assert!(columns.iter().all(|&part| (0.0..=1.0 + 1e-9).contains(&part)));
            let sum: f64 = columns.iter().sum();
            let expected = if total == 0 { 0.0 } else { gone as f64 * columns.len() as f64 / total as f64 };
            prop_assert!((sum - expected).abs() < 1e-6 * (1.0 + expected), "{} {}", sum, expected);
        }
    }
}

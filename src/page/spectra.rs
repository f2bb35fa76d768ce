//! Spectra, kurtosis and levels of an engine's statistics.

use ground::{N_POL, SampleClock};
use live::{Array, Axis, Body, Figure, HistogramSeries, Panel, Series, decibels, reduce};

use crate::config::OutputConfig;
use crate::engine::{InputStatistics, OutputStatistics};

/// Points of a curve, at most: as many as a wide screen has.
const POINTS: usize = 1024;

/// Bars of a histogram, at most.
const BINS: usize = 1024;

/// Samples that a trace shows, at most.
const SAMPLES: usize = 512;

/// Name of the array of raw samples. Streams of this name have theirs instead.
pub const SNAPSHOT: &str = "input";

/// Names of the polarisations.
pub const POLS: [&str; N_POL] = ["pol 0", "pol 1"];

/// Mean power of each channel.
pub fn powers(statistics: &OutputStatistics, pol: usize) -> Vec<f64> {
    statistics.powers(pol).collect()
}

/// Spectral kurtosis of each channel, not a number where there is none.
pub fn kurtosis(statistics: &OutputStatistics, pol: usize) -> Vec<f64> {
    let estimates = statistics.kurtosis(pol);
    estimates.map(|of| of.unwrap_or(f64::NAN)).collect()
}

/// Panels of one output of several: spectra, a waterfall per polarisation, kurtosis.
pub fn panels(
    output: &OutputConfig,
    outputs: &[OutputConfig],
    clock: SampleClock,
    statistics: &OutputStatistics,
) -> Vec<Panel> {
    let rate = clock.adc_sample_rate;
    let name = &output.name;
    let (power, sk) = (format!("spectrum-{name}"), format!("kurtosis-{name}"));
    let over = (statistics.end.0.saturating_sub(statistics.start.0)) as f64 / rate;
    let when = (Some(statistics.end.unix(clock)), Some(over));
    let note = format!(
        "Mean power over {over:.2} s, {} spectra, before quantisation, dB relative to one count of the output.",
        statistics.spectra
    );
    let powers = [0, 1].map(|pol| powers(statistics, pol));
    let points = |each| axis(output, rate, each);
    let body = curves(powers, points, "dB", (Some(name), when));
    let mut panels = vec![Panel::new(&power, format!("Spectrum of {name}"), body).with_note(note)];
    panels.extend(waterfalls(name, &power));
    if statistics.spectra > 1 {
        let values = [0, 1].map(|pol| kurtosis(statistics, pol));
        let array = free(format!("{name}.kurtosis"), outputs);
        let body = curves(values, points, "", (array.as_deref(), when));
        let note = "Spectral kurtosis: 1 for noise, below for a steady tone, above for pulses.";
        let title = format!("Kurtosis of {name}");
        panels.push(Panel::new(sk, title, body).with_note(note));
    }
    panels
}

/// A curve for each polarisation, in dB if that is the unit. `axis` says where points are that have
/// so many channels behind them. All values are in the array of this name, if there is one; they
/// were measured until this UNIX time, over so many seconds.
pub fn curves(
    values: [Vec<f64>; N_POL],
    axis: impl Fn(usize) -> Axis,
    unit: &str,
    (array, (time, period)): (Option<&str>, (Option<f64>, Option<f64>)),
) -> Body {
    let reduced = values.map(|values| reduce(&values, POINTS));
    let each = reduced[0].each;
    let series = reduced.into_iter().zip(POLS).map(|(reduced, name)| {
        let show = |values: &[Option<f64>]| match unit {
            "dB" => decibels(values),
            _ => values.iter().map(|v| v.map(|v| v as f32)).collect(),
        };
        Series {
            name: name.to_owned(),
            values: show(&reduced.means),
            highest: show(&reduced.highest),
        }
    });
    Body::Spectrum {
        x: axis(each),
        unit: unit.to_owned(),
        series: series.collect(),
        time,
        period,
        array: array.map(link),
    }
}

/// This name of an array, unless the powers of an output of the same name have it.
fn free(name: String, outputs: &[OutputConfig]) -> Option<String> {
    let taken = outputs.iter().any(|output| output.name == name);
    (!taken).then_some(name)
}

/// Where the array of this name is, relative to the page.
fn link(name: &str) -> String {
    format!("arrays/{name}.npy")
}

/// A waterfall for each polarisation of the spectrum with this `id`.
pub fn waterfalls(name: &str, id: &str) -> impl Iterator<Item = Panel> {
    POLS.into_iter().enumerate().map(move |(series, pol)| {
        let body = Body::Waterfall {
            of: id.to_owned(),
            series,
        };
        let title = format!("Waterfall of {name}, {pol}");
        Panel::new(format!("waterfall-{name}-{series}"), title, body)
    })
}

/// Frequencies of points that have `each` channels behind them.
pub fn axis(output: &OutputConfig, rate: f64, each: usize) -> Axis {
    let band = output.band(rate);
    let channel = (band.end - band.start) / output.channels as f64;
    Axis {
        name: "frequency".to_owned(),
        unit: "Hz".to_owned(),
        first: band.start + 0.5 * (each - 1) as f64 * channel,
        step: each as f64 * channel,
    }
}

/// Numbers of an output for numpy: (polarisation, channel).
pub fn array(values: [Vec<f64>; N_POL]) -> Array {
    Array {
        shape: vec![N_POL as u64, values[0].len() as u64],
        values: values.iter().flatten().map(|value| *value as f32).collect(),
    }
}

/// How often each value of the digitiser came, or each range of values where there are more than a
/// screen shows.
pub fn histogram(statistics: &InputStatistics, clock: SampleClock) -> Panel {
    let values = statistics.histogram[0].len();
    let each = values.div_ceil(BINS).next_power_of_two();
    let series = statistics.histogram.iter().zip(POLS);
    let series = series.map(|(counts, name)| HistogramSeries {
        name: name.to_owned(),
        counts: counts
            .chunks(each)
            .map(|counts| counts.iter().sum())
            .collect(),
    });
    let body = Body::Histogram {
        // The middle of the first range.
        first: -(values as f64 / 2.0) + (each - 1) as f64 / 2.0,
        step: each as f64,
        unit: "counts of the digitiser".to_owned(),
        series: series.collect(),
        time: Some(statistics.end.unix(clock)),
        period: Some(period(statistics, clock)),
    };
    Panel::new("input-histogram", "Input samples", body)
}

/// Seconds that statistics of the input are of.
pub fn period(statistics: &InputStatistics, clock: SampleClock) -> f64 {
    statistics.end.0.saturating_sub(statistics.start.0) as f64 / clock.adc_sample_rate
}

/// Consecutive samples of the digitiser, the first of the snapshot.
pub fn snapshot(
    statistics: &InputStatistics,
    outputs: &[OutputConfig],
    clock: SampleClock,
) -> Panel {
    let samples = statistics.snapshot.iter().zip(POLS);
    let series = samples.map(|(samples, name)| Series {
        name: name.to_owned(),
        values: samples
            .iter()
            .take(SAMPLES)
            .map(|&x| Some(f32::from(x)))
            .collect(),
        highest: Vec::new(),
    });
    let body = Body::Trace {
        x: Axis {
            name: "time".to_owned(),
            unit: "s".to_owned(),
            first: 0.0,
            step: 1.0 / clock.adc_sample_rate,
        },
        unit: "counts of the digitiser".to_owned(),
        series: series.collect(),
        time: Some(statistics.snapshot_start.unix(clock)),
        period: Some(period(statistics, clock)),
        array: free(SNAPSHOT.to_owned(), outputs).as_deref().map(link),
    };
    let first = statistics.snapshot_start.0;
    let note =
        format!("Consecutive samples from timestamp {first} on. The array has all of the heap.");
    Panel::new("input-samples", "Raw samples", body).with_note(note)
}

/// The snapshot for numpy: (polarisation, sample). What never came is not a number.
pub fn snapshot_array(statistics: &InputStatistics) -> Array {
    let samples = statistics.snapshot.iter().map(Vec::len).max().unwrap_or(0);
    let of = |pol: &Vec<i16>| {
        let value = |n| pol.get(n).map_or(f32::NAN, |&x| f32::from(x));
        (0..samples).map(value).collect::<Vec<_>>()
    };
    Array {
        shape: vec![N_POL as u64, samples as u64],
        values: statistics.snapshot.iter().flat_map(of).collect(),
    }
}

/// Level of the input in dB relative to a sine of full scale, and the share of extreme values; not
/// known if these are `old`.
pub fn levels(statistics: &InputStatistics, old: bool) -> Vec<Figure> {
    let figures = POLS.into_iter().enumerate().flat_map(|(pol, name)| {
        let title = format!("level, {name}");
        if old {
            let share = format!("at full scale, {name}");
            let unknown = |title, unit| Figure::new(title, f64::NAN, unit);
            return [unknown(title, "dBFS"), unknown(share, "%")];
        }
        let level = match statistics.level_dbfs(pol) {
            Some(f64::MIN) => Figure::in_words(title, "all zeros"),
            level => Figure::new(title, level.unwrap_or(f64::NAN), "dBFS"),
        };
        let share = statistics.full_scale_share(pol).unwrap_or(f64::NAN);
        [
            level,
            Figure::new(format!("at full scale, {name}"), 100.0 * share, "%"),
        ]
    });
    figures.collect()
}

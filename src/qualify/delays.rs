//! Delays, phases and their rates: phases between two polarisations that have noise in common.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use num_complex::Complex64;

use super::Measured;
use super::chain::{Case, Chain, SYNC, Spectra};
use super::levels::noise_gain;
use super::numbers::{largest, slope};
use super::subject::Subject;
use crate::report::qualification::{Checked, Curve};

/// Largest delay and rates that MeerKAT asks for.
pub(super) const DELAY: f64 = 79.53e-6;
pub(super) const RATE: f64 = 2.56e-9;
pub(super) const PHASE_RATE: f64 = 49.22;

/// Half of the seconds between two UNIX times of today, which requests have in double precision.
const RESOLVED: f64 = 0.5 / (1 << 22) as f64;

/// Spectra over which a phase is averaged.
const SPECTRA: u64 = 1024;
/// Samples of a run in which delays change.
const LONG: u64 = 1 << 26;
/// Samples of a run in which phases turn.
const TURNING: u64 = 1 << 24;

/// Noise of both polarisations, the first or the second later by so many samples.
fn noise(later: i64) -> String {
    match later {
        0 => "x = wgn(0.1, 7); x; x;".to_owned(),
        1.. => format!("x = wgn(0.1, 7); delay(x, {later}); x;"),
        _ => format!("x = wgn(0.1, 7); x; delay(x, {});", -later),
    }
}

/// Mean of the second polarisation times the conjugate of the first, over some spectra.
fn product(spectra: &Spectra, channel: usize, range: std::ops::Range<usize>) -> Complex64 {
    let pairs = spectra.channel(channel)[range].iter();
    pairs
        .map(|[first, second]| {
            let product = second * first.conj();
            Complex64::new(product.re.into(), product.im.into())
        })
        .sum()
}

/// Degrees from one phase to another, the shorter way.
fn off(phase: Complex64, wanted: f64) -> f64 {
    (phase * Complex64::cis(-wanted)).arg().to_degrees()
}

fn curve(title: String, subject: &Subject, errors: &[(usize, f64)], limit: f64) -> Curve {
    let points = errors
        .iter()
        .map(|&(channel, error)| (subject.frequency(channel as f64) / 1e6, error));
    Curve {
        title,
        across: "MHz".to_owned(),
        up: "error of the phase, in degrees".to_owned(),
        points: points.collect(),
        limits: vec![-limit, limit],
    }
}

/// No delay, the largest ones, the smallest that matters, and a fraction of a sample.
pub(super) fn delay(chain: &Chain, subject: &Subject) -> Measured {
    let gain = noise_gain(chain, subject)?;
    let rate = subject.rate();
    let delays = [
        ("no delay", 0.0),
        ("79.53 µs", DELAY),
        ("-79.53 µs", -DELAY),
        ("2.5 ps", 2.5e-12),
        ("2.75 samples", 2.75 / rate),
    ];
    let (mut figures, mut curves) = (Vec::new(), Vec::new());
    for (name, delay) in delays {
        let whole = (delay * rate).round() as i64;
        let model = format!("{delay},0:0,0");
        let reach = whole.unsigned_abs() + 2 * subject.spectrum_samples();
        let mut case = Case::new(subject, noise(whole), SPECTRA);
        case.gain = gain;
        case.samples += whole.unsigned_abs().next_multiple_of(4096);
        case.delays = Some(["0,0:0,0".to_owned(), model]);
        case.max_delay_diff = reach.next_power_of_two().max(1 << 15);
        let spectra = chain.run(&case)?;
        // A delay leaves the phase at the band's centre; the whole samples turn each frequency.
        let wanted = |channel: usize| {
            let frequency = subject.frequency(channel as f64);
            let samples = (frequency * whole as f64 / rate).rem_euclid(1.0);
            let model = ((frequency - subject.centre()) * delay).rem_euclid(1.0);
            TAU * (samples - model)
        };
        let errors = subject.pass_band().map(|channel| {
            let phase = product(&spectra, channel, 0..spectra.count());
            (channel, off(phase, wanted(channel)))
        });
        let errors: Vec<_> = errors.collect();
        let error = largest(errors.iter().map(|error| error.1));
        figures.push(Checked::at_most(
            format!("largest error of a phase, {name}"),
            error,
            1.0,
            "°",
        ));
        let points = errors
            .iter()
            .map(|&(channel, error)| (subject.frequency(channel as f64), error / 360.0));
        let seconds = slope(&points.collect::<Vec<_>>()).abs();
        figures.push(Checked::at_most(
            format!("error of the delay by fit, {name}"),
            seconds * 1e12,
            2.5,
            "ps",
        ));
        curves.push(curve(format!("Phases with {name}"), subject, &errors, 1.0));
    }
    Ok((figures, curves))
}

/// By how much each phase turned from the first quarter to the last, beside what it should.
///
/// `cycles` says for a frequency how many cycles it should turn in a second.
fn turned(subject: &Subject, spectra: &Spectra, cycles: impl Fn(f64) -> f64) -> Vec<(usize, f64)> {
    let count = spectra.count();
    let quarter = count / 4;
    let samples = spectra.timestamps[count - quarter] - spectra.timestamps[0];
    let seconds = samples as f64 / subject.rate();
    let errors = subject.pass_band().map(|channel| {
        let first = product(spectra, channel, 0..quarter);
        let last = product(spectra, channel, count - quarter..count);
        let wanted = TAU * cycles(subject.frequency(channel as f64)) * seconds;
        (channel, off(last * first.conj(), wanted))
    });
    errors.collect()
}

/// Delays that grow and shrink.
pub(super) fn delay_rate(chain: &Chain, subject: &Subject) -> Measured {
    let gain = noise_gain(chain, subject)?;
    let (mut figures, mut curves) = (Vec::new(), Vec::new());
    for (name, rates) in [("±2.56e-9", [RATE, -RATE]), ("2.5e-12", [2.5e-12, 0.0])] {
        let mut case = Case::new(subject, noise(0), LONG / subject.spectrum_samples());
        case.gain = gain;
        case.delays = Some(rates.map(|rate| format!("0,{rate}:0,0")));
        let spectra = chain.run(&case)?;
        let rate = rates[1] - rates[0];
        let errors = turned(subject, &spectra, |frequency| {
            -(frequency - subject.centre()) * rate
        });
        let error = largest(errors.iter().map(|error| error.1));
        let name = format!("{name} s/s");
        figures.push(Checked::at_most(
            format!("largest error of a phase, {name}"),
            error,
            2.0,
            "°",
        ));
        curves.push(curve(
            format!("Phases at the end, {name}"),
            subject,
            &errors,
            2.0,
        ));
    }
    Ok((figures, curves))
}

/// Phases of one polarisation.
pub(super) fn phase(chain: &Chain, subject: &Subject) -> Measured {
    let gain = noise_gain(chain, subject)?;
    let phases = [
        ("π", PI),
        ("-π", -PI),
        ("2π/3", TAU / 3.0),
        ("0.01 rad", 0.01),
    ];
    let (mut figures, mut curves) = (Vec::new(), Vec::new());
    for (name, phase) in phases {
        let mut case = Case::new(subject, noise(0), SPECTRA / 4);
        case.gain = gain;
        case.delays = Some(["0,0:0,0".to_owned(), format!("0,0:{phase},0")]);
        let spectra = chain.run(&case)?;
        let errors = subject.pass_band().map(|channel| {
            let found = product(&spectra, channel, 0..spectra.count());
            (channel, off(found, phase))
        });
        let errors: Vec<_> = errors.collect();
        let error = largest(errors.iter().map(|error| error.1));
        figures.push(Checked::at_most(
            format!("largest error, {name}"),
            error,
            1.0,
            "°",
        ));
        curves.push(curve(format!("Phases with {name}"), subject, &errors, 1.0));
    }
    Ok((figures, curves))
}

/// Phases that turn.
pub(super) fn phase_rate(chain: &Chain, subject: &Subject) -> Measured {
    let gain = noise_gain(chain, subject)?;
    let (mut figures, mut curves) = (Vec::new(), Vec::new());
    for (name, rates) in [
        ("±49.22", [PHASE_RATE, -PHASE_RATE]),
        ("0.044", [0.0, 0.044]),
    ] {
        let mut case = Case::new(subject, noise(0), TURNING / subject.spectrum_samples());
        case.gain = gain;
        case.delays = Some(rates.map(|rate| format!("0,0:0,{rate}")));
        let spectra = chain.run(&case)?;
        let cycles = (rates[1] - rates[0]) / TAU;
        let errors = turned(subject, &spectra, |_| cycles);
        let error = largest(errors.iter().map(|error| error.1));
        figures.push(Checked::at_most(
            format!("largest error, {name} rad/s"),
            error,
            2.0,
            "°",
        ));
        curves.push(curve(
            format!("Phases at the end, {name} rad/s"),
            subject,
            &errors,
            2.0,
        ));
    }
    Ok((figures, curves))
}

/// UNIX time of a sample in whole nanoseconds, which no double has.
fn time_of(sample: u64, rate: f64) -> String {
    let sync: u64 = SYNC.parse().unwrap_or(0);
    let since = (sample as f64 / rate * 1e9).round() as u64;
    let (seconds, nanoseconds) = (since / 1_000_000_000, since % 1_000_000_000);
    format!("{}.{nanoseconds:09}", sync + seconds)
}

/// When a phase of 90 degrees begins.
pub(super) fn application_time(chain: &Chain, subject: &Subject) -> Measured {
    let gain = noise_gain(chain, subject)?;
    let mut case = Case::new(subject, noise(0), 256);
    case.gain = gain;
    // Within a spectrum, in whole nanoseconds.
    let asked = case.samples / 2 + subject.spectrum_samples() / 3;
    case.requests = Some(format!(
        "0 ?delays {} {} 0,0:0,0 0,0:{FRAC_PI_2},0\n",
        subject.name(),
        time_of(asked, subject.rate()),
    ));
    let spectra = chain.run(&case)?;
    let band = subject.pass_band();
    let phase = |spectrum: usize| {
        let all = band
            .clone()
            .map(|channel| product(&spectra, channel, spectrum..spectrum + 1));
        all.sum::<Complex64>().arg().to_degrees()
    };
    let points: Vec<_> = (0..spectra.count())
        .map(|n| (spectra.timestamps[n] as f64 - asked as f64, phase(n)))
        .collect();
    let turned = points.iter().position(|point| point.1 > 45.0);
    let (late, steps) = match turned {
        Some(at) => {
            let again = points[at..].iter().filter(|point| point.1 < 45.0).count();
            (points[at].0 / subject.rate(), again as f64)
        }
        None => (f64::NAN, f64::NAN),
    };
    let figures = vec![
        Checked::at_most("late by", late.abs() * 1e6, 10_000.0, "µs"),
        Checked::at_most(
            "late by, where one spectrum and what UNIX time resolves may be",
            late.abs() * 1e6,
            (subject.spectrum_samples() as f64 / subject.rate() + RESOLVED) * 1e6,
            "µs",
        ),
        Checked::at_most("spectra that turn back", steps, 0.0, ""),
    ];
    let points = points
        .into_iter()
        .map(|(late, phase)| (late / subject.rate() * 1e6, phase))
        .collect();
    let curve = Curve {
        title: "Phase of each spectrum".to_owned(),
        across: "µs behind the time that was asked for".to_owned(),
        up: "degrees".to_owned(),
        points,
        limits: vec![90.0],
    };
    Ok((figures, vec![curve]))
}

/// Spectra a second that have delays of their own, at least.
const UPDATES: f64 = 2500.0;

/// How often delays and phases are made anew.
pub(super) fn application_rate(chain: &Chain, subject: &Subject) -> Measured {
    let spectra = chain.run(&Case::new(subject, noise(0), 64))?;
    let steps = spectra.timestamps.windows(2).map(|two| two[1] - two[0]);
    let longest = steps.max().unwrap_or(u64::MAX);
    let rate = subject.rate() / longest as f64;
    let figures = vec![Checked::at_least("spectra a second", rate, UPDATES, "")];
    Ok((figures, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_phases_go_the_shorter_way() {
        assert!((off(Complex64::cis(3.0), -3.0) - (6.0f64 - TAU).to_degrees()).abs() < 1e-9);
        assert!(off(Complex64::cis(-PI), PI).abs() < 1e-9);
    }

    #[test]
    fn times_have_whole_seconds_of_the_run() {
        let sync: u64 = SYNC.parse().unwrap();
        assert_eq!(time_of(0, 250e3), format!("{sync}.000000000"));
        assert_eq!(time_of(779_500, 250e3), format!("{}.118000000", sync + 3));
        assert_eq!(time_of(1, 1712e6), format!("{sync}.000000001"));
    }
}

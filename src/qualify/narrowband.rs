//! The filter and the centre frequency of narrowband outputs.

use num_complex::Complex64;

use super::Measured;
use super::chain::{Case, Chain, QualifyError, Spectra};
use super::numbers::{decibels, slope};
use super::response::curve_of;
use super::subject::Subject;
use super::tones::{calibrated, powers, turn, wide};
use crate::report::qualification::Checked;

/// Spectra of a run with tones, at least.
const SPECTRA: u64 = 96;

/// How flat the pass band is, and what is folded onto it.
pub(super) fn filter(chain: &Chain, subject: &Subject) -> Measured {
    let band = subject.pass_band();
    let count = 24.min(band.len());
    let places: Vec<usize> = (0..count)
        .map(|i| band.start + i * (band.len() - 1) / (count - 1).max(1))
        .collect();
    let amplitude = 0.9 / count as f64;
    let tone = |frequency: f64| format!("cw({amplitude}, {frequency})");
    let flat: Vec<_> = places
        .iter()
        .map(|&place| tone(subject.frequency(place as f64)))
        .collect();
    let flat = flat.join(" + ");
    // Each folded frequency lands in a channel of its own, beside the tone that it is held against.
    let output = subject.width() * subject.channels() as f64;
    let nyquist = subject.rate() / 2.0;
    let band = output * (-0.5)..output * 0.5;
    let folds = (-64..=64)
        .filter(|&fold| fold != 0)
        .map(|fold| f64::from(fold) * output);
    let folds = folds.filter(|off| {
        let centre = subject.centre() + off;
        centre + band.start >= 0.0 && centre + band.end <= nyquist
    });
    let marked = places[0];
    let folded = places[1..].iter().zip(folds);
    let folded: Vec<_> = folded
        .map(|(&place, off)| (place, subject.frequency(place as f64) + off))
        .collect();
    let aliases: Vec<_> = folded
        .iter()
        .map(|&(_, frequency)| tone(frequency))
        .collect();
    let mark = tone(subject.frequency(marked as f64));
    let case = Case {
        bits: 16,
        ..Case::new(
            subject,
            format!("{flat}; {mark} + {};", aliases.join(" + ")),
            4 * SPECTRA,
        )
    };
    let (powers, _) = powers(chain, case)?;
    let curve: Vec<_> = places
        .iter()
        .map(|&place| {
            (
                subject.frequency(place as f64) / 1e6,
                decibels(powers[place][0]),
            )
        })
        .collect();
    let values = || curve.iter().map(|point| point.1);
    let (low, high) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max),
    );
    let mark = decibels(powers[marked][1]);
    let alias = folded
        .iter()
        .map(|&(place, _)| decibels(powers[place][1]) - mark)
        .fold(f64::NEG_INFINITY, f64::max);
    let curve = curve
        .into_iter()
        .map(|(across, up)| (across, up - high))
        .collect();
    let figures = vec![
        Checked::at_most(format!("ripple, by {count} tones"), high - low, 0.1, "dB"),
        Checked::at_most(
            format!("most of {} aliases", folded.len()),
            alias,
            -80.0,
            "dB",
        ),
    ];
    let title = "Response of the pass band".to_owned();
    Ok((
        figures,
        vec![curve_of(title, "MHz", "dB", curve, vec![-0.1])],
    ))
}

/// Hertz by which the centre frequency is moved.
const MOVED: f64 = 100.0;

/// Whether the centre frequency moves by as much as it is told to.
pub(super) fn centre_frequency(chain: &Chain, subject: &Subject) -> Measured {
    let place = subject.channels() / 2 + 3;
    let frequency = subject.frequency(place as f64);
    let signals = format!("cw(0.5, {frequency}); cw(0.5, {frequency});");
    let time = subject.spectrum_samples() as f64 / subject.rate();
    // For a quarter of a turn by what it is moved.
    let spectra = (0.25 / MOVED / time).ceil() as u64;
    let measure = |subject: &Subject| -> Result<f64, QualifyError> {
        let (_, spectra) = calibrated(
            chain,
            Case::new(subject, signals.clone(), spectra.max(SPECTRA)),
        )?;
        Ok(frequency_of(&spectra, place, time))
    };
    let centre = subject.centre();
    let before = measure(subject)?;
    let after = measure(&subject.with("centre_frequency", (centre + MOVED).to_string()))?;
    let figures = vec![
        Checked::told("frequency of the tone in its channel", before, "Hz"),
        Checked::at_most(
            "error of a step of 100 Hz",
            (before - after - MOVED).abs(),
            10.0,
            "Hz",
        ),
    ];
    Ok((figures, Vec::new()))
}

/// Frequency in hertz of the tone in a channel, by the slope of its phase.
fn frequency_of(spectra: &Spectra, channel: usize, time: f64) -> f64 {
    let step = turn(spectra, channel, 0);
    // What remains when the mean step is taken away is fitted, which whole turns cannot hurt.
    let mut back = Complex64::new(1.0, 0.0);
    let rest: Vec<f64> = wide(spectra, channel, 0)
        .map(|value| {
            let phase = (value * back).arg();
            back *= step.conj();
            phase
        })
        .scan(0.0, |last: &mut f64, phase| {
            *last += (phase - *last + std::f64::consts::PI).rem_euclid(std::f64::consts::TAU)
                - std::f64::consts::PI;
            Some(*last)
        })
        .collect();
    let points: Vec<_> = rest
        .iter()
        .enumerate()
        .map(|(n, &phase)| (n as f64, phase))
        .collect();
    (step.arg() + slope(&points)) / std::f64::consts::TAU / time
}

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
    let places = places(subject);
    // One alone is as flat as any, and leaves none to fold onto.
    subject.check_channels(&places, 2)?;
    let count = places.len();
    let amplitude = 0.9 / count as f64;
    let tone = |frequency: f64| format!("cw({amplitude}, {frequency})");
    let flat: Vec<_> = places
        .iter()
        .map(|&place| tone(subject.frequency(place as f64)))
        .collect();
    let flat = flat.join(" + ");
    // Each folded frequency lands in a channel of its own, beside the tone that it is held against.
    let marked = places[0];
    let folded = folded(subject, &places[1..]);
    let mark = tone(subject.frequency(marked as f64));
    let aliases = folded.iter().map(|&(_, frequency)| tone(frequency));
    let held: Vec<_> = std::iter::once(mark).chain(aliases).collect();
    let case = Case {
        bits: 16,
        ..Case::new(
            subject,
            format!("{flat}; {};", held.join(" + ")),
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
        .reduce(f64::max);
    let alias = match alias {
        Some(alias) => {
            let name = format!("most of {} aliases", folded.len());
            Checked::at_most(name, alias, -80.0, "dB")
        }
        None => Checked::told("aliases within the digitiser's band", 0.0, ""),
    };
    let curve = curve
        .into_iter()
        .map(|(across, up)| (across, up - high))
        .collect();
    let figures = vec![
        Checked::at_most(format!("ripple, by {count} tones"), high - low, 0.1, "dB"),
        alias,
    ];
    let title = "Response of the pass band".to_owned();
    Ok((
        figures,
        vec![curve_of(title, "MHz", "dB", curve, vec![-0.1])],
    ))
}

/// Channels of the pass band, evenly spread, in ascending order.
fn places(subject: &Subject) -> Vec<usize> {
    let band = subject.pass_band();
    let count = 24.min(band.len());
    (0..count)
        .map(|i| band.start + i * (band.len() - 1) / (count - 1).max(1))
        .collect()
}

/// Frequencies of the digitiser's band that fold onto channels, each with its channel: one of each
/// band beside the output's, as far as there are channels and something of that band.
fn folded(subject: &Subject, places: &[usize]) -> Vec<(usize, f64)> {
    let output = subject.width() * subject.channels() as f64;
    // Not at 0 Hz, nor at half the rate, where a tone has another power.
    let digitised = subject.width()..subject.rate() / 2.0 - subject.width();
    // The highest first: of a part of a band at the upper edge only low channels have something.
    let folds = (-64..=64).rev().filter(|&fold| fold != 0);
    let mut folds: Vec<_> = folds.collect();
    let mut folded = Vec::new();
    for &place in places {
        let frequency = |&fold: &i32| subject.frequency(place as f64) + f64::from(fold) * output;
        let fits = |fold: &i32| digitised.contains(&frequency(fold));
        if let Some(found) = folds.iter().position(fits) {
            let fold = folds.remove(found);
            folded.push((place, frequency(&fold)));
        }
    }
    folded
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ground::{SampleClock, StopFlag};

    use super::*;

    /// An output with these keys, and channels and hertz of what folds onto it.
    fn of(keys: &str) -> (Subject, Vec<(usize, f64)>) {
        let clock = SampleClock {
            adc_sample_rate: 1712e6,
            sync_time: 0.0,
        };
        let text = format!("name=n,channels=1024,dst=239.11.0.0+7,{keys}");
        let subject = Subject::narrowband(&text, clock).expect("an output");
        let folded = folded(&subject, &places(&subject)[1..]);
        (subject, folded)
    }

    /// No whole band is beside that of half the digitiser's, unless it is at its edge.
    #[test]
    fn what_folds_of_parts_of_a_band_is_sent_too() {
        let keys = "decimation=2,pass_bandwidth=250M";
        for centre in [428e6, 300e6, 214e6] {
            let (subject, folded) = of(&format!("centre_frequency={centre},{keys}"));
            assert!(!folded.is_empty(), "{centre}");
            let output = subject.width() * 1024.0;
            for (place, frequency) in folded {
                let folds = (frequency - subject.frequency(place as f64)) / output;
                assert!((folds - folds.round()).abs() < 1e-9 && folds.round() != 0.0);
                assert!(frequency > 0.0 && frequency < 856e6, "{frequency}");
            }
        }
        // All eight bands but the output's own have a part in it.
        let (_, folded) = of("centre_frequency=284M,decimation=8");
        assert!(folded.len() >= 7, "{folded:?}");
        // Seven whole bands on either side, and half a band at either edge.
        let (_, folded) = of("centre_frequency=428M,decimation=16,pass_bandwidth=32M");
        assert_eq!(folded.len(), 16, "{folded:?}");
    }

    /// The program is not even run.
    #[test]
    fn a_pass_band_of_one_channel_has_no_ripple() {
        let (subject, _) = of("centre_frequency=284M,decimation=8,pass_bandwidth=100k");
        let none = Path::new("/nowhere/karoo");
        let chain = Chain::new(none, none, Vec::new(), StopFlag::default()).unwrap();
        for measure in [filter, super::super::group_delay::group_delay] {
            let error = measure(&chain, &subject).unwrap_err().to_string();
            assert!(
                error.starts_with("--narrowband name=n")
                    && error.ends_with("larger pass_bandwidth"),
                "{error}"
            );
        }
    }

    /// The whole band has no other beside it.
    #[test]
    fn nothing_folds_onto_the_whole_band() {
        let (_, folded) = of("centre_frequency=428M,decimation=1,pass_bandwidth=600M");
        assert_eq!(folded, []);
    }
}

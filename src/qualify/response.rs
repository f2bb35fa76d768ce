//! What channels hear of tones.

use num_complex::Complex64;

use super::Measured;
use super::chain::{Case, Chain, QualifyError, Spectra};
use super::subject::Subject;
use crate::report::qualification::{Checked, Curve};

/// Spectra of a run with tones.
const SPECTRA: u64 = 96;
/// How far apart gains of successive runs are.
const STEP: f64 = 100.0;
/// Counts that the strongest tone is brought to.
const LEVEL: f64 = 100.0;
/// The largest part of a value.
const FULL: f32 = 127.0;

/// Decibels of a power; far down where there is none.
pub(super) fn decibels(power: f64) -> f64 {
    10.0 * power.max(1e-30).log10()
}

/// A case whose gain brings the strongest value to [`LEVEL`].
pub(super) fn calibrated<'a>(
    chain: &Chain,
    mut case: Case<'a>,
) -> Result<(Case<'a>, Spectra), QualifyError> {
    case.gain = 1e-2;
    for _ in 0..12 {
        let spectra = chain.run(&case)?;
        let all = (0..spectra.channels()).flat_map(|channel| [(channel, 0), (channel, 1)]);
        let largest = all.map(|(channel, pol)| spectra.largest(channel, pol));
        let largest = largest.fold(0.0, f32::max);
        if largest >= FULL {
            case.gain /= 20.0;
        } else if f64::from(largest) < 0.5 * LEVEL {
            case.gain *= (LEVEL / f64::from(largest).max(1.0)).min(50.0);
        } else {
            return Ok((case, spectra));
        }
    }
    let text = "no gain brings the signal to a level between zero and clipping";
    Err(QualifyError::Unexpected(text.to_owned()))
}

/// Runs of a case with higher and higher gains: `look` sees each with the gain that it has beside
/// the first.
fn passes(
    chain: &Chain,
    case: Case<'_>,
    count: i32,
    mut look: impl FnMut(&Spectra, f64),
) -> Result<(), QualifyError> {
    let (case, first) = calibrated(chain, case)?;
    look(&first, 1.0);
    for pass in 1..count {
        let more = STEP.powi(pass);
        let gain = case.gain * more;
        let spectra = chain.run(&Case {
            gain,
            ..case.clone()
        })?;
        look(&spectra, more);
    }
    Ok(())
}

/// Power of each channel and polarisation, with a range beyond that of 8 bits.
fn powers(chain: &Chain, case: Case<'_>) -> Result<Vec<[f64; 2]>, QualifyError> {
    let noise = case.subject.rounding_power();
    let mut powers = vec![[0.0; 2]; case.subject.channels()];
    passes(chain, case, 3, |spectra, gain| {
        for (channel, powers) in powers.iter_mut().enumerate() {
            for (pol, power) in powers.iter_mut().enumerate() {
                if spectra.largest(channel, pol) < FULL || gain == 1.0 {
                    *power = (spectra.power(channel, pol) - noise).max(0.0) / gain.powi(2);
                }
            }
        }
    })?;
    Ok(powers)
}

/// The channel with the most power, and the most power of the others beside it, in dB.
fn peak(powers: &[[f64; 2]], pol: usize) -> (usize, f64) {
    let (mut at, mut second) = (0, 0.0);
    for (channel, power) in powers.iter().enumerate() {
        if power[pol] > powers[at][pol] {
            second = powers[at][pol];
            at = channel;
        } else if channel != at && power[pol] > second {
            second = power[pol];
        }
    }
    (at, decibels(second) - decibels(powers[at][pol]))
}

/// Tones at channel 8 and each 3111 channels behind it.
pub(super) fn channelisation(chain: &Chain, subject: &Subject) -> Measured {
    let channels = subject.channels();
    let mut places: Vec<usize> = (8..channels).step_by(3111).take(12).collect();
    if places.len() % 2 == 1 {
        places.push(channels / 2 + 1);
    }
    let band = subject.pass_band();
    places
        .iter_mut()
        .for_each(|place| *place = (*place).clamp(band.start, band.end - 1));
    let (mut wrong, mut range, mut curve) = (0, f64::INFINITY, Vec::new());
    for pair in places.chunks_exact(2) {
        let tone = |place: usize| format!("cw(0.99, {})", subject.frequency(place as f64));
        let signals = format!("{}; {};", tone(pair[0]), tone(pair[1]));
        let powers = powers(chain, Case::new(subject, signals, SPECTRA))?;
        for (pol, &place) in pair.iter().enumerate() {
            let (found, second) = peak(&powers, pol);
            wrong += u32::from(found != place);
            range = range.min(-second);
        }
        if curve.is_empty() {
            let most = decibels(powers[pair[0]][0]);
            let points = powers.iter().enumerate();
            curve = points
                .map(|(at, power)| (at as f64, (decibels(power[0]) - most).max(-140.0)))
                .collect();
        }
    }
    let figures = vec![
        Checked::at_most(
            format!("tones of {} in another channel", places.len()),
            f64::from(wrong),
            0.0,
            "",
        ),
        Checked::at_least("range without spurious signals", range, 53.0, "dB"),
    ];
    let title = format!("Power of all channels, of a tone in channel {}", places[0]);
    Ok((
        figures,
        vec![curve_of(
            title,
            "channel",
            "dB of the tone",
            curve,
            vec![-53.0],
        )],
    ))
}

fn curve_of(
    title: String,
    across: &str,
    up: &str,
    points: Vec<(f64, f64)>,
    limits: Vec<f64>,
) -> Curve {
    Curve {
        title,
        across: across.to_owned(),
        up: up.to_owned(),
        points,
        limits,
    }
}

/// Half of the offsets at which a channel is looked at, in 128ths of its width.
const OFFSETS: i64 = 192;
/// Channels between two tones of a run.
const APART: usize = 16;

/// The response of a channel over the offset from its centre.
pub(super) fn shape(chain: &Chain, subject: &Subject) -> Measured {
    let channels = subject.channels();
    // Of narrowband outputs the middle half is flat.
    let places: Vec<usize> = (channels / 4..3 * channels / 4)
        .step_by(APART)
        .take(24)
        .collect();
    let offsets: Vec<i64> = (-OFFSETS..=OFFSETS).collect();
    let mut points = Vec::with_capacity(offsets.len());
    for together in offsets.chunks(2 * places.len()) {
        let halves = [0, 1].map(|pol| {
            together
                .iter()
                .skip(pol)
                .step_by(2)
                .copied()
                .collect::<Vec<_>>()
        });
        let amplitude = 0.9 / places.len() as f64;
        let signals = halves.each_ref().map(|offsets| {
            let tones = places.iter().zip(offsets).map(|(&place, &offset)| {
                let channel = place as f64 + offset as f64 / 128.0;
                format!("cw({amplitude}, {})", subject.frequency(channel))
            });
            let tones: Vec<_> = tones.collect();
            if tones.is_empty() {
                "0".to_owned()
            } else {
                tones.join(" + ")
            }
        });
        // All runs have the same gain by a tone in the centre of a channel.
        let marked = channels / 4 - channels / 8;
        let mark = format!("cw({amplitude}, {})", subject.frequency(marked as f64));
        let signals = format!("{} + {mark}; {} + {mark};", signals[0], signals[1]);
        let case = Case {
            bits: 16,
            ..Case::new(subject, signals, SPECTRA)
        };
        let powers = powers(chain, case)?;
        for (pol, offsets) in halves.iter().enumerate() {
            let measured = places.iter().zip(offsets);
            points.extend(measured.map(|(&place, &offset)| {
                let power = decibels(powers[place][pol]) - decibels(powers[marked][pol]);
                (offset as f64 / 128.0, power)
            }));
        }
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let most = points
        .iter()
        .map(|point| point.1)
        .fold(f64::NEG_INFINITY, f64::max);
    points.iter_mut().for_each(|point| point.1 -= most);
    let (half_power, low) = (width(&points, -3.0), width(&points, -53.0));
    let figures = vec![
        Checked::told("width at -3 dB", half_power, "channels"),
        Checked::told("width at -53 dB", low, "channels"),
        Checked::at_most(
            "width at -53 dB over that at -3 dB",
            low / half_power,
            2.0,
            "",
        ),
        Checked::told(
            "response at the edge of the next channel",
            at(&points, 1.5),
            "dB",
        ),
    ];
    let title = "Response of a channel".to_owned();
    Ok((
        figures,
        vec![curve_of(
            title,
            "offset from the centre, in channels",
            "dB",
            points,
            vec![-3.0, -53.0],
        )],
    ))
}

/// The value at the point that is nearest.
fn at(points: &[(f64, f64)], across: f64) -> f64 {
    let near = |point: &&(f64, f64)| (point.0 - across).abs();
    let nearest = points.iter().min_by(|a, b| near(a).total_cmp(&near(b)));
    nearest.map_or(f64::NAN, |point| point.1)
}

/// From the first to the last place at which the curve is at `level`; beyond the points it is as if
/// it ended there.
fn width(points: &[(f64, f64)], level: f64) -> f64 {
    let above = |point: &(f64, f64)| point.1 >= level;
    let (Some(first), Some(last)) = (
        points.iter().position(above),
        points.iter().rposition(above),
    ) else {
        return f64::NAN;
    };
    let between = |a: (f64, f64), b: (f64, f64)| a.0 + (b.0 - a.0) * (level - a.1) / (b.1 - a.1);
    let left = match first.checked_sub(1) {
        Some(before) => between(points[before], points[first]),
        None => f64::NEG_INFINITY,
    };
    let right = match points.get(last + 1) {
        Some(&behind) => between(points[last], behind),
        None => f64::INFINITY,
    };
    right - left
}

/// Channels around a tone of which `floor` does not speak.
const NEAR: usize = 16;

/// What channels far from a tone hear of it.
pub(super) fn floor(chain: &Chain, subject: &Subject) -> Measured {
    let channels = subject.channels();
    let places = [channels / 3, channels / 2 + channels / 8];
    let tone = |place: usize| format!("cw(0.99, {})", subject.frequency(place as f64));
    let signals = format!("{}; {};", tone(places[0]), tone(places[1]));
    let case = Case {
        bits: 16,
        ..Case::new(subject, signals, 8 * SPECTRA)
    };
    let mut turns = [Complex64::new(1.0, 0.0); 2];
    let mut heard = vec![[0.0; 2]; channels];
    passes(chain, case, 4, |spectra, gain| {
        if gain == 1.0 {
            turns = [0, 1].map(|pol| turn(spectra, places[pol], pol));
        }
        for (channel, heard) in heard.iter_mut().enumerate() {
            for pol in [0, 1] {
                if spectra.largest(channel, pol) < FULL || gain == 1.0 {
                    heard[pol] = coherent(spectra, channel, pol, turns[pol]) / gain.powi(2);
                }
            }
        }
    })?;
    let (mut most, mut curve) = (f64::NEG_INFINITY, Vec::new());
    for (pol, &place) in places.iter().enumerate() {
        let tone = decibels(heard[place][pol]);
        for (channel, heard) in heard.iter().enumerate() {
            let leaks = decibels(heard[pol]) - tone;
            if channel.abs_diff(place) > NEAR {
                most = most.max(leaks);
            }
            if pol == 0 {
                curve.push((channel as f64, leaks.max(-180.0)));
            }
        }
    }
    let figures = vec![Checked::at_most(
        "most that a far channel hears of the tone",
        most,
        -120.0,
        "dB",
    )];
    let title = format!("What channels hear of a tone in channel {}", places[0]);
    Ok((
        figures,
        vec![curve_of(
            title,
            "channel",
            "dB of the tone",
            curve,
            vec![-120.0],
        )],
    ))
}

/// By how much the phase of a channel turns from one spectrum to the next.
fn turn(spectra: &Spectra, channel: usize, pol: usize) -> Complex64 {
    let values: Vec<_> = wide(spectra, channel, pol).collect();
    let sum: Complex64 = values.windows(2).map(|pair| pair[1] * pair[0].conj()).sum();
    sum / sum.norm().max(f64::MIN_POSITIVE)
}

fn wide(spectra: &Spectra, channel: usize, pol: usize) -> impl Iterator<Item = Complex64> {
    let values = spectra.channel(channel).iter();
    values.map(move |pair| Complex64::new(pair[pol].re.into(), pair[pol].im.into()))
}

/// Power of what turns by `turn` from one spectrum to the next.
fn coherent(spectra: &Spectra, channel: usize, pol: usize, turn: Complex64) -> f64 {
    let mut back = Complex64::new(1.0, 0.0);
    let mut sum = Complex64::new(0.0, 0.0);
    for value in wide(spectra, channel, pol) {
        sum += value * back;
        back *= turn.conj();
    }
    (sum / spectra.count() as f64).norm_sqr()
}

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
    let mut folded = Vec::new();
    let (mut places_of_folded, marked) = (places.iter().copied().skip(1), places[0]);
    for fold in -64i32..64 {
        let Some(&place) = places_of_folded.clone().next().as_ref() else {
            break;
        };
        let frequency = subject.frequency(place as f64) + f64::from(fold) * output;
        if fold != 0 && frequency > 0.02 * nyquist && frequency < 0.98 * nyquist {
            folded.push((place, frequency));
            places_of_folded.next();
        }
    }
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
    let powers = powers(chain, case)?;
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

/// Slope of the line that fits points best.
pub(super) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut over, mut under) = (0.0, 0.0);
    for point in points {
        over += (point.0 - x) * (point.1 - y);
        under += (point.0 - x).powi(2);
    }
    over / under
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_between_the_outermost_places_at_a_level() {
        let triangle: Vec<_> = (-20i32..=20)
            .map(|i| (f64::from(i) / 10.0, -30.0 * f64::from(i.abs()) / 10.0))
            .collect();
        assert!((width(&triangle, -3.0) - 0.2).abs() < 1e-12);
        assert!((width(&triangle, -45.0) - 3.0).abs() < 1e-12);
        // Beyond what was looked at it is not known to end.
        assert_eq!(width(&triangle, -90.0), f64::INFINITY);
        assert!(width(&triangle, 3.0).is_nan());
    }

    #[test]
    fn lines_have_their_slopes() {
        let line: Vec<_> = (0..9)
            .map(|x| (f64::from(x), 3.0 - 0.25 * f64::from(x)))
            .collect();
        assert!((slope(&line) + 0.25).abs() < 1e-12);
    }

    #[test]
    fn the_strongest_channel_and_the_next_are_found() {
        let powers = [[1.0, 0.0], [100.0, 5.0], [0.1, 500.0], [10.0, 0.5]];
        assert_eq!(peak(&powers, 0), (1, -10.0));
        assert_eq!(peak(&powers, 1).0, 2);
        assert!((peak(&powers, 1).1 + 20.0).abs() < 1e-9);
    }
}

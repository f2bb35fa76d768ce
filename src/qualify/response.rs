//! What channels hear of tones.

use super::Measured;
use super::chain::{Case, Chain, FIRST_GAIN};
use super::numbers::decibels;
use super::subject::Subject;
use super::tones::{calibrated, coherent, peak, powers, turn, unclipped};
use crate::report::qualification::{Checked, Curve};

/// Spectra of a run with tones.
const SPECTRA: u64 = 96;

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
        let (powers, _) = powers(chain, Case::new(subject, signals, SPECTRA))?;
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

/// A curve with the limits that its points have to keep.
pub(super) fn curve_of(
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
const APART: usize = 8;

/// Amplitude of each of so many tones and of the mark, which together must not clip: what clips is
/// heard in all channels.
fn amplitude(tones: usize) -> f64 {
    0.9 / (tones + 1) as f64
}

/// The response of a channel over the offset from its centre.
pub(super) fn shape(chain: &Chain, subject: &Subject) -> Measured {
    let channels = subject.channels();
    // Of narrowband outputs the middle half is flat.
    let places: Vec<usize> = (channels / 4..3 * channels / 4)
        .step_by(APART)
        .take(48)
        .collect();
    let offsets: Vec<i64> = (-OFFSETS..=OFFSETS).collect();
    let mut points = Vec::with_capacity(offsets.len());
    // Successive sets of tones have the same level.
    let mut gain = FIRST_GAIN;
    for together in offsets.chunks(2 * places.len()) {
        let halves = [0, 1].map(|pol| {
            together
                .iter()
                .skip(pol)
                .step_by(2)
                .copied()
                .collect::<Vec<_>>()
        });
        let amplitude = amplitude(places.len());
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
            gain,
            ..Case::new(subject, signals, SPECTRA)
        };
        let powers;
        (powers, gain) = self::powers(chain, case)?;
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

/// From the first to the last place at which the curve is at `level`. What is above it at the first
/// or last point goes to that point: it is at least as wide.
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
        None => points[first].0,
    };
    let right = match points.get(last + 1) {
        Some(&behind) => between(points[last], behind),
        None => points[last].0,
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
    let (case, first) = calibrated(chain, case)?;
    let turns = [0, 1].map(|pol| turn(&first, places[pol], pol));
    let heard = unclipped(chain, &case, first, 4, |spectra, channel, pol| {
        coherent(spectra, channel, pol, turns[pol])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tones_and_their_mark_do_not_clip_however_few_they_are() {
        for tones in 1..=48 {
            let highest = amplitude(tones) * (tones + 1) as f64;
            assert!((0.8..1.0).contains(&highest), "{tones}: {highest}");
        }
    }

    #[test]
    fn widths_are_between_the_outermost_places_at_a_level() {
        let triangle: Vec<_> = (-20i32..=20)
            .map(|i| (f64::from(i) / 10.0, -30.0 * f64::from(i.abs()) / 10.0))
            .collect();
        assert!((width(&triangle, -3.0) - 0.2).abs() < 1e-12);
        assert!((width(&triangle, -45.0) - 3.0).abs() < 1e-12);
        // It is not known to end where it was looked at.
        assert_eq!(width(&triangle, -90.0), 4.0);
        assert!(width(&triangle, 3.0).is_nan());
    }
}

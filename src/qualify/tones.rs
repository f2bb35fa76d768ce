//! Runs with tones: gains that suit, and powers beyond the range of 8 bits.

use num_complex::Complex64;

use super::chain::{Case, Chain, QualifyError, Spectra};
use super::numbers::decibels;

/// How far apart gains of successive runs are.
const STEP: f64 = 100.0;
/// Counts that the strongest tone is brought to.
const LEVEL: f64 = 100.0;
/// The largest part of a value.
const FULL: f32 = 127.0;

/// A case whose gain brings the strongest value to [`LEVEL`], beginning with the one that it has.
pub(super) fn calibrated<'a>(
    chain: &Chain,
    mut case: Case<'a>,
) -> Result<(Case<'a>, Spectra), QualifyError> {
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

/// What `power` makes of each channel and polarisation, over so many runs whose gains are higher
/// and higher: of each the last run in which nothing clips, beside the gain of the first. `case`
/// and `first` are what [`calibrated`] gave.
pub(super) fn unclipped(
    chain: &Chain,
    case: &Case<'_>,
    first: Spectra,
    runs: i32,
    power: impl Fn(&Spectra, usize, usize) -> f64,
) -> Result<Vec<[f64; 2]>, QualifyError> {
    let both = |spectra: &Spectra, channel| [0, 1].map(|pol| power(spectra, channel, pol));
    let channels = 0..first.channels();
    let mut powers: Vec<_> = channels.map(|channel| both(&first, channel)).collect();
    drop(first);
    for run in 1..runs {
        let more = STEP.powi(run);
        let gain = case.gain * more;
        let spectra = chain.run(&Case {
            gain,
            ..case.clone()
        })?;
        for (channel, powers) in powers.iter_mut().enumerate() {
            for (pol, kept) in powers.iter_mut().enumerate() {
                if spectra.largest(channel, pol) < FULL {
                    *kept = power(&spectra, channel, pol) / more.powi(2);
                }
            }
        }
    }
    Ok(powers)
}

/// Powers of channels, each of both polarisations, and a gain.
type PowersAndGain = (Vec<[f64; 2]>, f64);

/// Power of each channel and polarisation, without that of rounding, and the gain of the first run.
pub(super) fn powers(chain: &Chain, case: Case<'_>) -> Result<PowersAndGain, QualifyError> {
    let noise = case.subject.rounding_power();
    let (case, first) = calibrated(chain, case)?;
    let powers = unclipped(chain, &case, first, 3, |spectra, channel, pol| {
        (spectra.power(channel, pol) - noise).max(0.0)
    })?;
    Ok((powers, case.gain))
}

/// The channel with the most power, and the most power of the others beside it, in dB.
pub(super) fn peak(powers: &[[f64; 2]], pol: usize) -> (usize, f64) {
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

/// By how much the phase of a channel turns from one spectrum to the next.
pub(super) fn turn(spectra: &Spectra, channel: usize, pol: usize) -> Complex64 {
    let values: Vec<_> = wide(spectra, channel, pol).collect();
    let sum: Complex64 = values.windows(2).map(|pair| pair[1] * pair[0].conj()).sum();
    sum / sum.norm().max(f64::MIN_POSITIVE)
}

/// The values of a channel.
pub(super) fn wide(
    spectra: &Spectra,
    channel: usize,
    pol: usize,
) -> impl Iterator<Item = Complex64> {
    let values = spectra.channel(channel).iter();
    values.map(move |pair| Complex64::new(pair[pol].re.into(), pair[pol].im.into()))
}

/// Power of what turns by `turn` from one spectrum to the next.
pub(super) fn coherent(spectra: &Spectra, channel: usize, pol: usize, turn: Complex64) -> f64 {
    let mut back = Complex64::new(1.0, 0.0);
    let mut sum = Complex64::new(0.0, 0.0);
    for value in wide(spectra, channel, pol) {
        sum += value * back;
        back *= turn.conj();
    }
    (sum / spectra.count() as f64).norm_sqr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_channel_and_the_next_are_found() {
        let powers = [[1.0, 0.0], [100.0, 5.0], [0.1, 500.0], [10.0, 0.5]];
        assert_eq!(peak(&powers, 0), (1, -10.0));
        assert_eq!(peak(&powers, 1).0, 2);
        assert!((peak(&powers, 1).1 + 20.0).abs() < 1e-9);
    }
}

//! Gains, linearity and rounding.

use std::ops::Range;

use num_complex::Complex64;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Measured;
use super::chain::{Case, Chain, QualifyError, Spectra};
use super::numbers::{decibels, largest};
use super::subject::Subject;
use super::tones::calibrated;
use crate::report::qualification::{Checked, Curve};

/// Root mean square of a part, in counts, at which noise is measured: far from rounding, and from
/// clipping.
const RMS: f64 = 24.0;

/// The gain with which noise of a tenth of full scale has a level that suits.
pub(super) fn noise_gain(chain: &Chain, subject: &Subject) -> Result<f64, QualifyError> {
    let mut case = Case::new(subject, "x = wgn(0.1, 7); x; x;".to_owned(), 64);
    for _ in 0..12 {
        let spectra = chain.run(&case)?;
        let band = subject.pass_band();
        let channels = band.len().max(1) as f64;
        let power: f64 = band.map(|channel| spectra.power(channel, 0)).sum();
        let rms = (power / channels / 2.0).sqrt();
        if (0.9 * RMS..1.1 * RMS).contains(&rms) {
            return Ok(case.gain);
        }
        // Beyond the middle of the range levels tell little of gains.
        case.gain *= match rms {
            rms if rms > 50.0 => 0.1,
            rms if rms < 1.0 => 10.0,
            rms => RMS / rms,
        };
    }
    let text = "no gain brings noise to a level between zero and clipping";
    Err(QualifyError::Unexpected(text.to_owned()))
}

/// Gains of any phase, another in each channel.
pub(super) fn gain(chain: &Chain, subject: &Subject) -> Measured {
    let common = noise_gain(chain, subject)? / 2.0;
    let mut dice = ChaCha8Rng::seed_from_u64(1);
    let gains: Vec<Complex64> = (0..subject.channels())
        .map(|_| {
            Complex64::from_polar(
                dice.random_range(0.5..2.0),
                dice.random_range(0.0..std::f64::consts::TAU),
            )
        })
        .collect();
    let words: Vec<_> = gains
        .iter()
        .map(|gain| gain * common)
        .map(|gain| format!("{}{:+}j", gain.re, gain.im))
        .collect();
    let mut case = Case::new(subject, "x = wgn(0.1, 7); x; x;".to_owned(), 256);
    case.gain = common;
    case.requests = Some(format!(
        "0 ?gain {} 1 {}\n",
        subject.name(),
        words.join(" ")
    ));
    let spectra = chain.run(&case)?;
    let errors = subject.pass_band().map(|channel| {
        let (mut over, mut under) = (
            Complex64::new(0.0, 0.0),
            -subject.rounding_power() * spectra.count() as f64,
        );
        for [first, second] in spectra.channel(channel) {
            let product = second * first.conj();
            over += Complex64::new(product.re.into(), product.im.into());
            under += f64::from(first.norm_sqr());
        }
        (channel, (over / under / gains[channel] - 1.0).norm())
    });
    let errors: Vec<_> = errors.collect();
    let most = largest(errors.iter().map(|error| error.1));
    let figures = vec![Checked::at_most(
        "largest error, of the gain",
        most,
        0.1,
        "",
    )];
    let curve = Curve {
        title: "Error of each channel's gain".to_owned(),
        across: "channel".to_owned(),
        up: "of the gain".to_owned(),
        points: errors
            .into_iter()
            .map(|(channel, error)| (channel as f64, error))
            .collect(),
        limits: vec![0.1],
    };
    Ok((figures, vec![curve]))
}

/// Halvings of the amplitude.
const HALVINGS: i32 = 10;

/// A tone at smaller and smaller amplitudes, each brought to the same level.
pub(super) fn linearity(chain: &Chain, subject: &Subject) -> Measured {
    let place = subject.channels() / 2 + 5;
    let mut points = Vec::new();
    for halving in 0..HALVINGS {
        let amplitude = 0.5f64.powi(halving);
        let tone = format!(
            "cw({}, {});",
            0.99 * amplitude,
            subject.frequency(place as f64)
        );
        let (case, spectra) = calibrated(chain, Case::new(subject, format!("{tone} {tone}"), 96))?;
        let power = spectra.power(place, 0) - subject.rounding_power();
        points.push((
            decibels(amplitude.powi(2)),
            decibels(power / case.gain.powi(2)),
        ));
    }
    let first = points[0].1;
    points
        .iter_mut()
        .for_each(|point| point.1 -= first + point.0);
    let square: f64 = points.iter().map(|point| point.1.powi(2)).sum();
    let most = points.iter().map(|point| point.1.abs()).fold(0.0, f64::max);
    let figures = vec![
        Checked::told(
            "root mean square of the errors",
            (square / points.len() as f64).sqrt(),
            "dB",
        ),
        Checked::at_most("largest error", most, 0.5, "dB"),
    ];
    let curve = Curve {
        title: "Error of the amplitude that comes out".to_owned(),
        across: "amplitude that goes in, in dB of full scale".to_owned(),
        up: "dB".to_owned(),
        points,
        limits: vec![-0.5, 0.5],
    };
    Ok((figures, vec![curve]))
}

/// The mean of all parts of noise, and how many of them are zero.
pub(super) fn rounding(chain: &Chain, subject: &Subject) -> Measured {
    let mut case = Case::new(subject, "x = wgn(0.1, 7); x; x;".to_owned(), 256);
    case.gain = noise_gain(chain, subject)? / 4.0;
    let spectra = chain.run(&case)?;
    let parts = Parts::of(&spectra, subject.pass_band());
    let ([real, imaginary], deviation) = parts.means();
    let limit = (5.0 * deviation).max(0.01);
    let (zeros, deviation) = parts.zeros();
    let figures = vec![
        Checked::at_most("mean of real parts", real.abs(), limit, "counts"),
        Checked::at_most("mean of imaginary parts", imaginary.abs(), limit, "counts"),
        Checked::at_most(
            "zeros too many, of those that are due",
            zeros.abs(),
            (5.0 * deviation).max(0.1),
            "",
        ),
    ];
    Ok((figures, Vec::new()))
}

/// Sums over the first polarisation's parts, as many real as imaginary ones.
#[derive(Default)]
struct Parts {
    /// Sums of real and of imaginary parts.
    sums: [f64; 2],
    /// Sum of the squares of all parts.
    squares: f64,
    /// Real parts, or imaginary ones.
    count: f64,
    /// Parts that are zero, and that are one or minus one.
    zeros: f64,
    ones: f64,
}

impl Parts {
    fn of(spectra: &Spectra, channels: Range<usize>) -> Self {
        let mut of = Self::default();
        for channel in channels {
            for [first, _] in spectra.channel(channel) {
                for (sum, part) in of.sums.iter_mut().zip([first.re, first.im]) {
                    *sum += f64::from(part);
                    of.squares += f64::from(part * part);
                    of.zeros += f64::from(u8::from(part == 0.0));
                    of.ones += f64::from(u8::from(part.abs() == 1.0));
                }
                of.count += 1.0;
            }
        }
        of
    }

    /// Means of real and of imaginary parts, and how far either is off by chance.
    fn means(&self) -> ([f64; 2], f64) {
        let deviation = (self.squares / self.count / 2.0 / self.count).sqrt();
        (self.sums.map(|sum| sum / self.count), deviation)
    }

    /// By what share there are more zeros than ones and minus ones let expect of a normal
    /// distribution, and how far that is off by chance. Rounding towards zero has twice as many,
    /// and a mean of zero.
    fn zeros(&self) -> (f64, f64) {
        let power = self.squares / self.count / 2.0;
        let due = self.ones / 2.0 * (0.5 / power).exp();
        let deviation = (1.0 / self.zeros.max(1.0) + 1.0 / self.ones.max(1.0)).sqrt();
        (self.zeros / due - 1.0, deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex32;
    use rand_distr::{Distribution, Normal};

    /// Noise as it is after `quantise`.
    fn noise(quantise: fn(f32) -> f32) -> Spectra {
        let normal = Normal::new(0.0, 6.0f32).unwrap();
        let mut dice = ChaCha8Rng::seed_from_u64(3);
        let mut part = || quantise(normal.sample(&mut dice));
        let channels = (0..64).map(|_| {
            (0..256)
                .map(|_| [Complex32::new(part(), part()); 2])
                .collect()
        });
        Spectra::new(channels.collect(), (0..64).collect())
    }

    #[test]
    fn values_that_are_cut_off_are_told_from_rounded_ones() {
        let off = |quantise| {
            let parts = Parts::of(&noise(quantise), 0..64);
            let (means, deviation) = parts.means();
            let mean = means.map(|mean| mean.abs() / deviation);
            (
                mean[0].min(mean[1]),
                mean[0].max(mean[1]),
                parts.zeros().0.abs(),
            )
        };
        let (_, most, zeros) = off(f32::round);
        assert!(most < 5.0 && zeros < 0.1, "{most}, {zeros}");
        // Towards minus infinity, as integers shift.
        let (least, _, _) = off(f32::floor);
        assert!(least > 5.0, "{least}");
        // Towards zero, as numbers become integers.
        let (_, most, zeros) = off(f32::trunc);
        assert!(most < 5.0 && zeros > 0.9, "{most}, {zeros}");
    }
}

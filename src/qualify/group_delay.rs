//! Group delay: how far the phases of two tones, a little apart in frequency, run away from each
//! other on their way.

use std::f64::consts::TAU;

use num_complex::Complex64;

use super::Measured;
use super::chain::{Case, Chain, QualifyError};
use super::subject::Subject;
use super::tones::calibrated;
use crate::report::qualification::Checked;

/// Tones of a run, in channels of their own, and channels between two.
const TONES: usize = 16;
const APART: usize = 8;
/// Spectra of a run.
const SPECTRA: u64 = 1024;
/// Differences of frequency, in 128ths of a channel: one that leaves no doubt about whole cycles,
/// and one that is fine.
const NEAR: f64 = 1.0;
const FAR: f64 = 85.0;
/// Parts of a spectrum that the delay may be off by: one in so many.
const FINENESS: f64 = 4096.0;

/// The delay of an output's filters, beside the one that sensors tell.
pub(super) fn group_delay(chain: &Chain, subject: &Subject) -> Measured {
    let (about, _) = measured(chain, subject, NEAR)?;
    let (found, again) = measured(chain, subject, FAR)?;
    let found = found + ((about - found) / again).round() * again;
    let wanted = subject.group_delay();
    let limit = subject.spectrum_samples() as f64 / FINENESS;
    let figures = vec![
        Checked::told("group delay", found, "samples"),
        Checked::told("group delay that sensors tell", wanted, "samples"),
        Checked::at_most("error", (found - wanted).abs(), limit, "samples"),
    ];
    Ok((figures, Vec::new()))
}

/// The group delay in samples, by tones so many 128ths of a channel apart, and after how many
/// samples the same delay would be found again.
fn measured(chain: &Chain, subject: &Subject, apart: f64) -> Result<(f64, f64), QualifyError> {
    // Without a filter bank, channels hear far tones.
    let tones = if subject.taps() > 1 { TONES } else { 1 };
    let band = subject.pass_band();
    let reach = ((band.len() / 2).saturating_sub(1) / APART).min(tones / 2);
    let first = subject.channels() / 2 + 1 - reach * APART;
    let places: Vec<usize> = (0..tones).map(|i| first + i * APART).collect();
    let places: Vec<usize> = places.into_iter().filter(|p| band.contains(p)).collect();
    subject.check_channels(&places, 1)?;

    let mut case = Case::new(subject, String::new(), SPECTRA);
    // Frequencies are multiples of this, so that all phases are 0 at each period.
    let step = subject.rate() / case.period as f64;
    let cycles = |channel: usize, offset: f64| {
        let frequency = subject.frequency(channel as f64) + offset / 128.0 * subject.width();
        (frequency / step).round() as u64
    };
    let pairs: Vec<_> = places
        .iter()
        .map(|&place| [cycles(place, -0.5 * apart), cycles(place, 0.5 * apart)])
        .collect();
    let amplitude = 0.9 / places.len() as f64;
    let signal = |pol: usize| {
        let tones = pairs
            .iter()
            .map(|pair| format!("cw({amplitude}, {})", pair[pol] as f64 * step));
        tones.collect::<Vec<_>>().join(" + ")
    };
    case.signals = format!("{}; {};", signal(0), signal(1));
    case.bits = 16;
    // A phase that turns once spreads errors of rounding; it is the same for both.
    let seconds = case.samples as f64 / subject.rate();
    let model = format!("0,0:0.1,{}", TAU / seconds);
    case.delays = Some([model.clone(), model]);

    let (case, spectra) = calibrated(chain, case)?;
    let mut delays = Vec::new();
    let mut again = f64::INFINITY;
    for (&place, pair) in places.iter().zip(&pairs) {
        let between = pair[1] - pair[0];
        let values = spectra.channel(place).iter().zip(&spectra.timestamps);
        let sum: Complex64 = values
            .map(|([one, other], timestamp)| {
                let product = other * one.conj();
                let turns = (between * (timestamp % case.period)) % case.period;
                Complex64::new(product.re.into(), product.im.into())
                    * Complex64::cis(-TAU * turns as f64 / case.period as f64)
            })
            .sum();
        again = case.period as f64 / between as f64;
        delays.push((-sum.arg() / TAU * again, again));
    }
    Ok((mean(&delays), again))
}

/// Mean of delays that are known but for multiples of a step, which is about the same for all.
fn mean(delays: &[(f64, f64)]) -> f64 {
    let Some(&(first, _)) = delays.first() else {
        return f64::NAN;
    };
    let near = delays
        .iter()
        .map(|(delay, step)| delay + ((first - delay) / step).round() * step);
    near.sum::<f64>() / delays.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_on_both_sides_of_half_a_step_have_a_mean_near_them() {
        assert!((mean(&[(49.0, 100.0), (-49.0, 100.0)]) - 50.0).abs() < 1e-12);
        assert!((mean(&[(-1.0, 100.0), (2.0, 100.0)]) - 0.5).abs() < 1e-12);
        assert!(mean(&[]).is_nan());
    }
}

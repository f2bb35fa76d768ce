//! Error rates in white noise, coherent and without any loss.

use crate::rx::ModeVote;
use crate::waveform::Modulation;

/// erfc(x), to some 1e-12 relative: the series of erf for small x, else Lentz's continued fraction
/// (M. Abramowitz, I. Stegun, *Handbook of Mathematical Functions*, 7.1.5 and 7.1.14).
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            let part = term / (2.0 * n + 1.0);
            sum += part;
            if part.abs() < 1e-17 * sum.abs() {
                break;
            }
        }
        return 1.0 - 2.0 / std::f64::consts::PI.sqrt() * sum;
    }
    let mut fraction = x;
    for n in (1..120).rev() {
        fraction = x + f64::from(n) / 2.0 / fraction;
    }
    (-x * x).exp() / std::f64::consts::PI.sqrt() / fraction
}

/// Q(x): the probability that a Gaussian variable exceeds x standard deviations.
fn q(x: f64) -> f64 {
    0.5 * erfc(x / std::f64::consts::SQRT_2)
}

fn ratio(decibels: f64) -> f64 {
    10f64.powf(decibels / 10.0)
}

/// Bit error rate at an Eb/N0 in dB. BPSK, QPSK: Q(√(2 Eb/N0)). Square QAM with Gray codes, exact:
/// K. Cho, D. Yoon, *On the general BER expression of one- and two-dimensional amplitude
/// modulations*, IEEE Trans. Commun. 50(7), 2002.
pub fn bit_error_rate(modulation: Modulation, eb_n0_db: f64) -> f64 {
    let eb_n0 = ratio(eb_n0_db);
    if matches!(modulation, Modulation::Bpsk | Modulation::Qpsk) {
        return q((2.0 * eb_n0).sqrt());
    }
    let (order, bits) = (modulation.order() as f64, modulation.bits());
    let side = 1i64 << (bits / 2);
    let step = (3.0 * bits as f64 * eb_n0 / (2.0 * (order - 1.0))).sqrt();
    let of_bit = |k: u32| -> f64 {
        let half = 1i64 << (k - 1);
        let terms = side - (side >> k);
        (0..terms)
            .map(|j| {
                let place = j as f64 * half as f64 / side as f64;
                let sign = if place as i64 % 2 == 0 { 1.0 } else { -1.0 };
                let weight = half as f64 - (place + 0.5).floor();
                sign * weight * erfc((2.0 * j as f64 + 1.0) * step)
            })
            .sum::<f64>()
            / side as f64
    };
    let levels = bits as u32 / 2;
    (1..=levels).map(of_bit).sum::<f64>() / f64::from(levels)
}

/// Eb/N0 in dB at which theory has a bit error rate; found between −10 and 40 dB.
pub fn required_eb_n0(modulation: Modulation, rate: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 40.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if bit_error_rate(modulation, middle) > rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Probability that the modulation is read wrongly at an Es/N0 in dB, among the original's four:
/// 1 − (1 − 3p² + 2p³)² with p = Q(√(2 Es/N0)) by majority, 1 − (1 − Q(√(6 Es/N0)))² by soft values.
pub fn mode_error_rate(vote: ModeVote, es_n0_db: f64) -> f64 {
    let es_n0 = ratio(es_n0_db);
    let of_bit = match vote {
        ModeVote::Majority => {
            let p = q((2.0 * es_n0).sqrt());
            3.0 * p * p - 2.0 * p * p * p
        }
        ModeVote::Soft => q((6.0 * es_n0).sqrt()),
    };
    1.0 - (1.0 - of_bit).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, golden: f64) -> bool {
        (value / golden - 1.0).abs() < 2e-4
    }

    #[test]
    fn rates_are_the_golden_ones() {
        for modulation in [Modulation::Bpsk, Modulation::Qpsk] {
            let golden = [
                (4.0, 1.2501e-2),
                (6.0, 2.3883e-3),
                (8.0, 1.9091e-4),
                (10.0, 3.8721e-6),
            ];
            for (eb_n0, rate) in golden {
                assert!(near(bit_error_rate(modulation, eb_n0), rate), "{eb_n0}");
            }
        }
        let golden = [
            (6.0, 2.787e-2),
            (8.0, 9.2472e-3),
            (10.0, 1.7542e-3),
            (12.0, 1.3866e-4),
            (14.0, 2.7632e-6),
        ];
        for (eb_n0, rate) in golden {
            assert!(
                near(bit_error_rate(Modulation::Qam16, eb_n0), rate),
                "{eb_n0}"
            );
        }
        let golden = [
            (14.0, 2.910e-2),
            (16.0, 1.2400e-2),
            (18.0, 3.4721e-3),
            (20.0, 5.0531e-4),
            (22.0, 2.6336e-5),
        ];
        for (eb_n0, rate) in golden {
            assert!(
                near(bit_error_rate(Modulation::Qam256, eb_n0), rate),
                "{eb_n0}"
            );
        }
    }

    #[test]
    fn a_rate_leads_back_to_its_ratio() {
        for modulation in Modulation::ALL {
            let rate = bit_error_rate(modulation, 9.3);
            assert!((required_eb_n0(modulation, rate) - 9.3).abs() < 1e-6);
        }
    }

    #[test]
    fn mode_errors_are_those_of_the_reference() {
        let close = |value: f64, golden: f64| (value / golden - 1.0).abs() < 0.05;
        for (es_n0, majority, soft) in [
            (-2.0, 9.1e-2, 5.1e-2),
            (0.0, 3.5e-2, 1.4e-2),
            (3.0, 3.1e-3, 5.4e-4),
        ] {
            assert!(close(mode_error_rate(ModeVote::Majority, es_n0), majority));
            assert!(close(mode_error_rate(ModeVote::Soft, es_n0), soft));
        }
    }
}

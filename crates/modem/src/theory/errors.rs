//! Error rates in white noise.

use crate::waveform::Modulation;

pub(super) fn ratio(decibels: f64) -> f64 {
    10f64.powf(decibels / 10.0)
}

/// Q(x) = ½ erfc(x/√2): the share of a normal law beyond x standard deviations.
pub fn q_function(x: f64) -> f64 {
    libm::erfc(x / std::f64::consts::SQRT_2) / 2.0
}

/// Bits that are wrong, of all, at an Eb/N0 in dB.
///
/// BPSK and QPSK: Q(√(2 Eb/N0)). Square QAM with Gray code, exact [K. Cho, D. Yoon, *On the general
/// BER expression of one- and two-dimensional amplitude modulations*, IEEE Trans. Commun. 50(7),
/// 2002], with m = √M and L = log₂ m:
///
/// P = 1/L Σₖ₌₁..L 1/m Σⱼ₌₀..(1−2⁻ᵏ)m−1 (−1)^⌊j2ᵏ⁻¹/m⌋ (2ᵏ⁻¹ − ⌊j2ᵏ⁻¹/m + ½⌋)
/// erfc((2j+1) √(3 log₂M (Eb/N0) / (2(M−1)))).
pub fn bit_error_rate(modulation: Modulation, eb_n0_db: f64) -> f64 {
    let eb_n0 = ratio(eb_n0_db);
    if matches!(modulation, Modulation::Bpsk | Modulation::Qpsk) {
        return q_function((2.0 * eb_n0).sqrt());
    }
    let bits = modulation.bits() as f64;
    let order = modulation.order() as f64;
    let (side_bits, side) = (modulation.bits() / 2, 1u32 << (modulation.bits() / 2));
    let step = (3.0 * bits * eb_n0 / (2.0 * (order - 1.0))).sqrt();
    let mut sum = 0.0;
    for k in 1..=side_bits as u32 {
        let half = 1u32 << (k - 1);
        for j in 0..side - (side >> k) {
            let sign = match (j * half / side).is_multiple_of(2) {
                true => 1.0,
                false => -1.0,
            };
            // ⌊x + ½⌋ of a fraction with denominator m.
            let rounded = (2 * j * half + side) / (2 * side);
            let weight = f64::from(half) - f64::from(rounded);
            sum += sign * weight * libm::erfc(f64::from(2 * j + 1) * step);
        }
    }
    sum / f64::from(side) / side_bits as f64
}

/// Eb/N0 in dB at which a perfect receiver has a bit error rate. None if it has more at 60 dB, or
/// less at −30 dB, where nearly half of the bits are wrong.
pub fn required_eb_n0(modulation: Modulation, rate: f64) -> Option<f64> {
    let (mut low, mut high) = (-30.0, 60.0);
    let reached = bit_error_rate(modulation, high)..=bit_error_rate(modulation, low);
    if rate <= 0.0 || !reached.contains(&rate) {
        return None;
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        match bit_error_rate(modulation, middle) > rate {
            true => low = middle,
            false => high = middle,
        }
    }
    Some((low + high) / 2.0)
}

/// Symbols that are wrong, of all, at an Es/N0 in dB.
///
/// BPSK: Q(√(2 Es/N0)). Square constellations with m points a side: 1 − (1 − p)²,
/// p = 2 (1 − 1/m) Q(√(3 Es/N0 / (M − 1))).
pub fn symbol_error_rate(modulation: Modulation, es_n0_db: f64) -> f64 {
    let es_n0 = ratio(es_n0_db);
    if modulation == Modulation::Bpsk {
        return q_function((2.0 * es_n0).sqrt());
    }
    let order = modulation.order() as f64;
    let p = 2.0 * (1.0 - 1.0 / order.sqrt()) * q_function((3.0 * es_n0 / (order - 1.0)).sqrt());
    // 1 − (1 − p)², without the loss of digits for small p.
    p * (2.0 - p)
}

/// Frames with an error, of all, at an Es/N0 in dB: in one of the header's 64 or the body's 12 256
/// symbols. There is no coding, so that a frame is whole only if each symbol is.
pub fn frame_error_rate(modulation: Modulation, es_n0_db: f64) -> f64 {
    let header = symbol_error_rate(Modulation::Bpsk, es_n0_db);
    let body = symbol_error_rate(modulation, es_n0_db);
    let whole = crate::waveform::HEADER_SYMBOLS as f64 * (-header).ln_1p()
        + crate::waveform::BODY_SYMBOLS as f64 * (-body).ln_1p();
    -whole.exp_m1()
}

/// Error vector magnitude of a receiver that adds nothing of its own: 1/√(Es/N0).
pub fn ideal_evm(es_n0_db: f64) -> f64 {
    1.0 / ratio(es_n0_db).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::{decide, point};
    use num_complex::Complex64;
    use rand::SeedableRng;
    use rand::distr::Distribution;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn close(found: f64, golden: f64, relative: f64) {
        assert!((found / golden - 1.0).abs() < relative, "{found} {golden}");
    }

    #[test]
    fn rates_beyond_theory_need_no_ratio() {
        for modulation in Modulation::ALL {
            let needed = required_eb_n0(modulation, 0.4).unwrap();
            close(bit_error_rate(modulation, needed), 0.4, 1e-9);
            assert_eq!(required_eb_n0(modulation, 0.5), None);
            assert_eq!(required_eb_n0(modulation, 0.0), None);
            assert!(required_eb_n0(modulation, 1e-12).is_some());
        }
    }

    #[test]
    fn bit_error_rates_are_the_golden_ones() {
        type Golden = (f64, f64, f64);
        // One line of the reference for both.
        let signs: &[Golden] = &[
            (4.0, 1.2501e-2, 1e-4),
            (6.0, 2.3883e-3, 1e-4),
            (8.0, 1.9091e-4, 1e-4),
            (10.0, 3.8721e-6, 1e-4),
        ];
        let rows: [(Modulation, &[Golden]); 4] = [
            (Modulation::Bpsk, signs),
            (Modulation::Qpsk, signs),
            (
                Modulation::Qam16,
                &[
                    (6.0, 2.787e-2, 3e-4),
                    (8.0, 9.2472e-3, 1e-4),
                    (10.0, 1.7542e-3, 1e-4),
                    (12.0, 1.3866e-4, 1e-4),
                    (14.0, 2.7632e-6, 1e-4),
                ],
            ),
            (
                Modulation::Qam256,
                &[
                    (14.0, 2.910e-2, 3e-4),
                    (16.0, 1.2400e-2, 1e-4),
                    (18.0, 3.4721e-3, 1e-4),
                    (20.0, 5.0531e-4, 1e-4),
                    (22.0, 2.6336e-5, 1e-4),
                ],
            ),
        ];
        for (modulation, points) in rows {
            for &(decibels, golden, relative) in points {
                close(bit_error_rate(modulation, decibels), golden, relative);
            }
        }
    }

    /// Points in noise, decided: the formulas' own definition.
    #[test]
    fn rates_are_those_of_points_in_noise() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for (modulation, decibels) in [
            (Modulation::Bpsk, 2.0),
            (Modulation::Qpsk, 5.0),
            (Modulation::Qam16, 12.0),
            (Modulation::Qam64, 18.0),
            (Modulation::Qam256, 23.0),
        ] {
            let deviation = (0.5 / ratio(decibels)).sqrt();
            const COUNT: usize = 60_000;
            let (mut symbols, mut bits) = (0.0, 0.0);
            for k in 0..COUNT {
                let sent = (k % modulation.order()) as u8;
                let mut normal = || -> f64 { StandardNormal.sample(&mut random) };
                let noise = Complex64::new(normal(), normal()) * deviation;
                let wrong =
                    (decide(modulation, point(modulation, sent) + noise) ^ sent).count_ones();
                symbols += f64::from(wrong.min(1));
                bits += f64::from(wrong);
            }
            let count = COUNT as f64;
            let expected = symbol_error_rate(modulation, decibels) * count;
            assert!(
                (symbols - expected).abs() < 5.0 * expected.sqrt(),
                "{modulation}"
            );
            let bits_db = 10.0 * (modulation.bits() as f64).log10();
            let expected =
                bit_error_rate(modulation, decibels - bits_db) * count * modulation.bits() as f64;
            assert!(
                (bits - expected).abs() < 6.0 * expected.sqrt(),
                "{modulation}"
            );
        }
    }

    #[test]
    fn frames_fail_when_a_symbol_does() {
        assert!(frame_error_rate(Modulation::Qam256, 0.0) > 0.999_999);
        let expected = 12_320.0 * symbol_error_rate(Modulation::Bpsk, 12.0);
        close(frame_error_rate(Modulation::Bpsk, 12.0), expected, 1e-3);
        close(ideal_evm(20.0), 0.1, 1e-12);
    }
}

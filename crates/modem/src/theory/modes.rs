//! How often a perfect receiver reads a modulation wrongly.

use super::errors::{q_function, ratio};
use crate::rx::ModeVote;
use crate::waveform::{ModeSet, Modulation, mode_by_majority};

/// Step of sums over a normal law, in standard deviations of a header symbol's noise: sums of a
/// smooth function are as good as integrals long before steps are so small.
const STEP: f64 = 0.2;
/// Standard deviations beyond which nothing is summed: 2e-19 of a normal law.
const SPAN: f64 = 9.0;

/// Frames whose modulation is decided wrongly, of all, at an Es/N0 in dB, if the receiver expects
/// the modulations of `modes`.
///
/// Among the original's it is 1 − (1 − 3p² + 2p³)² by majority with p = Q(√(2 Es/N0)), and
/// 1 − (1 − Q(√(6 Es/N0)))² by soft values, whichever is sent. With 64-QAM among them it depends on
/// the one that is sent: a sum over all mode bytes by majority; by soft values an integral, since
/// 64-QAM shares header symbols with each of the others.
pub fn mode_error_rate(
    vote: ModeVote,
    modes: ModeSet,
    modulation: Modulation,
    es_n0_db: f64,
) -> f64 {
    let es_n0 = ratio(es_n0_db);
    match (vote, modes) {
        (ModeVote::Majority, _) => by_majority(modes, modulation, q_function((2.0 * es_n0).sqrt())),
        (ModeVote::Soft, ModeSet::Cyclops) => {
            let bit = q_function((6.0 * es_n0).sqrt());
            bit * (2.0 - bit)
        }
        (ModeVote::Soft, ModeSet::WithQam64) => by_soft_values(modulation, (0.5 / es_n0).sqrt()),
    }
}

/// The sum over bytes that are read wrongly, of which each bit is wrong with probability `p`.
fn by_majority(modes: ModeSet, modulation: Modulation, p: f64) -> f64 {
    let sent = modulation.mode_byte();
    let wrong = (0..=u8::MAX).filter(|flips| mode_by_majority(sent ^ flips, modes) != modulation);
    let chance = |flips: u8| {
        let count = flips.count_ones() as i32;
        p.powi(count) * (1.0 - p).powi(8 - count)
    };
    wrong.map(chance).sum()
}

/// A sum of `count` header symbols that were sent as 1 with noise of `deviation`.
#[derive(Clone, Copy)]
struct Sum {
    count: f64,
    deviation: f64,
}

impl Sum {
    fn new(count: f64, deviation: f64) -> Sum {
        Sum {
            count,
            deviation: deviation * count.sqrt(),
        }
    }

    fn density(self, x: f64) -> f64 {
        let z = (x - self.count) / self.deviation;
        (-z * z / 2.0).exp() / (self.deviation * std::f64::consts::TAU.sqrt())
    }

    /// Probability to be below `x`.
    fn below(self, x: f64) -> f64 {
        q_function((self.count - x) / self.deviation)
    }
}

/// What one bit of the original's code does: values of x, in steps, with the chance of each, and
/// the chance that the bit is read wrongly where x is so.
struct Bit {
    from: f64,
    values: Vec<(f64, f64)>,
}

/// Each bit of the original's code is sent three times: in two symbols that 64-QAM has inverted
/// where the bit is 1, with the sum a, and in one, b, that it has inverted where the bit is 0. Two
/// more symbols, with the sum e, it has inverted always. All are meant relative to what was sent.
///
/// One of the original's is read rightly if a + b > 0 for both bits, and against 64-QAM if
/// x + y + e > 0, where x and y are the bits' a for a 1 and b for a 0. 64-QAM is read rightly if
/// that holds for x = min(a, b), and y likewise, the nearest of the others.
fn by_soft_values(modulation: Modulation, deviation: f64) -> f64 {
    let (a, b) = (Sum::new(2.0, deviation), Sum::new(1.0, deviation));
    let step = STEP * deviation;
    let bit = |mask: u8| {
        let one = modulation.mode_byte() & mask != 0;
        let (shared, other) = if one { (a, b) } else { (b, a) };
        let (from, to) = match modulation {
            Modulation::Qam64 => {
                let low = |sum: Sum| sum.count - SPAN * sum.deviation;
                (low(a).min(low(b)), b.count + SPAN * b.deviation)
            }
            _ => {
                let half = SPAN * shared.deviation;
                (shared.count - half, shared.count + half)
            }
        };
        let value = |i: usize| {
            let x = from + step * i as f64;
            match modulation {
                Modulation::Qam64 => {
                    let above = |sum: Sum| sum.below(2.0 * sum.count - x);
                    let least = a.density(x) * above(b) + b.density(x) * above(a);
                    (step * least, 0.0)
                }
                _ => (step * shared.density(x), other.below(-x)),
            }
        };
        let count = ((to - from) / step).ceil() as usize;
        let values = (0..=count).map(value).collect();
        Bit { from, values }
    };
    let (x, y) = (bit(0b01_0101), bit(0b10_1010));
    let sums = x.values.len() + y.values.len();
    let qam64: Vec<f64> = (0..sums)
        .map(|i| a.below(-(x.from + y.from + step * i as f64)))
        .collect();
    let mut wrong = 0.0;
    for (i, (chance, first)) in x.values.iter().enumerate() {
        for (k, (other, second)) in y.values.iter().enumerate() {
            let good = 1.0 - first;
            let any = first + good * (second + (1.0 - second) * qam64[i + k]);
            wrong += chance * other * any;
        }
    }
    wrong.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::mode_by_soft_values;
    use rand::SeedableRng;
    use rand::distr::Distribution;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    #[test]
    fn mode_errors_are_those_of_the_reference() {
        let rows = [
            (-2.0, 9.1e-2, 5.1e-2),
            (0.0, 3.5e-2, 1.4e-2),
            (2.0, 8.2e-3, 2.0e-3),
            (3.0, 3.1e-3, 5.4e-4),
            (4.0, 9.3e-4, 1.0e-4),
            (6.0, 3.4e-5, 1.0e-6),
        ];
        for (decibels, majority, soft) in rows {
            for modulation in Modulation::CYCLOPS {
                for (vote, golden) in [(ModeVote::Majority, majority), (ModeVote::Soft, soft)] {
                    let found = mode_error_rate(vote, ModeSet::Cyclops, modulation, decibels);
                    assert!((found / golden - 1.0).abs() < 0.05, "{found} {golden}");
                }
            }
        }
    }

    /// Header symbols in noise, read as the receiver reads them.
    #[test]
    fn mode_errors_are_those_of_headers_in_noise() {
        const COUNT: usize = 20_000;
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for decibels in [-3.0f64, 0.0, 2.0] {
            let deviation = (0.5 / 10f64.powf(decibels / 10.0)).sqrt();
            for modulation in Modulation::ALL {
                let (mut soft, mut majority) = (0.0, 0.0);
                for _ in 0..COUNT {
                    let values: [f64; 8] = std::array::from_fn(|i| {
                        let sent = 1.0 - 2.0 * f64::from(modulation.mode_byte() >> i & 1);
                        let normal: f64 = StandardNormal.sample(&mut random);
                        sent + deviation * normal
                    });
                    let byte = (0..8).fold(0, |byte, i| byte | u8::from(values[i] < 0.0) << i);
                    let modes = ModeSet::WithQam64;
                    soft += f64::from(u8::from(mode_by_soft_values(&values, modes) != modulation));
                    majority += f64::from(u8::from(mode_by_majority(byte, modes) != modulation));
                }
                for (vote, found) in [(ModeVote::Soft, soft), (ModeVote::Majority, majority)] {
                    let rate = mode_error_rate(vote, ModeSet::WithQam64, modulation, decibels);
                    let expected = rate * COUNT as f64;
                    assert!(
                        (found - expected).abs() < 4.0 * expected.sqrt(),
                        "{modulation} {decibels} {vote:?}: {found} {expected}"
                    );
                }
            }
        }
    }

    /// Far out an error is one of the nearest: three symbols for a bit, or four for 64-QAM.
    #[test]
    fn rare_mode_errors_are_those_of_the_nearest_bytes() {
        let near = |distance: f64, es_n0: f64| q_function((2.0 * distance * es_n0).sqrt());
        for decibels in [6.0, 12.0] {
            let es_n0 = ratio(decibels);
            let rate = |modulation| {
                mode_error_rate(ModeVote::Soft, ModeSet::WithQam64, modulation, decibels)
            };
            // 0x00 has 0x15 and 0x2a at three and 0xf0 at four.
            let bpsk = 2.0 * near(3.0, es_n0) + near(4.0, es_n0);
            assert!((rate(Modulation::Bpsk) / bpsk - 1.0).abs() < 0.01);
            // 0xf0 has 0x00 at four, 0x15 and 0x2a at five, and 0x3f at six.
            let qam64 = near(4.0, es_n0) + 2.0 * near(5.0, es_n0) + near(6.0, es_n0);
            assert!((rate(Modulation::Qam64) / qam64 - 1.0).abs() < 0.1);
        }
    }
}

//! The mixer of a narrowband output: which phase it has at which ADC timestamp.

use std::f64::consts::TAU;

use num_complex::Complex64;

/// Turns a band's centre down to 0 Hz: sample x\[t\] becomes x\[t\]·e^{2πi·m·t} with m =
/// −`centre_frequency` / `adc_sample_rate`.
///
/// The phase is 0 at ADC timestamp 0 and depends on nothing but t: no delay, no chunk and no
/// restart turns it. m is kept as a binary fraction of 128 bits, the quotient of the two given
/// doubles correct to its last bit, so that for all |t| < 2⁶² the phase is off by less than 2⁻⁶³
/// cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixer {
    /// m mod 1, in units of 2⁻¹²⁸ cycles per sample.
    step: u128,
}

impl Mixer {
    /// The mixer for a band around `centre_frequency` of a signal with `adc_sample_rate`, both in
    /// hertz, finite, and the latter positive.
    pub fn new(centre_frequency: f64, adc_sample_rate: f64) -> Self {
        // Long division: the remainder of two doubles, its double, and a difference of less than
        // twice are exact.
        let mut remainder = centre_frequency.abs() % adc_sample_rate;
        let mut digit = || {
            remainder *= 2.0;
            let one = remainder >= adc_sample_rate;
            if one {
                remainder -= adc_sample_rate;
            }
            u128::from(one)
        };
        let quotient = (0..128).fold(0u128, |quotient, _| quotient << 1 | digit());
        let quotient = quotient.wrapping_add(digit());
        Self {
            step: match centre_frequency > 0.0 {
                true => quotient.wrapping_neg(),
                false => quotient,
            },
        }
    }

    /// Phase at ADC timestamp `t`: m·t mod 1, in units of 2⁻⁶⁴ cycles, rounded down.
    pub fn phase(&self, t: i64) -> u64 {
        (self.step.wrapping_mul(i128::from(t) as u128) >> 64) as u64
    }

    /// m·t mod 1 of m as it is kept, in units of 2⁻¹²⁸ cycles: exactly, so that sums of these are
    /// those of others.
    pub fn exact(&self, t: u64) -> u128 {
        self.step.wrapping_mul(u128::from(t))
    }

    /// By how much the phase advances in `samples`: m·`samples` mod 1, in units of 2⁻⁶⁴ cycles, to
    /// the nearest.
    ///
    /// Adding it n times is off by at most n·2⁻⁶⁵ cycles.
    pub fn advance(&self, samples: usize) -> u64 {
        let step = self.step.wrapping_mul(samples as u128);
        (step.wrapping_add(1 << 63) >> 64) as u64
    }

    /// e^{2πi·m·t}.
    pub fn phasor(&self, t: i64) -> Complex64 {
        phasor(self.phase(t))
    }
}

/// e^{2πi·`phase`/2⁶⁴}.
pub fn phasor(phase: u64) -> Complex64 {
    // As a number in [−½, ½), near 0 of which a double is finest.
    Complex64::cis(TAU / 2f64.powi(64) * (phase as i64) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A double as numerator and power of two.
    fn parts(x: f64) -> (u128, i32) {
        let exponent = (x.to_bits() >> 52 & 0x7FF) as i32;
        let mantissa = x.to_bits() & ((1 << 52) - 1) | 1 << 52;
        (mantissa.into(), exponent - 1075)
    }

    /// 2¹²⁸·f/r mod 2¹²⁸ for integers, digit by digit of 16 bits.
    fn quotient(f: u128, r: u128) -> u128 {
        let mut remainder = f % r;
        (0..8).fold(0, |quotient, _| {
            remainder <<= 16;
            let digit = remainder / r;
            remainder %= r;
            quotient << 16 | digit
        })
    }

    proptest! {
        #[test]
        fn the_phase_is_the_exact_fraction(f in 1.0f64..1e9, rate in 1e9f64..4e9, t in 0i64..1 << 62, back in any::<bool>()) {
            // As integers over a common power of two.
            let ((f_num, f_exp), (r_num, r_exp)) = (parts(f), parts(rate));
            let low = f_exp.min(r_exp);
            let (num, den) = (f_num << (f_exp - low), r_num << (r_exp - low));
            let mixer = Mixer::new(if back { -f } else { f }, rate);
            let truth = quotient(num, den);
            let step = if back { mixer.step } else { mixer.step.wrapping_neg() };
            prop_assert!(step.wrapping_sub(truth) <= 1, "{:x} is not {:x}", step, truth);
            // f·t/rate mod 1 without going through the step: (num·t mod den)/den.
            let (mut product, mut addend, mut left) = (0u128, num % den, t as u128);
            while left > 0 {
                if left & 1 == 1 {
                    product = (product + addend) % den;
                }
                addend = addend * 2 % den;
                left >>= 1;
            }
            let exact = (quotient(product, den) >> 64) as u64;
            let phase = if back { mixer.phase(t) } else { mixer.phase(t).wrapping_neg() };
            let off = phase.wrapping_sub(exact) as i64;
            // Both are rounded down, one of them before its sign was changed.
            prop_assert!(off.abs() <= 2, "off by {} of 2^-64 cycles", off);
            prop_assert_eq!(mixer.phase(-t).wrapping_add(mixer.phase(t)).wrapping_add(1) < 2, true);
        }
    }

    #[test]
    fn a_quarter_of_the_rate_turns_by_quarters() {
        let mixer = Mixer::new(428e6, 1712e6);
        for (t, quarter) in [(0, 0), (1, 3), (2, 2), (3, 1), (1 << 61, 0), (-1, 1)] {
            assert_eq!(mixer.phase(t), quarter << 62, "{t}");
        }
        assert_eq!(mixer.advance(3), 1 << 62);
        assert!((mixer.phasor(1) - Complex64::new(0.0, -1.0)).norm() < 1e-15);
        assert_eq!(Mixer::new(0.0, 1712e6).phase(12345), 0);
        // A band beyond the sample rate is the band that it aliases to.
        assert_eq!(Mixer::new(2140e6, 1712e6), mixer);
    }
}

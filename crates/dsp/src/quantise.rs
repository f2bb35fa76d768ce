//! Quantisation: clamp, flag, round half to even.

use num_complex::Complex32;

/// Largest magnitude of an 8-bit output component. −128 is never produced.
pub const LIMIT_8BIT: f32 = 127.0;

/// Largest magnitude of a 4-bit output component. −8 is never produced.
pub const LIMIT_4BIT: f32 = 7.0;

/// Rounds one component, already dithered, to the nearest integer in ±`limit`, ties to even.
///
/// The flag tells whether clamping changed it: 127.1 counts as clipped although it would round to
/// 127. A NaN becomes 0 and counts as clipped.
pub fn quantise(value: f32, limit: f32) -> (i8, bool) {
    let clamped = value.clamp(-limit, limit);
    (clamped.round_ties_even() as i8, clamped != value)
}

/// [`quantise`] of both parts, `[re, im]`; one flag per complex sample.
pub fn quantise_complex(value: Complex32, limit: f32) -> ([i8; 2], bool) {
    let (re, re_clipped) = quantise(value.re, limit);
    let (im, im_clipped) = quantise(value.im, limit);
    ([re, im], re_clipped | im_clipped)
}

/// Real and imaginary part of a complex sample of 4 bits: the high and the low nibble, two's
/// complement.
pub fn nibbles(byte: u8) -> [i8; 2] {
    [byte as i8 >> 4, (byte << 4) as i8 >> 4]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_go_to_even_and_excess_is_flagged() {
        for (value, expected) in [
            (0.5, (0, false)),
            (1.5, (2, false)),
            (2.5, (2, false)),
            (-0.5, (0, false)),
            (-1.5, (-2, false)),
            (126.5, (126, false)),
            (127.0, (127, false)),
            (127.1, (127, true)),
            (-127.0, (-127, false)),
            (-127.4, (-127, true)),
            (-1e30, (-127, true)),
            (f32::INFINITY, (127, true)),
            (f32::NAN, (0, true)),
        ] {
            assert_eq!(quantise(value, LIMIT_8BIT), expected, "{value}");
        }
        assert_eq!(quantise(7.4, LIMIT_4BIT), (7, true));
        assert_eq!(quantise(-8.0, LIMIT_4BIT), (-7, true));
        assert_eq!(quantise(-6.5, LIMIT_4BIT), (-6, false));
    }

    #[test]
    fn a_complex_sample_is_flagged_once() {
        let q = |re, im| quantise_complex(Complex32::new(re, im), LIMIT_8BIT);
        assert_eq!(q(1.0, 200.0), ([1, 127], true));
        assert_eq!(q(-200.0, 1.0), ([-127, 1], true));
        assert_eq!(q(200.0, 200.0), ([127, 127], true));
        assert_eq!(q(3.0, -4.0), ([3, -4], false));
    }

    proptest! {
        #[test]
        fn nearest_within_the_limit(value in -200.0f32..200.0, wide in any::<bool>()) {
            let limit = if wide { LIMIT_8BIT } else { LIMIT_4BIT };
            let (q, clipped) = quantise(value, limit);
            prop_assert_eq!(clipped, value.abs() > limit);
            prop_assert!(f32::from(q).abs() <= limit);
            if !clipped {
                prop_assert!((f32::from(q) - value).abs() <= 0.5);
            }
        }
    }
}

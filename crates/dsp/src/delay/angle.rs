//! Angles in [−π, π).

use std::f64::consts::{PI, TAU};

/// The angle in [−π, π) that differs from `a` by a multiple of 2π; `a` itself where it is in the
/// range.
pub fn wrap_angle(a: f64) -> f64 {
    if (-PI..PI).contains(&a) {
        return a;
    }
    let wrapped = turn_remainder(a + PI) - PI;
    // The remainder of a tiny negative number may round up to 2π itself.
    if wrapped >= PI { -PI } else { wrapped }
}

/// `a.rem_euclid(TAU)` to the last bit. The general algorithm takes a division per bit of the
/// quotient; phases of delay models are a few turns.
fn turn_remainder(a: f64) -> f64 {
    /// Quotients up to this have exact products with both parts of 2π.
    const MOST: f64 = (1 << 20) as f64;
    const LOW_BITS: u32 = 21;
    const HIGH: f64 = f64::from_bits(TAU.to_bits() >> LOW_BITS << LOW_BITS);
    const LOW: f64 = TAU - HIGH;
    let turns = (a.abs() / TAU).trunc();
    if turns >= MOST {
        return a.rem_euclid(TAU);
    }
    // A remainder has no more bits than what it is of, so both subtractions are exact.
    let after = |turns: f64| (a.abs() - turns * HIGH) - turns * LOW;
    let remainder = match after(turns) {
        // The quotient was rounded up to a whole number.
        less if less < 0.0 => after(turns - 1.0),
        remainder => remainder,
    };
    match a < 0.0 && remainder > 0.0 {
        true => TAU - remainder,
        false => remainder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn angles_wrap() {
        for a in [0.0, 1.0, 1.1] {
            assert_eq!(wrap_angle(a), a);
            assert_eq!(wrap_angle(-a), -a);
        }
        for (a, expected) in [(4.0, 4.0 - TAU), (10.0, 10.0 - 2.0 * TAU)] {
            assert!((wrap_angle(a) - expected).abs() < 1e-12);
            assert!((wrap_angle(-a) + expected).abs() < 1e-12);
        }
        assert_eq!(wrap_angle(PI), -PI);
    }

    proptest! {
        #[test]
        fn remainders_are_exact(turns in 0u32..1 << 21, near in -1.0f64..1.0, ulps in -3i64..4, a in any::<f64>()) {
            let multiple = f64::from(turns) * TAU;
            let at = |a: f64, ulps: i64| f64::from_bits(a.to_bits().wrapping_add_signed(ulps));
            for a in [multiple + near * TAU, at(multiple, ulps), at(multiple + PI, ulps), near, a] {
                for a in [a, -a] {
                    let expected = a.rem_euclid(TAU);
                    let got = turn_remainder(a);
                    prop_assert!(got == expected || got.is_nan() && expected.is_nan(), "{}: {} {}", a, got, expected);
                }
            }
        }
    }
}

//! Numbers of twice a double's precision: the sum of two that do not overlap.
//!
//! M. Joldeș, J.-M. Muller and V. Popescu, "Tight and rigorous error bounds for basic building
//! blocks of double-word arithmetic", ACM Trans. Math. Softw. 44 (2017): algorithms 6, 10 and 17,
//! with relative errors of at most 2⁻¹⁰⁰. They hold for finite results of which neither part over-
//! or underflows.

use std::ops::{Add, Div, Mul, Sub};

/// `high + low`, |`low`| at most half of a unit in the last place of `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Double {
    high: f64,
    low: f64,
}

/// a + b, exactly.
fn sum(a: f64, b: f64) -> Double {
    let high = a + b;
    let a_part = high - b;
    let b_part = high - a_part;
    Double {
        high,
        low: (a - a_part) + (b - b_part),
    }
}

/// a + b, exactly, if |a| ≥ |b| or a = 0.
fn ordered_sum(a: f64, b: f64) -> Double {
    let high = a + b;
    Double {
        high,
        low: b - (high - a),
    }
}

/// a·b, exactly.
fn product(a: f64, b: f64) -> Double {
    let high = a * b;
    Double {
        high,
        low: a.mul_add(b, -high),
    }
}

impl From<f64> for Double {
    fn from(high: f64) -> Self {
        Self { high, low: 0.0 }
    }
}

impl From<Double> for f64 {
    fn from(x: Double) -> Self {
        x.high
    }
}

impl Add for Double {
    type Output = Self;

    fn add(self, y: Self) -> Self {
        let (high, low) = (sum(self.high, y.high), sum(self.low, y.low));
        let middle = ordered_sum(high.high, high.low + low.high);
        ordered_sum(middle.high, low.low + middle.low)
    }
}

impl Sub for Double {
    type Output = Self;

    fn sub(self, y: Self) -> Self {
        let negative = Self {
            high: -y.high,
            low: -y.low,
        };
        self + negative
    }
}

impl Mul for Double {
    type Output = Self;

    fn mul(self, y: Self) -> Self {
        let high = product(self.high, y.high);
        let low = self.high * y.low + self.low * y.high;
        ordered_sum(high.high, high.low + low)
    }
}

impl Div for Double {
    type Output = Self;

    fn div(self, y: Self) -> Self {
        let quotient = self.high / y.high;
        let part = y * quotient.into();
        let rest = (self.high - part.high) + (self.low - part.low);
        ordered_sum(quotient, rest / y.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: i128 = 1 << 53;

    fn exact(x: Double) -> i128 {
        x.high as i128 + x.low as i128
    }

    /// An integer of up to 100 bits, rounded to what two doubles hold.
    fn double(x: i128) -> Double {
        let high = x as f64;
        sum(high, (x - high as i128) as f64)
    }

    proptest! {
        #[test]
        fn integers_are_exact(a in -WHOLE..WHOLE, b in -WHOLE..WHOLE, c in -WHOLE..WHOLE) {
            prop_assert_eq!(exact(double(a) * double(b)), a * b);
            prop_assert_eq!(exact(double((a * WHOLE) >> 8) + double(c)), ((a * WHOLE) >> 8) + c);
            prop_assert_eq!(exact(double((a * WHOLE) >> 8) - double(b)), ((a * WHOLE) >> 8) - b);
        }

        #[test]
        fn quotients_have_a_hundred_bits(a in 1i128..1 << 98, b in 1i128..1 << 98) {
            let back = exact(double(a) / double(b) * double(b));
            prop_assert!((back - a).abs() <= (a >> 96) + 1, "{back} is not {a}");
        }
    }
}

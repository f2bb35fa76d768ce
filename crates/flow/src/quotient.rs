//! Quotients of complex numbers, each as its real and its imaginary part.
//!
//! The textbook's formula squares the divisor. Of numbers far from 1 the square is not there:
//! floats overflow or lose their digits, whole numbers wrap, though the quotient is an ordinary
//! number. Floats take the formula where it holds, as it is fast, and its bits are their quotient.
//! Elsewhere a number is scaled by its larger part, and of a part 2^1022 times smaller nothing is
//! left.

/// Squares of magnitudes of which the formula is right, and that of the other number.
pub(crate) trait Squares: Sized {
    const LEAST: Self;
    const MOST: Self;
}

impl Squares for f32 {
    const LEAST: f32 = f32::from_bits((127 - 100) << 23);
    const MOST: f32 = f32::from_bits((127 + 100) << 23);
}

impl Squares for f64 {
    const LEAST: f64 = f64::from_bits((1023 - 960) << 52);
    const MOST: f64 = f64::from_bits((1023 + 960) << 52);
}

/// A machine type with complex quotients.
pub(crate) trait Quotient: Copy {
    /// What the formula makes of the real or the imaginary part, and whether it is right. Whole
    /// numbers have no other way.
    #[inline(always)]
    fn by_formula<const IMAGINARY: bool>(a: [Self; 2], b: [Self; 2]) -> (Self, bool) {
        (Self::quotient::<IMAGINARY>(a, b), true)
    }

    /// The quotient's real or imaginary part. Whole numbers are cut towards zero and wrap, and are
    /// 0 for a divisor of 0.
    fn quotient<const IMAGINARY: bool>(a: [Self; 2], b: [Self; 2]) -> Self;
}

macro_rules! float {
    ($kind:ident, $far:ident) => {
        impl Quotient for $kind {
            #[inline(always)]
            fn by_formula<const IMAGINARY: bool>(a: [Self; 2], b: [Self; 2]) -> (Self, bool) {
                let part = match IMAGINARY {
                    false => a[0] * b[0] + a[1] * b[1],
                    true => a[1] * b[0] - a[0] * b[1],
                };
                let square = |[re, im]: [Self; 2]| re * re + im * im;
                // Not-a-number is not within.
                let within = |square| (Self::LEAST..=Self::MOST).contains(&square);
                let (dividend, divisor) = (square(a), square(b));
                let zero = (a[0] == 0.0) & (a[1] == 0.0);
                let right = (within(dividend) | zero) & within(divisor);
                (part / divisor, right)
            }

            #[inline(always)]
            fn quotient<const IMAGINARY: bool>(a: [Self; 2], b: [Self; 2]) -> Self {
                match Self::by_formula::<IMAGINARY>(a, b) {
                    (part, true) => part,
                    (part, false) => $far::<IMAGINARY>(a, b).unwrap_or(part),
                }
            }
        }
    };
}

float!(f32, far_single);
float!(f64, far_double);

/// The quotient where the formula may be wrong. None where no numbers help: a divisor of 0, or a
/// part that is no finite number.
#[cold]
fn far_single<const IMAGINARY: bool>(a: [f32; 2], b: [f32; 2]) -> Option<f32> {
    has_quotient(a.map(f64::from), b.map(f64::from)).then(|| {
        // All squares are ordinary numbers there.
        f64::by_formula::<IMAGINARY>(a.map(f64::from), b.map(f64::from)).0 as f32
    })
}

fn has_quotient(a: [f64; 2], b: [f64; 2]) -> bool {
    let finite = a.into_iter().chain(b).all(f64::is_finite);
    finite && b != [0.0; 2]
}

/// The same in double precision: of numbers near 1, by whole powers of two.
#[cold]
fn far_double<const IMAGINARY: bool>(a: [f64; 2], b: [f64; 2]) -> Option<f64> {
    has_quotient(a, b).then(|| {
        let (of_a, of_b) = (exponent(a), exponent(b));
        let near = |parts: [f64; 2], exponent: i32| parts.map(|part| scaled(part, -exponent));
        let (part, _) = f64::by_formula::<IMAGINARY>(near(a, of_a), near(b, of_b));
        scaled(part, of_a - of_b)
    })
}

/// The exponent of the larger part; -1023 of all that is smaller than an ordinary number.
fn exponent(parts: [f64; 2]) -> i32 {
    let larger = parts[0].abs().max(parts[1].abs());
    (larger.to_bits() >> 52) as i32 - 1023
}

/// A number times a power of two from -2046 to 2046: in two steps, as not all are numbers, and so
/// that only the second one may round.
fn scaled(number: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let first = exponent / 2;
    number * power(first) * power(exponent - first)
}

macro_rules! whole {
    ($wide:ident: $($kind:ident),*) => {$(
        impl Quotient for $kind {
            #[inline(always)]
            fn quotient<const IMAGINARY: bool>(a: [Self; 2], b: [Self; 2]) -> Self {
                let (a, b) = (a.map($wide::from), b.map($wide::from));
                let square = b[0] * b[0] + b[1] * b[1];
                let part = match IMAGINARY {
                    false => a[0] * b[0] + a[1] * b[1],
                    true => a[1] * b[0] - a[0] * b[1],
                };
                (if square == 0 { 0 } else { part / square }) as $kind
            }
        }
    )*};
}

// Sums of two products have a bit more than both factors.
whole!(i64: i8, u8, i16, u16);
whole!(i128: i32, u32);

macro_rules! long {
    ($($kind:ident),*) => {$(
        impl Quotient for $kind {
            #[inline(always)]
            fn quotient<const IMAGINARY: bool>(a: [Self; 2], b: [Self; 2]) -> Self {
                whole::<IMAGINARY>(a.map(i128::from), b.map(i128::from)) as $kind
            }
        }
    )*};
}

long!(i64, u64);

/// The real or the imaginary part of the quotient of whole numbers that types of 64 bits have, cut
/// towards zero; 0 for a divisor of 0.
pub(crate) fn whole<const IMAGINARY: bool>(a: [i128; 2], b: [i128; 2]) -> i128 {
    let part = match IMAGINARY {
        false => Long::product(a[0], b[0]).add(Long::product(a[1], b[1])),
        true => Long::product(a[1], b[0]).add(Long::product(a[0], b[1]).negative()),
    };
    part.over(Long::product(b[0], b[0]).add(Long::product(b[1], b[1])))
}

/// A whole number of 129 bits and a sign: two products of numbers of 64 bits may make one.
#[derive(Clone, Copy)]
struct Long {
    negative: bool,
    /// The 129th bit, and all below.
    magnitude: (bool, u128),
}

impl Long {
    fn product(a: i128, b: i128) -> Long {
        let magnitude = a.unsigned_abs() * b.unsigned_abs();
        Long {
            negative: (a < 0) != (b < 0),
            magnitude: (false, magnitude),
        }
    }

    fn negative(self) -> Long {
        Long {
            negative: !self.negative,
            ..self
        }
    }

    /// The sum of two numbers of 128 bits and a sign.
    fn add(self, other: Long) -> Long {
        let ((_, a), (_, b)) = (self.magnitude, other.magnitude);
        if self.negative == other.negative {
            let (sum, over) = a.overflowing_add(b);
            return Long {
                negative: self.negative,
                magnitude: (over, sum),
            };
        }
        Long {
            negative: if a < b { other.negative } else { self.negative },
            magnitude: (false, a.abs_diff(b)),
        }
    }

    /// The quotient, cut towards zero; 0 for a divisor of 0.
    fn over(self, divisor: Long) -> i128 {
        let quotient = match (self.magnitude, divisor.magnitude) {
            (_, (false, 0)) => 0,
            ((false, a), (false, b)) => a / b,
            (a, b) => by_bits(a, b),
        };
        // It has 66 bits at most.
        let quotient = quotient as i128;
        if self.negative { -quotient } else { quotient }
    }
}

/// The quotient of numbers of 129 bits, bit after bit.
fn by_bits((high, low): (bool, u128), divisor: (bool, u128)) -> u128 {
    let bits = std::iter::once(high).chain((0..128).rev().map(|bit| low >> bit & 1 == 1));
    // What is left of the bits so far is less than the divisor: twice that has 130 bits.
    let divisor = (u128::from(divisor.0), divisor.1);
    let (mut quotient, mut rest) = (0u128, (0u128, 0u128));
    for bit in bits {
        rest = (rest.0 << 1 | rest.1 >> 127, rest.1 << 1 | u128::from(bit));
        quotient <<= 1;
        if rest >= divisor {
            let (low, borrow) = rest.1.overflowing_sub(divisor.1);
            rest = (rest.0 - divisor.0 - u128::from(borrow), low);
            quotient |= 1;
        }
    }
    quotient
}

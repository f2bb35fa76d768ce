//! Points of the constellations. Mean power is 1 in each.

use std::f64::consts::FRAC_1_SQRT_2;

use num_complex::Complex64;

use super::Modulation;

/// Column or row with Gray code `gray`: the reverse of i ↦ i xor (i >> 1).
fn from_gray(gray: u8) -> u8 {
    let mut number = gray;
    for shift in [1, 2, 4] {
        number ^= number >> shift;
    }
    number
}

/// The Gray code of a column or row.
fn to_gray(number: u8) -> u8 {
    number ^ (number >> 1)
}

/// What a square constellation's odd integers are divided by: √(2 (M − 1) / 3).
fn scale(modulation: Modulation) -> f64 {
    (2.0 * (modulation.order() as f64 - 1.0) / 3.0).sqrt()
}

/// The point of the integer `symbol`. Bits above those of the modulation are left out.
///
/// BPSK: 1 − 2s. QPSK: ((1 − 2b₀) + j (1 − 2b₁)) / √2. QAM with k bits a side, m = 2ᵏ:
/// (2c − m + 1 + j (m − 1 − 2r)) / √(2 (m² − 1) / 3) with c = gray⁻¹(s >> k) the column from the
/// left and r = gray⁻¹(s mod 2ᵏ) the row from the top.
pub fn point(modulation: Modulation, symbol: u8) -> Complex64 {
    let sign = |bit: u8| 1.0 - 2.0 * f64::from(bit & 1);
    match modulation {
        Modulation::Bpsk => Complex64::new(sign(symbol), 0.0),
        Modulation::Qpsk => Complex64::new(sign(symbol), sign(symbol >> 1)) * FRAC_1_SQRT_2,
        _ => {
            let symbol = usize::from(symbol) & (modulation.order() - 1);
            let side_bits = modulation.bits() / 2;
            let last = f64::from((1u8 << side_bits) - 1);
            let column = f64::from(from_gray((symbol >> side_bits) as u8));
            let row = f64::from(from_gray((symbol & ((1 << side_bits) - 1)) as u8));
            Complex64::new(2.0 * column - last, last - 2.0 * row) / scale(modulation)
        }
    }
}

/// All points, that of integer 0 first.
pub fn points(modulation: Modulation) -> Vec<Complex64> {
    let point = |symbol| point(modulation, symbol as u8);
    (0..modulation.order()).map(point).collect()
}

/// The integer of the nearest point. For what is no number, some integer of the modulation.
pub fn decide(modulation: Modulation, z: Complex64) -> u8 {
    match modulation {
        Modulation::Bpsk => u8::from(z.re < 0.0),
        Modulation::Qpsk => u8::from(z.re < 0.0) | u8::from(z.im < 0.0) << 1,
        _ => {
            let side_bits = modulation.bits() / 2;
            let last = f64::from((1u8 << side_bits) - 1);
            let z = z * scale(modulation);
            // A cast of what is no number is 0.
            let index = |x: f64| (x / 2.0).round().clamp(0.0, last) as u8;
            let (column, row) = (index(z.re + last), index(last - z.im));
            to_gray(column) << side_bits | to_gray(row)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(modulation: Modulation, scale: f64) -> String {
        let integer = |z: Complex64| format!("{:+}{:+}j", z.re.round(), z.im.round());
        let points: Vec<_> = points(modulation)
            .into_iter()
            .take(16)
            .map(|z| integer(z * scale))
            .collect();
        points.join(" ")
    }

    #[test]
    fn points_are_the_golden_ones() {
        assert_eq!(scaled(Modulation::Bpsk, 1.0), "+1+0j -1+0j");
        assert_eq!(
            scaled(Modulation::Qpsk, 2f64.sqrt()),
            "+1+1j -1+1j +1-1j -1-1j"
        );
        assert_eq!(
            scaled(Modulation::Qam16, 10f64.sqrt()),
            "-3+3j -3+1j -3-3j -3-1j -1+3j -1+1j -1-3j -1-1j \
             +3+3j +3+1j +3-3j +3-1j +1+3j +1+1j +1-3j +1-1j"
        );
        assert_eq!(
            scaled(Modulation::Qam256, 170f64.sqrt()),
            "-15+15j -15+13j -15+9j -15+11j -15+1j -15+3j -15+7j -15+5j \
             -15-15j -15-13j -15-9j -15-11j -15-1j -15-3j -15-7j -15-5j"
        );
    }

    #[test]
    fn mean_power_is_one() {
        for modulation in Modulation::ALL {
            let power: f64 = points(modulation).iter().map(|z| z.norm_sqr()).sum();
            assert!((power / modulation.order() as f64 - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn neighbours_differ_in_one_bit() {
        for modulation in Modulation::ALL {
            let points = points(modulation);
            let apart = |a: Complex64, b: Complex64| (a - b).norm();
            let distances = points
                .iter()
                .flat_map(|a| points.iter().map(|b| apart(*a, *b)));
            let least = distances.filter(|d| *d > 1e-9).fold(f64::MAX, f64::min);
            for (i, a) in points.iter().enumerate() {
                for (j, b) in points.iter().enumerate() {
                    if (apart(*a, *b) - least).abs() < 1e-9 {
                        assert_eq!((i ^ j).count_ones(), 1, "{modulation} {i} {j}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_nearest_point_is_decided() {
        for modulation in Modulation::ALL {
            let points = points(modulation);
            for step in 0..4000 {
                let z = Complex64::from_polar(f64::from(step) / 2500.0, f64::from(step) * 0.7);
                let distance = |symbol: u8| (points[usize::from(symbol)] - z).norm();
                let all = 0..=(modulation.order() - 1) as u8;
                let nearest = all.min_by(|a, b| distance(*a).total_cmp(&distance(*b)));
                let decided = decide(modulation, z);
                assert!(distance(decided) <= distance(nearest.unwrap()) + 1e-12);
            }
            decide(modulation, Complex64::new(f64::NAN, f64::INFINITY));
        }
    }
}

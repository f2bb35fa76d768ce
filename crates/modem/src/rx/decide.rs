//! Decisions, soft values, and bytes of decided symbols.

use super::simd::{self, Level};
use super::solve::Planar;
use crate::waveform::{Modulation, pack_bits, point};

/// The nearest points `d` of equalised symbols `z`, and their integers. The number of symbols is a
/// multiple of 16.
pub(crate) fn decide(
    level: Level,
    modulation: Modulation,
    z: Planar,
    d: (&mut [f32], &mut [f32]),
    symbols: &mut [u8],
) {
    match modulation {
        Modulation::Bpsk => simd::decide_signs(level, false, z, d, symbols),
        Modulation::Qpsk => simd::decide_signs(level, true, z, d, symbols),
        Modulation::Qam16 | Modulation::Qam64 | Modulation::Qam256 => {
            let side_bits = modulation.bits() as u32 / 2;
            let scale = (2.0 * (modulation.order() as f64 - 1.0) / 3.0).sqrt() as f32;
            simd::decide_square(level, side_bits, scale, z, d, symbols);
        }
    }
}

/// Joins decided symbols to bytes, the first symbol in the lowest bits.
pub(crate) fn pack(modulation: Modulation, symbols: &[u8]) -> Vec<u8> {
    fn joined<const N: usize>(symbols: &[u8], bits: usize) -> Vec<u8> {
        let join = |group: &[u8; N]| (0..N).fold(0, |byte, i| byte | group[i] << (i * bits));
        symbols.as_chunks::<N>().0.iter().map(join).collect()
    }
    match modulation {
        Modulation::Bpsk => joined::<8>(symbols, 1),
        Modulation::Qpsk => joined::<4>(symbols, 2),
        Modulation::Qam16 => joined::<2>(symbols, 4),
        Modulation::Qam256 => symbols.to_vec(),
        Modulation::Qam64 => {
            let mut bytes = Vec::new();
            pack_bits(symbols, 6, &mut bytes);
            bytes
        }
    }
}

/// Log-likelihood ratios of bits, by the nearest point with the bit 0 and the nearest with it 1:
/// (min₁ |z − a|² − min₀ |z − a|²) · Es/N0 with Es = 1.
pub(crate) struct SoftBits {
    /// Values of the real axis and the bits that each stands for, then those of the imaginary one.
    axes: [Vec<(f32, u8)>; 2],
    /// Which bits of a symbol an axis decides.
    bits: [Vec<u8>; 2],
}

impl SoftBits {
    pub fn new(modulation: Modulation) -> SoftBits {
        let bits = modulation.bits() as u8;
        let side = bits / 2;
        // Bits that the real axis decides: in QPSK the lower one, in QAM the upper half.
        let on_real: Vec<u8> = match modulation {
            Modulation::Bpsk | Modulation::Qpsk => vec![0],
            _ => (side..bits).collect(),
        };
        let on_imaginary: Vec<u8> = (0..bits).filter(|bit| !on_real.contains(bit)).collect();
        let axis = |mask: &[u8], value: fn(num_complex::Complex64) -> f64| {
            let all = 0..modulation.order() as u16;
            all.map(|symbol| symbol as u8)
                .filter(|symbol| mask.iter().fold(*symbol, |rest, bit| rest & !(1 << bit)) == 0)
                .map(|symbol| (value(point(modulation, symbol)) as f32, symbol))
                .collect()
        };
        SoftBits {
            axes: [axis(&on_real, |z| z.re), axis(&on_imaginary, |z| z.im)],
            bits: [on_real, on_imaginary],
        }
    }

    /// Appends the ratios of all bits of each symbol, the least significant bit first. The number
    /// of symbols is a multiple of 16.
    pub fn append(&self, level: Level, ratio: f32, z: Planar, soft: &mut Vec<f32>) {
        let count = self.bits[0].len() + self.bits[1].len();
        let from = soft.len();
        soft.resize(from + count * z.0.len(), 0.0);
        for ((axis, bits), values) in self.axes.iter().zip(&self.bits).zip([z.0, z.1]) {
            simd::soft_axis(level, ratio, axis, bits, values, count, &mut soft[from..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waveform::{decide as nearest, unpack_bits};
    use num_complex::Complex64;

    /// Points all over the plane, with some that are no numbers.
    fn points() -> (Vec<f32>, Vec<f32>) {
        let re = (0..512)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 37.3)
            .collect();
        let mut im: Vec<f32> = (0..512)
            .map(|i| ((i * 53 % 97) as f32 - 48.0) / 35.1)
            .collect();
        im[7] = f32::NAN;
        im[9] = f32::INFINITY;
        (re, im)
    }

    #[test]
    fn decisions_are_those_of_the_waveform() {
        let (re, im) = points();
        for level in Level::available() {
            for modulation in Modulation::ALL {
                let (mut a, mut b) = (vec![0.0; 512], vec![0.0; 512]);
                let mut symbols = vec![0; 512];
                decide(
                    level,
                    modulation,
                    (&re, &im),
                    (&mut a, &mut b),
                    &mut symbols,
                );
                for k in (0..512).filter(|k| im[*k].is_finite()) {
                    let z = Complex64::new(f64::from(re[k]), f64::from(im[k]));
                    assert_eq!(symbols[k], nearest(modulation, z), "{modulation} {z}");
                    let d = Complex64::new(f64::from(a[k]), f64::from(b[k]));
                    assert!((d - point(modulation, symbols[k])).norm() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn symbols_become_the_bytes_they_came_from() {
        for modulation in Modulation::ALL {
            let bytes: Vec<u8> = (0..240u32).map(|i| (i * i + 3 * i) as u8).collect();
            let mut symbols = Vec::new();
            unpack_bits(&bytes, modulation.bits(), &mut symbols);
            assert_eq!(pack(modulation, &symbols), bytes, "{modulation}");
        }
    }

    /// The ratio of a bit by its definition, over all points.
    fn ratio(modulation: Modulation, z: Complex64, bit: usize) -> f64 {
        let nearest_with = |wanted: u8| {
            let symbols = (0..modulation.order() as u16).map(|symbol| symbol as u8);
            let symbols = symbols.filter(|symbol| symbol >> bit & 1 == wanted);
            let distances = symbols.map(|symbol| (z - point(modulation, symbol)).norm_sqr());
            distances.fold(f64::INFINITY, f64::min)
        };
        nearest_with(1) - nearest_with(0)
    }

    #[test]
    fn soft_values_are_those_of_the_definition() {
        let (re, im) = points();
        for level in Level::available() {
            for modulation in Modulation::ALL {
                let soft_bits = SoftBits::new(modulation);
                for es_n0 in [10.0f32, 0.3] {
                    // Behind what is there already.
                    let mut soft = vec![7.0];
                    soft_bits.append(level, es_n0, (&re, &im), &mut soft);
                    assert_eq!(soft.len(), 1 + 512 * modulation.bits());
                    assert_eq!(soft.remove(0), 7.0);
                    assert!(soft.iter().all(|value| value.is_finite()));
                    for k in (0..512).filter(|k| im[*k].is_finite()) {
                        let z = Complex64::new(f64::from(re[k]), f64::from(im[k]));
                        for bit in 0..modulation.bits() {
                            let found = f64::from(soft[k * modulation.bits() + bit]);
                            let wanted = f64::from(es_n0) * ratio(modulation, z, bit);
                            // Squares of up to 4 in single precision.
                            assert!(
                                (found - wanted).abs() < 1e-5 * f64::from(es_n0),
                                "{level}, {modulation}, Es/N0 {es_n0}, {z}, bit {bit}: \
                                 {found}, not {wanted}"
                            );
                        }
                    }
                }
            }
        }
    }
}

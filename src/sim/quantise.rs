//! Quantisation, dither, saturation and packing.

use dsp::SampleBits;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest magnitude of a sample: 2^(b−1) − 1.
pub fn full_scale(bits: SampleBits) -> i32 {
    (1 << (bits.get() - 1)) - 1
}

/// Dither of one polarisation: uniform in [−0.5, 0.5), a function of seed, polarisation and sample
/// index.
pub struct DitherSource {
    generator: ChaCha8Rng,
}

impl DitherSource {
    /// The dither of polarisation `pol`.
    pub fn new(seed: u64, pol: usize) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(pol as u64);
        Self { generator }
    }

    /// Writes the dither from sample index `start` on.
    pub fn fill(&mut self, start: u64, out: &mut [f64]) {
        self.generator.set_word_pos(start.into());
        for value in out {
            *value = f64::from(self.generator.next_u32()) / 4294967296.0 - 0.5;
        }
    }
}

/// One sample, from a value relative to full scale: scaled, dithered, clamped, rounded to nearest
/// even.
#[inline]
pub fn quantise(value: f64, dither: f64, bits: SampleBits) -> i32 {
    let limit = f64::from(full_scale(bits));
    (value * limit + dither)
        .clamp(-limit, limit)
        .round_ties_even() as i32
}

/// Samples at the limits.
pub fn saturated(samples: &[i32], bits: SampleBits) -> usize {
    let limit = full_scale(bits);
    samples
        .iter()
        .filter(|sample| sample.abs() >= limit)
        .count()
}

/// Packs two's-complement samples, most significant bit first, without padding in between; the last
/// byte is filled with zeros.
pub fn pack(samples: &[i32], bits: SampleBits, out: &mut Vec<u8>) {
    let bits = bits.get();
    let mask = (1u64 << bits) - 1;
    let (mut held, mut count) = (0u64, 0);
    for sample in samples {
        held = held << bits | (*sample as u64 & mask);
        count += bits;
        while count >= 8 {
            count -= 8;
            out.push((held >> count) as u8);
        }
    }
    if count > 0 {
        out.push((held << (8 - count)) as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(bits: u32) -> SampleBits {
        SampleBits::new(bits).unwrap()
    }

    #[test]
    fn known_samples() {
        let values = [0.1, -0.2, 0.05, 1.0, -1.0, 1.5, -1.5];
        let plain = values.map(|v| quantise(v, 0.0, bits(10)));
        assert_eq!(plain, [51, -102, 26, 511, -511, 511, -511]);
        let dither = [0.5, -0.4, 0.3, -0.4, -0.4, 0.1, 0.2];
        let dithered: Vec<i32> = values
            .iter()
            .zip(dither)
            .map(|(v, d)| quantise(*v, d, bits(10)))
            .collect();
        assert_eq!(dithered, [52, -103, 26, 511, -511, 511, -511]);
        assert_eq!(quantise(f64::NAN, 0.0, bits(10)), 0);
    }

    #[test]
    fn known_bytes() {
        let packed = |samples: &[i32], width| {
            let mut out = Vec::new();
            pack(samples, bits(width), &mut out);
            out
        };
        // 0000000001 1111111111 0111111111 1000000001
        assert_eq!(
            packed(&[1, -1, 511, -511], 10),
            [0x00, 0x7f, 0xf7, 0xfe, 0x01]
        );
        // 10110 01011 11111 10101 00110 00010 11011 11000, as the bits stand.
        let five = [
            0b10110, 0b01011, 0b11111, 0b10101, 0b00110, 0b00010, 0b11011, 0b11000,
        ];
        assert_eq!(packed(&five, 5), [0xb2, 0xff, 0x53, 0x0b, 0x78]);
        assert_eq!(packed(&[-2], 12), [0xff, 0xe0]);
    }

    #[test]
    fn saturation_counts_both_limits() {
        let counts = [
            [127, -127, 127, 0],
            [126, -126, 0, 1],
            [-127, 127, 3, 4],
            [127; 4],
            [-127; 4],
        ]
        .map(|row| saturated(&row, bits(8)));
        assert_eq!(counts, [3, 0, 2, 4, 4]);
    }

    /// Mean 0 and variance 1/12 within five standard errors, and no order in which it is read
    /// matters.
    #[test]
    fn dither_is_uniform_and_random_access() {
        let mut source = DitherSource::new(1, 0);
        let mut all = vec![0.0; 100_000];
        source.fill(0, &mut all);
        assert!(all.iter().all(|v| (-0.5..0.5).contains(v)));
        let mean = all.iter().sum::<f64>() / 1e5;
        let variance = all.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 5.0 * (1.0f64 / 12.0 / 1e5).sqrt(), "{mean}");
        assert!(
            (variance - 1.0 / 12.0).abs() < 5.0 * (1.0f64 / 180.0 / 1e5).sqrt(),
            "{variance}"
        );
        let mut part = [0.0; 10];
        source.fill(777, &mut part);
        assert_eq!(part, all[777..787]);
        let mut other = [0.0; 10];
        DitherSource::new(1, 1).fill(777, &mut other);
        assert_ne!(part, other);
    }

    proptest! {
        #[test]
        fn packing_keeps_every_bit(width in 2..=16u32, values in proptest::collection::vec(any::<i16>(), 0..50)) {
            let samples: Vec<i32> = values.iter().map(|v| i32::from(*v) >> (16 - width)).collect();
            let mut packed = Vec::new();
            pack(&samples, bits(width), &mut packed);
            prop_assert_eq!(packed.len(), bits(width).bytes(samples.len()));
            let bit = |n: usize| i32::from(packed[n / 8] >> (7 - n % 8) & 1);
            for (n, sample) in samples.iter().enumerate() {
                let start = n * width as usize;
                let value = (start..start + width as usize).fold(0, |value, n| value << 1 | bit(n));
                prop_assert_eq!(value << (32 - width) >> (32 - width), *sample);
            }
        }
    }
}

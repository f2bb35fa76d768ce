//! Packed samples to `f32`.

use dsp::SampleBits;

use super::{Level, Supported, portable};

/// Byte shuffles and shifts for samples that start at one of eight bit positions.
///
/// 16 samples are a whole number of bytes, so one plan serves a whole run of samples.
#[derive(Clone, Debug)]
pub(super) struct ShufflePlan {
    /// Per 32-bit lane, the four bytes that hold its sample, most significant last.
    pub shuffle: [u8; 64],
    /// The same for eight lanes, relative to the start of each half of four.
    pub shuffle_halves: [u8; 32],
    /// Per lane, the bits before the sample.
    pub shift: [u32; 16],
}

impl ShufflePlan {
    fn new(bits: u32, bit: usize) -> Self {
        let bits = bits as usize;
        let mut plan = Self {
            shuffle: [0; 64],
            shuffle_halves: [0; 32],
            shift: [0; 16],
        };
        for lane in 0..16 {
            let start = bit + lane * bits;
            plan.shift[lane] = (start % 8) as u32;
            for i in 0..4 {
                plan.shuffle[4 * lane + i] = (start / 8 + 3 - i) as u8;
            }
        }
        for lane in 0..8 {
            let from = if lane < 4 { 0 } else { bits / 2 };
            for i in 0..4 {
                plan.shuffle_halves[4 * lane + i] = ((bit + lane * bits) / 8 + 3 - i - from) as u8;
            }
        }
        plan
    }
}

/// Unpacks samples of one width.
#[derive(Clone, Debug)]
pub struct Unpacker {
    bits: u32,
    plans: Vec<ShufflePlan>,
    at: Supported,
}

impl Unpacker {
    /// For samples of `bits`, at `level` or the machine's highest below it.
    pub fn new(bits: SampleBits, level: Level) -> Self {
        let bits = bits.get();
        Self {
            bits,
            plans: (0..8).map(|bit| ShufflePlan::new(bits, bit)).collect(),
            at: Supported::new(level),
        }
    }

    /// Unpacks samples `first..first + out.len()` of `packed` and returns Σ x² over them.
    ///
    /// Samples beyond the end of `packed` read as 0. Vector forms are used while 64 bytes are
    /// readable from each 16 samples' start.
    pub fn unpack_power(&self, packed: &[u8], first: usize, out: &mut [f32]) -> u64 {
        self.run::<true>(packed, first, out)
    }

    /// Unpacks samples `first..first + out.len()` of `packed`.
    pub fn unpack(&self, packed: &[u8], first: usize, out: &mut [f32]) {
        self.run::<false>(packed, first, out);
    }

    fn run<const POWER: bool>(&self, packed: &[u8], first: usize, out: &mut [f32]) -> u64 {
        let bit = first * self.bits as usize;
        let packed = packed.get(bit / 8..).unwrap_or_default();
        let bit = bit % 8;
        let count = self.vector_count(packed.len(), out.len());
        let (head, tail) = out.split_at_mut(count);
        let mut power = 0;
        #[cfg(target_arch = "x86_64")]
        if count > 0 {
            let plan = &self.plans[bit];
            let (from, to) = (packed.as_ptr(), head.as_mut_ptr());
            power = match self.at.level() {
                // SAFETY: `Supported` proves the instruction set; `count` is a multiple of 16 that
                // fits `head`, and `vector_count` left 64 readable bytes from each 16 samples'
                // start.
                Level::Avx512 => unsafe {
                    super::avx512::unpack::<POWER>(plan, self.bits, from, to, count)
                },
                // SAFETY: as above.
                Level::Avx2 => unsafe {
                    super::avx2::unpack::<POWER>(plan, self.bits, from, to, count)
                },
                Level::Portable => 0,
            };
        }
        let _ = head;
        let tail_power =
            portable::unpack(packed, bit + count * self.bits as usize, self.bits, tail);
        power += tail_power;
        power
    }

    /// Samples, a multiple of 16, for which every vector load stays inside `bytes`.
    fn vector_count(&self, bytes: usize, samples: usize) -> usize {
        if self.at.level() == Level::Portable || bytes < 64 {
            return 0;
        }
        let step = 2 * self.bits as usize;
        (samples / 16).min((bytes - 64) / step + 1) * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A sample by single bits.
    fn bit_by_bit(packed: &[u8], index: usize, bits: usize) -> i64 {
        let bit = |n: usize| i64::from(packed[n / 8] >> (7 - n % 8) & 1);
        let value = (0..bits).fold(0, |v, i| v << 1 | bit(index * bits + i));
        value - (bit(index * bits) << bits)
    }

    #[test]
    fn golden_bytes() {
        let packed = [0x00, 0x7F, 0xF7, 0xFE, 0x01];
        for level in Level::available() {
            let mut out = [0.0; 4];
            Unpacker::new(SampleBits::new(10).unwrap(), level).unpack(&packed, 0, &mut out);
            assert_eq!(out, [1.0, -1.0, 511.0, -511.0]);
        }
    }

    proptest! {
        #[test]
        fn every_width_alignment_and_level(
            bits in 2u32..=16, first in 0usize..40, count in 0usize..150, padding in 0usize..130, seed: [u8; 32],
        ) {
            let needed = ((first + count) * bits as usize).div_ceil(8);
            let mut packed: Vec<u8> = (0..needed).map(|i| seed[i % 32].wrapping_mul((2 * i + 1) as u8) ^ (i / 32) as u8).collect();
            let expected: Vec<i64> = (0..count).map(|i| bit_by_bit(&packed, first + i, bits as usize)).collect();
            // What follows must not matter.
            packed.resize(needed + padding, 0xA5);
            for level in Level::available() {
                let unpacker = Unpacker::new(SampleBits::new(bits).unwrap(), level);
                let mut out = vec![0.0; count];
                let power = unpacker.unpack_power(&packed, first, &mut out);
                prop_assert_eq!(power, expected.iter().map(|x| (x * x) as u64).sum::<u64>(), "{}", level);
                prop_assert_eq!(out.iter().map(|&x| x as i64).collect::<Vec<_>>(), expected.clone(), "{}", level);
                out.fill(0.5);
                unpacker.unpack(&packed, first, &mut out);
                prop_assert_eq!(out.iter().map(|&x| x as i64).collect::<Vec<_>>(), expected.clone(), "{}", level);
            }
        }
    }
}

//! Packed digitiser samples, one at a time.
//!
//! Samples are two's complement, most significant bit first, without padding: sample n occupies
//! bits n·b … n·b + b − 1 counted from the most significant bit of byte 0. This is the definition;
//! the vectorised unpackers are tested against it.

use crate::SampleBits;

/// Sample `n` of `packed`.
///
/// # Panics
///
/// When `packed` is shorter than [`SampleBits::bytes`]`(n + 1)`.
pub fn sample(packed: &[u8], bits: SampleBits, n: usize) -> i32 {
    let b = bits.get() as usize;
    let mut raw = 0u32;
    for bit in n * b..(n + 1) * b {
        raw = raw << 1 | u32::from(packed[bit / 8] >> (7 - bit % 8) & 1);
    }
    let unused = 32 - bits.get();
    (raw << unused) as i32 >> unused
}

/// All whole samples of `packed`, in order.
pub fn unpack(packed: &[u8], bits: SampleBits) -> impl Iterator<Item = i32> + '_ {
    (0..packed.len() * 8 / bits.get() as usize).map(move |n| sample(packed, bits, n))
}

/// Packs samples; bits beyond the width are cut off, the last byte is filled with zeros.
pub fn pack(samples: impl IntoIterator<Item = i32>, bits: SampleBits) -> Vec<u8> {
    let mut packed = Vec::new();
    // What is not yet a byte, in the lowest bits.
    let (mut waiting, mut count) = (0u32, 0);
    for x in samples {
        let raw = x as u32 & ((1 << bits.get()) - 1);
        waiting = waiting << bits.get() | raw;
        count += bits.get();
        while count >= 8 {
            count -= 8;
            packed.push((waiting >> count) as u8);
        }
    }
    if count > 0 {
        packed.push((waiting << (8 - count)) as u8);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(b: u32) -> SampleBits {
        SampleBits::new(b).expect("2 to 16")
    }

    #[test]
    fn ten_bit_bytes_match_their_bits() {
        let samples = [1, -1, 511, -511];
        // 0000000001 1111111111 0111111111 1000000001
        let packed = [0x00, 0x7F, 0xF7, 0xFE, 0x01];
        assert_eq!(pack(samples, bits(10)), packed);
        assert_eq!(unpack(&packed, bits(10)).collect::<Vec<_>>(), samples);
    }

    #[test]
    fn five_bit_bytes_match_the_reference() {
        let samples = [-10, 11, -1, -11, 6, 2, -5, -8];
        let packed = [0xB2, 0xFF, 0x53, 0x0B, 0x78];
        assert_eq!(pack(samples, bits(5)), packed);
        assert_eq!(unpack(&packed, bits(5)).collect::<Vec<_>>(), samples);
    }

    proptest! {
        #[test]
        fn packing_is_undone(b in 2u32..=16, raw in prop::collection::vec(any::<i32>(), 0..100)) {
            let samples: Vec<i32> = raw.iter().map(|x| x << (32 - b) >> (32 - b)).collect();
            let packed = pack(samples.iter().copied(), bits(b));
            prop_assert_eq!(packed.len(), bits(b).bytes(samples.len()));
            for (n, &x) in samples.iter().enumerate() {
                prop_assert_eq!(sample(&packed, bits(b), n), x);
            }
        }
    }
}

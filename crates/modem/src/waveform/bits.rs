//! Bytes to symbols and back, least significant bit first.

/// Cuts bytes into integers of `bits` bits (1 to 8), in transmission order: the least significant
/// bit of a byte first, and the first bit as an integer's least significant one. Bits that fill no
/// integer at the end are left out.
pub fn unpack_bits(bytes: &[u8], bits: usize, symbols: &mut Vec<u8>) {
    let bits = bits.clamp(1, 8);
    symbols.reserve(bytes.len() * 8 / bits);
    match bits {
        1 => return symbols.extend(bytes.iter().flat_map(|byte| cut::<1, 8>(*byte))),
        2 => return symbols.extend(bytes.iter().flat_map(|byte| cut::<2, 4>(*byte))),
        4 => return symbols.extend(bytes.iter().flat_map(|byte| cut::<4, 2>(*byte))),
        8 => return symbols.extend_from_slice(bytes),
        _ => {}
    }
    let mut rest = bytes;
    if bits == 6 {
        let triples = bytes.chunks_exact(3);
        rest = triples.remainder();
        symbols.extend(triples.flat_map(|triple| {
            let word = u32::from_le_bytes([triple[0], triple[1], triple[2], 0]);
            std::array::from_fn::<u8, 4, _>(|i| (word >> (6 * i)) as u8 & 63)
        }));
    }
    let mask = (1u32 << bits) - 1;
    let (mut held, mut count) = (0u32, 0);
    for &byte in rest {
        held |= u32::from(byte) << count;
        count += 8;
        while count >= bits {
            symbols.push((held & mask) as u8);
            held >>= bits;
            count -= bits;
        }
    }
}

/// The integers of a byte that has a whole number of them.
fn cut<const BITS: usize, const COUNT: usize>(byte: u8) -> [u8; COUNT] {
    const { assert!(BITS * COUNT == 8) };
    std::array::from_fn(|i| byte >> (BITS * i) & (u8::MAX >> (8 - BITS)))
}

/// Joins integers of `bits` bits (1 to 8) to bytes: the reverse of [`unpack_bits`]. Bits that fill
/// no byte at the end are left out.
pub fn pack_bits(symbols: &[u8], bits: usize, bytes: &mut Vec<u8>) {
    let bits = bits.clamp(1, 8);
    let mask = (1u32 << bits) - 1;
    let (mut held, mut count) = (0u32, 0);
    bytes.reserve(symbols.len() * bits / 8);
    for &symbol in symbols {
        held |= (u32::from(symbol) & mask) << count;
        count += bits;
        if count >= 8 {
            bytes.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_significant_bit_goes_out_first() {
        let mut symbols = Vec::new();
        unpack_bits(&[0b0001_0110], 1, &mut symbols);
        assert_eq!(symbols, [0, 1, 1, 0, 1, 0, 0, 0]);
        symbols.clear();
        unpack_bits(&[0x24, 0x40, 0x02], 6, &mut symbols);
        assert_eq!(symbols, [0x24, 0, 0x24, 0]);
    }

    proptest! {
        #[test]
        fn integers_are_those_of_single_bits(bytes: Vec<u8>, bits in 1usize..=8) {
            let mut symbols = Vec::new();
            unpack_bits(&bytes, bits, &mut symbols);
            let bit = |place: usize| bytes[place / 8] >> (place % 8) & 1;
            let integer = |k: usize| (0..bits).map(|i| bit(bits * k + i) << i).sum::<u8>();
            let wanted: Vec<u8> = (0..8 * bytes.len() / bits).map(integer).collect();
            prop_assert_eq!(symbols, wanted);
        }

        #[test]
        fn bytes_come_back(groups in 0usize..40, bits in 1usize..=8, seed: u8) {
            let bytes: Vec<u8> = (0..groups * bits)
                .map(|i| (i as u8).wrapping_mul(37) ^ seed)
                .collect();
            let (mut symbols, mut back) = (Vec::new(), Vec::new());
            unpack_bits(&bytes, bits, &mut symbols);
            prop_assert_eq!(symbols.len(), groups * 8);
            pack_bits(&symbols, bits, &mut back);
            prop_assert_eq!(back, bytes);
        }
    }
}
